"""Words from outside, checked at the door: what is recorded can be shown, sent and exported for ever. No torch here."""

import unicodedata

from cicpe.errors import InvalidInput

LONGEST = 500
"""Letters of a reason, unless another limit is given."""


def check_text(field: str, text: object, most: int = LONGEST) -> str:
    """Text that any database, terminal and JSON document can hold, or an error that names the field."""
    if not isinstance(text, str):
        raise InvalidInput(field, text, "text")
    if len(text) > most:
        raise InvalidInput(field, text[:20] + "...", f"at most {most} letters, not {len(text)}")
    if any(map(_unwritable, text)):
        raise InvalidInput(field, text, "one line of UTF-8 text, without control characters")
    return text


def check_reason(text: str) -> str:
    """Why a query was skipped."""
    return check_text("reason", text)


def shown_text(text: str) -> str:
    """Text that an older version has recorded, with what could not be recorded today replaced or cut off."""
    return "".join("?" if _unwritable(letter) else letter for letter in text)[:LONGEST]


def shown_page(text: str) -> str:
    """A page that someone else has written, with what is neither a letter nor a line's end replaced."""
    return "".join("?" if _unwritable(letter) and letter != "\n" else letter for letter in text)


def unwritable_text(data: object) -> str | None:
    """The first text of a JSON document, names of fields among them, that no terminal should be shown."""
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and any(map(_unwritable, value)):
            return value
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
    return None


def _unwritable(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cs")
