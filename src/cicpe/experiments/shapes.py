"""Whether two experiments are the same tasks to a model: once their ranges are mapped, nothing tells them apart."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from cicpe.experiments.parametric import ParametricExperiment
    from cicpe.problems import Problem

TASKS = 512
TOLERANCE = 0.02
"""Of an observation: standard deviations of its noise, or probability."""


def shape_difference(one: "Problem", two: "Problem") -> str | None:
    """In what a second experiment is not what a model of the first was trained for, in words; None where it is.

    Args:
        one: The problem of an experiment.
        two: That of another.

    Returns:
        Words that follow "must be".
    """
    from cicpe.experiments.parametric import ParametricExperiment
    from cicpe.experiments.smooth import SmoothExperiment

    if not isinstance(one, SmoothExperiment | ParametricExperiment) or type(one) is not type(two):
        return "of the kind that the model was trained on"
    for name, first, second in [
        ("settings", one.query_space.dim, two.query_space.dim),
        ("measurement", _measured(one), _measured(two)),
        ("unknown numbers", one.answer_space.dim, two.answer_space.dim),
    ]:
        if first != second:
            return f"one whose {name} are as the model's: {first}, not {second}"
    if one.query_space != two.query_space or one.answer_space != two.answer_space:
        return "one whose tolerances are to each other as the model's are"
    if two.horizon > one.horizon:
        return f"one with at_most {one.horizon} or less, which the model was trained for"
    if isinstance(one, ParametricExperiment) and isinstance(two, ParametricExperiment):
        return _other_curve(one, two)
    assert isinstance(one, SmoothExperiment)
    assert isinstance(two, SmoothExperiment)
    return None if one.shape == two.shape else f"a smooth function of the model's kind, {one.shape}, not {two.shape}"


def _measured(problem: "Problem") -> tuple[str, int | None]:
    readout = problem.units.readout
    assert readout is not None
    return readout.kind, readout.of


def _other_curve(first: "ParametricExperiment", second: "ParametricExperiment") -> str | None:
    """Compares what the two simulate at the same unknown numbers and queries."""
    if first.parameter_space != second.parameter_space:
        return "one with as many unknown numbers as the model's"
    rng = torch.Generator().manual_seed(0)
    task, query = first.sample(TASKS, rng), first.query_space.sample(TASKS, rng)
    unit = first.noise(task) if first.form.kind == "number" else torch.ones(())
    apart = (first.mean(task, query) - second.mean(task, query)).abs() / unit
    aside = (first.target(task) - second.target(task)).abs().amax(dim=1)
    noise = second.noise(task) / unit if first.form.kind == "number" else torch.ones(())
    same = (
        float(apart.max()) <= TOLERANCE and float(aside.max()) <= 1e-3 and float((noise - 1).abs().max()) <= TOLERANCE
    )
    return (
        None if same else "one whose curve, noise and ranges are the model's own once they are mapped onto each other"
    )
