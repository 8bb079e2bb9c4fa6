"""What goes wrong for a user, each as its own exception.

Every one says what was wrong, with which value, and what is allowed. The command line prints the
message and exits with 2; it never shows a traceback for these.
"""


class CicpeError(Exception):
    """Base of every error that a user can cause and mend."""


class InvalidInput(CicpeError, ValueError):
    """A value given to us is not one that we can take."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} = {value!r} is not allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class ProblemError(CicpeError):
    """A problem's own code (a user's, perhaps) returned something unusable."""


class ModelError(CicpeError):
    """A saved model cannot be read: missing, truncated, corrupt, or from another version."""


class CheckpointError(CicpeError):
    """A training checkpoint cannot be written or read."""


class SessionError(CicpeError):
    """A session was asked for something that its state does not allow."""
