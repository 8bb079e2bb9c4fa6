"""Gaussian processes written out by hand, and problems drawn from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from torch import Generator, Tensor

from cicpe.gp.mixture import FLOOR, GPMixture
from cicpe.problems import Problem
from cicpe.spaces import Box, Interval

Array = NDArray[np.float64]

MATERN_3, MATERN_5, RBF = 0, 1, 2
"""Kinds of process, in their order."""

LINE = Box([-1.0], [1.0])
"""Its own unit coordinates."""

LEVEL = 0.2
"""What functions are asked to cross."""


def rng(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def correlation(kind: int, one: Array, two: Array, length: Array) -> Array:
    """Of a Matern 3/2, a Matern 5/2 and a squared exponential kernel, as in any textbook."""
    r = np.sqrt((((one[:, None] - two[None]) / length) ** 2).sum(axis=-1))
    if kind == MATERN_3:
        return np.asarray((1 + math.sqrt(3) * r) * np.exp(-math.sqrt(3) * r))
    if kind == MATERN_5:
        return np.asarray((1 + math.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-math.sqrt(5) * r))
    return np.asarray(np.exp(-(r**2) / 2))


class Truth(NamedTuple):
    """The numbers of one kind of process."""

    kind: int
    length: tuple[float, ...] = (0.3,)
    amplitude: float = 1.0
    level: float = 0.0
    wander: float = 1e-6
    noise: float = 0.1

    def kernel(self, one: Array, two: Array) -> Array:
        return self.amplitude**2 * correlation(self.kind, one, two, np.array(self.length)) + self.wander**2

    def log_density(self, place: Array, value: Array) -> float:
        cover = self.kernel(place, place) + self.noise**2 * np.eye(len(place))
        return float(multivariate_normal(np.full(len(place), self.level), cover).logpdf(value))

    def posterior(self, place: Array, value: Array, at: Array) -> tuple[Array, Array]:
        """Mean and covariance of the function."""
        gain = np.linalg.solve(self.kernel(place, place) + self.noise**2 * np.eye(len(place)), self.kernel(place, at)).T
        return self.level + gain @ (value - self.level), self.kernel(at, at) - gain @ self.kernel(place, at)


def mixture_of(truths: Sequence[Truth], shares: Sequence[float] | None = None, contexts: int = 0) -> GPMixture:
    """A mixture with these numbers. Known contexts multiply the noise (where the truth's is 1, they are it)."""
    found = GPMixture(len(truths), len(truths[0].length), contexts)
    assert [truth.kind for truth in truths] == [kind % 3 for kind in range(len(truths))]

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    with torch.no_grad():
        found.log_share_J.copy_(column([1.0] * len(truths) if shares is None else shares).clamp_min(1e-30).log())
        found.log_scale_JQ.copy_(torch.tensor([truth.length for truth in truths], dtype=torch.float64).log())
        found.log_amplitude_J.copy_(column([truth.amplitude for truth in truths]).log())
        found.level_J.copy_(column([truth.level for truth in truths]))
        found.log_wander_J.copy_(column([truth.wander for truth in truths]).log())
        found.log_noise_J.copy_(column([truth.noise - FLOOR for truth in truths]).clamp_min(1e-12).log())
        found.noise_by_context_JC.fill_(1.0)
    return found.requires_grad_(False)


def only(truth: Truth, contexts: int = 0) -> GPMixture:
    """A mixture of which one kind is possible."""
    return mixture_of(
        [truth._replace(kind=kind) for kind in range(3)], [float(kind == truth.kind) for kind in range(3)], contexts
    )


numbers = st.floats(-1.0, 1.0, allow_subnormal=False)


def single(values: object) -> Array:
    """Numbers that single precision holds: as they are told."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)


@st.composite
def histories(draw: st.DrawFn, dim: int) -> tuple[Array, Array]:
    """Places and values."""
    steps = draw(st.integers(1, 6))
    place = draw(st.lists(numbers, min_size=steps * dim, max_size=steps * dim))
    value = draw(st.lists(st.floats(-3.0, 3.0, allow_subnormal=False), min_size=steps, max_size=steps))
    return single(place).reshape(steps, dim), single(value)


@st.composite
def truths(draw: st.DrawFn, dim: int) -> list[Truth]:
    """One of each kind."""

    def some(low: float, high: float) -> float:
        return draw(st.floats(low, high))

    return [
        Truth(kind, tuple(some(0.05, 3.0) for _ in range(dim)), some(0.3, 2.0), some(-1.0, 1.0), some(1e-3, 1.0), noise)
        for kind in range(3)
        for noise in [some(0.02, 0.5)]
    ]


@final
@dataclass(frozen=True)
class Smooth(Problem):
    """A function from a Gaussian process on [-1, 1]: where is it largest, how large, or where does it cross LEVEL?"""

    length: float = 0.3
    levels: tuple[float, ...] = (0.1,)
    """Standard deviations of the noise, of which every task has one; it is told."""
    asks: Literal["place", "height", "crossing"] = "place"
    """Functions that are asked for a crossing have exactly one."""
    kind: int = RBF
    query_space = LINE
    context_names = ("noise",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer_space", Interval(-9.0, 9.0) if self.asks == "height" else LINE)

    def sample(self, n: int, rng: Generator) -> tuple[Tensor, Tensor]:
        grid = np.linspace(-1, 1, 256)[:, None]
        cover = torch.tensor(correlation(self.kind, grid, grid, np.array([self.length]))) + 1e-8 * torch.eye(256)
        drawn = n if self.asks != "crossing" else 40 * n + 200
        white = torch.randn((drawn, 256), generator=rng, dtype=torch.float64)
        which = torch.randint(len(self.levels), (n,), generator=rng)
        functions = (white @ torch.linalg.cholesky(cover).mT).float()
        if self.asks == "crossing":
            functions = functions[_changes(functions).sum(dim=1) == 1][:n]
            assert len(functions) == n
        return functions, torch.tensor(self.levels)[which]

    def observe(self, task: tuple[Tensor, Tensor], query: Tensor, rng: Generator) -> Tensor:
        at = (LINE.project(query)[:, 0] + 1) / 2 * 255
        cell = at.floor().clamp_max(254)
        rows, index = torch.arange(len(query)), cell.long()
        value = torch.lerp(task[0][rows, index], task[0][rows, index + 1], at - cell)
        return value + task[1] * torch.randn(len(query), generator=rng)

    def target(self, task: tuple[Tensor, Tensor]) -> Tensor:
        if self.asks == "crossing":
            rows, first = torch.arange(len(task[0])), _changes(task[0]).int().argmax(dim=1)
            low, high = task[0][rows, first], task[0][rows, first + 1]
            return (first + (LEVEL - low) / (high - low)) / 255 * 2 - 1
        height, peak = task[0].max(dim=1)
        return height if self.asks == "height" else peak / 255 * 2 - 1

    def context(self, task: tuple[Tensor, Tensor]) -> Tensor:
        return task[1][:, None]


def _changes(functions: Tensor) -> Tensor:
    """Where functions cross LEVEL, between one point of the grid and the next."""
    above = functions > LEVEL
    return above[:, 1:] != above[:, :-1]
