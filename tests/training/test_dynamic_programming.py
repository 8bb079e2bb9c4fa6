"""Stop and continue by exact dynamic programming, against what critics have learned.

In a one-dimensional binary search a deterministic agent can meet 2^t histories of length t. For each of them the
posterior of the target on a fine grid is exact, and so are the reward of stopping and, by backward induction, the value
of going on with the agent's own queries. What its critic decides is compared with that.
"""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from cicpe import trees
from cicpe.beliefs.network.critic import CriticConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import Network, NetworkConfig, NetworkOutput
from cicpe.problems.binary_search import BinarySearch
from cicpe.training.config import PaperConfig, TrainingConfig
from cicpe.training.loop import Trainer
from cicpe.training.paper import PaperTrainer
from cicpe.training.schedule import Budget
from small_runs import make_rng

FLIP, EPSILON, STEPS = 0.1, 0.15, 7
GRID = (torch.arange(2000, dtype=torch.float64) + 0.5) / 1000 - 1
PROBLEM = BinarySearch(dim=1, noise=FLIP)


class Level(NamedTuple):
    """All histories of one length."""

    chance: Tensor
    """Of meeting each."""
    reward: Tensor
    """Of stopping there, exactly."""
    stop_value: Tensor
    """The critic's."""
    continue_value: Tensor


def walk(network: Network, cost: float, sampled: bool, steps: int = STEPS) -> list[Level]:
    """Every history that an agent can meet which queries its posterior's mean."""
    levels, posterior = [], torch.full((1, len(GRID)), 1 / len(GRID), dtype=torch.float64)
    chance = torch.ones(1, dtype=torch.float64)
    with torch.no_grad():
        state = network.begin(torch.full((1, 1), FLIP))
        for time in range(steps + 1):
            output = network.believe(state)
            query = PROBLEM.query_space.project(output.posterior.recommendation[:, 0])
            n = len(query)
            features = network.goal_features(state, output, torch.full((n,), EPSILON))
            stop = torch.sigmoid(network.stop_logits(output, features)).amin(dim=(1, 2))
            values = network.continue_values(state, output, features, query[:, None], torch.full((n,), cost))
            levels.append(Level(chance, exact_reward(posterior, output, sampled), stop, values.amin(dim=(1, 2))))
            if time == steps:
                break
            # Each history goes on in two: the target is found to lie above the query, or below.
            above = torch.where(query.double() < GRID, 1 - FLIP, FLIP)
            likelihood = torch.stack([above, 1 - above], dim=1)
            joint = (posterior[:, None] * likelihood).flatten(0, 1)
            share = joint.sum(dim=1)
            posterior, chance = joint / share[:, None], chance.repeat_interleave(2) * share
            twice = torch.arange(n).repeat_interleave(2)
            answer = torch.tensor([1.0, -1.0]).repeat(n)[:, None]
            state = network.step(trees.select(state, twice), query[twice], answer)
    return levels


def exact_reward(posterior: Tensor, output: NetworkOutput, sampled: bool) -> Tensor:
    """The probability that the recommendation, or a sample of the network's posterior, is within epsilon."""
    answers = [output.posterior.recommendation[:, 0]]
    if sampled:
        rng = make_rng(1)
        answers = [output.posterior.sample(rng)[:, 0] for _ in range(400)]
    cumulative = torch.cat([torch.zeros(len(posterior), 1, dtype=torch.float64), posterior.cumsum(dim=1)], dim=1)

    def below(place: Tensor) -> Tensor:
        cells = ((place.double() + 1) * 1000).round().clamp(0, len(GRID)).long()
        return cumulative.gather(1, cells)[:, 0]

    return torch.stack([below(x + EPSILON) - below(x - EPSILON) for x in answers]).mean(dim=0)


def best_values(levels: list[Level], cost: float, last_is_free: bool) -> list[Tensor]:
    """The value of going on at every history but the longest, by backward induction."""
    going: list[Tensor] = []
    value, last = levels[-1].reward, len(levels) - 2
    for time in range(last, -1, -1):
        share = (levels[time + 1].chance / levels[time].chance.repeat_interleave(2)).view(-1, 2)
        price = 0.0 if last_is_free and time == last else cost
        going.insert(0, (share * value.view(-1, 2)).sum(dim=1) - price)
        value = torch.maximum(levels[time].reward, going[0])
    return going


def worth(levels: list[Level], stops: list[Tensor], cost: float, last_is_free: bool) -> float:
    """The expected reward less cost of deciding as told at every history."""
    value, last = levels[-1].reward, len(levels) - 2
    for time in range(last, -1, -1):
        share = (levels[time + 1].chance / levels[time].chance.repeat_interleave(2)).view(-1, 2)
        price = 0.0 if last_is_free and time == last else cost
        value = torch.where(stops[time], levels[time].reward, (share * value.view(-1, 2)).sum(dim=1) - price)
    return float(value[0])


