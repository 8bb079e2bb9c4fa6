"""Up-and-down staircases, many together: so many yes in a row and the setting goes down, one no and it goes up.

With ``down`` yes in a row the level at which steps down and up are equally likely has P(yes)^down = 1/2: 0.794 for three, 0.5 for one. The step
is halved at every reversal until it is the last; the estimate is the mean of the settings at the reversals after the first few. All of that is
usual practice. A staircase with another level than the one that is sought gets a constant shift, which is learnt on held-out tasks.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from cicpe.experiments.scales import coordinates_of
from cicpe.problems import Problem


class StairState(NamedTuple):
    """One entry per run; settings in units."""

    setting: Tensor
    step: Tensor
    streak: Tensor
    """Yes in a row since the last step."""
    direction: Tensor
    """Of the last step: -1 down, 1 up, 0 before the first."""
    reversals: Tensor
    total: Tensor
    """Sum of the settings at the reversals that count."""


class StairProposal(NamedTuple):
    query: Tensor
    recommendation: Tensor
    reversals: Tensor


def by_reversals(proposal: StairProposal) -> Tensor:
    return proposal.reversals.double()


@final
@dataclass(frozen=True)
class Staircase:
    """A player: it has no posterior, and stops after a number of reversals."""

    problem: Problem
    horizon: int
    down: int
    first_step: float
    """In the setting's unit, as are the others."""
    last_step: float
    discard: int = 2
    """Reversals that do not count."""
    shift: float = 0.0
    """Added to the estimate."""

    @property
    def range(self) -> tuple[float, float]:
        scale = self.problem.units.settings[0]
        return scale.least, scale.most

    def begin(self, context: Tensor) -> StairState:
        """At the easy end, where the answer is yes."""
        n, nothing = len(context), torch.zeros(len(context))
        easy, step = torch.full((n,), float(self.range[1])), torch.full((n,), float(self.first_step))
        return StairState(easy, step, nothing, nothing, nothing, nothing)

    def propose(self, state: StairState, rng: Generator) -> StairProposal:
        """The setting, and the mean of the reversals so far; the setting itself where none counts yet."""
        counted = (state.reversals - self.discard).clamp_min(0)
        estimate = torch.where(counted > 0, state.total / counted.clamp_min(1), state.setting) + self.shift
        setting_scale, answer_scale = self.problem.units.settings[0], self.problem.units.answers[0]
        query = coordinates_of(setting_scale, state.setting)[:, None, None]
        answer = self.problem.answer_space.project(coordinates_of(answer_scale, estimate)[:, None])
        return StairProposal(query, answer, state.reversals)

    def observe(self, state: StairState, query: Tensor, observation: Tensor) -> StairState:
        yes = observation[:, 0, 0] > 0.5
        streak = torch.where(yes, state.streak + 1, 0.0)
        goes_down, goes_up = streak >= self.down, ~yes
        direction = torch.where(goes_up, 1.0, torch.where(goes_down, -1.0, state.direction))
        turned = (direction != state.direction) & (state.direction != 0)
        reversals = state.reversals + turned
        counts = turned & (reversals > self.discard)
        step = torch.where(turned, (state.step / 2).clamp_min(self.last_step), state.step)
        moved = torch.where(goes_up | goes_down, direction * step, 0.0)
        return StairState(
            (state.setting + moved).clamp(*self.range),
            step,
            torch.where(goes_down, 0.0, streak),
            direction,
            reversals,
            state.total + torch.where(counts, state.setting, 0.0),
        )
