"""What the command line remembers of a user's campaigns: which was the last, and what was seen of each.

Nothing here is needed: a lost file costs a second, and a name and a step to type. What was seen makes two things
possible. A value is told for the query that its teller has seen, and refused if that is no longer open; where nothing
was seen, or it could not be kept, the teller has to name the step. And ``ask`` answers at once, without the model, as
long as nothing has changed.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Any

from cicpe.files import state_folder, write_json

if TYPE_CHECKING:
    from cicpe.sessions.status import Status

KEPT = 20
"""Campaigns of a store that are remembered."""


class RecentCampaigns:
    """What is remembered of one store."""

    def __init__(self, place: str) -> None:
        self.file = state_folder() / "sessions.json"
        self.store = hashlib.sha256(place.encode()).hexdigest()[:16]  # an address may hold a password

    @property
    def last(self) -> str | None:
        """Id of the campaign that was used last."""
        return next(reversed(self._seen()), None)

    def seen(self, campaign_id: str) -> "Status | None":
        """What was last shown of a campaign."""
        from pydantic import ValidationError

        from cicpe.sessions.status import Status

        try:
            return Status.model_validate(self._seen()[campaign_id])
        except (KeyError, ValidationError):
            return None

    def remember(self, campaign_id: str, status: "Status") -> str | None:
        """Keeps what is being shown of a campaign, which is now the last one used; says why where it cannot."""
        everything = self._read()
        seen = self._seen()
        seen.pop(campaign_id, None)
        seen[campaign_id] = status.model_dump(mode="json")
        everything[self.store] = dict(list(seen.items())[-KEPT:])
        try:
            write_json(self.file, everything)
        except OSError as error:
            return f"{self.file}: {error.strerror or error}"
        return None

    def _seen(self) -> dict[str, Any]:
        seen = self._read().get(self.store)
        return seen if isinstance(seen, dict) else {}

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}
