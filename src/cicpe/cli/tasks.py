"""The tasks that a command plays: a problem by name with its options, or a model's own family with some replaced."""

import inspect
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from cicpe.cli.arguments import given
from cicpe.cli.output import note
from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    from cicpe.model import Model
    from cicpe.problems import Problem

DRAWN = 256
"""Tasks that are drawn to see whether their context is one that the model knows."""


class PlayedFamily(NamedTuple):
    """The family that a model is played on."""

    problem: "Problem"
    options: dict[str, Any]
    """All that it was made with."""
    changed: dict[str, Any]
    """Those that are not the model's own."""
    context: dict[str, float]
    """Contexts that are held at one value."""

    @property
    def said(self) -> str:
        """What is not the model's own, in words."""
        return ", ".join(f"{name} = {json.dumps(value)}" for name, value in self.changed.items())


def problem_of(name: str, pairs: Sequence[str] | None, **flags: Any) -> "tuple[Problem, dict[str, Any]]":
    """The problem with the options that were given, as flags of their own or by ``--option``, and the latter."""
    from cicpe.problems import make_problem

    flag_values, options = given(**flags), read_options(name, pairs)
    for flag, value in flag_values.items():
        _said_once(flag, value, options)
    return make_problem(name, **flag_values | options), options


def load_model(model: str, problem: str | None = None, changed_problem: bool = False) -> "Model":
    """The model that a command was given, ready to be played on one thread.

    Args:
        model: Its folder, or its name in the zoo.
        problem: Its problem, where the user has named it: that is remembered, so that it need not be named again.
        changed_problem: Take the problem though its source is not the one that the model was trained on.
    """
    import torch

    import cicpe

    torch.set_num_threads(1)
    trained = cicpe.load(model, problem, changed_problem=changed_problem)
    if trained.family is not None:
        remember_problem(trained.family, trained.description.problem_source)
    if trained.description.problem_spec.is_replaced:
        note("the problem is not the one that this model was trained on: another source, which you said to take")
    return trained


def remember_problem(problem: "Problem", source: str | None = None) -> None:
    """Notes that this user runs a problem file of their own, for models that name its source (or ``source``)."""
    from cicpe.problems.spec import trust_class

    failure = trust_class(type(problem), source)
    if failure is not None:
        note(f"the problem cannot be remembered ({failure}): name it with --problem wherever it is needed")


def tasks_of(
    model: "Model",
    place: str | None,
    pairs: Sequence[str] | None = None,
    noise: float | None = None,
    context: Sequence[str] | None = None,
) -> PlayedFamily:
    """What a model is played on: its own family (at ``place``, if named), with the options in ``pairs`` replaced.

    What is not its own has to have the shape and the context that the model was trained for.
    """
    from cicpe.problems import TaskBatch
    from cicpe.problems.registry import make_from_class
    from cicpe.streams import stream

    about = model.description
    cls = about.problem_spec.find_class() if model.family is None else type(model.family)
    changed = read_options(cls, pairs)
    problem = make_from_class(cls, place or about.problem, about.problem_options | changed)
    known = read_context(noise, context)
    for name, value in known.items():
        _said_once(name, value, changed)
    played = PlayedFamily(problem, about.problem_options | changed, changed, known)
    misfit = model.misfit(problem)
    if misfit is not None:
        named = ("option", played.said) if changed else ("problem", place or about.problem)
        raise InvalidInput(*named, misfit)
    if changed:
        model.check_contexts(TaskBatch.draw(problem, DRAWN, stream(0, "context")).context)
    return played._replace(problem=model.tasks(known, problem))


def read_context(noise: float | None, pairs: Sequence[str] | None) -> dict[str, float]:
    """Known contexts by name, from ``--noise`` and ``--context NAME=VALUE``."""
    known = _read_pairs("context", pairs, "NAME=VALUE, such as noise=0.1")
    for name, value in known.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput("context", f"{name}={value}", "a number for each name")
    if noise is not None:
        _said_once("noise", noise, known)
        known["noise"] = noise
    return {name: float(value) for name, value in known.items()}


def read_options(problem: "str | type[Problem]", pairs: Sequence[str] | None) -> dict[str, Any]:
    """``KEY=VALUE`` as options of a problem: a value is JSON where it reads as that, and text otherwise."""
    options = _read_pairs("option", pairs, "KEY=VALUE, such as split=2")
    return typed_options(problem, options) if options else {}


def read_settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    """``FIELD=VALUE`` as settings of training; a dot goes into a part: ``network.critic.hidden=32``."""
    settings: dict[str, Any] = {}
    for name, value in _read_pairs("set", pairs, "FIELD=VALUE, such as network.critic.hidden=32").items():
        *parts, last = name.split(".")
        inside = settings
        for part in parts:
            inside = inside.setdefault(part, {})
            if not isinstance(inside, dict):
                raise InvalidInput("set", f"{name}={value}", f"either {part} or what is inside it, not both")
        if last in inside:
            raise InvalidInput("set", f"{name}={value}", f"either {name} or what is inside it, not both")
        inside[last] = value
    return settings


def _read_pairs(flag: str, pairs: Sequence[str] | None, form: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not all(name.split(".")):
            raise InvalidInput(flag, pair, form)
        if name in values:
            raise InvalidInput(flag, pair, f"one value of {name}, not two")
        values[name] = _json_or_text(text)
    return values


def typed_options(problem: "str | type[Problem]", options: dict[str, Any]) -> dict[str, Any]:
    """The options as the problem's class declares them; it refuses the names that it does not take."""
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    from cicpe.problems import problem_class

    taken = inspect.signature(problem_class(problem) if isinstance(problem, str) else problem).parameters
    typed = {}
    for name, value in options.items():
        kind = taken[name].annotation if name in taken else Any
        try:
            typed[name] = TypeAdapter(Any if kind is inspect.Parameter.empty else kind).validate_python(value)
        except ValidationError:
            declared = inspect.formatannotation(kind).replace("tuple", "list")
            raise InvalidInput(name, value, f"a value of type {declared}") from None
        except PydanticUserError:  # a kind that only its author can check
            typed[name] = value
    return typed


def _json_or_text(text: str) -> Any:
    def no_number(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    try:
        return json.loads(text, parse_constant=no_number)
    except (ValueError, RecursionError):
        return text


def _said_once(flag: str, value: object, options: dict[str, Any]) -> None:
    if value is not None and flag in options:
        raise InvalidInput(flag, value, f"set by --{flag} or --option {flag}=..., not both")
