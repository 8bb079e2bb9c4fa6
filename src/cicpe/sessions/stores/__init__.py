"""Where campaigns are kept: one SQLite file, or a PostgreSQL server."""

from cicpe.sessions.stores.base import CampaignRecord, Conflict, Store, StoredEvent, StoreError
from cicpe.sessions.stores.opening import default_store, open_store

__all__ = ["CampaignRecord", "Conflict", "Store", "StoreError", "StoredEvent", "default_store", "open_store"]
