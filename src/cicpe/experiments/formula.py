"""Formulas that a person writes, read by a parser of our own: nothing in them is ever run as a program.

The grammar is that of school: numbers, names, ``+ - * / ^ **``, brackets and a fixed list of functions. A formula
becomes a tree of a bounded size, which is computed on batches of tensors::

    sum      = product { ("+" | "-") product }
    product  = sign { ("*" | "/") sign }
    sign     = ("+" | "-") sign | power
    power    = atom [ ("^" | "**") sign ]
    atom     = number | name | name "(" sum { "," sum } ")" | "(" sum ")"
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from cicpe.errors import CicpeError, meant

LONGEST = 500
"""Letters of a formula."""
DEEPEST = 40
"""Brackets and functions inside each other."""
MOST_PARTS = 200
"""Numbers, names and operations."""
LARGEST_EXPONENT = 20.0
"""Of an exponent that is a number."""
LARGEST_NUMBER = 1e30

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|[-+*/^(),]))"
)


class FormulaError(CicpeError):
    """A formula cannot be read; the message says what is allowed in its place."""


class _Function(NamedTuple):
    inputs: int
    compute: Callable[..., Tensor]


FUNCTIONS: Mapping[str, _Function] = {
    "abs": _Function(1, torch.abs),
    "cos": _Function(1, torch.cos),
    "erf": _Function(1, torch.erf),
    "exp": _Function(1, torch.exp),
    "log": _Function(1, torch.log),
    "log10": _Function(1, torch.log10),
    "log2": _Function(1, torch.log2),
    "logistic": _Function(1, torch.sigmoid),
    "max": _Function(2, torch.maximum),
    "min": _Function(2, torch.minimum),
    "sin": _Function(1, torch.sin),
    "sqrt": _Function(1, torch.sqrt),
    "tan": _Function(1, torch.tan),
    "tanh": _Function(1, torch.tanh),
}
"""What may be called, with how many inputs."""
CONSTANTS: Mapping[str, float] = {"pi": math.pi}
_OPERATIONS: Mapping[str, Callable[..., Tensor]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "^": torch.pow,
    "negative": torch.neg,
}


@final
@dataclass(frozen=True)
class _Part:
    """One part of a formula: a number, a name, or an operation on other parts."""

    number: float | None = None
    name: str | None = None
    operation: str | None = None
    inputs: "tuple[_Part, ...]" = ()


@final
@dataclass(frozen=True)
class Formula:
    """A formula that was read."""

    text: str
    root: _Part
    names: frozenset[str]
    """The names in it that are no functions and no constants."""

    def compute(self, values: Mapping[str, Tensor]) -> Tensor:
        """The formula's value.

        Args:
            values: A tensor for every name; they are broadcast.

        Returns:
            A tensor of the broadcast shape.
        """
        return _compute(self.root, values)


def _compute(part: _Part, values: Mapping[str, Tensor]) -> Tensor:
    if part.number is not None:
        return torch.tensor(part.number)
    if part.name is not None:
        return values[part.name] if part.name in values else torch.tensor(CONSTANTS[part.name])
    assert part.operation is not None
    inputs = [_compute(below, values) for below in part.inputs]
    known = FUNCTIONS.get(part.operation)
    return known.compute(*inputs) if known is not None else _OPERATIONS[part.operation](*inputs)


class _Token(NamedTuple):
    kind: str
    text: str
    place: int
    """Counted from 1."""


def read_formula(text: str, known: "frozenset[str] | set[str]") -> Formula:
    """Reads a formula; nothing in it is run.

    Args:
        text: What was written.
        known: The names that it may use.

    Returns:
        The formula.

    Raises:
        FormulaError: It is no formula, or uses a name that is not known.
    """
    if len(text) > LONGEST:
        raise FormulaError(f"at most {LONGEST} letters long, not {len(text)}")
    reader = _Reader(_tokens(text), frozenset(known))
    root = reader.sum(0)
    reader.end()
    return Formula(text, root, frozenset(reader.names))


def names_in(text: str) -> frozenset[str]:
    """The names that a formula uses, functions and constants aside."""
    words = {token.text for token in _tokens(text) if token.kind == "name"} - set(FUNCTIONS) - set(CONSTANTS)
    return read_formula(text, words).names


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            wrong = len(text) - len(text[place:].lstrip())
            raise FormulaError(
                f"made of numbers, names, + - * / ^ and brackets; {text[wrong]!r} at letter {wrong + 1} is none of them"
            )
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) + 1))
        place = match.end()
    return tokens


class _Reader:
    """Reads tokens from left to right, each once."""

    def __init__(self, tokens: list[_Token], known: frozenset[str]) -> None:
        self.tokens, self.known = tokens, known
        self.place, self.parts = 0, 0
        self.names: set[str] = set()

    def sum(self, depth: int) -> _Part:
        left = self.product(depth)
        while sign := self.take("+", "-"):
            left = self.made(operation=sign, inputs=(left, self.product(depth)))
        return left

    def product(self, depth: int) -> _Part:
        left = self.sign(depth)
        while sign := self.take("*", "/"):
            left = self.made(operation=sign, inputs=(left, self.sign(depth)))
        return left

    def sign(self, depth: int) -> _Part:
        self.check_depth(depth)
        if self.take("+"):
            return self.sign(depth + 1)
        if self.take("-"):
            return self.made(operation="negative", inputs=(self.sign(depth + 1),))
        return self.power(depth)

    def power(self, depth: int) -> _Part:
        base = self.atom(depth)
        if not self.take("^", "**"):
            return base
        exponent = self.sign(depth + 1)
        size = _constant(exponent)
        if size is not None and not abs(size) <= LARGEST_EXPONENT:
            raise FormulaError(f"without powers above {LARGEST_EXPONENT:g}; one of {size:g} is in it")
        return self.made(operation="^", inputs=(base, exponent))

    def atom(self, depth: int) -> _Part:
        token = self.peek()
        if token is None:
            raise FormulaError("complete; a number, a name or a bracket is missing at its end")
        self.place += 1
        if token.kind == "number":
            return self.number(token)
        if token.kind == "name":
            return self.call(token, depth) if self.take("(") else self.name(token)
        if token.text == "(":
            inside = self.sum(depth + 1)
            self.close(token)
            return inside
        raise FormulaError(
            f"one with a number, a name or a bracket in the place of {token.text!r} at letter {token.place}"
        )

    def number(self, token: _Token) -> _Part:
        value = float(token.text)
        if not value <= LARGEST_NUMBER:
            raise FormulaError(f"without numbers above {LARGEST_NUMBER:g}; {token.text[:20]!r} is in it")
        return self.made(number=value)

    def name(self, token: _Token) -> _Part:
        if token.text not in self.known and token.text not in CONSTANTS:
            if token.text in FUNCTIONS:
                raise FormulaError(f"one with brackets after {token.text}, such as {token.text}(x)")
            allowed = ", ".join(sorted(self.known | set(CONSTANTS)))
            raise FormulaError(f"of known names ({allowed}); {token.text!r} is none{meant(token.text, self.known)}")
        if token.text in self.known:
            self.names.add(token.text)
        return self.made(name=token.text)

    def call(self, token: _Token, depth: int) -> _Part:
        self.check_depth(depth)
        if token.text not in FUNCTIONS:
            hint = f" (to multiply, write {token.text} * (...))" if token.text in self.known else ""
            raise FormulaError(f"of known functions ({', '.join(FUNCTIONS)}); {token.text!r} is none{hint}")
        inputs = [self.sum(depth + 1)]
        while self.take(","):
            inputs.append(self.sum(depth + 1))
        self.close(token)
        wanted = FUNCTIONS[token.text].inputs
        if len(inputs) != wanted:
            raise FormulaError(f"one with {wanted} input(s) of {token.text}, not {len(inputs)}")
        return self.made(operation=token.text, inputs=tuple(inputs))

    def close(self, opened: _Token) -> None:
        if not self.take(")"):
            raise FormulaError(f"one in which the bracket at letter {opened.place} is closed")

    def end(self) -> None:
        token = self.peek()
        if token is not None:
            raise FormulaError(f"one with + - * / or ^ in the place of {token.text[:20]!r} at letter {token.place}")

    def peek(self) -> _Token | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def take(self, *signs: str) -> str | None:
        """The next token, if it is one of these signs."""
        token = self.peek()
        if token is None or token.kind != "sign" or token.text not in signs:
            return None
        self.place += 1
        return token.text

    def check_depth(self, depth: int) -> None:
        if depth > DEEPEST:
            raise FormulaError(f"at most {DEEPEST} brackets deep")

    def made(
        self,
        number: float | None = None,
        name: str | None = None,
        operation: str | None = None,
        inputs: tuple[_Part, ...] = (),
    ) -> _Part:
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise FormulaError(f"of at most {MOST_PARTS} numbers, names and operations")
        return _Part(number, name, operation, inputs)


def _constant(part: _Part) -> float | None:
    """The value of a part without names, as far as plain numbers say it; infinite where it is too large."""
    if part.number is not None:
        return part.number
    if part.name is not None or part.operation in FUNCTIONS:
        return CONSTANTS.get(part.name or "")
    inputs = [_constant(below) for below in part.inputs]
    if any(value is None for value in inputs):
        return None
    value = float(_compute(part, {}))
    return value if math.isfinite(value) else math.inf
