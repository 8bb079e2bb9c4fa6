"""The tables, the same for every database. ``migrations`` make them; a test holds the two equal."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

VERSION_TABLE = "cicpe_schema"
HEAD = "0001"
"""The revision that this version of the library reads and writes."""

metadata = MetaData()

campaigns = Table(
    "cicpe_campaigns",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("model", Text, nullable=False),
    Column("model_sha256", String(64), nullable=False),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("stop", String(16), nullable=False),
    Column("context", JSON, nullable=False),
    Column("created", String(32), nullable=False),
    Column("version", Integer, nullable=False),
)

events = Table(
    "cicpe_events",
    metadata,
    Column("campaign_id", String(32), ForeignKey("cicpe_campaigns.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("payload", JSON, nullable=False),
    Column("key", String(200)),
    Column("at", String(32), nullable=False),
    UniqueConstraint("campaign_id", "key", name="cicpe_events_key"),
)
