"""Files that are written whole or not at all, and locks that are waited for in line and not for ever."""

import errno
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final


def read_file(path: Path, most: int | None = None) -> bytes:
    """The content of a plain file; what else may lie there, such as a pipe or a device, would never end.

    Args:
        path: The file.
        most: How many bytes are wanted at most; one more is read where there are more, so that this can be told.

    Returns:
        Its bytes.

    Raises:
        OSError: It is not there, cannot be read, or is no plain file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        return file.read(-1 if most is None else most + 1)


def write_atomic(path: Path, data: bytes) -> None:
    """Writes to a temporary file beside ``path``, flushes it to the disk, then renames it over ``path``.

    Raises OSError (a full disk, say) with the old file untouched and no temporary file left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    # With the permissions of any new file: a model in a shared folder is for others to read.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON, atomically."""
    write_atomic(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def state_folder() -> Path:
    """Where this user's programs remember things between runs; it need not exist."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "cicpe"


def data_folder() -> Path:
    """Where this user's programs keep what is to stay; it need not exist."""
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "cicpe"


def sync_folder(folder: Path) -> None:
    """Flushes the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, patience: float) -> Iterator[None]:
    """Holds the lock of a file, for whoever reads it, decides, and writes it again.

    The file itself is renamed over when it is written, so the lock lies beside it, and is gone afterwards. It ends
    with the process that holds it, however that ends.

    Raises:
        TimeoutError: Someone else has held it for the whole of ``patience``, in seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.parent / f".{path.name}.lock"
    until = time.monotonic() + patience
    while True:
        descriptor = lock_within(beside, max(until - time.monotonic(), 0.0), os.O_RDWR | os.O_CREAT)
        if descriptor is None:
            raise TimeoutError(f"{path} has been held by someone else for {patience:g} seconds")
        if _is_still(beside, descriptor):
            break
        os.close(descriptor)  # whoever held it has taken it away: this one is nobody's lock any more
    try:
        yield
    finally:
        beside.unlink(missing_ok=True)
        os.close(descriptor)


def lock_within(
    path: Path, patience: float, flags: int = os.O_RDONLY, held_up: Callable[[bool], object] = bool
) -> int | None:
    """The descriptor of a file or folder, opened and locked; None where ``patience`` seconds were not enough.

    Whoever waits stands in line with the operating system. A wait that was given up goes on in the background until
    the lock would have been had, and lets it go at once. ``held_up`` is told True when it is given up, and False then.
    """
    import fcntl  # here, because not every system has it

    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor if _Wait(descriptor, held_up).within(patience) else None


@final
class _Wait:
    """Waits for a lock in a thread of its own: there is no other way to wait in line and to give up."""

    def __init__(self, descriptor: int, held_up: Callable[[bool], object]) -> None:
        self._descriptor, self._held_up = descriptor, held_up
        self._deciding, self._had, self._given_up = threading.Lock(), threading.Event(), False
        threading.Thread(target=self._wait, daemon=True, name="cicpe-lock").start()

    def within(self, patience: float) -> bool:
        try:
            if self._had.wait(patience):
                return True
        except BaseException:
            self._give_up()
            raise
        return not self._give_up()

    def _wait(self) -> None:
        import fcntl

        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        with self._deciding:
            if not self._given_up:
                self._had.set()
                return
        os.close(self._descriptor)
        self._held_up(False)

    def _give_up(self) -> bool:
        """Whether there is something to give up: the lock may have been had a moment ago."""
        with self._deciding:
            self._given_up = not self._had.is_set()
            if self._given_up:
                self._held_up(True)
            return self._given_up


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
