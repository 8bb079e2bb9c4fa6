"""A family whose likelihood and posterior are known: y = q . answer + noise, under a standard normal prior."""

import torch
from torch import Tensor, nn

from cicpe.beliefs.answers.heads import NormalHead
from cicpe.beliefs.answers.joint_heads import Heads
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.prior import Prior
from cicpe.beliefs.answers.success import Success
from cicpe.spaces import Box

NOISE = 0.2
SIDE = 10.0
"""Half the answer's box: a standard normal prior lies well inside."""


class Linear(nn.Module):
    """The exact parameters of y = q . answer + noise, where the answer is in the box's own coordinates."""

    def forward(self, query: Tensor, place: Tensor, context: Tensor) -> Tensor:
        mean = (query * SIDE * place).sum(dim=-1)
        return torch.stack([mean, torch.full_like(mean, NOISE).log()], dim=-1)


class Frozen:
    """A network that is known exactly, asked as a frozen one is."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def prepare(self, place_NV: Tensor) -> Tensor:
        return place_NV

    def known(self, context_BC: Tensor) -> Tensor:
        return context_BC

    def __call__(self, query_TQ: Tensor, place_NV: Tensor, context_C: Tensor) -> Tensor:
        value: Tensor = self.network(query_TQ[:, None], place_NV, context_C)
        return value


def use_network(model: AnswerModel, network: nn.Module) -> None:
    """Puts a network that is known exactly in the place of the learned one, trained or frozen."""
    model.network = network  # type: ignore[assignment]
    model.frozen_network = lambda: Frozen(network)  # type: ignore[assignment, return-value, method-assign]


def linear_model(dim: int, draws: int = 20_000) -> AnswerModel:
    spaces = Box([-1.0] * dim, [1.0] * dim), Box([-SIDE] * dim, [SIDE] * dim)
    rng = torch.Generator().manual_seed(0)
    prior = Prior.learn(torch.randn((draws, dim), generator=rng) / SIDE, spaces[1], rng)
    model = AnswerModel(spaces, Heads((NormalHead(),)), prior, 0, 0, Success(spaces[1], False), 8)
    use_network(model, Linear())
    return model


def posterior(query_TQ: Tensor, observation_T: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the answer under a standard normal prior."""
    precision = torch.eye(query_TQ.shape[1]) + query_TQ.T @ query_TQ / NOISE**2
    covariance = torch.linalg.inv(precision)
    return covariance @ query_TQ.T @ observation_T / NOISE**2, covariance
