"""What goes wrong for a user, each as its own exception.

Every one says what was wrong, with which value, and what is allowed. The command line prints the
message and exits with 2; it never shows a traceback for these.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Any


def meant(value: object, known: Iterable[str]) -> str:
    """What was probably meant by a name that is not known.

    Args:
        value: What was typed.
        known: The names that there are.

    Returns:
        "; did you mean a or b?", or nothing where no name is like it.
    """
    close = difflib.get_close_matches(str(value), list(known), n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def refusal(field: str, value: object, allowed: str) -> str:
    """The sentence that refuses a value.

    Args:
        field: What was given.
        value: What it was.
        allowed: What it must be, in words that follow "must be".

    Returns:
        "field must be allowed; got value".
    """
    return f"{field} must be {allowed}; got {value!r}"


def allowed_by(message: str) -> str:
    """What a validation message of pydantic allows.

    Args:
        message: Such as "Input should be greater than 0".

    Returns:
        Words that follow "must be": "greater than 0".
    """
    for start in ("Input should be ", "Value error, must be "):
        if message.startswith(start):
            return message.removeprefix(start)
    size = re.fullmatch(r"\w+ should have (at (?:least|most) \d+ \w+)(?: after validation.*)?", message)
    if size is not None:
        return f"of {size[1]}"
    return {
        "Field required": "given",
        "Extra inputs are not permitted": "left out: there is no such field",
    }.get(message, f"valid: {message.removeprefix('Value error, ')}")


class CicpeError(Exception):
    """Base of every error that a user can cause and mend."""


class InvalidInput(CicpeError, ValueError):
    """A value given to us is not one that we can take.

    Args:
        field: What the user calls it.
        value: What was given.
        allowed: What can be given instead, in words.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(refusal(field, value, allowed))
        self.field = field
        self.value = value
        self.allowed = allowed

    def __reduce__(self) -> tuple[Any, ...]:
        """How it travels between processes: by what it was made of."""
        return type(self), (self.field, self.value, self.allowed)


class Implausible(InvalidInput):
    """A value that is possible, but so unlikely that its sender has to confirm it."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.args = (
            f"{refusal(field, value, allowed)}. A slip, or another unit? If it is right, confirm it "
            "(--yes on the command line, confirm=True in Python)",
        )


class UnknownProblem(InvalidInput):
    """A model's problem is a program of someone's own, and nobody has said where it is."""

    def __init__(self, value: object, allowed: str, place: str) -> None:
        super().__init__("problem", value, allowed)
        self.place = place
        """What to name, as far as the model knows."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.value, self.allowed, self.place)


class ProblemError(CicpeError):
    """A problem's own code (a user's, perhaps) returned something unusable."""


class ModelError(CicpeError):
    """A model cannot be used: missing, truncated, corrupt, from another version, or with weights that overflow."""


class TrainingError(CicpeError):
    """Training cannot go on: its gradients are no numbers any more."""


class CheckpointError(CicpeError):
    """A training checkpoint cannot be written or read."""


class WorkerError(CicpeError):
    """The processes that were to do the work died."""


class UnservedWarning(UserWarning):
    """What was asked for cannot be served as asked; the message says what can, and what would help."""


class SessionError(CicpeError):
    """A session was asked for something that its state does not allow."""
