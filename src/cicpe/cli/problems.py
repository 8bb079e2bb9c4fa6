"""``cicpe problems``: the families that are registered."""

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli.output import print_json

if TYPE_CHECKING:
    from cicpe.spaces import Space


def problems(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """List the families of tasks that can be trained on by name.

    Your own is named module:Class or path/to/file.py:Class wherever a PROBLEM is asked for.
    """
    from cicpe.problems import FAMILIES

    rows = [describe(name) for name in FAMILIES]
    if as_json:
        print_json({"problems": rows})
        return
    for row in rows:
        print(_entry(row))


def _entry(row: dict[str, Any]) -> str:
    spaces = f"queries {_in_words(row['query_space'])}, answers {_in_words(row['answer_space'])}"
    options = ", ".join(f"{name} {_default_in_words(default)}" for name, default in row["options"].items())
    told = ", ".join(row["context"]) or "nothing"
    lines = (
        row["about"],
        f"{spaces}; at most {row['horizon']} queries",
        f"options: {options or 'none'}; the agent is told: {told}",
    )
    return f"{row['name']}\n" + "".join(f"    {line}\n" for line in lines)


def describe(name: str) -> dict[str, Any]:
    """Everything that the table and the JSON say of a family, made with its default options."""
    from cicpe.problems import make_problem, problem_class

    cls = problem_class(name)
    problem = make_problem(name)
    parameters = inspect.signature(cls).parameters.values()
    return {
        "name": name,
        "about": (inspect.getdoc(cls) or "").partition("\n")[0],
        "query_dim": problem.query_space.dim,
        "answer_dim": problem.answer_space.dim,
        "observation_dim": problem.observation_dim,
        "query_space": _space(problem.query_space),
        "answer_space": _space(problem.answer_space),
        "options": {parameter.name: parameter.default for parameter in parameters},
        "context": list(problem.context_names),
        "horizon": problem.horizon,
    }


def _space(space: "Space") -> dict[str, Any]:
    return space.to_json() | {"dim": space.dim}


def _in_words(space: dict[str, Any]) -> str:
    if space["kind"] == "sphere":
        return f"unit sphere in {space['dim']} dimensions"
    lows, highs = (values if isinstance(values, list) else [values] for values in (space["low"], space["high"]))
    sides = [f"[{low:g}, {high:g}]" for low, high in zip(lows, highs, strict=True)]
    if len(set(sides)) > 1:
        return " x ".join(sides)
    return sides[0] if len(sides) == 1 else f"{sides[0]}^{len(sides)}"


def _default_in_words(default: Any) -> str:
    if isinstance(default, tuple):
        numbers = all(isinstance(value, float) for value in default)
        return " to ".join(f"{value:g}" for value in default) if numbers else " ".join(map(str, default))
    return str(default)
