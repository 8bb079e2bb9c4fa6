"""What the API reference lists, and what its docstrings lack."""

import re
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
LISTED = re.compile(r"^::: (\S+)$", re.MULTILINE)


def listed_names(folder: Path = ROOT / "docs" / "api") -> list[str]:
    """Every name that a page of the reference asks for, in order."""
    return [name for page in sorted(folder.glob("*.md")) for name in LISTED.findall(page.read_text(encoding="utf-8"))]


def load_package(name: str = "cicpe", folder: Path = ROOT / "src") -> griffe.Module:
    """The package as its source says it, without importing it."""
    package = griffe.load(name, search_paths=[folder], docstring_parser="google")
    assert isinstance(package, griffe.Module)
    return package


def resolved(package: griffe.Module, name: str) -> griffe.Object:
    """The function or class that a name of the reference means."""
    found = package[name.partition(".")[2]]
    target = found.final_target if isinstance(found, griffe.Alias) else found
    assert isinstance(target, griffe.Object)
    return target


def faults(subject: griffe.Object) -> Iterator[tuple[str, str]]:
    """(name, what its docstring lacks) of a function, or of a class and its public methods."""
    if isinstance(subject, griffe.Function):
        yield from function_faults(subject)
    elif isinstance(subject, griffe.Class):
        yield from class_faults(subject)


def class_faults(subject: griffe.Class) -> Iterator[tuple[str, str]]:
    """The class itself, with what its constructor takes, and each of its public methods."""
    if subject.docstring is None:
        yield subject.path, "a docstring"
        return
    constructor = subject.members.get("__init__")
    if isinstance(constructor, griffe.Function) and constructor.lineno and not is_record(subject):
        documented = arguments_of(subject.docstring)
        for name in parameters_of(constructor):
            if name not in documented:
                yield subject.path, f"Args: {name}"
    for name, member in subject.members.items():
        if not name.startswith("_") and isinstance(member, griffe.Function):
            yield from function_faults(member, overrides=any(name in base.members for base in known_bases(subject)))


def function_faults(subject: griffe.Function, overrides: bool = False) -> Iterator[tuple[str, str]]:
    """No docstring at all, an argument that is not in it, or a result that it does not speak of.

    A method without a docstring that overrides another is documented there. A property is its own result.
    """
    if subject.docstring is None:
        if not overrides:
            yield subject.path, "a docstring"
        return
    if "property" in subject.labels:
        return
    documented = arguments_of(subject.docstring)
    for name in parameters_of(subject):
        if name not in documented:
            yield subject.path, f"Args: {name}"
    kinds = {section.kind for section in subject.docstring.parsed}
    gives = subject.returns is not None and str(subject.returns) not in ("None", "NoReturn", "Never", "Self")
    if gives and not kinds & {griffe.DocstringSectionKind.returns, griffe.DocstringSectionKind.yields}:
        yield subject.path, "Returns"


def arguments_of(docstring: griffe.Docstring) -> set[str]:
    """Names in the section ``Args``."""
    sections = [part for part in docstring.parsed if part.kind is griffe.DocstringSectionKind.parameters]
    return {entry.name.lstrip("*") for part in sections for entry in part.value}


def parameters_of(function: griffe.Function) -> list[str]:
    """Names of what a function takes, without ``self``."""
    names = [parameter.name for parameter in function.parameters if parameter.name not in ("self", "cls")]
    return [name for name in names if not name.startswith("_")]


def is_record(subject: griffe.Class) -> bool:
    """Whether the constructor is made from the fields, which have docstrings of their own."""
    return "dataclass" in subject.labels


def known_bases(subject: griffe.Class) -> list[griffe.Class]:
    """Base classes that can be resolved, nearest first."""
    try:
        return list(subject.mro())
    except (griffe.AliasResolutionError, ValueError):
        return []
