"""Every study that plays episodes, with and without workers: the same figures to the last digit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import cicpe
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.certification.certify import certify_checkpoint, stream_seed
from cicpe.episodes.table import tabulate_agent
from cicpe.evaluation.alarm_study import alarm_study
from cicpe.evaluation.diagnose import diagnose
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.evaluation.robustness import robustness
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem
from cicpe.problems.best_arm import BestArm
from cicpe.reporting.comparison import compare
from pretended_workers import pretend_workers
from test_streams import Watched

MODEL = "best-arm-5d"
AT = {"epsilon": 0.02, "delta": 0.1}


def played() -> tuple[cicpe.Model, BeliefAgent, Problem]:
    model = cicpe.load(MODEL)
    return model, model.agent(**AT), model.problem


def evaluation(executor: Executor) -> Any:
    _, agent, problem = played()
    found = evaluate_agent(agent, problem, 0.02, 70, 3, executor)
    return found._replace(seconds=0, outcomes=found.outcomes._replace(seconds=0))


def certificate(executor: Executor) -> Any:
    _, agent, problem = played()
    # Two tests: one that is over in the first blocks, and one that needs all of them.
    return [
        certify_checkpoint(agent, problem, epsilon, 0.1, 0.05, 150, stream_seed(1), executor) for epsilon in (1.0, 0.02)
    ]


def diagnosis(executor: Executor) -> Any:
    _, agent, problem = played()
    return diagnose(agent, problem, 130, 3, executor)


def other_priors(executor: Executor) -> Any:
    _, agent, problem = played()
    return robustness(agent, problem, 0.02, 0.1, 40, 3, grid=(1.0, 3.0), executor=executor)


def alarms(executor: Executor) -> Any:
    model, agent, problem = played()
    return alarm_study(agent, model.unstopped(0.02), problem, 0.02, 0.1, 40, 3, executor=executor)


def table(executor: Executor) -> Any:
    _, agent, problem = played()
    return tabulate_agent(agent, problem, 70, 4, 3, executor=executor)


def comparison(executor: Executor) -> Any:
    methods = ["cicpe", "track-and-stop"]
    found = compare(BestArm(5, 0.01), epsilon=0.02, methods=methods, tasks=70, trajectories=2, executor=executor)
    timeless = {"seconds_per_query": 0.0, "batched_seconds_per_query": 0.0}
    return [(row.method, row.played._replace(**timeless), row.versus_ours) for row in found.rows], found.left_out


def calibration(executor: Executor) -> Any:
    return cicpe.recalibrate(cicpe.load(MODEL), episodes=600, executor=executor).calibration.model_dump()


def particles(executor: Executor) -> Any:
    """Training to calibration, and an alarm: a problem of this file, which workers cannot import."""
    small = {"particles": {"particles": 16, "prior_particles": 16}}
    model = cicpe.train(
        Watched(), recipe="particles", updates=1, calibration_episodes=128, settings=small, executor=executor
    )
    alarm = cicpe.fit_alarm(replace(model, family=Watched()), episodes=70, ranked=99, executor=executor).alarm
    assert alarm is not None
    return model.calibration.model_dump(), dict(alarm.tables.state_dict())


STUDIES = (evaluation, certificate, diagnosis, other_priors, alarms, table, comparison, particles)


def as_text(found: Any) -> str:
    """Every number of a result, to the last digit."""
    import torch

    if isinstance(found, torch.Tensor):
        return as_text(found.tolist())
    if isinstance(found, dict):
        return str({key: as_text(value) for key, value in found.items()})
    if isinstance(found, list | tuple):
        return str([as_text(value) for value in found])
    return repr(found.tolist()) if hasattr(found, "tolist") else repr(found)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few episodes are many blocks."""
    monkeypatch.setattr("cicpe.episodes.blocks.BLOCK", 32)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.__name__)
def test_figures_do_not_depend_on_who_plays(study: Callable[[Executor], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = as_text(study(HERE))
    given = pretend_workers(monkeypatch, [1, 0, 2, 10**6])
    assert as_text(study(Executor(2))) == expected
    assert len(given) > 2  # some have died
    assert len(given[0]) > 1


def test_another_seed_gives_other_figures() -> None:
    """The negative control: the comparison above can fail."""
    _, agent, problem = played()
    first, second = (evaluate_agent(agent, problem, 0.02, 70, seed).outcomes.loss for seed in (3, 4))
    assert as_text(first) != as_text(second)


def test_blocks_do_not_repeat_each_other() -> None:
    _, agent, problem = played()
    loss = evaluate_agent(agent, problem, 0.02, 128, 3).outcomes.loss.view(4, 32)
    assert len({tuple(block) for block in loss.tolist()}) == 4


def test_more_episodes_begin_with_the_same_ones() -> None:
    _, agent, problem = played()
    few, many = (evaluate_agent(agent, problem, 0.02, episodes, 3).outcomes.loss for episodes in (64, 100))
    assert many[:64].equal(few)


@pytest.mark.slow  # workers that import torch
def test_figures_are_the_same_with_one_two_and_three_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [as_text(study(HERE)) for study in STUDIES]
    for jobs in (2, 3):
        assert [as_text(study(Executor(jobs))) for study in STUDIES] == expected
    monkeypatch.setattr("cicpe.episodes.blocks.BLOCK", 512)  # thousands of episodes
    assert as_text(calibration(Executor(2))) == as_text(calibration(HERE))
