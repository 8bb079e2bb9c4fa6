"""Where downloaded and computed files are kept, and the packages of the extra ``geo``."""

import importlib
import os
from pathlib import Path
from typing import Any

from cicpe.errors import CicpeError, InvalidInput


class DataError(CicpeError):
    """A survey or its fitted fields are missing, or are not what they should be."""


def cache_folder() -> Path:
    """``CICPE_CACHE``, or a folder in the user's cache directory. Everything in it can be made again."""
    folder = os.environ.get("CICPE_CACHE")
    if folder:
        return Path(folder).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "cicpe"


def geo(module: str) -> Any:
    """A module of the extra ``geo``, or an error that names it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        allowed = "installed; it comes with the extra: pip install 'cicpe[geo]'"
        raise InvalidInput("package", module.split(".")[0], allowed) from None
