"""What was understood of an experiment, in sentences."""

from collections.abc import Iterable

from cicpe.experiments.checks import length_of_share
from cicpe.experiments.experiment import Experiment, sentence_of
from cicpe.experiments.scales import noise_range_of, setting_scale, tolerances
from cicpe.experiments.schema import (
    ExperimentParameter,
    ExperimentSetting,
    FormulaModel,
    Range,
    SmoothModel,
    ThresholdModel,
)
from cicpe.experiments.smooth import length_ranges
from cicpe.rounding import with_unit


def in_words(plan: Experiment) -> list[str]:
    """The experiment in a few sentences, so that its author can see whether they were understood."""
    return [
        f"You choose {sentence_of([_setting(setting) for setting in plan.setting])}.",
        f"Each time you read {_measurement(plan)}.",
        *_model(plan),
        f"You look for {_goal(plan)}.",
    ]


def _range(ends: Range, unit: str = "") -> str:
    low, high = ends
    return with_unit(f"{low:g}" if low == high else f"{low:g} to {high:g}", unit)


def _setting(setting: ExperimentSetting) -> str:
    words = f"{setting.name}, {_range(setting.limits, setting.unit)}"
    if setting.values is not None:
        words += f" ({len(setting.values)} values)"
    if setting.step is not None:
        words += f" in steps of {setting.step:g}"
    return words + (" (on a log scale)" if setting.scale == "log" else "")


def _measurement(plan: Experiment) -> str:
    measurement = plan.measurement
    if measurement.kind == "yes/no":
        return f"{measurement.name}: yes or no"
    if measurement.kind == "count":
        return f"{measurement.name}: a count" + ("" if measurement.of is None else f" out of {measurement.of}")
    typical = "" if measurement.typical is None else f", mostly {_range(measurement.typical, measurement.unit)}"
    return (
        f"{measurement.name}, a number{typical}, with noise of standard deviation "
        f"{_range(noise_range_of(plan), measurement.unit)}"
    )


def _model(plan: Experiment) -> Iterable[str]:
    name, model = plan.measurement.name, plan.model
    if isinstance(model, SmoothModel):
        over = [_length(setting, ends) for setting, ends in zip(plan.setting, length_ranges(plan), strict=True)]
        yield f"It is taken to be a smooth function, of which {name} changes much over {sentence_of(over)}."
    elif isinstance(model, ThresholdModel):
        way = "rises" if model.direction == "rising" else "falls"
        guess, lapse = _range(_pair(model.guess)), _range(_pair(model.lapse))
        yield (
            f"The probability of {name} {way} with {plan.setting[0].name} along a {model.shape} curve; "
            f"it is {guess} at one end and 1 less {lapse} at the other."
        )
    else:
        what = {"number": "mean", "yes/no": "probability", "count": "mean"}[plan.measurement.kind]
        known = sentence_of([_parameter(*entry) for entry in model.parameters.items()])
        yield f"Its {what} is {model.formula}, with {known}."


def _pair(value: float | Range) -> Range:
    return value if isinstance(value, tuple) else (value, value)


def _length(setting: ExperimentSetting, shares: Range) -> str:
    low, high = (f"{length_of_share(share, setting):.3g}" for share in shares)
    ends = low if low == high else f"{low} to {high}"
    return (
        f"a factor of {ends} of {setting.name}"
        if setting.scale == "log"
        else f"{with_unit(ends, setting.unit)} of {setting.name}"
    )


def _parameter(name: str, entry: float | Range | ExperimentParameter) -> str:
    if isinstance(entry, ExperimentParameter):
        return f"{name} {_range(entry.range, entry.unit)}" + (" (on a log scale)" if entry.scale == "log" else "")
    return f"{name} {entry:g}" if isinstance(entry, float) else f"{name} {_range(entry)}"


def _goal(plan: Experiment) -> str:
    goal, name = plan.goal, plan.measurement.name
    settings = sentence_of([setting.name for setting in plan.setting])
    what = {
        "peak": f"the {settings} with the highest {name}",
        "trough": f"the {settings} with the lowest {name}",
        "height": f"the highest {name}",
        "depth": f"the lowest {name}",
        "crossing": f"the {settings} at which {name} is {with_unit(f'{goal.level or 0:g}', plan.measurement.unit)}",
        "threshold": f"the {settings} at which the probability of {name} is {_level(plan)}",
    }
    sought = sentence_of(goal.sought) if isinstance(plan.model, FormulaModel) else what[goal.sought[0]]
    return f"{sought}, within {_within(plan)}, {100 * goal.sure:g} % sure, after at most {goal.at_most} measurements"


def _level(plan: Experiment) -> str:
    return "half-way up" if plan.goal.level is None else f"{plan.goal.level:g}"


def _within(plan: Experiment) -> str:
    """The tolerances as they were written."""
    units = {setting.name: setting_scale(setting).unit for setting in plan.setting} | {
        plan.measurement.name: plan.measurement.unit
    }
    if isinstance(plan.model, FormulaModel):
        entries = plan.model.parameters.items()
        units |= {name: entry.unit for name, entry in entries if isinstance(entry, ExperimentParameter)}
        names = list(plan.goal.sought)
    else:
        height = plan.goal.find in ("height", "depth")
        names = [plan.measurement.name] if height else [setting.name for setting in plan.setting]
    pairs = zip(names, tolerances(plan, names), strict=True)
    each = {name: off if isinstance(off, str) else with_unit(f"{off:g}", units.get(name, "")) for name, off in pairs}
    if len(each) == 1:
        return each[names[0]]
    return sentence_of([f"{off} of {name}" for name, off in each.items()])
