"""Experiments on a random smooth function of one to three settings: where is its peak, how high, where does it cross?

A function is a sum of waves, f(x) = sum_j a_j cos(w_j x) + b_j sin(w_j x), with normal w_j, as wide as one over the
length scale, and normal a_j and b_j: for many waves a Gaussian process with the squared exponential kernel, which can
be computed anywhere.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe import trees
from cicpe.errors import ProblemError
from cicpe.experiments.checks import share_of_length
from cicpe.experiments.experiment import Experiment, read_experiment
from cicpe.experiments.faults import ExperimentError, FileFault
from cicpe.experiments.scales import (
    AnswerLayout,
    answer_layout,
    noise_range_of,
    readout_of,
    settable_query,
    setting_scale,
    tolerances,
    units_of,
)
from cicpe.experiments.schema import Range, SmoothModel
from cicpe.problems.base import Problem
from cicpe.problems.context import sample_noise
from cicpe.problems.observations import kind_of_readout
from cicpe.spaces import Box, Interval, Space
from cicpe.units import Scale

WAVES = 48
SIDES: Mapping[int, int] = {1: 65, 2: 33, 3: 13}
"""Points per setting of the grid on which a peak is looked for first."""
ROUNDS = 10
"""Halvings of the grid about the best point."""
CHUNK = 512
"""Functions whose grids are held at once."""
BUMPS: Mapping[str, Range] = {"one": (0.4, 0.8), "few": (0.15, 0.35), "many": (0.06, 0.14)}
"""Length scales as shares of the range."""
HEIGHTS = 5.0
"""Standard deviations up to which a height may lie."""
DRAWS = 4.0
"""Standard deviations between the ends of what is typical."""
TRIES = 200
"""Batches that are drawn, at least, for functions that cross a level once."""
RAREST = 0.02
"""Share of functions that have to cross it once."""


class SmoothTask(NamedTuple):
    """``n`` hidden functions with their noise levels and what is sought of each."""

    frequency: Float[Tensor, "n wave query"]
    cosine: Float[Tensor, "n wave"]
    sine: Float[Tensor, "n wave"]
    noise: Float[Tensor, " n"]
    target: Float[Tensor, "n answer"]


@final
@dataclass(frozen=True, eq=False)
class SmoothExperiment(Problem):
    """Find the peak of a random smooth function, its height, or where it crosses a level (an experiment file)."""

    experiment: Any = "peak-1d"
    """An experiment as plain data, or the name of a template."""

    def __post_init__(self) -> None:
        plan = read_experiment(self.experiment)
        if not isinstance(plan.model, SmoothModel):
            raise ExperimentError([FileFault(("model", "kind"), plan.model.kind, "smooth")])
        object.__setattr__(self, "experiment", plan.document)
        object.__setattr__(self, "_plan", plan)
        settings, answers = _settings(plan), _answers(plan)
        space = Box([0.0] * len(settings), [setting.extent for setting in settings], norm=_norm(plan))
        lies: Space = Interval(-HEIGHTS, HEIGHTS) if plan.goal.find in ("height", "depth") else space
        object.__setattr__(self, "horizon", plan.goal.at_most)
        object.__setattr__(self, "query_space", space)
        object.__setattr__(self, "answer_space", lies)
        object.__setattr__(self, "default_epsilon", (answers.epsilon, answers.epsilon))
        middle, scale = _standard(plan)
        readout = readout_of(plan, plan.measurement.typical, middle, scale)
        object.__setattr__(self, "units", units_of(plan, settings, readout, answers))
        object.__setattr__(self, "observation", kind_of_readout(readout, readout.origin, readout.scale))
        self._check_crossings()

    @property
    def plan(self) -> Experiment:
        """The experiment."""
        plan: Experiment = vars(self)["_plan"]
        return plan

    @property
    def shape(self) -> str:
        """All that a model sees of the family, in words: two with the same words are the same tasks."""
        scale = abs(_standard(self.plan)[1])
        noise = " to ".join(f"{std / scale:.4g}" for std in noise_range_of(self.plan))
        lengths = ", ".join(f"{low:.4g} to {high:.4g}" for low, high in length_ranges(self.plan))
        goal = {"trough": "peak", "depth": "height"}.get(str(self.plan.goal.find), str(self.plan.goal.find))
        level = f" at {self.level:.3g}" if goal == "crossing" else ""
        return f"{goal}{level}, lengths {lengths} of the range, noise {noise} standard deviations"

    @property
    def level(self) -> float:
        """The value that is crossed, in the model's coordinates."""
        middle, scale = _standard(self.plan)
        assert self.plan.goal.level is not None
        return (self.plan.goal.level - middle) / scale

    def sample(self, n: int, rng: Generator) -> SmoothTask:
        if self.plan.goal.find != "crossing":
            parts = [self._peaked(self._draw(min(CHUNK, n - first), rng)) for first in range(0, n, CHUNK)]
            return trees.concatenate(parts)
        parts = []
        for _ in range(TRIES + n):
            parts.append(self._crossed(self._draw(min(max(n, 64), CHUNK), rng)))
            if sum(len(part.noise) for part in parts) >= n:
                return trees.select(trees.concatenate(parts), torch.arange(n))
        raise ProblemError("hardly any function crosses the level exactly once: choose another level or fewer bumps")

    def value(self, task: SmoothTask, query: Float[Tensor, "*n query"]) -> Float[Tensor, "*n"]:
        """f at the query, in the model's coordinates."""
        phase = (task.frequency * query[..., None, :]).sum(dim=-1)
        return (task.cosine * torch.cos(phase) + task.sine * torch.sin(phase)).sum(dim=-1)

    def mean_in_units(self, task: SmoothTask, query: Float[Tensor, "*n query"]) -> Float[Tensor, "*n"]:
        """f at the query, in the unit of the measurement."""
        middle, scale = _standard(self.plan)
        return middle + scale * self.value(task, query)

    def observe(self, task: SmoothTask, query: Float[Tensor, "n query"], rng: Generator) -> Float[Tensor, "n 1"]:
        value = self.value(task, settable_query(self.units.settings, query))
        return (value + task.noise * torch.randn(value.shape, generator=rng))[..., None]

    def target(self, task: SmoothTask) -> Float[Tensor, "n answer"]:
        return task.target

    # How tasks are made.

    def _draw(self, n: int, rng: Generator) -> SmoothTask:
        """Functions, without what is sought of them."""
        settings, dim = self.units.settings, self.query_space.dim
        columns = []
        for setting, (low, high) in zip(settings, length_ranges(self.plan), strict=True):
            length = low * (high / low) ** torch.rand((n, 1), generator=rng)
            columns.append(torch.randn((n, WAVES), generator=rng) / (length * setting.extent))
        cosine, sine = (torch.randn((n, WAVES), generator=rng) / math.sqrt(WAVES) for _ in range(2))
        low, high = noise_range_of(self.plan)
        scale = abs(_standard(self.plan)[1])
        noise = sample_noise((low / scale, high / scale), n, rng)
        return SmoothTask(torch.stack(columns, dim=-1), cosine, sine, noise, torch.zeros(n, dim))

    def _peaked(self, task: SmoothTask) -> SmoothTask:
        """Functions with their peaks: the best point of a grid, and then of finer and finer ones about it."""
        lines = [torch.linspace(0, setting.extent, SIDES[self.query_space.dim]) for setting in self.units.settings]
        lattice = torch.cartesian_prod(*lines).view(-1, len(lines))
        place = lattice[_on_lattice(task, lines).argmax(dim=1)]
        step = torch.stack([line[1] - line[0] for line in lines])
        around = torch.cartesian_prod(*[torch.tensor([-1.0, 0.0, 1.0])] * len(lines)).view(-1, len(lines))
        rows = torch.arange(len(place))
        for _ in range(ROUNDS):
            step = step / 2
            tried = self.query_space.project(place[:, None] + around * step)
            place = tried[rows, self._values(task, tried).argmax(dim=1)]
        if self.plan.goal.find in ("height", "depth"):
            return task._replace(target=self.value(task, place)[:, None].clamp(-HEIGHTS, HEIGHTS))
        return task._replace(target=place)

    def _values(self, task: SmoothTask, places: Float[Tensor, "n k query"]) -> Float[Tensor, "n k"]:
        many = task._replace(
            frequency=task.frequency[:, None],
            cosine=task.cosine[:, None],
            sine=task.sine[:, None],
            noise=task.noise[:, None],
            target=task.target[:, None],
        )
        return self.value(many, places)

    def _crossed(self, task: SmoothTask) -> SmoothTask:
        """Those functions that cross the level once, with the place: by bisection."""
        line = torch.linspace(0, 1, SIDES[1])
        above = _on_lattice(task, [line]) > self.level
        once = (above[:, 1:] != above[:, :-1]).sum(dim=1) == 1
        task, above = trees.select(task, once), above[once]
        first = (above[:, 1:] != above[:, :-1]).float().argmax(dim=1)
        low, high, rising = line[first], line[first + 1], above[:, -1]
        for _ in range(2 * ROUNDS):
            middle = (low + high) / 2
            beyond = (self.value(task, middle[:, None]) > self.level) == rising
            low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
        return task._replace(target=((low + high) / 2)[:, None])

    def _check_crossings(self) -> None:
        if self.plan.goal.find != "crossing":
            return
        drawn = self._draw(CHUNK, torch.Generator().manual_seed(0))
        share = len(self._crossed(drawn).noise) / CHUNK
        if share < RAREST:
            allowed = f"one that functions of this kind cross exactly once; {100 * share:.1f} % of them do"
            raise ExperimentError([FileFault(("goal", "level"), self.plan.goal.level, allowed)])


