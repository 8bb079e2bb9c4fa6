"""What has to fit together in an experiment, checked part by part so that all faults are found at once."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cicpe.errors import meant
from cicpe.experiments.faults import FileFault, Path
from cicpe.experiments.formula import CONSTANTS, FUNCTIONS, FormulaError, names_in, read_formula
from cicpe.experiments.schema import (
    NAME,
    ExperimentGoal,
    ExperimentMeasurement,
    ExperimentParameter,
    ExperimentSetting,
    FormulaModel,
    Range,
    SmoothModel,
    ThresholdModel,
)

Parts = Mapping[str, Any]
"""The parts of an experiment that could be read, by their names in the file."""
LEAST_SHARE, MOST_SHARE = 1e-4, 0.5
"""Of a range: how exactly something may be asked for, and how loosely."""
LOG_DECADES = 30


def check_parts(parts: Parts) -> list[FileFault]:
    """Everything that does not fit, as far as the parts that could be read say it."""
    checks: tuple[tuple[tuple[str, ...], Callable[..., Iterator[FileFault]]], ...] = (
        (("setting",), _settings),
        (("measurement",), _measurement),
        (("model",), _ranges),
        (("setting", "model"), _names),
        (("setting", "measurement", "model"), _kinds),
        (("setting", "model"), _lengths),
        (("setting", "model"), _formula),
        (("model", "goal"), _goal),
        (("setting", "measurement", "model", "goal"), _within),
    )
    faults: dict[tuple[Path, str], FileFault] = {}
    if "setting" not in parts:  # then what needs the settings is checked as far as it can be without
        checks += ((("model",), _syntax), (("goal",), _written_tolerances))
    for needed, check in checks:
        if all(name in parts for name in needed):
            for fault in check(*(parts[name] for name in needed)):
                faults.setdefault((fault.path, fault.allowed), fault)
    return list(faults.values())


def _pair(path: Path, values: Range, log: bool = False) -> Iterator[FileFault]:
    low, high = values
    if not low < high:
        yield FileFault(path, list(values), "two numbers, the lower one first")
    elif log and low <= 0:
        yield FileFault(path, list(values), "above 0 on a log scale")
    elif not log and high - low < 1e-6 * max(abs(low), abs(high)):
        yield FileFault(path, list(values), "two numbers that are farther apart")
    elif log and high / low > 10**LOG_DECADES:
        yield FileFault(path, list(values), f"at most {LOG_DECADES} powers of ten apart")
    elif high - low < 1e-12:
        yield FileFault(path, list(values), "two numbers that are farther apart: choose a smaller unit")


def _settings(settings: tuple[ExperimentSetting, ...]) -> Iterator[FileFault]:
    for i, setting in enumerate(settings):
        yield from check_setting(("setting", i), setting)


def check_setting(path: Path, one: ExperimentSetting) -> Iterator[FileFault]:
    """What does not fit together in one setting."""
    if (one.range is None) == (one.values is None):
        yield FileFault((*path, "range"), None if one.range is None else list(one.range), "given, or else values")
        return
    yield from _pair((*path, "range" if one.values is None else "values"), one.limits, one.scale == "log")
    low, high = one.limits
    if not low < high:
        return
    if one.step is not None and one.values is not None:
        yield FileFault((*path, "step"), one.step, "left out with values")
    elif one.step is not None and not one.step <= high - low:
        yield FileFault((*path, "step"), one.step, f"at most the width of the range, {high - low:g}")
    elif one.step is not None and (high - low) / one.step > 1e6:
        yield FileFault((*path, "step"), one.step, "at least a millionth of the range")


def _measurement(measurement: ExperimentMeasurement) -> Iterator[FileFault]:
    for name in ("typical", "limits"):
        values = getattr(measurement, name)
        if values is not None:
            yield from _pair(("measurement", name), values)
    for name in ("typical", "noise", "limits"):
        if measurement.kind != "number" and getattr(measurement, name) is not None:
            allowed = f"left out: it is for numbers, and this is a {measurement.kind} measurement"
            yield FileFault(("measurement", name), _plain(getattr(measurement, name)), allowed)
    if measurement.kind != "count" and measurement.of is not None:
        yield FileFault(("measurement", "of"), measurement.of, "left out: it is for counts")
    if measurement.kind != "number":
        return
    if measurement.noise is None:
        yield FileFault(("measurement", "noise"), None, "given: a standard deviation, or the range that it may be in")
    elif isinstance(measurement.noise, tuple):
        yield from _pair(("measurement", "noise"), measurement.noise, log=True)
    elif measurement.noise <= 0:
        yield FileFault(("measurement", "noise"), measurement.noise, "above 0")
    noise = _high(measurement.noise)
    if measurement.typical is not None and noise is not None and measurement.typical[0] < measurement.typical[1]:
        width = measurement.typical[1] - measurement.typical[0]
        if not 1e-5 * width <= noise <= 10 * width:
            allowed = f"from a hundred-thousandth to ten times the width of typical, {width:g}"
            yield FileFault(("measurement", "noise"), _plain(measurement.noise), allowed)


def _ranges(model: Any) -> Iterator[FileFault]:
    """The ranges inside a model, each by itself."""
    if isinstance(model, FormulaModel):
        for name, entry in model.parameters.items():
            path: Path = ("model", "parameters", name)
            if isinstance(entry, ExperimentParameter):
                yield from _pair((*path, "range"), entry.range, entry.scale == "log")
            elif isinstance(entry, tuple):
                yield from _pair(path, entry)
    if isinstance(model, ThresholdModel):
        for name in ("guess", "lapse"):
            values = getattr(model, name)
            low, high = values if isinstance(values, tuple) else (values, values)
            if not 0 <= low <= high <= 0.9:
                yield FileFault(("model", name), _plain(values), "a probability from 0 to 0.9, or a low and a high one")
        if _high(model.guess) + _high(model.lapse) >= 0.95:  # type: ignore[operator]
            yield FileFault(("model", "lapse"), _plain(model.lapse), "less than 0.95 together with guess")


def _names(settings: tuple[ExperimentSetting, ...], model: Any) -> Iterator[FileFault]:
    taken: set[str] = set()
    for i, setting in enumerate(settings):
        yield from _name(("setting", i, "name"), setting.name, taken)
        taken.add(setting.name)
    for name in model.parameters if isinstance(model, FormulaModel) else ():
        yield from _name(("model", "parameters", name), name, taken)
        taken.add(name)


def _name(path: Path, name: str, taken: set[str]) -> Iterator[FileFault]:
    if name in taken:
        yield FileFault(path, name, "a name of its own: another has it already")
    elif name in FUNCTIONS or name in CONSTANTS:
        yield FileFault(path, name, "another name: this one means something in formulas")
    elif len(name) > 40 or NAME.fullmatch(name) is None:
        yield FileFault(path, name, "letters, digits and underscores, at most 40, no digit first")


def _kinds(
    settings: tuple[ExperimentSetting, ...], measurement: ExperimentMeasurement, model: Any
) -> Iterator[FileFault]:
    kind = measurement.kind
    if isinstance(model, SmoothModel):
        if kind != "number":
            yield FileFault(("measurement", "kind"), kind, 'number with model kind smooth; others go with "formula"')
        elif measurement.typical is None:
            allowed = "given with model kind smooth: between which values nearly all true values lie"
            yield FileFault(("measurement", "typical"), None, allowed)
        if len(settings) > 3:
            yield FileFault(("setting",), len(settings), "at most 3 with model kind smooth")
    if isinstance(model, ThresholdModel):
        if kind == "number" or (kind == "count" and measurement.of is None):
            yield FileFault(("measurement", "kind"), kind, "yes/no, or a count with of, with model kind threshold")
        if len(settings) != 1:
            yield FileFault(("setting",), len(settings), "exactly 1 with model kind threshold")


def _lengths(settings: tuple[ExperimentSetting, ...], model: Any) -> Iterator[FileFault]:
    """Lengths and widths, which are measured by the settings' scales."""
    by_name = {setting.name: setting for setting in settings}
    if isinstance(model, SmoothModel) and model.lengths is not None:
        if model.bumps is not None:
            yield FileFault(("model", "bumps"), model.bumps, "left out with lengths")
        for name, length in model.lengths.items():
            path: Path = ("model", "lengths", name)
            if name not in by_name:
                yield FileFault(path, name, f"one of the settings {', '.join(by_name)}{meant(name, by_name)}")
            else:
                yield from _length(path, length, by_name[name], (0.05, 5.0))
        for name in by_name.keys() - model.lengths.keys():
            yield FileFault(("model", "lengths", name), None, "given: every setting needs its length")
    if isinstance(model, ThresholdModel) and len(settings) == 1:
        if model.width is not None:
            yield from _length(("model", "width"), model.width, settings[0], (0.005, 3.0))
        if model.threshold is not None:
            yield from _pair(("model", "threshold"), model.threshold, settings[0].scale == "log")
            if settings[0].range is not None or settings[0].values is not None:
                low, high = settings[0].limits
                if not low <= model.threshold[0] <= model.threshold[1] <= high:
                    allowed = f"within the range of {settings[0].name}, {low:g} to {high:g}"
                    yield FileFault(("model", "threshold"), list(model.threshold), allowed)


