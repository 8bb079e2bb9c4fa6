"""Which kind of belief suits a problem: a few are fitted on short slices of the budget, and the best goes on.

Structure that a pilot sees is only the order in which kinds are tried. Each is scored by the queries that it needs for
a wanted accuracy on held-out simulated tasks, the same ones for all. Where a computed posterior is right as often as it
says, what is compared next is how it chooses its queries.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import torch

from cicpe.beliefs.base import BeliefConfig, CalibrationPlan, FitRequest, FittedBelief
from cicpe.beliefs.budget import Budget
from cicpe.calibration.table import reserve
from cicpe.errors import CicpeError
from cicpe.files import read_file, write_json
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.structure import seconds_per_observation
from cicpe.scoring import CERTAIN, DELTA, LONGEST, Needed, Score, is_as_said, needed, played
from cicpe.training.callbacks import TrainingCallback
from cicpe.training.recipes import Choice
from cicpe.training.run import CHECKPOINT

TABLE = "race.json"
"""What was tried, in a run's folder."""
MOST = 0.5
"""Share of the budget after which no further kind is tried."""
LEAST = 1.0
"""Seconds of a fit whose budget is used up."""
SLICE = 0.15
"""Share of the budget that a contender is fitted for before it is scored."""
LEAST_OBSERVATIONS = 50_000
"""Observations in that time below which a network is not tried."""
SCORING = 0.05
"""Share of the budget that scoring it may take."""
CALIBRATION = 0.35
"""Share of the budget that calibration may count on."""
LEVEL = 1.645
"""Standard deviations by which calibration has to be sure of an accuracy."""
AHEAD = 0.85
"""What the queries of others are to be, in those of a computed belief that goes on learning what observations tell: a
network was taken at less, and ended behind."""
CLEARLY = 0.2
"""How much more often a kind is to be right that is tried later, where none reaches the wanted accuracy in time."""
HOPELESSLY = 0.6
"""The same for a kind that is too slow to be calibrated well."""
VARIANT_AHEAD = 0.97
"""What the queries of another query rule are to be, in those of the usual one."""


class Contender(NamedTuple):
    """A belief that was fitted and scored."""

    choice: Choice
    score: Score
    fitted: FittedBelief
    is_variant: bool = False
    """Whether it is another one with other queries."""

    @property
    def handicapped(self) -> float:
        """Its queries, as they are compared."""
        goes_on = not self.choice.config.has_checkpoints and self.fitted.longer is not None
        return self.score.queries / (1 if goes_on else AHEAD)

    @property
    def ends_the_race(self) -> bool:
        """Whether it is a computed posterior that is right as often as it says, and could be calibrated in time."""
        return self.score.is_honest and not self.score.is_slow and not self.choice.config.has_checkpoints


