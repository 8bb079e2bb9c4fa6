"""Every method of the catalogue conforms, refuses what it does not suit, and does better than chance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bowls import MILD, Bowl, make_agent
from cicpe.agents.base import Agent
from cicpe.baselines import base
from cicpe.baselines.base import History, best_observed
from cicpe.baselines.catalogue import METHODS
from cicpe.baselines.gp_model import to_cube
from cicpe.baselines.max_value import UniformBins, UniformTop
from cicpe.baselines.tbal import TBAL, Plan
from cicpe.baselines.track_and_stop import TrackAndStop
from cicpe.baselines.wrappers import RandomQueries, StopAt
from cicpe.episodes.outcomes import run_episodes
from cicpe.errors import InvalidInput
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.gp_argmax import GPArgmax
from cicpe.problems.gp_max import GPMax
from cicpe.testing.agents import check_agent
from cicpe.testing.problems import check_problem


@pytest.mark.parametrize("name", ["tpe", "cma-es", "gp-logei", "gp-logei-botorch", "gp-ucb", "regret-bounds"])
@pytest.mark.parametrize("problem", [Ackley(2, 0.05), GPMax(1, 0.05)], ids=["ackley", "gp-max"])
def test_optimisers_conform(name: str, problem: Problem) -> None:
    check_agent(make_agent(name, problem), problem, n=2)


@pytest.mark.parametrize(
    ("agent", "problem"),
    [
        (UniformBins(GPMax(1, 0.1), 9), GPMax(1, 0.1)),
        (UniformBins(GPMax(2, 0.1), 20), GPMax(2, 0.1)),
        (UniformTop(GPMax(1, 0.1), 9), GPMax(1, 0.1)),
        (TrackAndStop(BestArm(4, 0.3), 0.1, 0.1, 5000), BestArm(4, 0.3)),
        (TrackAndStop(BestArm(4, 0.01), 0.1, 0.1, 5000, uniform=True), BestArm(4, 0.01)),
        (TBAL(Plan(MILD, 0.05, 0.1, 0.05)), GPArgmax(0.05)),
        (RandomQueries(TrackAndStop(BestArm(4, 0.3), 0.1, 0.1, 50), BestArm(4).query_space), BestArm(4, 0.3)),
        (StopAt(TrackAndStop(BestArm(4, 0.3), 0.1, 0.1, 50), 0.5), BestArm(4, 0.3)),
    ],
)
def test_the_others_conform(agent: Agent, problem: Problem) -> None:
    check_agent(agent, problem, n=6)


def test_gp_argmax_is_a_problem() -> None:
    check_problem(GPArgmax())
    task = GPArgmax(margin=0.1).sample(200, torch.Generator().manual_seed(0))
    place = GPArgmax(margin=0.1).target(task)
    assert float(place.min()) >= 0.1
    assert float(place.max()) <= 0.9


@pytest.mark.parametrize("name", ["tpe", "cma-es", "gp-logei", "gp-logei-botorch", "gp-ucb"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_optimisers_do_better_than_chance(name: str, sign: float) -> None:
    """On a bowl either way up, and they take exactly their budget."""
    model = name.startswith("gp")
    problem, n, budget = Bowl(sign), 2 if model else 12, 12 if model else 40
    tasks = TaskBatch.draw(problem, n, torch.Generator().manual_seed(1))
    outcomes = run_episodes(make_agent(name, problem, budget), tasks, torch.Generator().manual_seed(2))
    assert outcomes.queries.tolist() == [budget] * n
    assert bool(outcomes.stopped.all())
    # The best of n uniform queries is sqrt(3 / n) away on average, edges aside: 0.5 of 12, 0.27 of 40.
    assert float(outcomes.loss.mean()) < (0.35 if model else 0.24)


def test_cma_es_learns_from_what_it_saw() -> None:
    """The attributes that CMA-ES keeps in trials survive: later generations are better than the first."""
    problem = Bowl(1.0, 0.0)
    tasks = TaskBatch.draw(problem, 8, torch.Generator().manual_seed(3))
    agent, rng = make_agent("cma-es", problem, 72), torch.Generator().manual_seed(4)
    state = agent.begin(tasks.context)
    for _ in range(72):
        query = agent.propose(state, rng).query[:, 0]
        state = agent.update(state, query, tasks.observe(query, rng))
    value = state.history.observation_BTY[..., 0]
    assert float(value[:, -12:].mean()) > float(value[:, :12].mean()) / 4


def test_the_best_observed_is_recommended() -> None:
    query = torch.tensor([[[0.1], [0.5], [0.9]]])
    history = History(torch.zeros(1, 1), query, torch.tensor([[[1.0], [3.0], [2.0]]]))
    assert best_observed(GPArgmax(), history, 1).item() == pytest.approx(0.5)
    assert best_observed(GPArgmax(), history, -1).item() == pytest.approx(0.1)
    assert best_observed(GPMax(), history, 1).item() == pytest.approx(3.0)
    assert best_observed(GPMax(), history, -1).item() == pytest.approx(1.0)


def test_regret_bounds_stop_by_themselves() -> None:
    problem = GPMax(1, 0.05)
    result = evaluate_agent(make_agent("regret-bounds", problem, 10), problem, 0.2, 4, seed=0)
    assert result.truncated < 1
    assert 5 <= result.mean_queries < 35


@pytest.mark.parametrize("name", METHODS)
def test_every_method_refuses_what_it_does_not_suit(name: str) -> None:
    with pytest.raises(InvalidInput):
        make_agent(name, Bowl(0.0))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = base.importlib.import_module

    def absent(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "optuna":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(base.importlib, "import_module", absent)
    with pytest.raises(InvalidInput, match=r"cicpe\[baselines\]"):
        make_agent("tpe", Ackley(2, 0.1))


def test_random_queries_keep_the_rest() -> None:
    agent = TrackAndStop(BestArm(3, 0.1), 0.1, 0.1, 20)
    random = RandomQueries(agent, BestArm(3).query_space)
    state = agent.begin(torch.full((5, 1), 0.1))
    ours, theirs = (one.propose(state, torch.Generator().manual_seed(0)) for one in (agent, random))
    assert not torch.equal(ours.query, theirs.query)
    assert torch.equal(ours.confidence, theirs.confidence)
    assert random.horizon == 20


def test_the_global_generators_are_left_alone() -> None:
    problem = Ackley(2, 0.05)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    for name in ("tpe", "gp-ucb"):
        evaluate_agent(make_agent(name, problem), problem, 0.2, 1, seed=0)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


@pytest.mark.parametrize("name", ["gp-ucb", "regret-bounds"])
@pytest.mark.parametrize("problem", [Bowl(), GPMax(1, 0.05)], ids=["plane", "line"])
def test_the_first_queries_of_an_episode_are_one_sobol_sequence(name: str, problem: Problem) -> None:
    """Of four points, each quarter of an axis holds one; four independent points do so in one episode of ten."""
    agent, rng = make_agent(name, problem, budget=20), torch.Generator().manual_seed(3)
    state, queries = agent.begin(torch.zeros(64, 1)), []
    for _ in range(5):
        queries.append(agent.propose(state, rng).query[:, 0])
        state = agent.update(state, queries[-1], torch.zeros(64, 1))
    cube = to_cube(problem.query_space, torch.stack(queries, dim=1))
    assert evenly_spread(cube[:, :4])
    sobol = torch.quasirandom.SobolEngine(cube.shape[-1]).draw(5, dtype=torch.float64)
    shifted = (cube[:, :1] * 2**30).long() ^ (sobol * 2**30).long()
    torch.testing.assert_close(cube, shifted / 2**30, rtol=0, atol=1e-6, check_dtype=False)
    assert float(cube[:, 0].std(dim=0).min()) > 0.2  # every episode has its own shift
    assert not evenly_spread(torch.rand(cube[:, :4].shape, generator=rng))


def evenly_spread(cube: Tensor) -> bool:
    """Whether in every episode, along every axis, each quarter holds one of four points."""
    return bool(((4 * cube).long().sort(dim=1).values == torch.arange(4)[:, None]).all())
