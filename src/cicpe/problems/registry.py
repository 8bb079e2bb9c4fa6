"""Problems by name: the registered families, ``module:Class`` and ``path/to/file.py:Class``."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, final

from cicpe.errors import InvalidInput, ProblemError
from cicpe.problems.base import Problem
from cicpe.spaces import Space

FAMILIES: Mapping[str, tuple[str, str]] = {
    "binary-search": ("cicpe.problems.binary_search", "BinarySearch"),
    "best-arm": ("cicpe.problems.best_arm", "BestArm"),
    "ackley": ("cicpe.problems.ackley", "Ackley"),
    "gp-max": ("cicpe.problems.gp_max", "GPMax"),
    "gp-argmax": ("cicpe.problems.gp_argmax", "GPArgmax"),
    "geochem": ("cicpe.problems.geochem", "Geochem"),
}
"""Registered name -> module and class. Imported when asked for."""


@final
@dataclass(frozen=True)
class ProblemSpec:
    """How to make a problem again: its name and the options it was made with."""

    name: str
    options: Mapping[str, Any]

    def make(self) -> Problem:
        """The problem that this describes."""
        return make_problem(self.name, **self.options)


def problem_class(name: str) -> type[Problem]:
    """The class behind a registered name, ``module:Class`` or ``path/to/file.py:Class``."""
    if name in FAMILIES:
        module_name, class_name = FAMILIES[name]
    elif ":" in name:
        module_name, class_name = name.rsplit(":", 1)
    else:
        known = ", ".join(sorted(FAMILIES))
        raise InvalidInput("problem", name, f"one of {known}, or module:Class, or path/to/file.py:Class")
    module = _load_file(Path(module_name)) if module_name.endswith(".py") else _import(module_name)
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, Problem)):
        raise InvalidInput(
            "problem", name, f"the name of a cicpe.Problem; {module_name} defines no {class_name} that is one"
        )
    return found


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput("problem", name, f"a module that can be imported ({error})") from None


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise InvalidInput("problem", str(path), "a Python file that exists")
    name = f"cicpe_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput("problem", str(path), "a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ProblemError(f"{path} could not be run: {type(error).__name__}: {error}") from error
    return module


def make_problem(name: str, **options: Any) -> Problem:
    """Makes a problem; an option that its class does not take is refused by name."""
    cls = problem_class(name)
    taken = inspect.signature(cls).parameters
    for option, value in options.items():
        if option not in taken:
            allowed = ", ".join(taken) or "no options"
            raise InvalidInput(option, value, f"left out: {name} takes {allowed}")
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    try:
        problem = cls(**lists)
    except TypeError as error:  # a method that is missing, or a required option
        raise ProblemError(f"{name} cannot be made: {error}") from error
    for space in ("query_space", "answer_space"):
        if not isinstance(getattr(problem, space, None), Space):
            raise ProblemError(f"{name} must set {space} to a Box, an Interval or a Sphere")
    return problem


def spec_of(problem: Problem) -> ProblemSpec:
    """Describes a problem so that it can be made again from JSON."""
    cls = type(problem)
    options = asdict(problem) if is_dataclass(problem) else dict(getattr(problem, "options", {}))
    for name, place in FAMILIES.items():
        if place == (cls.__module__, cls.__qualname__):
            return ProblemSpec(name, options)
    if cls.__module__ == "__main__" or cls.__module__.startswith("cicpe_user_"):
        return ProblemSpec(f"{inspect.getfile(cls)}:{cls.__qualname__}", options)
    return ProblemSpec(f"{cls.__module__}:{cls.__qualname__}", options)
