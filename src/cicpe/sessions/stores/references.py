"""How a campaign is named by people: by its name or by its id, which cannot be mistaken for one another.

``titan`` and ``name:titan`` are names, ``id:3f2a`` is an id or its first letters. The 32 letters of a whole id are
always an id, and no campaign may be called that. The first letters of an id may be written alone as long as no
campaign has them for a name; otherwise the answer is a refusal and never a guess.
"""

import re
from typing import Literal, NamedTuple

from cicpe.errors import InvalidInput

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_IN_WORDS = "1 to 64 letters, digits, dots, dashes or underscores, no dash or dot first"
WHOLE_ID = re.compile(r"[0-9A-Fa-f]{32}")
SHORTEST = 4
"""Letters of an id that may stand for it."""
SOME_OF_ID = re.compile(rf"[0-9A-Fa-f]{{{SHORTEST},32}}")


class Reference(NamedTuple):
    """What was said of a campaign."""

    kind: Literal["id", "name", "either"]
    text: str

    @property
    def as_name(self) -> str | None:
        """The name that it may mean."""
        return None if self.kind == "id" else self.text

    @property
    def as_id(self) -> str | None:
        """The first letters of the id that it may mean."""
        return None if self.kind == "name" or not SOME_OF_ID.fullmatch(self.text) else self.text.lower()


def read_reference(given: str) -> Reference:
    """What a text says of a campaign; whether there is one, the store knows."""
    kind, colon, rest = given.partition(":")
    if colon and kind == "id":
        return Reference("id", rest)
    if colon and kind == "name":
        return Reference("name", rest)
    return Reference("id" if WHOLE_ID.fullmatch(given) else "either", given)


def check_name(name: str) -> str:
    """A campaign's name: what can be typed without quotes, and is no id."""
    if not NAME.fullmatch(name):
        raise InvalidInput("name", name, NAME_IN_WORDS)
    if WHOLE_ID.fullmatch(name):
        raise InvalidInput("name", name, "a name that does not look like the id of a campaign (32 digits of 0-9a-f)")
    return name
