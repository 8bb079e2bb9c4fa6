"""Which loss trains which part of a network, and what reaches a query."""

import pytest
import torch
from torch import Tensor

from cicpe.beliefs.network.critic import Goal
from cicpe.beliefs.network.memories.attention import AttentionConfig
from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig
from cicpe.beliefs.network.memories.per_axis import PerAxisConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.memories.regression import RegressionConfig
from cicpe.beliefs.network.network import MemoryConfig, Network, NetworkConfig
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_max import GPMax
from cicpe.training.base import build_network
from cicpe.training.config import TrainingConfig

CASES: list[tuple[Problem, MemoryConfig]] = [
    (BinarySearch(dim=2), RecurrentConfig(hidden=8)),
    (BinarySearch(dim=2), RecurrentConfig(hidden=8, readout="pooling")),
    (BinarySearch(dim=2), AttentionConfig(width=8, heads=2, layers=1, readout="pooling")),
    (BinarySearch(dim=2), DeltaRuleConfig(hidden=8)),
    (BinarySearch(dim=2), PerAxisConfig(hidden=8)),
    (BinarySearch(dim=2), PerAxisConfig(hidden=8, view="relative")),
    (BestArm(dim=3), RegressionConfig(features="linear", estimate="weights")),
    (GPMax(dim=1), RegressionConfig(estimate="maximum", basis=8, probes=9)),
]
IDS = ["gru", "pooling", "attention", "delta", "axis", "axis-relative", "linear", "fourier"]


def make_rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(problem: Problem, memory: MemoryConfig, shared: bool) -> Network:
    config = TrainingConfig(network=NetworkConfig(memory=memory, shared_memory=shared), actor="uniform")
    return build_network(problem, config, make_rng())


def critic_loss(network: Network, problem: Problem) -> tuple[Tensor, Tensor]:
    """A loss of both of the critic's heads on random histories, and the candidate queries in it."""
    n, steps = 5, 4
    tasks = TaskBatch.draw(problem, n, make_rng(1))
    query = problem.query_space.sample(n * (steps + 1), make_rng(2)).view(n, steps + 1, -1)
    observation = torch.stack([tasks.observe(query[:, t], make_rng(t)) for t in range(steps)], dim=1)
    candidate = query.clone().requires_grad_()
    goal = Goal(torch.full((n,), 0.2), torch.full((n,), 0.01))
    output = network.believe(network.unroll(tasks.context, query[:, :steps], observation))
    features = network.goal_features(output.state, output, goal.epsilon)
    values = network.continue_values(output.state, output, features, candidate, goal.cost)
    return network.stop_logits(output, features).square().sum() + values.square().sum(), candidate


def touched(network: Network) -> set[int]:
    return {id(p) for p in network.parameters() if p.grad is not None and bool((p.grad != 0).any())}


@pytest.mark.parametrize(("problem", "memory"), CASES, ids=IDS)
def test_the_critic_does_not_train_a_memory_that_it_shares(problem: Problem, memory: MemoryConfig) -> None:
    network = build(problem, memory, shared=True)
    loss, _ = critic_loss(network, problem)
    loss.backward()
    assert touched(network) <= {id(p) for p in network.critic_parameters()}
    assert touched(network) >= {id(p) for p in network.critic.go.parameters()}


@pytest.mark.parametrize(("problem", "memory"), CASES, ids=IDS)
def test_the_critic_trains_a_memory_of_its_own(problem: Problem, memory: MemoryConfig) -> None:
    network = build(problem, memory, shared=False)
    loss, _ = critic_loss(network, problem)
    loss.backward()
    assert touched(network) <= {id(p) for p in network.critic_parameters()}
    assert network.critic_memory is not None
    assert touched(network) & {id(p) for p in network.critic_memory.parameters()}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("problem", "memory"), CASES, ids=IDS)
def test_the_gradient_by_a_candidate_query_passes(problem: Problem, memory: MemoryConfig, shared: bool) -> None:
    loss, candidate = critic_loss(build(problem, memory, shared), problem)
    (gradient,) = torch.autograd.grad(loss, candidate)
    assert bool((gradient != 0).any())


@pytest.mark.parametrize(("problem", "memory"), CASES, ids=IDS)
def test_inference_trains_its_own_parameters_alone(problem: Problem, memory: MemoryConfig) -> None:
    network = build(problem, memory, shared=True)
    tasks = TaskBatch.draw(problem, 5, make_rng(1))
    query = problem.query_space.sample(20, make_rng(2)).view(5, 4, -1)
    observation = torch.stack([tasks.observe(query[:, t], make_rng(t)) for t in range(4)], dim=1)
    posterior = network.believe(network.unroll(tasks.context, query, observation)).posterior
    posterior.nll(tasks.target[:, None].expand_as(posterior.recommendation)).sum().backward()
    assert touched(network) <= {id(p) for p in network.inference_parameters()}
    assert touched(network) & {id(p) for p in network.memory.parameters()}
