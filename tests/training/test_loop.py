"""Our training loop: learning in seconds on easy problems, and a golden curve that a refactor must reproduce."""

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import Network, NetworkConfig
from cicpe.beliefs.network.query_rules import ActorName, make_actor
from cicpe.errors import ProblemError
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_max import GPMax
from cicpe.training.config import PrefixMixture, TrainingConfig
from cicpe.training.loop import Trainer, build_network
from cicpe.training.recipes import choose
from cicpe.training.schedule import Budget
from small_runs import Seen, curve, train_until_losses_fall
from stopping import NEVER, stopping_at


def success_after(
    network: Network, problem: Problem, queries: int, epsilon: float, actor: ActorName = "ts", scale: float = 0.0
) -> float:
    """Accuracy of an agent that always makes this many queries."""
    rule = make_actor(actor, network.query_space, network.answer_space, network)
    agent = stopping_at(NetworkBelief(network, rule, queries), NEVER, epsilon, query_spread=scale)
    return evaluate_agent(agent, problem, epsilon, episodes=2000, seed=0).accuracy


def untrained(problem: Problem, config: TrainingConfig) -> Network:
    return build_network(problem, config, torch.Generator().manual_seed(0)).eval().requires_grad_(False)


def test_one_look_is_enough_where_the_target_is_seen() -> None:
    problem = Seen()
    settings = {"horizon": 3, "adapt_horizon": False}
    model = cicpe.train(problem, updates=200, epsilon=(0.05, 0.1), calibration_episodes=1000, settings=settings)
    assert success_after(model.belief.network, problem, 1, epsilon=0.1) >= 0.95
    # Before the first look nothing is known, and an untrained network does not know more after it.
    assert success_after(untrained(problem, model.description.training), problem, 1, epsilon=0.1) < 0.5
    measured = cicpe.evaluate(model, epsilon=0.1, delta=0.1, episodes=2000, problem=problem)
    assert measured.accuracy >= 0.9
    assert measured.mean_queries <= 1.5


@pytest.mark.slow
def test_binary_search_is_learnt_and_its_confidence_is_calibrated() -> None:
    problem = BinarySearch(dim=1)
    settings = {"first_batch": 64, "batch": 64, "horizon": 14}
    model = cicpe.train(problem, updates=300, epsilon=(0.05, 0.2), calibration_episodes=4000, settings=settings)
    horizon = model.description.horizon
    trained = success_after(model.belief.network, problem, horizon, epsilon=0.1)
    before = success_after(untrained(problem, model.description.training), problem, horizon, epsilon=0.1)
    assert trained >= 0.9
    assert trained > before + 0.4
    for epsilon, delta in [(0.05, 0.1), (0.1, 0.1), (0.2, 0.2)]:
        measured = cicpe.evaluate(model, epsilon=epsilon, delta=delta, episodes=4000, seed=1)
        assert measured.accuracy >= 1 - delta - 0.02
        assert abs(measured.confidence - measured.accuracy) < 0.1
        assert measured.mean_queries < horizon