def _length(path: Path, length: float | Range, setting: ExperimentSetting, shares: Range) -> Iterator[FileFault]:
    """A distance of a setting, which has to be a sensible share of its range."""
    if setting.range is None and setting.values is None:
        return
    low, high = setting.limits
    if not low < high or (setting.scale == "log" and low <= 0):
        return
    ends = length if isinstance(length, tuple) else (length, length)
    log = setting.scale == "log"
    if not ends[0] <= ends[1] or ends[0] <= (1 if log else 0):
        allowed = "a factor above 1, or a low and a high one" if log else "a number above 0, or a low and a high one"
        yield FileFault(path, _plain(length), allowed)
        return
    length_shares = [share_of_length(end, setting) for end in ends]
    if not shares[0] <= length_shares[0] <= length_shares[1] <= shares[1]:
        least, most = (length_of_share(share, setting) for share in shares)
        yield FileFault(path, _plain(length), f"from {least:.3g} to {most:.3g} for the range of {setting.name}")


def share_of_length(length: float, setting: ExperimentSetting) -> float:
    """A distance of a setting, or a factor on a log scale, as a share of its range."""
    low, high = setting.limits
    return math.log(length) / math.log(high / low) if setting.scale == "log" else length / (high - low)


def length_of_share(share: float, setting: ExperimentSetting) -> float:
    """The inverse of ``share_of_length``."""
    low, high = setting.limits
    return (high / low) ** share if setting.scale == "log" else share * (high - low)


