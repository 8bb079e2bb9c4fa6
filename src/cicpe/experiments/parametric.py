"""Experiments with a curve of a known form and unknown numbers in it: thresholds and formulas."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.experiments.checks import share_of_length, unknowns
from cicpe.experiments.experiment import Experiment, read_experiment
from cicpe.experiments.faults import ExperimentError, FileFault, Path
from cicpe.experiments.formula import read_formula
from cicpe.experiments.scales import (
    AnswerLayout,
    answer_layout,
    coordinates_of,
    is_relative,
    noise_range_of,
    outward,
    readout_of,
    settable_query,
    setting_scale,
    tolerance_share,
    tolerances,
    units_of,
    values_at,
)
from cicpe.experiments.schema import ExperimentParameter, FormulaModel, Range, ThresholdModel
from cicpe.problems.base import Problem
from cicpe.problems.observations import kind_of_readout
from cicpe.spaces import Box
from cicpe.units import Scale

NOISE = "the noise"
"""The name of an unknown noise among the parameters: no name that a formula can use."""
WIDTHS = (0.05, 0.5)
"""Of a threshold's width, as shares of the setting's range, where none is given."""
PILOT = 4096
"""Tasks that an experiment is tried on before anything is trained."""
MOST_CORNERS = 1024
LARGEST_COUNT = 1e5
Values = Mapping[str, Tensor]


class ResponseCurve(NamedTuple):
    """The form of an experiment: its unknown numbers, and the mean of a measurement given them."""

    unknown: tuple[Scale, ...]
    """Every unknown number; its prior is uniform on its scale."""
    fixed: Mapping[str, float]
    """Numbers that are known."""
    mean: Callable[[Tensor, Values], Tensor]
    """From a query's coordinates and the numbers' values: the mean of a number or a count, or a probability."""
    place: Path
    """Where in the file the form is written."""


@final
@dataclass(frozen=True, eq=False)
class ParametricExperiment(Problem):
    """Find unknown numbers of a curve, or something that follows from them (an experiment file)."""

    experiment: Any = "michaelis-menten"
    """An experiment as plain data, or the name of a template."""

    broadcasts = True

    def __post_init__(self) -> None:
        plan = read_experiment(self.experiment)
        if not isinstance(plan.model, ThresholdModel | FormulaModel):
            raise ExperimentError([FileFault(("model", "kind"), plan.model.kind, "threshold or formula")])
        object.__setattr__(self, "experiment", plan.document)
        settings = tuple(map(setting_scale, plan.setting))
        curve = _threshold(plan, settings[0]) if isinstance(plan.model, ThresholdModel) else _formula(plan, settings)
        object.__setattr__(self, "_form", _Form(plan, curve))
        object.__setattr__(self, "horizon", plan.goal.at_most)
        object.__setattr__(self, "query_space", Box([0.0] * len(settings), [1.0] * len(settings)))
        unknown = len(self.form.curve.unknown)
        object.__setattr__(self, "parameter_space", Box([0.0] * unknown, [1.0] * unknown))
        answers = self.form.answers
        object.__setattr__(self, "answer_space", answers.space)
        object.__setattr__(self, "default_epsilon", (answers.epsilon, answers.epsilon))
        readout = readout_of(plan, *self.form.standard)
        object.__setattr__(self, "units", units_of(plan, settings, readout, answers))
        object.__setattr__(self, "observation", kind_of_readout(readout, readout.origin, readout.scale))

    def __reduce__(self) -> tuple[type["ParametricExperiment"], tuple[Any]]:
        """Made again from its file where it is unpickled: a curve is a function, which cannot be sent."""
        return type(self), (self.experiment,)

    @property
    def form(self) -> "_Form":
        """The experiment as it is computed."""
        form: _Form = vars(self)["_form"]
        return form

    def sample(self, n: int, rng: Generator) -> Float[Tensor, "n parameter"]:
        return torch.rand((n, len(self.form.curve.unknown)), generator=rng)

    def mean(self, task: Float[Tensor, "*n parameter"], query: Float[Tensor, "*n query"]) -> Float[Tensor, " *n"]:
        """The mean of an observation: a number's in the model's coordinates, a count's mean, or a probability."""
        mean = self.form.mean(task, query)
        if self.form.kind != "number":
            return mean
        _, origin, scale = self.form.standard
        return (mean - origin) / scale

    def mean_in_units(self, task: Float[Tensor, "*n parameter"], query: Float[Tensor, "*n query"]) -> Tensor:
        """The mean in the unit of the measurement; of a count with ``of`` the share."""
        return self.form.mean(task, query)

    def observe(self, task: Tensor, query: Float[Tensor, "*n query"], rng: Generator) -> Float[Tensor, "*n 1"]:
        mean = self.mean(task, settable_query(self.units.settings, query))
        if self.form.kind == "number":
            drawn = mean + self.noise(task) * torch.randn(mean.shape, generator=rng)
        elif self.form.kind == "yes/no":
            drawn = (torch.rand(mean.shape, generator=rng) < mean).float()
        elif self.form.of is None:
            drawn = torch.poisson(mean.clamp_min(0), generator=rng)
        else:
            drawn = torch.binomial(torch.full_like(mean, float(self.form.of)), mean.clamp(0, 1), generator=rng)
        return drawn[..., None]

    def noise(self, task: Tensor) -> Tensor:
        """The standard deviation of a number, in the model's coordinates."""
        _, _, scale = self.form.standard
        return self.form.values(task)[NOISE] / scale

    def target(self, task: Tensor) -> Float[Tensor, "n answer"]:
        return self.form.target(task)

    def parameters(self, task: Tensor) -> Float[Tensor, "n parameter"]:
        return task

    def from_parameters(self, parameters: Float[Tensor, "*n parameter"], context: Tensor) -> Tensor:
        return parameters

    def log_likelihood(
        self, task: Tensor, query: Float[Tensor, "*#n query"], observation: Float[Tensor, "*#n 1"]
    ) -> Float[Tensor, " *both"]:
        mean, seen = self.mean(task, settable_query(self.units.settings, query)), observation[..., 0]
        if self.form.kind == "number":
            noise = self.noise(task)
            return -0.5 * ((seen - mean) / noise).square() - torch.log(noise) - 0.5 * math.log(2 * math.pi)
        if self.form.kind == "count" and self.form.of is None:
            rate = mean.clamp_min(1e-9)
            return seen * torch.log(rate) - rate - torch.lgamma(seen + 1)
        share = mean.clamp(1e-6, 1 - 1e-6)
        total = torch.tensor(float(self.form.of or 1))
        ways = torch.lgamma(total + 1) - torch.lgamma(seen + 1) - torch.lgamma(total - seen + 1)
        return ways + seen * torch.log(share) + (total - seen) * torch.log1p(-share)


