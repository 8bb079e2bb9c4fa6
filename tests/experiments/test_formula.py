"""Formulas: computed as NumPy computes them, and nothing but formulas is read."""

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cicpe.experiments.formula import DEEPEST, FUNCTIONS, LONGEST, FormulaError, names_in, read_formula

NUMPY = {
    "+": np.add,
    "-": np.subtract,
    "^": np.power,
    "*": np.multiply,
    "/": np.divide,
    "abs": np.abs,
    "cos": np.cos,
    "exp": np.exp,
    "log": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "max": np.maximum,
    "min": np.minimum,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
}
VALUES = {"a": np.array([0.3, 1.7, -2.0]), "b": np.array([2.0, 0.5, 1.1]), "long_name": np.array([4.0, -0.2, 0.9])}


def by_numpy(name: str, *inputs: np.ndarray) -> np.ndarray:
    """One operation; what it is not defined for becomes NaN."""
    with np.errstate(all="ignore"):
        return np.asarray(NUMPY[name](*inputs))


def _nudged(text: str, factor: float) -> np.ndarray:
    """The formula by ours, in double precision, with all names moved a little."""
    tensors = {name: torch.tensor(value * factor) for name, value in VALUES.items()}
    return read_formula(text, set(VALUES)).compute(tensors).expand(3).double().numpy()


Tree = tuple[str, np.ndarray]
"""A formula as text, and its value by NumPy."""


def _number(text: str) -> Tree:
    return text, np.full(3, float(text))


def leaves() -> st.SearchStrategy[Tree]:
    names = st.sampled_from(sorted(VALUES)).map(lambda name: (name, VALUES[name]))
    numbers = st.sampled_from(["2", "0.5", "3.25", "1e-1", ".75", "7."]).map(
        lambda text: (text, np.full(3, float(text)))
    )
    return names | numbers


def grown(below: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    @st.composite
    def operation(draw: st.DrawFn) -> Tree:
        sign = draw(st.sampled_from("+-*/"))
        (left, x), (right, y) = draw(below), draw(below)
        return f"({left} {sign} {right})", by_numpy(sign, x, y)

    @st.composite
    def call(draw: st.DrawFn) -> Tree:
        name = draw(st.sampled_from(sorted(FUNCTIONS)))
        inputs = [draw(below) for _ in range(FUNCTIONS[name].inputs)]
        return f"{name}({', '.join(text for text, _ in inputs)})", by_numpy(name, *(value for _, value in inputs))

    @st.composite
    def power(draw: st.DrawFn) -> Tree:
        text, x = draw(below)
        exponent = draw(st.integers(-3, 3))
        sign = draw(st.sampled_from(["^", "**"]))
        return f"({text}) {sign} {exponent}", by_numpy("^", x, np.full(3, float(exponent)))

    negative = below.map(lambda tree: (f"-{tree[0]}" if tree[0][0] != "-" else f"-({tree[0]})", -tree[1]))
    return operation() | call() | power() | negative.map(lambda tree: (f"({tree[0]})", tree[1]))


@settings(max_examples=300, deadline=None)
@given(st.recursive(leaves(), grown, max_leaves=12))
def test_a_formula_is_computed_as_numpy_computes_it(tree: Tree) -> None:
    text, expected = tree
    tensors = {name: torch.tensor(value) for name, value in VALUES.items()}
    found = read_formula(text, set(VALUES)).compute(tensors).expand(3).double().numpy()
    # Written numbers are in single precision: compared where the value does not hang on their last digits.
    nudged = [1 + 1e-6, 1 - 1e-6]
    spread = [_nudged(text, factor) for factor in nudged]
    with np.errstate(all="ignore"):
        steady = np.isfinite(expected) & (np.abs(spread[0] - spread[1]) <= 1e-4 * np.maximum(1, np.abs(expected)))
    assert np.allclose(found[steady], expected[steady], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("-2 ^ 2", -4),
        ("2 ^ -1", 0.5),
        ("2 ^ 3 ^ 2", 512),
        ("2 ** 3", 8),
        ("8 / 4 / 2", 1),
        ("7 - 4 - 2", 1),
        ("- - 3", 3),
        ("+3", 3),
        ("2 * -3", -6),
        ("max(1, min(5, 3))", 3),
        ("1.5e2", 150),
        ("cos(pi)", -1),
        ("logistic(0)", 0.5),
    ],
)
def test_signs_and_brackets_bind_as_at_school(text: str, value: float) -> None:
    assert float(read_formula(text, set()).compute({})) == pytest.approx(value, abs=1e-6)


def test_names_may_be_of_any_script() -> None:
    formula = read_formula("τ * größe", {"τ", "größe"})
    assert float(formula.compute({"τ": torch.tensor(2.0), "größe": torch.tensor(3.0)})) == 6
    assert formula.names == {"τ", "größe"} == names_in("τ * größe")


HOSTILE = [
    "__import__('os').system('true')",
    "a.__class__",
    "a.b",
    "().__class__.__bases__",
    "[1, 2][0]",
    "{1: 2}",
    "lambda: 1",
    "a if b else c",
    "a == b",
    "a; b",
    "a = 1",
    "'text'",
    "eval(1)",
    "exec(1)",
    "open(1)",
    "print(a)",
    "9 ** 9 ** 9",
    "9^9^9^9",
    "2 ^ 1e9",
    "a(b)",
    "exp",
    "exp()",
    "exp(1, 2)",
    "min(1)",
    "2 3",
    "a b",
    "1 +",
    "* 2",
    "()",
    "(1",
    "1)",
    "",
    "   ",
    "\x00",
    "1_000",
    "1j",
    "0x10",
    "1e999",
    "9" * 400,
    "(" * 300 + "1" + ")" * 100,
    "-" * 400 + "1",
    "+".join(["a"] * 240),
    "a" * (LONGEST + 1),
    "1 # comment",
    "a\nb",
    "∞",
    "a²",
    "a\u200bb",
    "\U0001d482",
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:30]))
def test_what_is_no_formula_is_refused_at_once(text: str) -> None:
    began = time.perf_counter()
    with pytest.raises(FormulaError):
        read_formula(text, {"a", "b", "c"})
    assert time.perf_counter() - began < 1


def test_depth_is_bounded_below_what_python_can_take() -> None:
    fine = "(" * (DEEPEST - 1) + "a" + ")" * (DEEPEST - 1)
    assert read_formula(fine, {"a"}).names == {"a"}
    with pytest.raises(FormulaError, match="deep"):
        read_formula("(" * (DEEPEST + 2) + "a" + ")" * (DEEPEST + 2), {"a"})


def test_a_refusal_says_what_was_meant() -> None:
    with pytest.raises(FormulaError, match="did you mean temperature"):
        read_formula("temprature + 1", {"temperature"})
    with pytest.raises(FormulaError, match=r"to multiply, write a \* "):
        read_formula("a(2)", {"a"})
