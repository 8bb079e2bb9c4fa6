"""``cicpe.with_actor``: another rule for queries on the same weights, calibrated anew."""

from pathlib import Path

import pytest
import torch

import cicpe
from cicpe.errors import InvalidInput
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.model import Model
from cicpe.problems.binary_search import BinarySearch
from small_runs import Seen

EPISODES = 500


@pytest.fixture(scope="module")
def best_arm() -> Model:
    """Linear regression and the rule ucb, which is none of those that can be asked for."""
    return cicpe.load("best-arm-5d")


def test_the_weights_are_the_same_and_the_thresholds_are_its_own(best_arm: Model, tmp_path: Path) -> None:
    changed = cicpe.with_actor(best_arm, "uniform", episodes=EPISODES)
    assert changed.description.training.query_rule == "uniform"
    assert (changed.alarm, changed.calibration.query_spread) == (None, 1.0)
    assert changed.belief.horizon == best_arm.belief.horizon  # on the sphere, uniform queries need no more
    before, after = best_arm.belief.tensors(), changed.belief.tensors()
    assert all(torch.equal(before[name], after[name]) for name in before | after)
    assert changed.calibration.rules != best_arm.calibration.rules
    assert best_arm.description.training.query_rule == "ucb"
    changed.save(tmp_path)
    again = cicpe.load(tmp_path)
    assert again.calibration == changed.calibration
    result = evaluate_agent(again.agent(0.02, 0.1), again.tasks({"noise": 0.005}), 0.02, 400, 3)
    assert result.accuracy_ci[1] > 0.9
    assert 4 < result.mean_queries < 6


def test_thompson_sampling_differs_from_top_two_sampling(best_arm: Model) -> None:
    """With a spread of 0 both would query the mean."""
    thompson, top_two = (cicpe.with_actor(best_arm, actor, episodes=EPISODES) for actor in ("ts", "ttps"))
    assert 0.0 not in top_two.description.training.calibration.query_spreads
    context = torch.full((64, 1), 0.005)
    queries = []
    for model in (thompson, top_two):
        agent = model.agent(0.02, 0.1)
        queries.append(agent.propose(agent.begin(context), torch.Generator().manual_seed(1)).query)
    assert not torch.equal(*queries)


@pytest.mark.slow
def test_a_rule_that_needs_more_queries_may_make_them() -> None:
    changed = cicpe.with_actor(cicpe.load("binary-search-6d"), "uniform", episodes=100)
    assert changed.belief.horizon == changed.description.horizon == 100


@pytest.mark.filterwarnings("ignore::cicpe.UnservedWarning")
def test_a_learned_likelihood_serves_other_rules_within_a_time() -> None:
    source = cicpe.train(Seen(), recipe="answers", updates=4, epsilon=0.5, calibration_episodes=100)
    changed = cicpe.with_actor(source, "ttps", episodes=100, minutes=0.02)
    assert changed.description.training.query_rule == "ttps"
    assert changed.calibration.episodes <= 100
    assert changed.belief.tensors().keys() == source.belief.tensors().keys()


@pytest.mark.parametrize(
    ("name", "actor", "why"),
    [
        ("best-arm-5d", "td3", "ts, ttps, uniform, which read the posterior"),
        ("gp-max-1d", "ts", "both spaces must be one"),
        ("ackley-3d", "ucb", "ts, ttps, uniform with the recipe particles"),
        ("crossing", "search", "ts, ttps, uniform with the recipe functions"),
        ("psychometric-2afc", "search", "ts, ttps, uniform, td3 with the recipe answers"),
    ],
)
def test_rules_that_the_weights_cannot_serve_are_refused(name: str, actor: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        cicpe.with_actor(cicpe.load(name), actor)


@pytest.mark.filterwarnings("ignore::cicpe.UnservedWarning")
def test_a_posterior_that_is_computed_serves_other_rules(tmp_path: Path) -> None:
    """Particles keep what they believe of a history, and are asked otherwise; the model is saved and loaded."""
    source = cicpe.load("ackley-3d")
    changed = cicpe.with_actor(source, "uniform", episodes=8, minutes=0.05)
    assert changed.description.training.query_rule == "uniform"
    changed.save(tmp_path)
    again = cicpe.load(tmp_path)
    assert again.calibration == changed.calibration
    context, rng = torch.full((2, 1), 0.05), torch.Generator().manual_seed(0)
    states = [model.belief.begin(context) for model in (source, again)]
    for _ in range(3):
        query = source.belief.query_space.sample(2, rng)
        observation = torch.rand(2, 1, generator=rng)
        states = [
            model.belief.update(state, query, observation) for model, state in zip((source, again), states, strict=True)
        ]
    before, after = (
        model.belief.assess(state, (0.2,), torch.Generator().manual_seed(1))
        for model, state in zip((source, again), states, strict=True)
    )
    assert torch.equal(before.recommendation, after.recommendation)
    assert torch.equal(before.confidence, after.confidence)
    assert not torch.equal(before.query, after.query)


@pytest.mark.slow
def test_the_posterior_of_a_model_with_a_learned_actor_is_read_without_it() -> None:
    options = {"epsilon": (0.3, 0.6), "calibration_episodes": 100, "settings": {"batch": 4, "horizon": 3}}
    model = cicpe.train(BinarySearch(dim=1), recipe="fast", actor="td3", updates=2, **options)  # type: ignore[arg-type]
    changed = cicpe.with_actor(model, "ts", episodes=100)
    assert changed.description.training.query_rule == "ts"
    before, after = model.belief.tensors(), changed.belief.tensors()
    assert {name for name in before if name not in after} == {name for name in before if name.startswith("actor.")}
    assert all(torch.equal(before[name], after[name]) for name in after)


@pytest.mark.filterwarnings("ignore::cicpe.UnservedWarning")
def test_a_published_model_keeps_its_rule() -> None:
    options = {"epsilon": (0.3, 0.6), "calibration_episodes": 100, "settings": {"batch": 4, "horizon": 3}}
    model = cicpe.train(BinarySearch(dim=1), recipe="paper", updates=2, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="one with its weights"):
        cicpe.with_actor(model, "uniform")
