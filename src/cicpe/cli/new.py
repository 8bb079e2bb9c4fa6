"""``cicpe new``: an experiment file, by a short conversation or from a template."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.output import note, print_json
from cicpe.errors import InvalidInput, meant

GOALS = {
    "peak": "the place of the highest value",
    "trough": "the place of the lowest value",
    "height": "how high the highest value is",
    "crossing": "where a curve crosses a value",
    "threshold": "from which setting on the answer is mostly yes",
    "formula": "a number in a formula that you know",
}


def new(
    template: Annotated[
        str | None, typer.Option(metavar="NAME", help="Begin with this one: `cicpe new --list` names them.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to. Default: NAME.toml, here.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the templates.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write an experiment file: by a short conversation, or from a template.

    \b
    Examples:
      cicpe new                                        a conversation
      cicpe new --template peak-2d --out anneal.toml   a file to change in an editor
      cicpe new --list
    """
    if listed:
        _list(as_json)
        return
    if template is not None:
        text, name = _template(template), template
    else:
        text, name = converse(typer.prompt)
    path = out or Path(f"{name}.toml")
    _write(path, text)
    if as_json:
        print_json({"file": str(path), "template": template})
    else:
        print(f"The experiment is in {path}. Next:  cicpe check {path}")


def _list(as_json: bool) -> None:
    from cicpe.experiments import Experiment, template_names

    rows = {name: Experiment.read(name).title for name in template_names()}
    if as_json:
        print_json({"templates": [{"name": name, "title": title} for name, title in rows.items()]})
        return
    for name, title in rows.items():
        print(f"{name:<22}{title}")


def _template(name: str) -> str:
    from cicpe.experiments import template_names, template_path

    if name not in template_names():
        raise InvalidInput("template", name, f"one of {', '.join(template_names())}{meant(name, template_names())}")
    return template_path(name).read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    from cicpe.files import write_atomic

    if path.suffix != ".toml":
        raise InvalidInput("out", str(path), "a file whose name ends in .toml")
    if path.exists():
        raise InvalidInput("out", str(path), "a new file: this one is there already")
    if not path.parent.is_dir():
        raise InvalidInput("out", str(path), f"a file in a folder that is there; {path.parent} is not")
    write_atomic(path, text.encode())


Ask = Callable[..., Any]
"""Asks a question and returns what was typed: ``typer.prompt``, or a test's."""


def converse(ask: Ask) -> tuple[str, str]:
    """Asks what an experiment file needs.

    Args:
        ask: Asks one question.

    Returns:
        The text of a file, and a name for it.
    """
    from cicpe.experiments import Experiment, ExperimentError

    document = _document(ask)
    name = document["title"].split(" ")[0].lower() if document["title"] else "experiment"
    stem = "".join(letter for letter in name if letter.isalnum() or letter in "-_") or "experiment"
    try:
        return Experiment.from_document(document).to_toml(), stem
    except ExperimentError as error:
        for fault in error.faults:
            note(f"error: {fault}")
        raise InvalidInput("answers", "...", "as said above; please begin again") from None


def _document(ask: Ask) -> dict[str, Any]:
    title = ask("What is it about? (one line)", default="")
    find = _choice(ask, "What do you want to find?", GOALS)
    count = 1 if find in ("crossing", "threshold") else _whole(ask, "How many things do you set for a measurement?", 1)
    settings = [_setting(ask, i + 1, count) for i in range(count)]
    measurement = _measurement(ask, find)
    goal: dict[str, Any] = {"find": find}
    names = [setting["name"] for setting in settings]
    if find == "formula":
        model, goal["find"] = _formula(ask, names)
        names = [goal["find"]]
    elif find == "threshold":
        model = _threshold(ask, settings[0])
        goal["level"] = _number(ask, "At which probability of yes?", 0.5 + (model["guess"] / 2))
    else:
        bumps = {"one": "one broad bump", "few": "a few bumps", "many": "many bumps"}
        model = {"kind": "smooth", "bumps": _choice(ask, "How wiggly is it?", bumps)}
        names = [measurement["name"]] if find == "height" else names
        if find == "crossing":
            goal["level"] = _number(ask, f"Which value of {measurement['name']} does it cross?")
    goal["within"] = {name: _tolerance(ask, name) for name in names}
    goal["sure"] = _number(ask, "How sure do you want to be?", 0.9)
    goal["at_most"] = _whole(ask, "How many measurements can you make at most?", 60)
    return {"title": title, "setting": settings, "measurement": measurement, "model": model, "goal": goal}


