"""Files that are written whole or not at all."""

import json
import os
import secrets
from pathlib import Path
from typing import Any


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
    _sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON, atomically."""
    write_atomic(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
