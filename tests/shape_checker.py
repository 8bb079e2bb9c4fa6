"""The checker that every test runs under: shape types say what is so (``--jaxtyping-packages`` in pyproject.toml).

It looks at whatever has a shape type: arguments and results of functions, fields of dataclasses and of named tuples.
Types without a shape are mypy's: tests give wrong ones on purpose, to see them refused in words.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, get_args, no_type_check

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, jaxtyped

strictly = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""A whole number is a ``float``, as it is for mypy."""
_looked_at: set[str] = set()


def has_shape(hint: Any) -> bool:
    """Whether a type is a shape type, or made of one."""
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(map(has_shape, get_args(hint)))


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, checked by beartype where a shape is named in its signature.

    jaxtyping calls it twice: with the arguments alone, and with arguments and result. The sizes of the first call are
    known in the second, so that there the result alone is looked at.
    """
    shapes = shape_hints(function)
    if "return" in shapes:
        shapes = {"return": shapes["return"]}
    if not shapes:
        return function
    function.__annotations__ = shapes
    return strictly(function)


def shape_hints(thing: Any) -> dict[str, Any]:
    """The annotations of a function or a class that name a shape."""
    return {name: hint for name, hint in getattr(thing, "__annotations__", {}).items() if has_shape(hint)}


def check_named_tuple(named_tuple: type) -> None:
    """Checks the fields with a shape whenever one is made: all of them agree on the sizes that they name alike."""
    new = named_tuple.__new__
    new.__annotations__ = shape_hints(named_tuple)
    if new.__annotations__:
        named_tuple.__new__ = staticmethod(jaxtyped(typechecker=check)(new))  # type: ignore[assignment]


def check_new_modules(package: str = "cicpe") -> None:
    """Looks at every module that was imported since the last call: its named tuples, and what need not be checked."""
    for name in sys.modules.keys() - _looked_at:
        _looked_at.add(name)
        if name.partition(".")[0] == package:
            things = tuple(vars(sys.modules[name]).values())  # looking at one may import others
            own = [thing for thing in things if getattr(thing, "__module__", None) == name]
            for thing in own:
                if is_named_tuple(thing):
                    check_named_tuple(thing)
            for function in _functions(own):
                if not shape_hints(function):
                    no_type_check(function)  # jaxtyping wraps it all the same: most of the time goes there


def is_named_tuple(thing: Any) -> bool:
    """Whether it is a class of named tuples."""
    return isinstance(thing, type) and issubclass(thing, tuple) and hasattr(thing, "_fields")


def _functions(things: Iterable[Any]) -> Iterator[Callable[..., Any]]:
    """Functions, and the methods and properties of classes."""
    for thing in things:
        inner = tuple(vars(thing).values()) if isinstance(thing, type) else (thing,)  # looking may add to it
        for one in inner:
            function = getattr(one, "fget", None) or getattr(one, "func", None) or getattr(one, "__func__", one)
            if isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
                yield function
