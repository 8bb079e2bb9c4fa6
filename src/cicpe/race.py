"""Which kind of belief suits a problem: a few are fitted on short slices of the budget, and the best goes on.

Structure that a pilot sees is only the order in which kinds are tried. Each is scored by the queries that it needs for
a wanted accuracy on held-out simulated tasks, the same ones for all.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import torch

from cicpe.agents.stop_rules import STOP_RULES
from cicpe.beliefs.base import Belief, BeliefConfig, FitRequest, FittedBelief
from cicpe.beliefs.budget import Budget
from cicpe.episodes.table import EpisodeTable, RecordSettings, tabulate
from cicpe.errors import CicpeError
from cicpe.files import write_json
from cicpe.problems import Problem, TaskBatch
from cicpe.training.callbacks import TrainingCallback
from cicpe.training.recipes import Choice
from cicpe.training.run import CHECKPOINT

TABLE = "race.json"
"""What was tried, in a run's folder."""
DELTA = 0.1
"""The delta that contenders are compared at."""
SLICE = 0.16
"""Share of the budget that a contender is fitted for before it is scored."""
SCORING = 0.05
"""Share of the budget that scoring it may take."""
LONGEST = 100
"""Queries of a scored episode, at most."""
EPISODES = 512
"""Held-out tasks, at most."""
TOGETHER = 32
"""Tasks that are played together while it is not known how long they take."""
AHEAD = 0.85
"""By how much a network has to be ahead: a computed belief can be gone on with, and does not forget."""
CERTAIN = 0.96
"""Confidence at which a scored episode need not be played on."""


class Score(NamedTuple):
    """How a contender did on held-out tasks."""

    recipe: str
    queries: float
    """Needed for an accuracy of 1 - DELTA at the middle epsilon; above the horizon where that was not reached."""
    accuracy: float
    """After all of its queries."""
    horizon: int
    episodes: int
    seconds: float
    """Of fitting and scoring."""
    fault: str | None = None
    """Why it does not suit the problem."""

    @property
    def line(self) -> str:
        """In words."""
        if self.fault is not None:
            return f"tried {self.recipe}: {self.fault}"
        needs = f"{self.queries:.1f} queries" if self.queries <= self.horizon else "not reached"
        return (
            f"tried {self.recipe} for {self.seconds:.0f} s: {needs} for an accuracy of {1 - DELTA:g}; "
            f"{self.accuracy:.2f} are right after at most {self.horizon} queries ({self.episodes} tasks)"
        )


class _OvertakenError(Exception):
    """Ends the training of a network that another contender is ahead of."""


