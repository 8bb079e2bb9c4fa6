"""The prior of the two failure rates, and the probability that one of two Beta distributed rates is the larger.

Before the culprit a run fails with one unknown probability, from the culprit on with another. Each has a Beta prior,
and the second may be known to be larger.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from cicpe.errors import InvalidInput

Numbers = npt.NDArray[np.float64]

NODES = 10
"""Quadrature nodes per panel."""
SMALLEST_SHAPE, LARGEST_SHAPE = 0.05, 1e4
"""Shapes of Beta priors that can be stated."""


@final
@dataclass(frozen=True)
class BetaShape:
    """A Beta distribution of a failure rate: as if ``fails`` failures and ``passes`` passes had been seen."""

    fails: float
    passes: float

    def __post_init__(self) -> None:
        for value in (self.fails, self.passes):
            if not SMALLEST_SHAPE <= value <= LARGEST_SHAPE:
                allowed = f"two numbers from {SMALLEST_SHAPE:g} to {LARGEST_SHAPE:g}, failures and passes"
                raise InvalidInput("prior", (self.fails, self.passes), allowed)


@final
@dataclass(frozen=True)
class RatePrior:
    """The prior of the failure rates before the culprit and from the culprit on."""

    before: BetaShape = BetaShape(0.5, 5.0)
    after: BetaShape = BetaShape(1.0, 1.0)
    ordered: bool = True
    """Whether the rate after is known to be larger than the rate before."""


USUAL_RATES = RatePrior()
"""What is taken to be known where a user says nothing: before, the test mostly passed; after, anything larger."""


class _Grid(NamedTuple):
    """Quadrature nodes in the order of their rates, which are logistic in the variable of integration."""

    log_fail: Numbers
    log_pass: Numbers
    log_weight: Numbers


def log_beta(fails: float, passes: float) -> float:
    """The logarithm of the Beta function."""
    return math.lgamma(fails) + math.lgamma(passes) - math.lgamma(fails + passes)


def log_overlap(larger: BetaShape, smaller: BetaShape) -> float:
    """The logarithm of ``B(a + c, b + d) / (B(a, b) B(c, d))``, by which P(larger > smaller) moves when counts grow."""
    joint = log_beta(larger.fails + smaller.fails, larger.passes + smaller.passes)
    return joint - log_beta(larger.fails, larger.passes) - log_beta(smaller.fails, smaller.passes)


def log_order_probability(a: Numbers, b: Numbers, c: Numbers, d: Numbers) -> Numbers:
    """The logarithm of P(p > q) for independent p ~ Beta(a, b) and q ~ Beta(c, d), however small it is.

    Gauss-Legendre quadrature on panels in the log-odds, where a Beta density is smooth whatever its shapes are, as
    wide as the sharper of the densities needs. All terms are positive, so that small probabilities keep their digits.

    Args:
        a: Shapes of p, one entry per pair.
        b: Shapes of p.
        c: Shapes of q.
        d: Shapes of q.

    Returns:
        One logarithm per pair.
    """
    shapes = np.stack([a, b, c, d])
    # A panel is less than a standard deviation of a rate, which in arcsine coordinates is 1 / (2 sqrt(a + b)): in the
    # tails, where a small probability comes from, densities change by orders of magnitude over a few of those.
    wanted = 12 + 4 * math.sqrt(float(shapes.sum(axis=0).max()))
    grid = _grid(round(2 ** (math.ceil(2 * math.log2(wanted)) / 2)), float(shapes.min()))
    larger, smaller = _density(grid, a, b), _density(grid, c, d)
    mass = (larger * _integral_below(smaller)).sum(axis=-1)
    whole = larger.sum(axis=-1) * smaller.sum(axis=-1)
    result: Numbers = np.log(np.maximum(mass, np.finfo(np.float64).tiny)) - np.log(whole)
    return result


def _density(grid: _Grid, fails: Numbers, passes: Numbers) -> Numbers:
    """Weights of the nodes under a Beta density, the largest of each row 1."""
    log_density = fails[:, None] * grid.log_fail + passes[:, None] * grid.log_pass + grid.log_weight
    result: Numbers = np.exp(log_density - log_density.max(axis=-1, keepdims=True))
    return result


def _integral_below(weight: Numbers) -> Numbers:
    """At each node, the integral of what lies below it: of whole panels, and of a part of its own."""
    panels = weight.reshape(*weight.shape[:-1], -1, NODES)
    whole = panels.sum(axis=-1)
    earlier = np.cumsum(whole, axis=-1) - whole
    part = np.maximum(panels @ _parts_of_a_panel(), 0.0)
    result: Numbers = (earlier[..., None] + part).reshape(weight.shape)
    return result


@lru_cache(maxsize=1)
def _parts_of_a_panel() -> Numbers:
    """``NODES x NODES``: from the weights at the nodes to the integrals of their polynomial up to each node."""
    node, _ = np.polynomial.legendre.leggauss(NODES)
    degree = np.arange(NODES)
    values = np.polynomial.legendre.legvander(node, NODES)
    # Of the Legendre polynomial of degree d, the integral from -1 is (P[d + 1] - P[d - 1]) / (2 d + 1).
    lower = np.concatenate([-np.ones((NODES, 1)), values[:, : NODES - 1]], axis=1)
    integrals = (values[:, 1:] - lower) / (2 * degree + 1)
    coefficients = (2 * degree + 1) / 2 * values[:, :NODES]  # of the polynomial that is 1 at a node, over its weight
    result: Numbers = coefficients @ integrals.T
    return result


@lru_cache(maxsize=32)
def _grid(inner: int, smallest_shape: float) -> _Grid:
    """Panels that are equal in arcsine coordinates, and ever wider ones to both ends."""
    angle = np.linspace(0, math.pi / 2, inner + 1)[1:-1]
    middle = 2 * np.log(np.tan(angle))
    outer, width = [float(middle[-1])], 1.0
    while outer[-1] < 30 / smallest_shape:
        width = min(1.4 * width, 8 / smallest_shape)
        outer.append(outer[-1] + width)
    beyond = np.array(outer[1:])
    edges = np.concatenate([-beyond[::-1], middle, beyond])
    node, weight = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(edges)[:, None] / 2
    log_odds = ((edges[:-1, None] + half) + half * node).ravel()
    return _Grid(-np.logaddexp(0, -log_odds), -np.logaddexp(0, log_odds), np.log(half * weight).ravel())