def compare(
    network: Network, cost: float, *, sampled: bool, last_is_free: bool, steps: int = STEPS
) -> tuple[float, float, float, float]:
    """What the critic's decisions lose to the best ones, and stopping at once or never; and how often it is right."""
    levels = walk(network, cost, sampled, steps)
    going = best_values(levels, cost, last_is_free)
    best = [level.reward >= value for level, value in zip(levels, going, strict=False)]
    learned = [level.stop_value >= level.continue_value for level in levels[:-1]]
    most, own = (worth(levels, stops, cost, last_is_free) for stops in (best, learned))
    at_once, never = ([torch.full_like(stops, end) for stops in best] for end in (True, False))
    agree = torch.cat([(a == b).double() * level.chance for a, b, level in zip(learned, best, levels, strict=False)])
    # Where both are as good, either decision is right.
    gap = torch.cat([(level.reward - value).abs() for level, value in zip(levels, going, strict=False)])
    clear = torch.cat([level.chance for level in levels[:-1]]) * (gap > 0.03)
    right = float((agree * (gap > 0.03)).sum() / clear.sum())
    lost = (most - worth(levels, stops, cost, last_is_free) for stops in (at_once, never))
    return most - own, *lost, right


def small_network(**critic: object) -> NetworkConfig:
    config = CriticConfig.model_validate({"hidden": 32, **critic})
    return NetworkConfig(memory=RecurrentConfig(hidden=32), critic=config)


@pytest.mark.slow
def test_our_critic_decides_as_dynamic_programming_does() -> None:
    config = TrainingConfig(
        network=small_network(twin=False),
        epsilon=(EPSILON, EPSILON),
        first_batch=96,
        batch=96,
        horizon=STEPS,
        adapt_horizon=False,
        query_spreads=(0.0,),
        cost=(0.02, 0.2),
        learning_rate=5e-3,
    )
    trainer = Trainer(PROBLEM, config, Budget(updates=900), seed=0)
    while trainer.progress < 1:
        trainer.iterate()
    network = trainer.average.eval().requires_grad_(False)
    # The costs are chosen so that the best is neither to stop at once nor to go on to the end.
    for cost in (0.05, 0.1):
        lost, at_once, never, right = compare(network, cost, sampled=False, last_is_free=False)
        assert min(at_once, never) > 0.04
        assert lost < 0.02
        assert right > 0.9


LONG = 10
"""A longer horizon, since a sample of the posterior takes more queries than its mean to be within epsilon."""


@pytest.mark.slow
def test_the_published_critic_decides_as_dynamic_programming_does() -> None:
    trainer = published_trainer(0.07, updates=800)
    while trainer.progress < 1:
        trainer.iterate()
    network = trainer.average.eval().requires_grad_(False)
    lost, at_once, never, right = compare(network, 0.07, sampled=True, last_is_free=True, steps=LONG)
    assert min(at_once, never) > 0.08
    assert lost < 0.02
    assert right > 0.93
    # Negative control: at another cost the same decisions are wrong.
    dear = compare(network, 0.15, sampled=True, last_is_free=True, steps=LONG)
    assert dear[0] > 0.1
    assert dear[3] < 0.7


def published_trainer(cost: float, updates: int) -> PaperTrainer:
    """The published algorithm at one cost. All episodes run to the horizon: every history has to be judged."""
    config = PaperConfig(
        network=small_network(twin=True, cost_input="none").model_copy(update={"shared_memory": False}),
        epsilon=(EPSILON, EPSILON),
        batch=64,
        prefixes=4,
        horizon=LONG,
        query_spreads=(0.0,),
        learning_rate=5e-3,
        polyak=0.05,
        warmup=1.0,
        dual_start=cost,
    )
    return PaperTrainer(PROBLEM, config, Budget(updates=updates), seed=0)


def test_no_rule_is_better_than_the_induction() -> None:
    trainer = Trainer(PROBLEM, TrainingConfig(network=small_network(twin=False)), Budget(updates=10), seed=0)
    network = trainer.network.requires_grad_(False)
    levels = walk(network, 0.02, sampled=False)
    for level in levels:
        assert float(level.chance.sum()) == pytest.approx(1.0)
    # Before anything is seen the posterior is uniform: a recommendation inside is right in a share epsilon.
    assert float(levels[0].reward[0]) == pytest.approx(EPSILON, abs=2e-3)
    going = best_values(levels, 0.02, last_is_free=False)
    best = [level.reward >= value for level, value in zip(levels, going, strict=False)]
    most = worth(levels, best, 0.02, last_is_free=False)
    assert most == pytest.approx(max(float(levels[0].reward[0]), float(going[0][0])))
    rng = make_rng()
    for _ in range(20):
        drawn = [torch.rand(stops.shape, generator=rng) < 0.3 for stops in best]
        assert worth(levels, drawn, 0.02, last_is_free=False) <= most + 1e-9
    # Never stopping pays for all queries, and nothing else is lost.
    never = [torch.zeros_like(stops) for stops in best]
    reached = float((levels[-1].chance * levels[-1].reward).sum())
    assert worth(levels, never, 0.02, last_is_free=False) == pytest.approx(reached - 0.02 * STEPS)
    assert worth(levels, never, 0.02, last_is_free=True) == pytest.approx(reached - 0.02 * (STEPS - 1))