def _on_lattice(task: SmoothTask, lines: list[Tensor]) -> Float[Tensor, "n lattice"]:
    """Functions on the product of some lines, by the product of their waves along each."""
    wave = [torch.exp(1j * task.frequency[..., i, None] * line) for i, line in enumerate(lines)]
    left = torch.complex(task.cosine, -task.sine)[..., None] * wave[0]
    right = torch.ones_like(wave[0][..., :1])
    for factor in wave[1:]:
        right = (right[..., :, None] * factor[..., None, :]).flatten(2)
    return torch.bmm(left.transpose(1, 2), right).real.flatten(1)


def _standard(plan: Experiment) -> tuple[float, float]:
    """The middle of what is typical, and one standard deviation; negative where the lowest value is sought."""
    assert plan.measurement.typical is not None
    low, high = plan.measurement.typical
    sign = -1.0 if plan.goal.find in ("trough", "depth") else 1.0
    return (low + high) / 2, sign * (high - low) / DRAWS


def _norm(plan: Experiment) -> Any:
    return "max" if len(plan.setting) > 1 and plan.goal.find in ("peak", "trough") else "euclidean"


def _settings(plan: Experiment) -> tuple[Scale, ...]:
    """The settings' scales; where a place is sought, stretched so that one tolerance serves all."""
    scales = tuple(map(setting_scale, plan.setting))
    if plan.goal.find in ("height", "depth"):
        return scales
    return answer_layout(scales, tolerances(plan, [scale.name for scale in scales])).scales