SMALL_FAMILIES = [
    # Family, its recipe's own choices, epsilon, queries, updates, and the success that is then reached.
    pytest.param(BinarySearch(dim=1, noise=0.05), 0.2, 8, 60, 0.85, id="binary-search"),
    pytest.param(BestArm(dim=2, noise=0.01), 0.02, 3, 40, 0.85, id="best-arm"),
    pytest.param(Ackley(dim=1, noise=0.05), 0.3, 8, 60, 0.5, id="ackley", marks=pytest.mark.slow),
    pytest.param(GPMax(dim=1, noise=0.05), 0.4, 8, 30, 0.75, id="gp-max", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("problem", "epsilon", "queries", "updates", "least"), SMALL_FAMILIES)
def test_every_family_is_learnt_in_seconds(
    problem: Problem, epsilon: float, queries: int, updates: int, least: float
) -> None:
    chosen = choose("fast", problem).config
    assert isinstance(chosen, TrainingConfig)
    changes = {
        "epsilon": (epsilon, epsilon),
        "first_batch": 48,
        "batch": 48,
        "horizon": queries,
        "adapt_horizon": False,
    }
    config = TrainingConfig.model_validate(chosen.model_dump() | changes)
    trainer = Trainer(problem, config, Budget(updates=updates), seed=0)
    how = config.actor, config.query_spreads[-1]
    before = success_after(untrained(problem, config), problem, queries, epsilon, *how)
    while trainer.progress < 1:
        trainer.iterate()
    after = success_after(trainer.average.eval(), problem, queries, epsilon, *how)
    assert after >= least, (before, after)
    # A regression memory brings its estimate along: there the first network is nearly as good.
    assert after > min(before + 0.1, 0.95), (before, after)


def test_losses_fall() -> None:
    settings = {"first_batch": 32, "batch": 32, "horizon": 4, "adapt_horizon": False}
    model = train_until_losses_fall("fast", settings)
    assert success_after(model.belief.network, Seen(), 1, epsilon=0.4) > 0.6


# Reproducible.


def tiny(seed: int) -> str:
    settings = {"first_batch": 16, "batch": 16, "horizon": 4}
    return cicpe.train(Seen(), updates=6, seed=seed, calibration_episodes=100, settings=settings).sha256


def test_a_seed_fixes_the_model_and_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    first = tiny(0)
    torch.rand(3)
    assert tiny(0) == first
    assert tiny(1) != first
    torch.set_rng_state(before)
    tiny(0)
    assert torch.equal(torch.get_rng_state(), before)


# The golden curve: a refactor reproduces it; a change of the algorithm changes it, and says so in its commit.
# To write it anew: python tests/training/test_loop.py

GOLDEN: list[tuple[float, ...]] = [
    (1.14965, 1.3849, 0.145421, 0, 0),
    (0.98661, 1.36594, 0.126917, 0, 0),
    (0.946956, 1.33534, 0.0984976, 0, 0),
    (0.818791, 1.29584, 0.0776495, 0, 0),
    (0.91936, 1.2446, 0.0567924, 0, 0),
    (0.810146, 1.23515, 0.0423608, 0, 0),
    (0.936474, 1.22057, 0.0302182, 0, 0),
    (0.781321, 1.22324, 0.0293871, 0, 0),
]


def golden_trainer() -> Trainer:
    # Everything that a recipe chooses is set here, so that only the algorithm itself is on trial.
    config = TrainingConfig(
        network=NetworkConfig(memory=RecurrentConfig(hidden=8)),
        actor="ts",
        epsilon=(0.1, 0.4),
        cost=(1e-3, 0.1),
        first_batch=24,
        batch=32,
        updates_per_rollout=2,
        replay_rollouts=3,
        horizon=6,
        learning_rate=3e-3,
        gradient_clip=1.0,
        query_spreads=(0.0, 0.5, 1.0),
        random_episodes=0.05,
        random_queries=0.02,
        mixture=PrefixMixture(uniform=0.5, near_stop=0.25, terminal=0.25),
        robust_tail=5.0,
        anchor_weight=0.1,
        trace=0.95,
    )
    return Trainer(BinarySearch(dim=2), config, Budget(updates=16), seed=0)


def test_the_golden_curve() -> None:
    for row, expected in zip(curve(golden_trainer()), GOLDEN, strict=True):
        assert row == pytest.approx(expected, rel=1e-4)


# A problem that breaks.


class BreaksSometimes(Seen):
    """Fine when it is looked at before training, and broken to the right of 0.9 later."""

    calls = 0

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        self.calls += 1
        return torch.where((query > 0.9) & (self.calls > 8), float("nan"), task)


def test_a_nan_in_training_names_the_method_and_the_query() -> None:
    message = r"BreaksSometimes.observe returned \[nan\] for task \d+ at query \[0.9\d*\]; every value must be finite"
    with pytest.raises(ProblemError, match=message):
        cicpe.train(BreaksSometimes(), updates=200, settings={"first_batch": 16, "batch": 16, "horizon": 4})


class Raises(Seen):
    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        raise ZeroDivisionError("a user's own bug")


def test_a_user_sees_the_traceback_of_their_own_bug() -> None:
    with pytest.raises(ZeroDivisionError, match="a user's own bug"):
        cicpe.train(Raises(), updates=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in curve(golden_trainer()):
        print(f"    ({', '.join(f'{value:.6g}' for value in row)}),")
