"""Plates of several queries: told at once they are the same as told in turn, for every kind of belief."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe import trees
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.errors import InvalidInput
from cicpe.plates import observe_plate, only_query
from cicpe.problems import TaskBatch
from cicpe.problems.best_arm import BestArm

ZOO = {"network": "best-arm-5d", "particles": "ackley-3d", "functions": "geochem-2d"}
EPISODES = 3
CONTEXT = torch.full((EPISODES, 1), 0.005)


@cache
def agent_of(kind: str) -> BeliefAgent:
    """All that follows a history: the belief, and the alarm where the model has one."""
    return cicpe.load(ZOO[kind]).unstopped(0.02)


def plate_of_two(agent: BeliefAgent) -> tuple[Tensor, Tensor]:
    rng = Generator().manual_seed(5)
    query = torch.stack([agent.belief.query_space.sample(EPISODES, rng) for _ in range(2)], dim=1)
    return query, torch.rand(EPISODES, 2, 1, generator=rng)


def everything(agent: BeliefAgent, state: Any) -> list[Tensor]:
    """The state and what is proposed in it, as tensors."""
    proposal = agent.propose(state, Generator().manual_seed(0))
    return [torch.as_tensor(leaf) for leaf in (*trees.leaves(state), *proposal) if leaf is not None]


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


@pytest.mark.parametrize("kind", sorted(ZOO))
def test_a_plate_told_at_once_equals_its_queries_told_in_turn(kind: str) -> None:
    agent = agent_of(kind)
    query, observation = plate_of_two(agent)
    begun = agent.begin(CONTEXT)
    at_once = agent.observe(begun, query, observation)
    in_turn = agent.observe(begun, query[:, :1], observation[:, :1])
    in_turn = agent.observe(in_turn, query[:, 1:], observation[:, 1:])
    one_by_one = agent.update(agent.update(begun, query[:, 0], observation[:, 0]), query[:, 1], observation[:, 1])
    assert same(everything(agent, at_once), everything(agent, in_turn))
    assert same(everything(agent, at_once), everything(agent, one_by_one))


@pytest.mark.parametrize("kind", sorted(ZOO))
def test_every_query_of_a_plate_counts(kind: str) -> None:
    """The negative control: a plate with another second observation leads elsewhere."""
    agent = agent_of(kind)
    query, observation = plate_of_two(agent)
    begun = agent.begin(CONTEXT)
    other = observation + torch.tensor([0.0, 0.3])[:, None]
    assert not same(
        everything(agent, agent.observe(begun, query, observation)),
        everything(agent, agent.observe(begun, query, other)),
    )


@pytest.mark.parametrize("kind", sorted(ZOO))
def test_beliefs_and_agents_propose_plates_of_one(kind: str) -> None:
    agent, rng = agent_of(kind), Generator().manual_seed(0)
    dim = agent.belief.query_space.dim
    state = agent.begin(CONTEXT)
    assert agent.propose(state, rng).query.shape == (EPISODES, 1, dim)
    assert agent.belief.assess(state.belief, (0.02, 0.03), rng).query.shape == (EPISODES, 1, dim)


def test_a_plate_needs_an_observation_of_every_query() -> None:
    agent = agent_of("network")
    query, observation = plate_of_two(agent)
    with pytest.raises((ValueError, TypeError)):
        agent.observe(agent.begin(CONTEXT), query, observation[:, :1])


def test_tasks_answer_a_plate_one_query_after_the_other() -> None:
    tasks, rng = TaskBatch.draw(BestArm(5, 0.01), 4, Generator().manual_seed(1)), Generator().manual_seed(2)
    query = torch.nn.functional.normalize(torch.randn(4, 3, 5, generator=rng), dim=-1)
    at_once = observe_plate(tasks, query, Generator().manual_seed(3))
    chance = Generator().manual_seed(3)
    in_turn = [tasks.observe(query[:, k], chance) for k in range(3)]
    assert torch.equal(at_once, torch.stack(in_turn, dim=1))


def test_who_speaks_of_one_query_refuses_plates_of_several() -> None:
    assert only_query(torch.ones(4, 1, 2)).shape == (4, 2)
    with pytest.raises(InvalidInput, match="single query"):
        only_query(torch.ones(4, 2, 2))
