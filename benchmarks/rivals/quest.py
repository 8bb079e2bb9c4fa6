"""The package questplus as a player: its own likelihoods, ``update`` and ``next_stim``, given the experiment's prior on its own grid.

Its parameters are not the experiment's: its Weibull threshold is the place where the curve has risen by 1 - 1/e, its normal curve has a mean.
What is sought, the setting at the level, follows from each point of its grid, and so do the prior's weight there and the posterior mean and
standard deviation of the answer.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from scipy.special import ndtri
from torch import Generator, Tensor

from cicpe.agents.base import Proposal
from cicpe.experiments import Experiment
from cicpe.problems import Problem

WIDTHS, RATES = 6, 2
"""Points of the grid along the width, and along each rate that is unknown."""
TEN_TO_NINETY = math.log(-math.log(0.1)) - math.log(-math.log(0.9))
"""Of Weibull's curve in its own variable: from a tenth to nine tenths of the rise."""


class QuestGrid(NamedTuple):
    """The grid of one of its functions, and what each point means: all of one shape, in the order of ``domain``."""

    func: str
    scale: str
    domain: dict[str, np.ndarray]
    threshold: np.ndarray
    """The setting at the level that is sought."""


def midpoints(low: float, high: float, n: int, log: bool = False) -> np.ndarray:
    """The middles of ``n`` equal parts of a range (equal factors where ``log``)."""
    share = (np.arange(n) + 0.5) / n
    return low * (high / low) ** share if log else low + share * (high - low)


def rates(value: float | tuple[float, float]) -> np.ndarray:
    return midpoints(*value, RATES) if isinstance(value, tuple) else np.array([value])


def weibull_grid(experiment: Experiment) -> QuestGrid:
    """P = 1 - lapse - (1 - guess - lapse) exp(-10^(slope (x - t) / 20)), x in dB."""
    slope = 20 * TEN_TO_NINETY / (_widths(experiment) * math.log(10))
    guess, lapse = rates(experiment.model.guess), rates(experiment.model.lapse)
    share = _share_of_the_rise(experiment, guess, lapse)
    shift = 20 / (slope[:, None, None] * math.log(10)) * np.log(-np.log1p(-share))
    place, threshold = _places(experiment, shift)
    domain = {"threshold": place, "slope": slope, "lower_asymptote": guess, "lapse_rate": lapse}
    return QuestGrid("weibull", "dB", domain, threshold)


def normal_grid(experiment: Experiment) -> QuestGrid:
    """P = guess + (1 - guess - lapse) Phi((x - mean) / sd): the nearest that it has to a logistic curve."""
    sd = _widths(experiment) / (2 * ndtri(0.9))
    guess, lapse = rates(experiment.model.guess), rates(experiment.model.lapse)
    place, threshold = _places(experiment, sd[:, None, None] * ndtri(_share_of_the_rise(experiment, guess, lapse)))
    domain = {"mean": place, "sd": sd, "lower_asymptote": guess, "lapse_rate": lapse}
    return QuestGrid("norm_cdf", "linear", domain, threshold)


def _widths(experiment: Experiment) -> np.ndarray:
    return midpoints(*experiment.model.width, WIDTHS, log=True)


def _share_of_the_rise(experiment: Experiment, guess: np.ndarray, lapse: np.ndarray) -> np.ndarray:
    """Where the level that is sought lies between the two ends of the curve: guess x lapse."""
    share: np.ndarray = (experiment.goal.level - guess[:, None]) / (1 - guess[:, None] - lapse)
    return share


def _places(experiment: Experiment, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places a step apart, so far beyond the range that every threshold in it has one, and the threshold of each with its shift."""
    setting = experiment.setting[0]
    (low, high), step = setting.limits, setting.step
    beyond = step * math.ceil(float(np.abs(shift).max()) / step)
    place = np.arange(low - beyond, high + beyond + step / 2, step)
    return place, place[:, None, None, None] + shift


GRIDS = {"weibull": weibull_grid, "logistic": normal_grid, "probit": normal_grid}


@final
@dataclass(frozen=True)
class QuestPlusPlayer:
    """A state is an array of its posteriors, one per episode: one object of the package serves all of them in turn."""

    problem: Problem
    experiment: Experiment
    horizon: int

    @cached_property
    def grid(self) -> QuestGrid:
        return GRIDS[self.experiment.model.shape](self.experiment)

    @cached_property
    def stimuli(self) -> np.ndarray:
        """All that the instrument can be set to."""
        setting = self.experiment.setting[0]
        low, high = setting.limits
        return low + setting.step * np.arange(round((high - low) / setting.step) + 1)

    @cached_property
    def package(self) -> Any:
        """The package's procedure with the experiment's prior: uniform in the threshold over the range of the setting."""
        import questplus

        (low, high), grid = self.experiment.setting[0].limits, self.grid
        made = questplus.QuestPlus(
            stim_domain={"intensity": self.stimuli},
            param_domain=grid.domain,
            outcome_domain={"response": ["yes", "no"]},
            func=grid.func,
            stim_scale=grid.scale,
        )
        inside = (grid.threshold >= low) & (grid.threshold <= high)
        made.prior = made.prior.copy(data=inside / inside.sum())
        return made

    def begin(self, context: Tensor) -> np.ndarray:
        state = np.empty(len(context), dtype=object)
        for episode in range(len(state)):
            state[episode] = self.package.prior
        return state

    def propose(self, state: np.ndarray, rng: Generator) -> Proposal:
        rows = [self._assess(posterior) for posterior in state]
        setting, mean, std = (torch.tensor(column) for column in zip(*rows, strict=True))
        scale = self.problem.units.answers[0]
        query = [self.problem.units.settings[0].coordinate(float(one)) for one in setting]
        answer = torch.tensor([[scale.coordinate(float(one))] for one in mean])
        nothing = torch.zeros(len(rows))
        return Proposal(
            torch.tensor(query)[:, None, None],
            nothing > 0,
            self.problem.answer_space.project(answer),
            nothing,
            (std / scale.slope(0.0))[:, None].float(),
        )

    def _assess(self, posterior: Any) -> tuple[float, float, float]:
        """The next setting, and the mean and the standard deviation of what is sought, in units."""
        self.package.posterior = posterior
        setting = self.package.next_stim["intensity"]
        weight, threshold = posterior.values, self.grid.threshold
        mean = float((weight * threshold).sum())
        return setting, mean, math.sqrt(float((weight * (threshold - mean) ** 2).sum()))

    def observe(self, state: np.ndarray, query: Tensor, observation: Tensor) -> np.ndarray:
        after = np.empty(len(state), dtype=object)
        scale = self.problem.units.settings[0]
        for episode, posterior in enumerate(state):
            self.package.posterior = posterior
            asked = scale.settable(float(query[episode, 0, 0]))
            setting = self.stimuli[np.abs(self.stimuli - asked).argmin()]
            outcome = "yes" if float(observation[episode, 0, 0]) > 0.5 else "no"
            self.package.update(stim={"intensity": setting}, outcome={"response": outcome})
            after[episode] = self.package.posterior
        return after
