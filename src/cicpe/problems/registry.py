"""Problems by name: the registered families, experiment files, ``module:Class`` and ``path/to/file.py:Class``.

Asking for a class by name imports it: this is for names that the user has typed. What a model's folder says goes
through ``spec.py``, which imports nothing that the folder names.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from cicpe.errors import InvalidInput, ProblemError, meant
from cicpe.problems.base import Problem
from cicpe.problems.source import HASHED, USER_MODULE, file_digest, neighbours
from cicpe.spaces import Space

FAMILIES: Mapping[str, tuple[str, str]] = {
    "binary-search": ("cicpe.problems.binary_search", "BinarySearch"),
    "best-arm": ("cicpe.problems.best_arm", "BestArm"),
    "ackley": ("cicpe.problems.ackley", "Ackley"),
    "gp-max": ("cicpe.problems.gp_max", "GPMax"),
    "gp-argmax": ("cicpe.problems.gp_argmax", "GPArgmax"),
    "geochem": ("cicpe.problems.geochem", "Geochem"),
    "smooth": ("cicpe.experiments.smooth", "SmoothExperiment"),
    "parametric": ("cicpe.experiments.parametric", "ParametricExperiment"),
}
"""Registered name -> module and class. Imported when asked for."""
EXPERIMENT = ".toml"
"""How the name of an experiment file ends: data, which says a problem of one of the families."""


def problem_class(name: str) -> type[Problem]:
    """The class behind a name: registered, an experiment file, ``module:Class`` or ``file.py:Class``; imported."""
    if is_experiment(name):
        return type(make_problem(name))
    if name in FAMILIES:
        module_name, class_name = FAMILIES[name]
    elif ":" in name:
        module_name, class_name = name.rsplit(":", 1)
    else:
        known = ", ".join(sorted(FAMILIES))
        own = "an experiment file (mine.toml) or the name of a template, module:Class, or path/to/file.py:Class"
        allowed = f"one of {known}, or {own}{meant(name, [*FAMILIES, *_experiments().template_names()])}"
        raise InvalidInput("problem", name, allowed)
    module = _load_file(Path(module_name)) if module_name.endswith(".py") else _import(module_name)
    problem_type = getattr(module, class_name, None)
    if not (inspect.isclass(problem_type) and issubclass(problem_type, Problem)):
        raise InvalidInput(
            "problem", name, f"the name of a cicpe.Problem; {module_name} defines no {class_name} that is one"
        )
    return problem_type


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, TypeError, ValueError) as error:
        raise InvalidInput("problem", name, f"a module that can be imported ({error})") from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidInput("problem", str(path), "a Python file that exists")
    name = f"{USER_MODULE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput("problem", str(path), "a Python file")
    module = importlib.util.module_from_spec(spec)
    setattr(module, HASHED, file_digest(path))
    sys.modules[name] = module
    try:
        with _among_its_neighbours(path):
            spec.loader.exec_module(module)
    except Exception as error:
        raise ProblemError(f"{path} could not be run: {type(error).__name__}: {error}") from error
    return module


_imported_neighbours: set[str] = set()
"""Modules that were imported from beside a problem file: another file may have neighbours of the same names."""


@contextmanager
def _among_its_neighbours(path: Path) -> Iterator[None]:
    """Lets a file import what lies beside it, for as long as it is imported itself."""
    for name in _imported_neighbours:
        sys.modules.pop(name, None)
    _imported_neighbours.clear()
    own = {name.partition("/")[0].removesuffix(".py") for name in neighbours(path)}
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in own}
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        _imported_neighbours.update(name for name in sys.modules if name.partition(".")[0] in own)
        sys.modules.update(hidden)
        _imported_neighbours.difference_update(hidden)


def is_experiment(name: str) -> bool:
    """Whether a name is that of an experiment file, or of a template for one."""
    if name.endswith(EXPERIMENT):
        return True
    if name in FAMILIES or ":" in name:  # then the package of experiments need not be imported
        return False
    return name in _experiments().template_names()


def _experiments() -> Any:
    """The package of experiments, which stands above this one: it is imported by its name, when it is asked for."""
    return importlib.import_module("cicpe.experiments")


def make_problem(name: str, **options: Any) -> Problem:
    """Makes a problem; an option that its class does not take is refused by name.

    Args:
        name: A registered family, an experiment file or template, ``module:Class`` or ``path/to/file.py:Class``.
        options: What its constructor takes, such as ``dim=6``; an experiment file takes none.

    Returns:
        The problem.
    """
    if is_experiment(name):
        for option, value in options.items():
            raise InvalidInput(option, value, f"left out: all that {name} needs is in it")
        problem: Problem = _experiments().Experiment.read(name).problem()
        return problem
    return make_from_class(problem_class(name), name, options)


def make_from_class(cls: type[Problem], name: str, options: Mapping[str, Any]) -> Problem:
    """Makes a problem of a class, with options as JSON says them.

    Args:
        cls: The class.
        name: What it is called in messages.
        options: What its constructor is given; one that it does not take is refused by name.

    Returns:
        The problem, with both of its spaces set.
    """
    taken = inspect.signature(cls).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    for option, value in options.items():
        if option not in taken and not takes_all:
            allowed = ", ".join(taken) or "no options"
            raise InvalidInput(option, value, f"left out: {name} takes {allowed}")
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    try:
        problem = cls(**lists)
    except (TypeError, OverflowError, MemoryError) as error:  # a method or option that is missing, an absurd size
        raise ProblemError(f"{name} cannot be made: {error}") from error
    for space in ("query_space", "answer_space"):
        if not isinstance(getattr(problem, space, None), Space):
            raise ProblemError(f"{name} must set {space} to a Box, an Interval or a Sphere")
    return problem
