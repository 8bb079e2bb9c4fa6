"""The answer as a function of the hidden numbers of a task, where no single number gives it.

A vertex is -b / 2c, a threshold -a / b, a yield an integral: users write tasks in the numbers that their formula has,
and the answer is a function of several of them. The function is learned from simulated tasks by a small network. Where
answers are a finite set (the place of the largest number, say), the network tells them apart instead of interpolating.

Shapes: M simulated tasks, D hidden numbers, X answer, N answers of a finite set.
"""

import math
import time
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.beliefs.answers.first_weights import draw_first_weights
from cicpe.beliefs.answers.hidden import EDGE
from cicpe.spaces import Space

HIDDEN = 64
RATE = 6e-3
BATCH = 512
UPDATES = 2500
LEAST_RANK = 2e-4
"""The rank in a tail at which scores end."""
HELD_OUT = 0.1
"""Share of the simulated tasks that the function is judged on."""


@final
class AnswerMap(nn.Module):
    """Answers (in unit coordinates) of hidden numbers on their even scale.

    Args:
        numbers: How many hidden numbers there are.
        space: Where answers lie.
        values: How many answers there are, where they are a finite set; else 0.
        scored: Whether it also reads the numbers' normal scores, in which bell-shaped numbers are themselves again. On
            their even scale what happens in a tail happens within a few hundredths; not in models of earlier versions.
    """

    values_NX: Tensor

    def __init__(self, numbers: int, space: Space, values: int = 0, scored: bool = True) -> None:
        super().__init__()
        self.space, self.scored = space, scored
        self.register_buffer("values_NX", torch.zeros(values, space.dim))
        inputs, outputs = numbers * (2 if scored else 1), values or space.dim
        self.line = nn.Linear(inputs, outputs)
        self.curve = nn.Sequential(
            nn.Linear(inputs, HIDDEN),
            nn.SiLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.SiLU(),
            nn.Linear(HIDDEN, outputs),
        )

    def forward(self, numbers: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch X"]:
        """The answers."""
        out = self._outputs(numbers)
        if len(self.values_NX):
            return self.values_NX[out.argmax(dim=-1)]
        return self._inside(out)

    def _inside(self, out: Tensor) -> Tensor:
        """The nearest answers that there are, in unit coordinates."""
        return self.space.to_unit(self.space.project(self.space.from_unit(out)))

    def _outputs(self, numbers: Tensor) -> Tensor:
        if self.scored:
            rank = (0.5 + numbers / (2 * EDGE)).clamp(LEAST_RANK, 1 - LEAST_RANK)
            numbers = torch.cat([numbers, torch.special.ndtri(rank)], dim=-1)
        value: Tensor = self.line(numbers) + self.curve(numbers)
        return value

    @classmethod
    def learn(
        cls,
        numbers_MD: Float[Tensor, "M D"],
        answers_MX: Float[Tensor, "M X"],
        values_NX: Float[Tensor, "N X"] | None,
        space: Space,
        rng: Generator,
        seconds: float = math.inf,
    ) -> "AnswerMap":
        """The function of simulated tasks.

        Args:
            numbers_MD: Their hidden numbers.
            answers_MX: Their answers, in unit coordinates.
            values_NX: All answers that there are, where they are a finite set.
            space: Where answers lie.
            rng: Draws the first weights and the batches.
            seconds: How long it may be fitted.

        Returns:
            The fitted function.
        """
        answer_map = cls(numbers_MD.shape[1], space, 0 if values_NX is None else len(values_NX))
        if values_NX is not None:
            answer_map.values_NX = values_NX.clone()
        draw_first_weights(answer_map, rng)
        kept = len(numbers_MD) - int(HELD_OUT * len(numbers_MD))
        answer_map._fit(numbers_MD[:kept], answers_MX[:kept], rng, seconds)
        return answer_map.requires_grad_(False)

    def _fit(self, numbers: Tensor, answers: Tensor, rng: Generator, seconds: float) -> None:
        optimiser, began = torch.optim.Adam(self.parameters(), lr=RATE), time.perf_counter()
        targets = self._labels(answers) if len(self.values_NX) else answers
        for update in range(UPDATES):
            share = max(update / UPDATES, (time.perf_counter() - began) / max(seconds, 1e-3))
            if share >= 1:
                break
            for group in optimiser.param_groups:
                group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * share)) + 1e-5
            rows = torch.randint(len(numbers), (BATCH,), generator=rng)
            out = self._outputs(numbers[rows])
            if len(self.values_NX):
                loss = nn.functional.cross_entropy(out, targets[rows])
            else:
                # An answer that was clipped to its space is right as soon as the output lies beyond the end: a network
                # would round off the kink. The loss is robust, so that a jump of the function does not blur all else.
                apart = torch.where(self._inside(out) == targets[rows], 0.0, out - targets[rows])
                loss = nn.functional.smooth_l1_loss(apart, torch.zeros_like(apart), beta=0.05)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    def _labels(self, answers: Tensor) -> Tensor:
        """Which of the finite set each answer is."""
        apart = torch.cdist(answers, self.values_NX, compute_mode="donot_use_mm_for_euclid_dist")
        return apart.argmin(dim=-1)

    @torch.no_grad()
    def unexplained(self, numbers_MD: Float[Tensor, "M D"], answers_MX: Float[Tensor, "M X"]) -> float:
        """How wrong the function is on held-out tasks.

        Args:
            numbers_MD: The hidden numbers that it was learned from, the held-out ones last.
            answers_MX: Their answers.

        Returns:
            The share of wrong answers of a finite set; else the typical distance from the right answer, in the
            typical distance of the answers from their median.
        """
        held_out = slice(len(numbers_MD) - int(HELD_OUT * len(numbers_MD)), None)
        answers, ours = answers_MX[held_out], self(numbers_MD[held_out])
        apart = torch.linalg.vector_norm(ours - answers, dim=-1)
        if len(self.values_NX):
            return float((apart > 1e-5).double().mean())
        spread = torch.linalg.vector_norm(answers - answers.median(dim=0).values, dim=-1)
        return float(apart.mean() / spread.mean().clamp_min(1e-9))