def _formula(settings: tuple[ExperimentSetting, ...], model: Any) -> Iterator[FileFault]:
    if not isinstance(model, FormulaModel):
        return
    names, parameters = {setting.name for setting in settings}, set(model.parameters)
    try:
        formula = read_formula(model.formula, names | parameters)
    except FormulaError as error:
        yield FileFault(("model", "formula"), model.formula, str(error))
        return
    for i, setting in enumerate(settings):
        if setting.name not in formula.names:
            yield FileFault(("setting", i, "name"), setting.name, "a name that the formula uses")
    for name in sorted(parameters - formula.names):
        yield FileFault(("model", "parameters", name), name, "a name that the formula uses")
    if not any(isinstance(entry, tuple | ExperimentParameter) for entry in model.parameters.values()):
        yield FileFault(("model", "parameters"), dict(model.parameters), "a range for at least one: nothing is unknown")


def _syntax(model: Any) -> Iterator[FileFault]:
    """A formula by itself, where the settings are not known."""
    if isinstance(model, FormulaModel):
        try:
            names_in(model.formula)
        except FormulaError as error:
            yield FileFault(("model", "formula"), model.formula, str(error))


def _written_tolerances(goal: ExperimentGoal) -> Iterator[FileFault]:
    """Tolerances by themselves, where the settings are not known."""
    by_name = goal.within if isinstance(goal.within, dict) else {"": goal.within}
    for name, tolerance in by_name.items():
        yield from _tolerance(("goal", "within", name) if name else ("goal", "within"), tolerance, name, None)


def unknowns(model: FormulaModel) -> list[str]:
    """The names of a formula's unknown parameters."""
    return [name for name, entry in model.parameters.items() if isinstance(entry, tuple | ExperimentParameter)]


GOALS_OF = {"smooth": ("peak", "trough", "height", "depth", "crossing"), "threshold": ("threshold",)}
"""By the kind of a model."""


def _goal(model: Any, goal: ExperimentGoal) -> Iterator[FileFault]:
    path: Path = ("goal", "find")
    if isinstance(model, FormulaModel):
        known = unknowns(model)
        for expression in goal.sought:
            try:
                used = read_formula(expression, set(model.parameters)).names
            except FormulaError as error:
                yield FileFault(path, expression, f"a parameter or an expression of parameters: {error}")
                continue
            if not used & set(known):
                yield FileFault(path, expression, f"something unknown: of {', '.join(known)}")
        if len(set(goal.sought)) < len(goal.sought):
            yield FileFault(path, list(goal.sought), "different things")
    else:
        allowed = GOALS_OF[model.kind]
        if len(goal.sought) != 1 or goal.sought[0] not in allowed:
            hint = meant(goal.sought[0], allowed)
            yield FileFault(path, goal.find, f"one of {', '.join(allowed)} with model kind {model.kind}{hint}")
    yield from _level(model, goal)