@final
@dataclass
class Race:
    """A race over the kinds of belief that may suit a problem."""

    problem: Problem
    request: FitRequest
    configure: Callable[[BeliefConfig], BeliefConfig]
    """Puts the wanted epsilon into a configuration."""
    callback: TrainingCallback
    began: float
    seed: int
    """Seeds the held-out tasks."""

    @property
    def seconds(self) -> float:
        """The whole budget."""
        return 60 * float(self.request.budget.minutes or 0)

    @property
    def left(self) -> float:
        """What is left of it."""
        return self.began + self.seconds - time.perf_counter()

    def run(self, choices: Sequence[Choice]) -> tuple[Choice, FittedBelief]:
        """Fits and scores every choice in turn.

        Args:
            choices: In the order in which they are tried; networks, which learn slowly and can be stopped, come last.

        Returns:
            The best one, fitted for what was left of the budget beside calibration.
        """
        scores: list[Score] = []
        fitted: dict[str, FittedBelief] = {}
        for choice in choices:
            if choice.config.has_checkpoints:
                continue
            score, belief = self._tried(choice)
            scores.append(score)
            self.callback.on_choice((score.line,))
            if belief is not None:
                fitted[choice.recipe] = belief
        best = min((score for score in scores if score.fault is None), key=lambda score: score.queries, default=None)
        for choice in choices:
            if not choice.config.has_checkpoints:
                continue
            trained = self._trained(choice, best, scores)
            if trained is not None:
                self._written(scores, choice.recipe)
                return choice, trained
        if best is None:
            raise CicpeError("; ".join(score.line for score in scores))
        winner = next(choice for choice in choices if choice.recipe == best.recipe)
        self._written(scores, winner.recipe)
        self.callback.on_choice((f"{winner.recipe}, which needed the fewest queries", *winner.reasons))
        return winner, self._longer(fitted[winner.recipe])

    def _tried(self, choice: Choice) -> tuple[Score, FittedBelief | None]:
        """A short fit, and its score."""
        began = time.perf_counter()
        try:
            config = self.configure(choice.config)
            budget = Budget(minutes=min(SLICE * self.seconds, 0.4 * self.left) / config.fit_share / 60)
            fitted = config.fit(replace(self.request, budget=budget, folder=None))
        except CicpeError as error:
            seconds = time.perf_counter() - began
            return Score(choice.recipe, float("inf"), 0.0, 0, 0, seconds, str(error)), None
        return self._scored(choice.recipe, fitted.belief, config.epsilon, began), fitted

    def _scored(self, recipe: str, belief: Belief, epsilon: tuple[float, float], began: float) -> Score:
        middle = (epsilon[0] * epsilon[1]) ** 0.5
        belief = belief.with_horizon(min(belief.horizon, LONGEST))
        table = played(belief, self.problem, middle, min(SCORING * self.seconds, 0.3 * self.left), self.seed)
        queries, accuracy = needed(table, middle, self.problem.horizon)
        seconds = time.perf_counter() - began
        return Score(recipe, queries, accuracy, belief.horizon, table.loss.shape[1], seconds)

    def _trained(self, choice: Choice, best: Score | None, scores: list[Score]) -> FittedBelief | None:
        """A network trained for what is left, or None where it is behind the best after a slice."""
        began = time.perf_counter()
        config = self.configure(choice.config)
        at = SLICE * self.seconds
        decided = best is None

        def overtaken(progress: float, freeze: Callable[[], FittedBelief]) -> None:
            nonlocal decided
            if decided or time.perf_counter() - began < at:
                return
            decided = True
            score = self._scored(choice.recipe, freeze().belief, config.epsilon, began)
            scores.append(score)
            self.callback.on_choice((score.line,))
            if best is not None and score.queries >= AHEAD * best.queries:
                raise _OvertakenError
            self.callback.on_choice((f"{choice.recipe}, which needed the fewest queries", *choice.reasons))

        budget = Budget(minutes=max(self.left, 0.1 * self.seconds) / 60)
        try:
            identity = {**self.request.identity, "config": config.model_dump(mode="json")}
            return config.fit(replace(self.request, budget=budget, on_checkpoint=overtaken, identity=identity))
        except _OvertakenError:
            if self.request.folder is not None:
                (self.request.folder / CHECKPOINT).unlink(missing_ok=True)
            return None

    def _longer(self, fitted: FittedBelief) -> FittedBelief:
        """The fit, gone on with where its kind can."""
        if fitted.longer is None or self.left <= 0:
            return fitted
        return fitted.longer(Budget(minutes=max(self.left, 1.0) / 60))

    def _written(self, scores: Sequence[Score], winner: str) -> None:
        """Leaves the table in the run's folder, so that a resumed run goes on with the same kind."""
        if self.request.folder is not None:
            rows = [score._asdict() | {"queries": min(score.queries, 1e9)} for score in scores]
            write_json(self.request.folder / TABLE, {"chosen": winner, "tried": rows})


def played(belief: Belief, problem: Problem, epsilon: float, seconds: float, seed: int) -> EpisodeTable:
    """As many held-out episodes as fit in the time: at least two handfuls.

    Args:
        belief: Who plays.
        problem: Draws the tasks.
        epsilon: How close is close enough.
        seconds: A limit.
        seed: Seeds the tasks.

    Returns:
        What the belief would have done at every prefix.
    """
    rng, began = torch.Generator().manual_seed(seed), time.perf_counter()
    parts: list[EpisodeTable] = []
    settings = RecordSettings((epsilon,), certain=CERTAIN)
    while sum(part.loss.shape[1] for part in parts) < EPISODES:
        parts.append(tabulate(belief, TaskBatch.draw(problem, TOGETHER, rng), settings, rng))
        spent = time.perf_counter() - began
        if spent * (1 + 1 / len(parts)) > seconds:
            break
    return EpisodeTable.joined(parts)


def needed(table: EpisodeTable, epsilon: float, horizon: int) -> tuple[float, float]:
    """The queries that an accuracy of 1 - DELTA takes, and the accuracy at the end.

    Args:
        table: Recorded episodes.
        epsilon: How close is close enough.
        horizon: The most queries that the problem allows.

    Returns:
        Both; where the accuracy is not reached, the first is above the horizon, by how much is missing.
    """
    success = table.loss[0] <= epsilon
    rule, rows = STOP_RULES["confidence"], torch.arange(len(success))
    stops = rule.stop_times(table, 0, rule.thresholds(None))
    enough = [stop.double().mean() for stop in stops if success[rows, stop].double().mean() >= 1 - DELTA]
    reached = float(success[:, -1].double().mean())
    return (float(min(enough)) if enough else horizon * (2 - reached)), reached


def chosen_before(folder: Path | None) -> str | None:
    """The kind that an interrupted run had chosen, if it had."""
    try:
        table: Any = json.loads((folder / TABLE).read_text()) if folder is not None else None
        return str(table["chosen"]) if table else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
