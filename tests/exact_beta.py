"""Beta distributions of whole shapes in exact fractions, for tests."""

from fractions import Fraction
from math import factorial


def beta_function(a: int, b: int) -> Fraction:
    """B(a, b)."""
    return Fraction(factorial(a - 1) * factorial(b - 1), factorial(a + b - 1))


def order_probability(a: int, b: int, c: int, d: int) -> Fraction:
    """P(p > q) for p ~ Beta(a, b) and q ~ Beta(c, d): a finite sum."""
    terms = (beta_function(c + i, b + d) / ((b + i) * beta_function(1 + i, b)) for i in range(a))
    return sum(terms, Fraction(0)) / beta_function(c, d)