def best_of(contenders: Sequence[Contender]) -> Contender:
    """The one to go on with.

    Args:
        contenders: In the order in which they were tried.

    Returns:
        That which needs the fewest queries. Where none reaches the wanted accuracy yet, what a slice of the budget
        shows is far from how they will end, so that the order decides, which comes from the structure of the problem:
        another kind has to be right clearly more often. One that is too slow to be calibrated gives way to any other
        that is not hopeless.
    """
    in_time = [contender for contender in contenders if not contender.score.is_slow]
    right = max(contender.score.accuracy for contender in contenders)
    if in_time and right <= HOPELESSLY + max(contender.score.accuracy for contender in in_time):
        contenders = in_time
    if any(contender.score.has_reached for contender in contenders):
        return min(contenders, key=lambda contender: contender.handicapped)
    recipes = dict.fromkeys(contender.choice.recipe for contender in contenders)
    own = ([contender for contender in contenders if contender.choice.recipe == recipe] for recipe in recipes)
    best, *others = (min(some, key=lambda contender: contender.handicapped) for some in own)
    for other in others:
        if other.score.accuracy > best.score.accuracy + CLEARLY:
            best = other
    return best


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
    scores: list[Score] = field(default_factory=list)
    """How each that was tried did."""
    interrupted: bool = False
    """Whether the user has ended it, once something was fitted: what there is goes to calibration at once."""

    @property
    def seconds(self) -> float:
        """The whole budget."""
        return 60 * float(self.request.budget.minutes or 0)

    @property
    def left(self) -> float:
        """What is left of it."""
        return self.began + self.seconds - time.perf_counter()

    @property
    def usable(self) -> float:
        """The same for a fit, which takes a moment even where nothing is left: somebody has to win."""
        return max(self.left, LEAST)

    def run(self, choices: Sequence[Choice]) -> tuple[Choice, FittedBelief]:
        """Fits and scores every choice in turn.

        Args:
            choices: In the order in which they are tried.

        Returns:
            The best one, fitted for what was left of the budget beside calibration.
        """
        contenders: list[Contender] = []
        for choice in choices:
            if contenders and not self._has_time:
                break
            if contenders and choice.config.has_checkpoints and (why := self._starved()):
                self._note(Score(choice.recipe, float("inf"), 0.0, 0, 0, 0.0, fault=why))
                continue
            try:
                self.callback.on_stage(f"trying {choice.recipe}", 0.0)
                score, belief = self._tried(choice)
                self._note(score)
                if belief is not None:
                    contenders.extend(self._until_honest(Contender(choice, score, belief)))
                if contenders and contenders[-1].ends_the_race:
                    # A posterior that is right as often as it says leaves little for other kinds to gain: what is
                    # compared instead is how it chooses its queries.
                    contenders[-1] = self._best_rule(contenders[-1])
                    break
            except KeyboardInterrupt:
                if not contenders:
                    raise
                self._interrupt()
                break
        if not contenders:
            raise CicpeError("; ".join(score.line for score in self.scores))
        best = best_of(contenders)
        self._written(best.choice.recipe)
        if self.request.folder is not None and not best.choice.config.has_checkpoints:
            (self.request.folder / CHECKPOINT).unlink(missing_ok=True)
        name = f"{best.choice.recipe} ({best.score.way})" if best.is_variant else best.choice.recipe
        self.callback.on_choice((f"{name}, which needed the fewest queries", *best.choice.reasons))
        return best.choice, self._longer(best.fitted)

    def _starved(self) -> str | None:
        """Why a network need not be tried: it takes far more observations than a likelihood to learn anything."""
        tasks = TaskBatch.draw(self.problem, 8, torch.Generator().manual_seed(self.seed))
        observations = SLICE * self.seconds / max(seconds_per_observation(tasks), 1e-9)
        if observations >= LEAST_OBSERVATIONS:
            return None
        return f"skipped, since only {observations:,.0f} observations can be simulated meanwhile"

    @property
    def _has_time(self) -> bool:
        """Whether another contender may be tried."""
        return time.perf_counter() - self.began <= MOST * self.seconds

    def _note(self, score: Score) -> None:
        self.scores.append(score)
        self.callback.on_choice((score.line,))

    def _until_honest(self, contender: Contender) -> list[Contender]:
        """A contender and, until one is right as often as it says, the same with other searches for the posterior."""
        tried = [contender]
        for fitted in () if contender.ends_the_race else contender.fitted.alternatives():
            if self._has_time and not tried[-1].ends_the_race:
                epsilons = self._judged_at(fitted)
                score = self._scored(contender.choice.recipe, fitted, time.perf_counter(), epsilons)
                self._note(score)
                tried.append(Contender(contender.choice, score, fitted))
        return tried

    def _best_rule(self, contender: Contender) -> Contender:
        """An honest belief with the query rule that needs the fewest queries, by its own word.

        Whether an episode is right is a toss of a coin, which would decide between rules that are about as good; how
        sure the belief is tells as much, and varies far less. Points that are near enough to each other for the middle
        epsilon may be too far apart for the smallest one, where another search is tried as well.
        """
        best, least = contender, contender.score.expected
        variants = list(contender.fitted.variants())
        if not contender.score.is_honest_at_smallest:
            seen = {fitted.config.search for fitted in variants}
            variants += [fitted for fitted in contender.fitted.alternatives() if fitted.config.search not in seen]
        epsilons = self._judged_at(contender.fitted)
        for fitted in variants:
            if self._has_time:
                score = self._scored(contender.choice.recipe, fitted, time.perf_counter(), epsilons)
                self._note(score)
                if score.is_honest and score.expected < VARIANT_AHEAD * least:
                    best, least = Contender(contender.choice, score, fitted, is_variant=True), score.expected
        return best

    def _tried(self, choice: Choice) -> tuple[Score, FittedBelief | None]:
        """A short fit, and its score."""
        began, seconds = time.perf_counter(), min(SLICE * self.seconds, 0.4 * self.usable)
        try:
            config = self.configure(choice.config)
            fitted = config.fit(self._request(config, seconds))
        except (CicpeError, ArithmeticError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            seconds = time.perf_counter() - began
            return Score(choice.recipe, float("inf"), 0.0, 0, 0, seconds, fault=str(error)), None
        return self._scored(choice.recipe, fitted, began, self._judged_at(fitted)), fitted

    def _request(self, config: BeliefConfig, seconds: float) -> FitRequest:
        """What a contender is asked for: a network the whole way, with a pause; others as much as takes that time."""
        if config.has_checkpoints:
            identity = {**self.request.identity, "config": config.model_dump(mode="json")}
            budget = Budget(minutes=self.usable / 60)
            return replace(self.request, budget=budget, identity=identity, pause=seconds)
        return replace(self.request, budget=Budget(minutes=seconds / config.fit_share / 60), folder=None)

    @staticmethod
    def _judged_at(fitted: FittedBelief) -> tuple[float, ...]:
        """The middle epsilon; where the posterior could be searched for in another way, the smallest one as well."""
        low, high = fitted.config.epsilon
        middle = (low * high) ** 0.5
        return (middle, low) if low < middle and fitted.alternatives() else (middle,)

    def _scored(self, recipe: str, fitted: FittedBelief, began: float, epsilons: tuple[float, ...]) -> Score:
        belief, plan, middle = fitted.belief, fitted.config.calibration, epsilons[0]
        own = min(belief.horizon, LONGEST)
        # What may make more queries than in training is compared with as many as others make.
        belief = belief.with_horizon(min(self.problem.horizon, LONGEST) if plan.lengthens else own)
        self.callback.on_stage(f"playing held-out tasks with {recipe}", 0.0)
        start = time.perf_counter()
        table = played(belief, self.problem, epsilons, min(SCORING * self.seconds, 0.3 * self.left), self.seed)
        each = (time.perf_counter() - start) / table.loss.shape[1]
        wanted = self._wanted(plan, each)
        tables = {horizon: table.until(horizon) for horizon in dict.fromkeys((own, belief.horizon))}
        most, fall = self.problem.horizon, plan.fall
        scores = {horizon: needed(some, middle, most, wanted, fall=fall) for horizon, some in tables.items()}
        horizon = min(scores, key=lambda horizon: scores[horizon].queries)
        reached, table = scores[horizon], tables[horizon]
        episodes, seconds = table.loss.shape[1], time.perf_counter() - began

        def judged(place: int, by_confidence: bool) -> Needed:
            return needed(table, epsilons[place], most, wanted, by_confidence, fall, place)

        expected, is_honest_at_smallest = judged(0, True).queries, True
        if len(epsilons) > 1:
            closest = judged(1, True)
            # One that is never sure enough claims nothing.
            is_honest_at_smallest = math.isnan(closest.confidence) or is_as_said(
                closest.confidence, closest.stopped_accuracy, episodes
            )
            queries = closest.queries if is_honest_at_smallest else max(closest.queries, judged(1, False).queries)
            expected = math.sqrt(expected * queries)
        return Score(
            recipe,
            reached.queries,
            reached.accuracy,
            horizon,
            episodes,
            seconds,
            fitted.config.query_rule,
            confidence=reached.confidence,
            stopped_accuracy=reached.stopped_accuracy,
            search=fitted.config.search,
            expected=expected,
            is_honest_at_smallest=is_honest_at_smallest,
        )

    def _wanted(self, plan: CalibrationPlan, seconds_per_episode: float) -> float:
        """The accuracy that calibration will ask for: the fewer its episodes, the more of a margin it needs."""
        grid = self.problem.context_grid(plan.n_context_knots)
        affordable = CALIBRATION * self.seconds / max(seconds_per_episode, 1e-9) / (1 if grid is None else len(grid))
        n = min(max(affordable, 32.0), plan.max_episodes)
        return min(1 - (1 - reserve(n)) * DELTA + LEVEL * math.sqrt(DELTA * (1 - DELTA) / n), CERTAIN)

    def _longer(self, fitted: FittedBelief) -> FittedBelief:
        """The fit, gone on with where its kind can."""
        if self.interrupted or fitted.longer is None or self.left <= 0:
            return fitted
        fitted.belief.forget()  # what it becomes has tables of its own
        try:
            return fitted.longer(Budget(minutes=self.usable / 60))
        except KeyboardInterrupt:
            self._interrupt()
            return fitted

    def _interrupt(self) -> None:
        self.interrupted = True
        self.callback.on_choice(("interrupted: the best so far is calibrated; interrupt again to leave with nothing",))

    def _written(self, winner: str) -> None:
        """Leaves the table in the run's folder, so that a resumed run goes on with the same kind."""
        if self.request.folder is not None:
            write_json(self.request.folder / TABLE, {"chosen": winner, "tried": [score.row for score in self.scores]})


def read_table(folder: Path | None) -> dict[str, Any] | None:
    """What was tried in a run's folder and what was chosen; None where there was no race."""
    try:
        table: Any = json.loads(read_file(folder / TABLE)) if folder is not None else None
        return {"chosen": str(table["chosen"]), "tried": list(table["tried"])} if table else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def chosen_before(folder: Path | None) -> str | None:
    """The kind that an interrupted run had chosen, if it had."""
    table = read_table(folder)
    return None if table is None else str(table["chosen"])
