"""What a model's folder says of its problem, and how the problem is found again without running what a folder names.

A registered family is made from its options. A problem of a user's own is a program: it is taken from this process,
if its very source was imported here already, or from a file that this user has trusted (``trust.py``), as long as its
source is the same. Otherwise whoever uses the model has to name it.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from cicpe.errors import InvalidInput, UnknownProblem
from cicpe.problems.base import Problem, options_of
from cicpe.problems.registry import FAMILIES, make_from_class, problem_class
from cicpe.problems.source import USER_MODULE, has_changed, source_of
from cicpe.problems.trust import TrustedProblem, trust, trusted


@final
@dataclass(frozen=True)
class ProblemSpec:
    """A problem as data: its name, the options it was made with, and a hash of its source."""

    name: str
    options: Mapping[str, Any]
    source: str | None = field(default=None)
    """None for registered families, and where the text was not known; see ``source.source_of``."""

    @property
    def class_name(self) -> str:
        """The name of a user's own class."""
        return self.name.rpartition(":")[2]

    @property
    def plain_options(self) -> dict[str, Any]:
        """The options as JSON says them; one that it cannot say is named by its type alone."""
        type_names = {name: f"<{type(value).__name__}>" for name, value in self.options.items() if _json_fault(value)}
        return dict(self.options) | type_names

    def check_options(self) -> None:
        """Refuses options that a model's folder cannot say."""
        for name, value in self.options.items():
            fault = _json_fault(value)
            if fault is not None:
                raise InvalidInput(name, value, f"numbers, text and lists, to be saved as JSON ({fault})")

    @property
    def is_registered(self) -> bool:
        """Whether it is one of the library's own."""
        return self.name in FAMILIES

    def make(self) -> Problem:
        """The problem, made again. Nothing is imported that this user has not run before."""
        return make_from_class(self.find_class(), self.name, self.options)

    @property
    def fault(self) -> str | None:
        """What has become of the file that this user ran before, in words; None where it is as it was, or never was."""
        own = None if self.source is None else trusted(self.source)
        return None if own is None else own.fault

    @property
    def is_replaced(self) -> bool:
        """Whether this user has said that another program than the one that this names is to be run in its place."""
        own = None if self.source is None else trusted(self.source)
        return own is not None and own.source != self.source

    def is_of(self, other: "ProblemSpec") -> bool:
        """Whether two problems are one family, options aside: by their sources where both are known, else by name."""
        if self.source is not None and other.source is not None:
            return self.source == other.source
        return self.name == other.name

    def find_class(self) -> type[Problem]:
        """The class, where it is known without running what this says; otherwise an ``UnknownProblem``."""
        if self.is_registered:
            return problem_class(self.name)
        here = _class_at_hand(self)
        if here is not None:
            return here
        own = None if self.source is None else trusted(self.source)
        fault = self.fault
        if own is not None and fault is None:
            return problem_class(own.place)
        where = f"PATH/{self.name}" if ".py:" in self.name else f"PATH/FILE.py:{self.class_name}"
        why = f" ({fault})" if fault else ""
        raise UnknownProblem(
            self.name,
            f"named by you{why}, since it is a program and what a model's folder names is never run: "
            f"--problem {where}, or in Python cicpe.load(MODEL, problem=...)",
            where,
        )

    def check(self, cls: type[Problem], name: str) -> None:
        """Refuses a class that is not the program that this names.

        Args:
            cls: A class that the user has named.
            name: What the user called it.
        """
        class_source = source_of(cls)
        if self.source is not None and class_source != self.source:
            short_source = "unknown" if class_source is None else f"{class_source[:12]}..."
            raise InvalidInput(
                "problem",
                name,
                f"the one that this model was trained on, {self.name} of source {self.source[:12]}...; the source of "
                f"this one is {short_source}. To go on with it all the same add  --changed-problem  "
                "(in Python: changed_problem=True)",
            )


def _json_fault(value: Any) -> str | None:
    """Why JSON cannot say a value, in words; None where it can."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def _class_at_hand(spec: ProblemSpec) -> type[Problem] | None:
    """The class that this process has imported from the very source, if its file is still what it was."""
    if spec.source is None:
        return None
    classes = (cls for cls in _subclasses(Problem) if cls.__qualname__ == spec.class_name)
    return next((cls for cls in classes if source_of(cls) == spec.source and not has_changed(cls)), None)


def _subclasses(cls: Any) -> Iterator[type[Problem]]:
    for below in cls.__subclasses__():
        yield below
        yield from _subclasses(below)


def spec_of(problem: Problem) -> ProblemSpec:
    """Describes a problem so that it can be told again, on any machine, which it was: no place of this one is in it."""
    cls, options = type(problem), options_of(problem)
    for name, place in FAMILIES.items():
        if place == (cls.__module__, cls.__qualname__):
            return ProblemSpec(name, options)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    module = Path(file).name if _is_file(cls) and file is not None else cls.__module__
    return ProblemSpec(f"{module}:{cls.__qualname__}", options, source_of(cls))


def trust_class(cls: type[Problem], source: str | None = None) -> str | None:
    """Remembers that this user runs the file of a class, for models that name its source (or ``source``).

    Args:
        cls: A class that the user has named, by its file or by its module.
        source: What the models name, where it is not the class's own.

    Returns:
        Why it could not be remembered, in words; None where it was, or where there is nothing to remember.
    """
    class_source, file = source_of(cls), getattr(sys.modules.get(cls.__module__), "__file__", None)
    if class_source is None or file is None:
        return None
    module = None if _is_file(cls) else cls.__module__
    return trust(source or class_source, TrustedProblem(Path(file).resolve(), cls.__qualname__, class_source, module))


def _is_file(cls: type[Problem]) -> bool:
    """Whether a class is named by its file, not by its module."""
    return cls.__module__ == "__main__" or cls.__module__.startswith(USER_MODULE)
