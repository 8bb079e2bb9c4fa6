"""The optimiser's groups, gradients limited part by part, and averages of weights."""

import math

import pytest
import torch

from cicpe.beliefs.network.memories.per_axis import PerAxisConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import MemoryConfig, Network, NetworkConfig
from cicpe.errors import TrainingError
from cicpe.problems.binary_search import BinarySearch
from cicpe.training.base import MOST_IN_VAIN, LossTerms, build_network
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import Trainer
from cicpe.training.optimisation import clip_gradients, follow, make_optimiser
from cicpe.training.schedule import Budget

MEMORIES = [
    RecurrentConfig(hidden=8),
    RecurrentConfig(hidden=8, readout="pooling"),
    PerAxisConfig(hidden=8, view="relative"),
]


def build(memory: MemoryConfig = MEMORIES[0], shared: bool = True, actor: str = "ts", seed: int = 0) -> Network:
    network = NetworkConfig(memory=memory, shared_memory=shared)
    config = TrainingConfig.model_validate({"network": network.model_dump(), "actor": actor})
    return build_network(BinarySearch(dim=2), config, torch.Generator().manual_seed(seed))


def norm(parameters: list[torch.nn.Parameter]) -> float:
    return float(torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("memory", MEMORIES, ids=["gru", "pooling", "axis"])
def test_a_huge_gradient_of_one_part_does_not_shorten_the_step_of_the_other(memory: MemoryConfig, shared: bool) -> None:
    network = build(memory, shared)
    for parameter in network.inference_parameters():
        parameter.grad = torch.full_like(parameter, 1e-4)
    for parameter in network.critic_parameters():
        parameter.grad = torch.full_like(parameter, 1e4)
    before = norm(network.inference_parameters())
    assert before < 1.0
    clip_gradients((network.inference_parameters(), network.critic_parameters()), 1.0)
    assert norm(network.inference_parameters()) == pytest.approx(before, rel=1e-6)
    assert norm(network.critic_parameters()) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("memory", MEMORIES, ids=["gru", "pooling", "axis"])
@pytest.mark.parametrize("actor", ["ts", "td3"])
def test_every_parameter_belongs_to_one_part(memory: MemoryConfig, shared: bool, actor: str) -> None:
    network = build(memory, shared, actor)
    own = [] if network.actor is None else list(network.actor.parameters())
    parts = [*network.inference_parameters(), *network.critic_parameters(), *own]
    assert sorted(map(id, parts)) == sorted(map(id, network.parameters()))


def test_the_learned_actor_has_its_share_of_the_learning_rate() -> None:
    assert [group["share"] for group in make_optimiser(build(), 1e-3, 0.25).param_groups] == [1.0]
    network = build(actor="td3")
    rest, own = make_optimiser(network, 1e-3, 0.25).param_groups
    assert (rest["share"], own["share"]) == (1.0, 0.25)
    assert network.actor is not None
    assert {id(p) for p in own["params"]} == {id(p) for p in network.actor.parameters()}
    assert len(rest["params"]) + len(own["params"]) == len(list(network.parameters()))


def test_an_average_moves_by_its_rate() -> None:
    slow, fast = build(seed=0), build(seed=1)
    before = [p.detach().clone() for p in slow.parameters()]
    follow(slow, fast, 0.25)
    for old, moved, source in zip(before, slow.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(moved.detach(), 0.75 * old + 0.25 * source.detach())
    follow(slow, fast, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(slow.parameters(), fast.parameters(), strict=True))


def losses(trainer: Trainer, factor: float) -> LossTerms:
    """A loss that all parameters of inference take part in, times a factor."""
    total = sum((parameter.square().sum() for parameter in trainer.network.parameters()), torch.zeros(()))
    return LossTerms(factor * total, torch.zeros(()), torch.zeros(()), None)


def test_a_gradient_that_is_not_finite_leaves_the_weights_as_they_are() -> None:
    trainer = Trainer(
        BinarySearch(dim=1), TrainingConfig(network=NetworkConfig(memory=MEMORIES[0])), Budget(updates=50), seed=0
    )
    before = [parameter.clone() for parameter in trainer.network.parameters()]
    for _ in range(MOST_IN_VAIN):
        trainer._descend(losses(trainer, math.nan), progress=0.0)
    assert all(torch.equal(*pair) for pair in zip(before, trainer.network.parameters(), strict=True))
    trainer._descend(losses(trainer, 1.0), progress=0.0)  # a good one, so that counting starts anew
    assert not all(torch.equal(*pair) for pair in zip(before, trainer.network.parameters(), strict=True))
    for _ in range(MOST_IN_VAIN):
        trainer._descend(losses(trainer, math.nan), progress=0.0)
    with pytest.raises(TrainingError, match="diverged"):
        trainer._descend(losses(trainer, math.nan), progress=0.0)