def _choice(ask: Ask, question: str, known: dict[str, str]) -> str:
    for name, words in known.items():
        note(f"  {name:<10} {words}")
    while True:
        typed = str(ask(question)).strip()
        if typed in known:
            return typed
        note(f"please type one of {', '.join(known)}{meant(typed, known)}")


def _number(ask: Ask, question: str, default: float | None = None) -> float:
    while True:
        typed = str(ask(question, default=f"{default:g}") if default is not None else ask(question))
        try:
            return float(typed.replace(",", "."))
        except ValueError:
            note(f"please type a number; {typed!r} is none")


def _whole(ask: Ask, question: str, default: int) -> int:
    while True:
        value = _number(ask, question, default)
        if value == int(value) and value >= 1:
            return int(value)
        note("please type a whole number from 1 up")


def _yes(ask: Ask, question: str) -> bool:
    return str(ask(f"{question} (yes/no)", default="no")).strip().casefold() in ("y", "yes")


def _tolerance(ask: Ask, name: str) -> float | str:
    typed = str(ask(f"How exactly do you need {name}? (a number in its unit, or such as 10 %)")).strip()
    try:
        return float(typed.replace(",", "."))
    except ValueError:
        return typed


def _setting(ask: Ask, number: int, count: int) -> dict[str, Any]:
    which = "it" if count == 1 else f"number {number}"
    setting: dict[str, Any] = {"name": str(ask(f"What is {which} called?" if count > 1 else "What do you set?"))}
    setting["unit"] = str(ask("In which unit?", default=""))
    setting["range"] = [_number(ask, "Its lowest value?"), _number(ask, "Its highest value?")]
    if (
        setting["range"][0] > 0
        and setting["range"][1] / setting["range"][0] >= 5
        and _yes(ask, "Do equal factors matter equally?")
    ):
        setting["scale"] = "log"
    step = _number(ask, "In which steps can it be set? (0: freely)", 0)
    return setting | ({"step": step} if step else {})


def _measurement(ask: Ask, find: str) -> dict[str, Any]:
    measurement: dict[str, Any] = {"name": str(ask("What do you read off?"))}
    kinds = {"number": "a number", "yes/no": "yes or no", "count": "how many (of how many)"}
    if find == "threshold":
        kinds.pop("number")
    kind = _choice(ask, "What is that?", kinds) if find in ("threshold", "formula") else "number"
    measurement["kind"] = kind
    if kind == "count":
        measurement["of"] = _whole(ask, "Out of how many each time?", 10)
    if kind == "number":
        measurement["unit"] = str(ask("In which unit?", default=""))
        if find != "formula":
            measurement["typical"] = [
                _number(ask, "Its lowest typical value?"),
                _number(ask, "Its highest typical value?"),
            ]
        low, high = _number(ask, "How noisy is it at least? (a standard deviation)"), _number(ask, "And at most?")
        measurement["noise"] = low if low == high else [low, high]
    return measurement


def _threshold(ask: Ask, setting: dict[str, Any]) -> dict[str, Any]:
    shapes = {"logistic": "the usual one", "probit": "a normal distribution's", "weibull": "of detection"}
    shape = _choice(ask, "Which curve?", shapes)
    guess = _number(ask, "How often is it yes by chance alone?", 0.0)
    lapse = _number(ask, "How often is it no by a slip?", 0.02)
    return {"kind": "threshold", "shape": shape, "guess": guess, "lapse": lapse}


def _formula(ask: Ask, settings: list[str]) -> tuple[dict[str, Any], str]:
    from cicpe.experiments.formula import FormulaError, names_in

    while True:
        text = str(ask(f"The formula of {', '.join(settings)} and what is unknown?"))
        try:
            unknown = sorted(names_in(text) - set(settings))
            break
        except FormulaError as error:
            note(f"the formula must be {error}")
    parameters: dict[str, Any] = {}
    for name in unknown:
        low, high = _number(ask, f"The lowest value of {name}?"), _number(ask, "Its highest?")
        entry: dict[str, Any] = {"range": [low, high]}
        if low > 0 and high / low >= 5 and _yes(ask, "Do equal factors matter equally?"):
            entry["scale"] = "log"
        parameters[name] = low if low == high else entry
    find = str(ask(f"Which of {', '.join(unknown)} do you want to find? (or an expression of them)"))
    return {"kind": "formula", "formula": text, "parameters": parameters}, find
