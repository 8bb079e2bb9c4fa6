"""Whether an answer would succeed on a hidden place: the loss as a function of the two.

Where the loss is the answer space's distance it is used as it is. So is another norm of the difference between answer
and target, whose coordinates may be periodic, once losses of simulated tasks have shown which one. Elsewhere the
loss's distribution given the answer and the target is learned from simulations (a lognormal, whose parameters a small
network gives), which takes tens of times as long to ask. A loss may depend on what else is hidden too: a regret
depends on how steep a peak is, and on how good the second best is. Where that is so, the network sees all of the
hidden numbers, and the loss is a function again.

Shapes: B episodes, A answers, N places, X answer, V place (a target, then the other hidden numbers).
"""

import math
import time
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.beliefs.answers.first_weights import draw_first_weights
from cicpe.beliefs.answers.hidden import Nuisance
from cicpe.beliefs.answers.histories import places_of
from cicpe.beliefs.answers.norms import LossNorm, Norm, find_norm
from cicpe.problems.base import Problem, TaskBatch
from cicpe.spaces import Box, Space, Sphere

HIDDEN = 48
RATE = 5e-3
UNCLEAR = 0.05
"""How badly answer and target tell whether a loss is below some level, in nats, for all hidden numbers to be tried."""
WHOLE_TIME = 4.0
"""How many times as long a network may be fitted that sees all of them."""
FLOOR = 1e-3
"""What such a network adds to a loss before its logarithm, in the mean loss: the right answer may have none."""
POOLED = 48
"""Batches of losses that are kept to be shown again: drawing tasks takes longer than learning from them."""
HELD_OUT = 1536
"""Losses that the two networks are compared on."""


