"""Names of a package that are imported when they are first used, so that one of them does not cost all the others."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose names live in its modules.

    Args:
        package: Its ``__name__``.
        places: Module of the package -> the names that it gives, with spaces between.

    Returns:
        The three, in this order. For type checkers a package imports the same names under ``TYPE_CHECKING``.
    """
    module_of = {name: module for module, names in places.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)

    names = sorted(module_of)
    return get, lambda: names, names