@final
class _Form:
    """What is computed of an experiment with a curve."""

    def __init__(self, plan: Experiment, curve: ResponseCurve) -> None:
        self.plan, self.kind, self.of = plan, plan.measurement.kind, plan.measurement.of
        noise = _noise_scale(plan)
        hidden = (noise,) if isinstance(noise, Scale) else ()
        known = {NOISE: noise} if isinstance(noise, float) else {}
        self.curve = curve._replace(unknown=(*curve.unknown, *hidden), fixed={**curve.fixed, **known})
        self._check()

    def values(self, task: Float[Tensor, "*n parameter"]) -> dict[str, Tensor]:
        """Every number of the curve by name, in its unit."""
        values = {parameter.name: values_at(parameter, task[..., i]) for i, parameter in enumerate(self.curve.unknown)}
        return values | {name: torch.tensor(value) for name, value in self.curve.fixed.items()}

    def mean(self, task: Tensor, query: Tensor) -> Tensor:
        """The mean of a measurement, in its unit."""
        mean = self.curve.mean(query, self.values(task))
        # A formula may leave out what all tasks or all queries share: the shape is that of both together.
        return mean + torch.zeros_like(task[..., 0]) * torch.zeros_like(query[..., 0])

    def target(self, task: Tensor) -> Float[Tensor, "*n answer"]:
        """What is sought, in the model's coordinates."""
        values = self.values(task)
        columns = [coordinates_of(scale, self._sought(scale.name, values)) for scale in self.answers.scales]
        low, high = self.answers.space.low, self.answers.space.high
        limits = zip(columns, low, high, strict=True)
        return torch.stack([column.expand(task.shape[:-1]).clamp(a, b) for column, a, b in limits], dim=-1)

    def _sought(self, name: str, values: Values) -> Tensor:
        if isinstance(self.plan.model, ThresholdModel):
            return values[self.plan.goal.find if isinstance(self.plan.goal.find, str) else ""]
        return read_formula(name, set(values)).compute(values)

    @cached_property
    def answers(self) -> AnswerLayout:
        """What is sought, with its scales."""
        plan = self.plan
        if plan.goal.find == "threshold" and isinstance(plan.model, ThresholdModel):
            scale = setting_scale(plan.setting[0]).model_copy(update={"step": None, "values": ()})
            return answer_layout([scale], tolerances(plan, [scale.name]))
        wanted = tolerances(plan, plan.goal.sought)
        scales = [self._answer_scale(name, tolerance) for name, tolerance in zip(plan.goal.sought, wanted, strict=True)]
        return answer_layout(scales, wanted)

    def _answer_scale(self, name: str, tolerance: float | str) -> Scale:
        """The scale of a parameter or an expression: by factors where its tolerance is in per cent."""
        known = {parameter.name: parameter for parameter in self.curve.unknown}
        if name in known:
            scale = known[name].model_copy(update={"log": is_relative(tolerance)})
        else:
            values = self._sought(name, self.values(self._pilot_tasks))
            low, high = float(values.min()), float(values.max())
            if not (math.isfinite(low) and math.isfinite(high) and high - low > 1e-9 * (abs(low) + abs(high))):
                allowed = f"finite and unknown for all parameters in their ranges; it goes from {low:g} to {high:g}"
                raise ExperimentError([FileFault(("goal", "find"), name, allowed)])
            if is_relative(tolerance) and low <= 0:
                allowed = f"a number: {name} goes from {low:.3g} to {high:.3g}, and per cent needs it above 0"
                raise ExperimentError([FileFault(("goal", "within"), tolerance, allowed)])
            low, high = (low / 1.001, high * 1.001) if is_relative(tolerance) else outward(low, high)
            scale = Scale(name=name, low=low, high=high, log=is_relative(tolerance))
        share = tolerance_share(scale, tolerance)
        if not 1e-4 <= share <= 0.5:
            allowed = f"from a ten-thousandth to half of the range of {name}, {scale.low:.3g} to {scale.high:.3g}"
            raise ExperimentError([FileFault(("goal", "within"), tolerance, allowed)])
        return scale

    @cached_property
    def standard(self) -> tuple[Range | None, float, float]:
        """What is typical of a number, and the origin and scale by which a model sees it."""
        if self.kind != "number":
            return None, 0.0, 1.0
        typical = self.plan.measurement.typical
        if typical is None:
            mean = self.mean(self._pilot_tasks, self._pilot_queries).double()
            low, high = (float(value) for value in torch.quantile(mean, torch.tensor([0.01, 0.99]).double()))
            noise = noise_range_of(self.plan)[1]
            typical = (low, high) if high - low > 1e-6 * noise else (low - noise, high + noise)
        low, high = typical
        return typical, (low + high) / 2, (high - low) / 4

    # What is tried before anything is trained.

    @cached_property
    def _pilot_tasks(self) -> Float[Tensor, "n parameter"]:
        """Corners of the parameters' ranges, as many as there is room for, and tasks at random."""
        rng, dim = torch.Generator().manual_seed(0), len(self.curve.unknown)
        corners = torch.tensor(list(itertools.islice(itertools.product((0.0, 1.0), repeat=dim), MOST_CORNERS)))
        return torch.cat([corners, torch.rand((PILOT - len(corners), dim), generator=rng)])

    @cached_property
    def _pilot_queries(self) -> Float[Tensor, "n query"]:
        rng, dim = torch.Generator().manual_seed(1), len(self.plan.setting)
        places = torch.rand((PILOT, dim), generator=rng)
        edge = torch.rand((PILOT, dim), generator=rng) < 0.25
        return torch.where(edge, places.round(), places)

    def _check(self) -> None:
        """Refuses a curve that is not what its measurement needs somewhere in the ranges."""
        tasks, queries = self._pilot_tasks, self._pilot_queries
        corners = torch.tensor(list(itertools.product((0.0, 1.0), repeat=queries.shape[1])))
        every = torch.cat([queries, corners.repeat_interleave(MOST_CORNERS // len(corners), 0)])
        tasks = torch.cat([tasks, tasks[: len(every) - len(tasks)]])
        mean = self.mean(tasks, every)
        for wrong, allowed in self._wrong(mean):
            if bool(wrong.any()):
                row = int(wrong.nonzero()[0])
                where = self._in_words(tasks[row], every[row])
                value = float(mean[row])
                raise ExperimentError(
                    [FileFault(self.curve.place, self._text, f"{allowed}; it is {value:g} at {where}")]
                )
        if float(mean.double().std()) == 0:
            raise ExperimentError(
                [FileFault(self.curve.place, self._text, "one that changes with settings and parameters")]
            )

    def _wrong(self, mean: Tensor) -> list[tuple[Tensor, str]]:
        faults = [(~torch.isfinite(mean), "finite for all settings and parameters in their ranges")]
        if self.kind == "yes/no" or self.of is not None:
            faults.append(((mean < -1e-6) | (mean > 1 + 1e-6), "a probability, from 0 to 1"))
        elif self.kind == "count":
            faults.append((mean < 0, "a mean count, from 0 up"))
            faults.append((mean > LARGEST_COUNT, f"a mean count of at most {LARGEST_COUNT:g}"))
        else:
            faults.append((mean.abs() > 1e15, "of a size below 1e15"))
        return faults

    @property
    def _text(self) -> str:
        return self.plan.model.formula if isinstance(self.plan.model, FormulaModel) else self.plan.model.kind

    @property
    def _settings(self) -> list[Scale]:
        return list(map(setting_scale, self.plan.setting))

    def _in_words(self, task: Tensor, query: Tensor) -> str:
        settings = {setting.name: setting.value(float(at)) for setting, at in zip(self._settings, query, strict=True)}
        numbers = {
            parameter.name: parameter.value(float(at)) for parameter, at in zip(self.curve.unknown, task, strict=True)
        }
        named = {name: value for name, value in (settings | numbers).items() if name != NOISE}
        return ", ".join(f"{name} = {value:.3g}" for name, value in named.items())


def _noise_scale(plan: Experiment) -> Scale | float | None:
    """An unknown noise as a scale, a known one as a number; None where the measurement is no number."""
    if plan.measurement.kind != "number":
        return None
    low, high = noise_range_of(plan)
    return low if low == high else Scale(name=NOISE, low=low, high=high, log=True)


def _formula(plan: Experiment, settings: tuple[Scale, ...]) -> ResponseCurve:
    model = plan.model
    assert isinstance(model, FormulaModel)
    formula = read_formula(model.formula, {setting.name for setting in settings} | set(model.parameters))
    hidden = tuple(_parameter_scale(name, model.parameters[name]) for name in unknowns(model))
    fixed = {name: entry for name, entry in model.parameters.items() if isinstance(entry, float)}

    def mean(query: Tensor, values: Values) -> Tensor:
        named = {setting.name: values_at(setting, query[..., i]) for i, setting in enumerate(settings)}
        return formula.compute({**values, **named})

    return ResponseCurve(hidden, fixed, mean, ("model", "formula"))


def _parameter_scale(name: str, entry: Any) -> Scale:
    if isinstance(entry, ExperimentParameter):
        return Scale(name=name, unit=entry.unit, low=entry.range[0], high=entry.range[1], log=entry.scale == "log")
    return Scale(name=name, low=entry[0], high=entry[1])


class _Shape(NamedTuple):
    """A curve that rises from 0 to 1, and its inverse."""

    rise: Callable[[Tensor], Tensor]
    place: Callable[[Tensor], Tensor]


SHAPES: Mapping[str, _Shape] = {
    "logistic": _Shape(torch.sigmoid, torch.logit),
    "probit": _Shape(torch.special.ndtr, torch.special.ndtri),
    # In the setting's own scale: on a log scale this is Weibull's curve, 1 - exp(-(x / place)^slope).
    "weibull": _Shape(lambda z: -torch.expm1(-torch.exp(z)), lambda share: torch.log(-torch.log1p(-share))),
}


def _threshold(plan: Experiment, setting: Scale) -> ResponseCurve:
    """P(yes) = guess + (1 - guess - lapse) F(z), z linear in the setting, such that P is the level at the threshold."""
    model, goal = plan.model, plan.goal
    assert isinstance(model, ThresholdModel)
    rates = {name: _ends(getattr(model, name)) for name in ("guess", "lapse")}
    level = goal.level if goal.find == "threshold" and goal.level is not None else None
    level = (rates["guess"][1] + 1 - rates["lapse"][1]) / 2 if level is None else level
    setting_config = plan.setting[0]
    widths = WIDTHS if model.width is None else _ends(model.width)
    low, high = (
        widths
        if model.width is None
        else (share_of_length(widths[0], setting_config), share_of_length(widths[1], setting_config))
    )
    lowest, highest = model.threshold or setting_config.limits
    hidden = [Scale(name="threshold", unit=setting_config.unit, low=lowest, high=highest, log=setting.log)]
    fixed: dict[str, float] = {}
    for name, (a, b) in {"width": (low, high), **rates}.items():
        if a < b:
            hidden.append(Scale(name=name, low=a, high=b, log=name == "width"))
        else:
            fixed[name] = a
    shape, sign = SHAPES[model.shape], 1.0 if model.direction == "rising" else -1.0
    ends = shape.place(torch.tensor([0.1, 0.9], dtype=torch.float64))
    slope = float(ends[1] - ends[0])

    def mean(query: Tensor, values: Values) -> Tensor:
        span = 1 - values["guess"] - values["lapse"]
        middle = shape.place(((level - values["guess"]) / span).clamp(1e-4, 1 - 1e-4))
        place = coordinates_of(setting, values["threshold"])
        return values["guess"] + span * shape.rise(middle + sign * slope * (query[..., 0] - place) / values["width"])

    return ResponseCurve(tuple(hidden), fixed, mean, ("model",))


def _ends(value: float | Range) -> Range:
    return value if isinstance(value, tuple) else (value, value)