@final
class Success(nn.Module):
    """The probability that the loss of an answer is at most epsilon, were a given place the hidden one.

    Args:
        space: Where answers lie.
        learned: Whether the loss is something else than the space's distance.
        numbers: Hidden numbers beside the target that it depends on.
        values: How many answers there are, where it depends on such numbers and answers are a finite set.
        norm: Which norm the loss is, where it is one of weighted differences in unit coordinates.
        wraps: Coordinates whose ends are one and the same place, as those of an angle are.
    """

    floor: Tensor
    values_NX: Tensor
    weights_X: Tensor

    def __init__(
        self,
        space: Space,
        learned: bool,
        numbers: int = 0,
        values: int = 0,
        norm: LossNorm | None = None,
        wraps: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.space, self.learned, self.numbers, self.norm, self.wraps = space, learned, numbers, norm, wraps
        if norm is not None:
            self.register_buffer("weights_X", torch.ones(space.dim))
        if numbers:
            self.register_buffer("floor", torch.zeros(()))
            self.register_buffer("values_NX", torch.zeros(values, space.dim))
        if learned:
            wide = self._features(torch.zeros(1, space.dim), torch.zeros(1, space.dim + numbers)).shape[-1]
            layers = nn.Linear(wide, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 2)
            self.network = nn.Sequential(*layers)
        if numbers:
            # What an answer is decides which of the hidden numbers matter, and how.
            self.of_place, self.of_answer = nn.Linear(space.dim + numbers, HIDDEN), nn.Linear(wide, HIDDEN)

    @classmethod
    def learn(
        cls,
        problem: Problem,
        nuisance: Nuisance | None,
        values_NX: Tensor | None,
        rng: Generator,
        seconds: float,
        updates: int = 2000,
    ) -> "Success":
        """What a family's loss asks for.

        Args:
            problem: The family.
            nuisance: Reads what is hidden beside the target; None where it cannot be read.
            values_NX: All answers that there are, where they are a finite set.
            rng: Draws tasks, answers and the first weights.
            seconds: How long a network of answer and target may be fitted.
            updates: For how many steps, at most.

        Returns:
            The space's distance or another norm where that is the loss, else a fitted network.
        """
        space = problem.answer_space
        if problem.has_distance_loss:
            return cls(space, learned=False)
        held_out = _Losses.draw(problem, nuisance, rng, HELD_OUT)
        if isinstance(space, Box) and (weighted := held_out.norm()) is not None:
            exact = cls(space, learned=False, norm=weighted.norm, wraps=weighted.wraps)
            exact.weights_X = weighted.weights_X.float()
            return exact
        plain = cls(space, learned=True)
        plain._fit(problem, nuisance, values_NX, rng, seconds, updates)
        if nuisance is None or not nuisance.size or plain._held_out_loss(held_out) < UNCLEAR:
            return plain.requires_grad_(False)
        whole = cls(space, True, nuisance.size, 0 if values_NX is None else len(values_NX))
        whole.floor = FLOOR * held_out.loss_B.mean().clamp_min(1e-9)
        whole._fit(problem, nuisance, values_NX, rng, WHOLE_TIME * seconds, updates)
        best = min((plain, whole), key=lambda success: success._held_out_loss(held_out))
        return best.requires_grad_(False)

    def _fit(
        self,
        problem: Problem,
        nuisance: Nuisance | None,
        values_NX: Tensor | None,
        rng: Generator,
        seconds: float,
        updates: int,
    ) -> None:
        if self.numbers:
            self.values_NX = self.values_NX if values_NX is None else values_NX.clone()
        draw_first_weights(self, rng)
        optimiser = torch.optim.Adam(self.parameters(), lr=RATE)
        began, drawing = time.perf_counter(), 0.0
        pool: list[_Losses] = []
        for update in range(updates):
            share = max(update / updates, (time.perf_counter() - began) / max(seconds, 1e-3))
            if share >= 1:
                break
            for group in optimiser.param_groups:
                group["lr"] = RATE * (1 - share) + 1e-5
            start = time.perf_counter()
            if len(pool) < POOLED and (math.isinf(seconds) or drawing <= 0.5 * (start - began)):
                pool.append(_Losses.draw(problem, nuisance, rng))
                drawing += time.perf_counter() - start
            loss = self._nll(pool[update % len(pool)])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.parameters(), 1.0)
            optimiser.step()

    def _nll(self, seen: "_Losses") -> Tensor:
        """Negative log-likelihood of losses, up to what does not depend on the network."""
        mean, log_std = self._moments(seen.answer_BX, seen.place_BV)
        return (0.5 * ((self._log(seen.loss_B) - mean) * torch.exp(-log_std)).square() + log_std).mean()

    @torch.no_grad()
    def _held_out_loss(self, seen: "_Losses") -> float:
        """How well it tells whether losses are below some levels, in nats: comparable between networks."""
        mean, log_std = self._moments(seen.answer_BX, seen.place_BV)
        levels = torch.quantile(seen.loss_B[seen.loss_B > 0], torch.linspace(0.05, 0.75, 15))
        chance = torch.special.ndtr((self._log(levels)[:, None] - mean) * torch.exp(-log_std)).clamp(1e-3, 1 - 1e-3)
        return float(nn.functional.binary_cross_entropy(chance, (seen.loss_B <= levels[:, None]).float()))

    def _log(self, loss: Tensor) -> Tensor:
        return (loss + self.floor).log() if self.numbers else loss.clamp_min(1e-9).log()

    def _features(self, answer: Tensor, place: Tensor) -> Tensor:
        target = place[..., : self.space.dim]
        apart = answer - target
        waves = [f(math.pi * k * apart / 2) for k in (1, 2, 4) for f in (torch.sin, torch.cos)]
        norm = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        answer, target = torch.broadcast_tensors(answer, target)  # type: ignore[no-untyped-call]
        parts = [answer, target, apart.abs(), (norm + 0.01).log(), *waves]
        if self.numbers and len(self.values_NX):
            parts.append(_nearest(answer, self.values_NX))
        return torch.cat(parts, dim=-1)

    def _moments(self, answer: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the log loss."""
        features = self._features(answer, place)
        if self.numbers:
            first, *rest = self.network
            hidden = first(features) + self.of_place(place) * self.of_answer(features)
            for layer in rest:
                hidden = layer(hidden)
            mean, log_std = hidden.unbind(dim=-1)
        else:
            mean, log_std = self.network(features).unbind(dim=-1)
        return mean, log_std.clamp(-4, 3)

    def forward(
        self, answer_BAX: Tensor, place_BNV: Tensor, epsilon: float, softness: float = 0.0
    ) -> Float[Tensor, "B A N"]:
        """The probability of success of every answer on every place, both in unit coordinates.

        Args:
            answer_BAX: Answers.
            place_BNV: Targets, followed by the other hidden numbers where the loss depends on them.
            epsilon: How far off an answer may be.
            softness: The distance over which success goes from one to zero, in the units of ``scaled``: a cell's width.
        """
        return self.within(self.compared(answer_BAX, place_BNV), epsilon, softness)

    def compared(self, answer_BAX: Tensor, place_BNV: Tensor) -> "ComparedAnswers":
        """How far off every answer is on every place, for any epsilon.

        Args:
            answer_BAX: Answers in unit coordinates.
            place_BNV: Targets, followed by the other hidden numbers where the loss depends on them.

        Returns:
            The losses, or what is known of them.
        """
        if self.learned:
            return ComparedAnswers(*self._moments(answer_BAX[:, :, None], place_BNV[:, None]))
        if self.wraps:
            return ComparedAnswers(self._around(answer_BAX, place_BNV))
        answer, target = self.scaled(answer_BAX), self.scaled(place_BNV[..., : self.space.dim])
        if isinstance(self.space, Sphere):
            return ComparedAnswers(self.space.distance(answer[:, :, None], target[:, None]))
        # The same as the box's own distance, without every difference in memory.
        return ComparedAnswers(torch.cdist(answer, target, self._order, "donot_use_mm_for_euclid_dist"))

    def apart(self, answer: Tensor, place: Tensor) -> Float[Tensor, "*batch X"]:
        """Targets less answers in unit coordinates, the short way round where a coordinate wraps.

        Args:
            answer: In unit coordinates.
            place: Targets, which other hidden numbers may follow.
        """
        apart = place[..., : self.space.dim] - answer
        if self.wraps:
            turns = (apart[..., list(self.wraps)] / 2).round()
            apart[..., list(self.wraps)] -= 2 * turns
        return apart

    def _around(self, answer_BAX: Tensor, place_BNV: Tensor) -> Float[Tensor, "B A N"]:
        """The norm of differences of which some wrap, a coordinate at a time: all differences take much memory."""
        total, weights = torch.zeros(()), self.scale_X.tolist()
        for i, weight in enumerate(weights):
            part = (answer_BAX[:, :, None, i] - place_BNV[:, None, :, i]).abs()
            part = weight * (torch.minimum(part, 2 - part) if i in self.wraps else part)
            match self._order:
                case 1.0:
                    total = total + part
                case 2.0:
                    total = total + part.square()
                case _:
                    total = torch.maximum(total, part)
        return total.sqrt() if self._order == 2.0 else total

    @property
    def _order(self) -> float:
        """The order p of the norm."""
        if self.norm is None:
            return math.inf if isinstance(self.space, Box) and self.space.norm == "max" else 2.0
        return {"sum": 1.0, "euclidean": 2.0, "squared": 2.0, "largest": math.inf}[self.norm]

    @property
    def scale_X(self) -> Tensor:
        """How far apart two answers are, per coordinate, whose unit coordinates differ by one."""
        return self.space.unit_scale if self.norm is None else self.weights_X

    def scaled(self, unit: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch X"]:
        """Answers at whose distances from one another the loss looks, where it is a norm.

        Args:
            unit: In unit coordinates.
        """
        return self.space.from_unit(unit) if self.norm is None else unit * self.weights_X

    def reach(self, epsilon: float) -> float:
        """About how far a good answer may be from the target, in the coordinates of ``scaled`` and in a straight line.

        Args:
            epsilon: The largest loss of a good answer.
        """
        if isinstance(self.space, Sphere):
            return math.sqrt(2 * epsilon)
        if self.norm == "sum":
            return epsilon / math.sqrt(self.space.dim)
        return math.sqrt(epsilon) if self.norm == "squared" else epsilon

    def within(
        self, compared: "ComparedAnswers", epsilon: float | Tensor, softness: float = 0.0
    ) -> Float[Tensor, "*batch A N"]:
        """The probability that each loss is at most epsilon.

        Args:
            compared: As ``compared`` has it.
            epsilon: How far off an answer may be; several broadcast with the losses.
            softness: The distance, in the units of ``scaled``, over which success goes from one to zero.

        Returns:
            From 0 to 1, per answer and place.
        """
        if compared.log_std_BAN is not None:
            level = self._log(torch.as_tensor(epsilon))
            value: Tensor = torch.special.ndtr((level - compared.loss_BAN) * torch.exp(-compared.log_std_BAN))
            return value
        if self.norm == "squared":
            epsilon = torch.as_tensor(epsilon).sqrt()
        if softness == 0:
            return (compared.loss_BAN <= epsilon).float()
        return ((epsilon - compared.loss_BAN) / softness + 0.5).clamp(0, 1)


class ComparedAnswers(NamedTuple):
    """How far off every answer is on every place."""

    loss_BAN: Float[Tensor, "*batch A N"]
    """How far apart they are, which is the loss or its root; the mean of its logarithm, where it was learned."""
    log_std_BAN: Float[Tensor, "*batch A N"] | None = None
    """Logarithm of that logarithm's standard deviation, where it was learned."""


@final
class _Losses(NamedTuple):
    """Losses of simulated answers, near the target and far from it."""

    answer_BX: Tensor
    place_BV: Tensor
    loss_B: Tensor

    @classmethod
    def draw(cls, problem: Problem, nuisance: Nuisance | None, rng: Generator, n: int = 1024) -> "_Losses":
        space, tasks = problem.answer_space, TaskBatch.draw(problem, n, rng)
        target = space.to_unit(tasks.target)
        reach = torch.exp(-4 * torch.rand((n, 1), generator=rng))
        local = space.project(space.from_unit(target + reach * torch.randn(target.shape, generator=rng)))
        answer = torch.where(torch.rand((n, 1), generator=rng) < 0.5, local, space.sample(n, rng))
        return cls(space.to_unit(answer), places_of(tasks, nuisance), tasks.loss(answer))

    def norm(self) -> Norm | None:
        """The norm that gives these losses, if there is one."""
        some = self.loss_B > 1e-4 * self.loss_B.mean()
        if int(some.sum()) < len(some) / 2:
            return None
        dim = self.answer_BX.shape[1]
        return find_norm((self.answer_BX - self.place_BV[:, :dim]).double()[some], self.loss_B.double()[some])


def _nearest(answer: Tensor, values_NX: Tensor) -> Float[Tensor, "*batch N"]:
    """Which of a finite set of answers each is nearest to, as ones and zeros."""
    apart = (answer[..., None, :] - values_NX).square().sum(dim=-1)
    return nn.functional.one_hot(apart.argmin(dim=-1), len(values_NX)).float()