def _answers(plan: Experiment) -> AnswerLayout:
    if plan.goal.find not in ("height", "depth"):
        wanted = tolerances(plan, [setting.name for setting in plan.setting])
        layout = answer_layout(tuple(map(setting_scale, plan.setting)), wanted)
        plain = tuple(answer_scale.model_copy(update={"step": None, "values": ()}) for answer_scale in layout.scales)
        return layout._replace(scales=plain)
    middle, scale = _standard(plan)
    (tolerance,) = tolerances(plan, [plan.measurement.name])
    ends = middle - HEIGHTS * scale, middle + HEIGHTS * scale
    readout_scale = Scale(
        name=plan.measurement.name,
        unit=plan.measurement.unit,
        low=ends[0],
        high=ends[1],
        start=-HEIGHTS,
        extent=2 * HEIGHTS,
    )
    return AnswerLayout((readout_scale,), float(tolerance) / abs(scale))


def length_ranges(plan: Experiment) -> list[Range]:
    """The range of every setting's length scale, as shares of its range."""
    assert isinstance(plan.model, SmoothModel)
    if plan.model.lengths is None:
        return [BUMPS[plan.model.bumps or "few"]] * len(plan.setting)
    ranges = []
    for setting in plan.setting:
        length = plan.model.lengths[setting.name]
        low, high = length if isinstance(length, tuple) else (length, length)
        ranges.append((share_of_length(low, setting), share_of_length(high, setting)))
    return ranges