def _level(model: Any, goal: ExperimentGoal) -> Iterator[FileFault]:
    path: Path = ("goal", "level")
    if isinstance(model, SmoothModel) and goal.find == "crossing":
        if goal.level is None:
            yield FileFault(path, None, "given: the value of the measurement that is crossed")
    elif goal.find == "threshold" and isinstance(model, ThresholdModel):
        low, high = _high(model.guess) or 0.0, 1 - (_high(model.lapse) or 0.0)
        margin = 0.02 * (high - low)
        if goal.level is not None and not low + margin <= goal.level <= high - margin:
            allowed = f"a probability between {low + margin:.3g} and {high - margin:.3g}, inside the curve's rise"
            yield FileFault(path, goal.level, allowed)
    elif goal.level is not None:
        yield FileFault(path, goal.level, "left out: it is for the goals crossing and threshold")


def _within(
    settings: tuple[ExperimentSetting, ...], measurement: ExperimentMeasurement, model: Any, goal: ExperimentGoal
) -> Iterator[FileFault]:
    crossing = isinstance(model, SmoothModel) and goal.find == "crossing"
    if crossing and len(settings) != 1:
        yield FileFault(("goal", "find"), goal.find, "peak, trough, height or depth with several settings")
    if crossing and goal.level is not None and measurement.typical is not None:
        low, high = measurement.typical
        if not low <= goal.level <= high:
            yield FileFault(("goal", "level"), goal.level, f"within typical, {low:g} to {high:g}")
    names = _sought_names(settings, measurement, model, goal)
    tolerances = goal.within if isinstance(goal.within, dict) else dict.fromkeys(names, goal.within)
    for name in tolerances:
        if name not in names:
            yield FileFault(("goal", "within", name), name, f"one of {', '.join(names)}{meant(name, names)}")
    for name in names:
        path: Path = ("goal", "within", name) if isinstance(goal.within, dict) else ("goal", "within")
        if name not in tolerances:
            yield FileFault(path, None, "given: everything that is sought needs its tolerance")
        else:
            yield from _tolerance(path, tolerances[name], name, _sought_range(name, settings, measurement, model, goal))


def _sought_names(
    settings: tuple[ExperimentSetting, ...], measurement: ExperimentMeasurement, model: Any, goal: ExperimentGoal
) -> list[str]:
    if isinstance(model, FormulaModel):
        return list(goal.sought)
    return [measurement.name] if goal.find in ("height", "depth") else [setting.name for setting in settings]


def _sought_range(
    name: str,
    settings: tuple[ExperimentSetting, ...],
    measurement: ExperimentMeasurement,
    model: Any,
    goal: ExperimentGoal,
) -> tuple[Range, str] | None:
    """The range of something sought, and on which scale it has to be; None where the range is not known."""
    if isinstance(model, FormulaModel):
        entry = model.parameters.get(name)
        limits = entry.range if isinstance(entry, ExperimentParameter) else entry
        return (limits, "any") if isinstance(limits, tuple) else None
    if goal.find in ("height", "depth"):
        return None if measurement.typical is None else (measurement.typical, "linear")
    known = {setting.name: setting for setting in settings if setting.range or setting.values}
    return (known[name].limits, known[name].scale) if name in known else None


def _tolerance(path: Path, tolerance: float | str, name: str, known: tuple[Range, str] | None) -> Iterator[FileFault]:
    share = per_cent(tolerance) if isinstance(tolerance, str) else None
    if isinstance(tolerance, str) and share is None:
        yield FileFault(path, tolerance, 'a number, or per cent such as "10 %"')
        return
    if not isinstance(tolerance, str) and tolerance <= 0:
        yield FileFault(path, tolerance, "above 0")
        return
    if known is None:
        return
    (low, high), scale = known
    if not low < high:
        return
    if share is not None and (scale == "linear" or low <= 0):
        yield FileFault(
            path, tolerance, f"a number: per cent of {name} needs a log scale" if scale == "linear" else "a number"
        )
        return
    if share is None and scale == "log":
        yield FileFault(path, tolerance, f'per cent, such as "10 %": {name} is on a log scale')
        return
    part = math.log1p(share) / math.log(high / low) if share is not None else float(tolerance) / (high - low)
    if not LEAST_SHARE <= part <= MOST_SHARE:
        ends = (LEAST_SHARE * (high - low), MOST_SHARE * (high - low))
        words = f"from {ends[0]:.3g} to {ends[1]:.3g}" if share is None else "a smaller part of the range"
        yield FileFault(path, tolerance, f"{words}: a ten-thousandth to half of the range {low:g} to {high:g}")


def per_cent(text: str) -> float | None:
    """``"10 %"`` as 0.1; None where it is nothing of the kind."""
    match = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*%\s*", text)
    share = None if match is None else float(match[1]) / 100
    return share if share is not None and 1e-4 <= share <= 5 else None


def _high(value: float | Range | None) -> float | None:
    return max(value) if isinstance(value, tuple) else value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
