"""An experiment in the user's own words: a file, or the same as a Python object."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from cicpe.config import Config
from cicpe.errors import InvalidInput, meant
from cicpe.experiments.checks import check_parts, check_setting
from cicpe.experiments.faults import ExperimentError, FileFault, faults_of, with_lines
from cicpe.experiments.schema import SECTIONS, AnyModel, ExperimentGoal, ExperimentMeasurement, ExperimentSetting, Text
from cicpe.files import read_file

if TYPE_CHECKING:
    from cicpe.problems import Problem

LARGEST_FILE = 100_000
"""Bytes."""
MOST_DOTS = 2000
"""In a line; a list of as many decimals as a setting may have has half of that."""
KIND_OF_MODEL = {"smooth": "smooth", "threshold": "parametric", "formula": "parametric"}
"""Kind of model -> the registered family that its problem belongs to."""
TEMPLATES = Path(__file__).parent / "templates"


@final
class Experiment(Config):
    """What is chosen, what is read, what is known of how they hang together, and what is asked.

    The fields are those of the file; ``Experiment.read`` reads one. Where something is wrong, an ``ExperimentError``
    names every fault.
    """

    title: Text = ""
    setting: tuple[ExperimentSetting, ...] = Field(min_length=1, max_length=6)
    measurement: ExperimentMeasurement
    model: AnyModel
    goal: ExperimentGoal

    @model_validator(mode="after")
    def _fits(self) -> "Experiment":
        faults = check_parts({name: getattr(self, name) for name in SECTIONS})
        if faults:
            raise ExperimentError(faults)
        return self

    @classmethod
    def read(cls, source: str | Path) -> "Experiment":
        """Reads an experiment file, or a template by its name.

        Args:
            source: A path, or the name of a template (``template_names``).

        Returns:
            The experiment.
        """
        name = str(source)
        path = template_path(name) if name in template_names() else Path(source)
        return cls.from_toml(_text_of(path))

    @classmethod
    def from_toml(cls, text: str) -> "Experiment":
        """Reads the text of an experiment file; faults carry their lines.

        Args:
            text: TOML.

        Returns:
            The experiment.
        """
        check_dots(text)
        try:
            return cls.from_document(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ExperimentError([_syntax_fault(str(error), text)]) from None
        except (RecursionError, ValueError):
            raise ExperimentError([FileFault((), text[:20], "TOML: simple tables of fields and values")]) from None
        except ExperimentError as error:
            raise ExperimentError(with_lines(error.faults, text)) from None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Experiment":
        """The experiment that plain data says, such as a file's content or ``document`` of another.

        Args:
            document: Fields and values, nested as in the file.

        Returns:
            The experiment.
        """
        parts, faults = _read_parts(document)
        faults += check_parts(parts)
        if faults:
            raise ExperimentError(faults)
        return cls(**parts)

    @property
    def document(self) -> dict[str, Any]:
        """The experiment as plain data, without what was left out."""
        plain: dict[str, Any] = self.model_dump(mode="json", exclude_unset=True)
        return plain

    def to_toml(self) -> str:
        """The text of a file that reads as this experiment.

        Returns:
            TOML, without what was left out.
        """
        lines: list[str] = []
        for name, part in self.document.items():
            if name == "setting":
                for setting in part:
                    lines += ["", "[[setting]]", *_fields(setting)]
            elif isinstance(part, dict):
                lines += ["", f"[{name}]", *_fields(part)]
            else:
                lines += [f"{name} = {_toml(part)}"]
        return "\n".join(lines).strip() + "\n"

    def problem(self) -> "Problem":
        """The family of tasks that the experiment may be one of, in coordinates that suit training.

        Returns:
            A problem whose sessions speak in the experiment's units.
        """
        from cicpe.problems import make_problem

        return make_problem(KIND_OF_MODEL[self.model.kind], experiment=self.document)


def read_experiment(given: "Experiment | Mapping[str, Any] | str") -> Experiment:
    """An experiment as itself, as plain data, or by the name of a template; never by that of a file.

    This is what a problem is made from, and a model's folder says what that is: no folder may have a file read.
    """
    if isinstance(given, Experiment):
        return given
    if isinstance(given, Mapping):
        return Experiment.from_document(given)
    if given not in template_names():
        allowed = f"an experiment as data (Experiment.read reads a file), or one of {', '.join(template_names())}"
        raise InvalidInput("experiment", given, allowed)
    return Experiment.read(given)


def check_dots(text: str) -> None:
    """Refuses a line with names within names without an end: reading them takes the square of their number."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") > MOST_DOTS:
            raise ExperimentError([FileFault((), line[:20], f"of at most {MOST_DOTS} dots in a line", number)])


def template_names() -> list[str]:
    """The templates that ship with the library.

    Returns:
        Their names, in alphabetical order.
    """
    return sorted(path.stem for path in TEMPLATES.glob("*.toml"))


def template_path(name: str) -> Path:
    """The file of a template."""
    return TEMPLATES / f"{name}.toml"


def _text_of(path: Path) -> str:
    try:
        if path.is_dir():
            raise ExperimentError([FileFault((), str(path), "a file, not a folder")])
        data = read_file(path, LARGEST_FILE)
    except FileNotFoundError:
        near = meant(path.stem, template_names())
        raise ExperimentError([FileFault((), str(path), f"an experiment file that exists{near}")]) from None
    except (ValueError, OSError) as error:
        raise ExperimentError([FileFault((), str(path), f"a file that can be read ({error})")]) from None
    if len(data) > LARGEST_FILE:
        raise ExperimentError([FileFault((), str(path), f"at most {LARGEST_FILE} bytes")])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ExperimentError([FileFault((), str(path), "text in UTF-8")]) from None


def _syntax_fault(message: str, text: str) -> FileFault:
    place = re.search(r"at line (\d+)", message)
    lines = text.splitlines()
    line = int(place[1]) if place is not None else len(lines)
    value = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return FileFault((), value, f"TOML: {message[:200].splitlines()[0]}", line)


def _read_parts(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[FileFault]]:
    """The parts of a document that could be read, and what is wrong with the others."""
    parts: dict[str, Any] = {}
    faults = [
        FileFault((str(name),), document[name], f"left out: the parts are {', '.join(SECTIONS)}{meant(name, SECTIONS)}")
        for name in document
        if name not in SECTIONS
    ]
    for name, kind in SECTIONS.items():
        if name not in document:
            if name != "title":
                what = "[[setting]]" if name == "setting" else f"[{name}]"
                faults.append(FileFault((name,), None, f"given, as {what}"))
            continue
        try:
            parts[name] = TypeAdapter(kind).validate_python(document[name])
        except ValidationError as error:
            faults += faults_of(error, (name,), tagged=name == "model")
            faults += _good_settings(document[name]) if name == "setting" else []
    return parts, faults


def _good_settings(settings: Any) -> list[FileFault]:
    """What is wrong with those settings that can be read, where another cannot."""
    faults: list[FileFault] = []
    for i, setting in enumerate(settings if isinstance(settings, list) else []):
        with suppress(ValidationError):
            faults += check_setting(("setting", i), ExperimentSetting.model_validate(setting))
    return faults


def _fields(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_toml(value)}" for name, value in table.items() if value is not None]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _toml(value: Any) -> str:
    """A value as TOML says it."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case float() if value == int(value) and abs(value) < 1e15:
            return str(int(value))
        case dict():
            return "{ " + ", ".join(_fields(value)) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
    return str(value)


def sentence_of(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
