"""A calibration and an alarm that keep to their time, however slow a belief is: by a clock that the belief moves."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor

from cicpe.beliefs.base import Assessment, Belief, CalibrationPlan
from cicpe.calibration.alarm_fit import AlarmSizes, affordable_sizes
from cicpe.calibration.pace import LEAST_EPISODES, PilotEstimate, find_pace, lengthened, shortened
from cicpe.calibration.thresholds import CalibrationRequest, calibrate
from cicpe.episodes.table import RecordSettings
from cicpe.problems.binary_search import BinarySearch
from cicpe.scoring import EPISODES, played
from cicpe.spaces import Space
from watches import Watch

PROBLEM = BinarySearch(dim=1, noise=0.1)
PLAN = CalibrationPlan(min_share=0.0, n_epsilons=1, n_context_knots=1, chunk=64, hasty=0.995, shortens=True)


class Seen(NamedTuple):
    time_B: Tensor


@dataclass(frozen=True)
class Slow(Belief):
    """A belief whose log odds rise with every query, each of which takes a while per episode."""

    watch: Watch
    each: float
    """Seconds per episode and query."""
    rise: float = 0.05
    horizon: int = 400
    least: float = -2.0
    most_at_once: int = 256
    asked: list[int] = field(default_factory=list)
    table: float = 0.0
    """Seconds that something takes that all episodes need."""
    made: list[bool] = field(default_factory=list)

    @property
    def query_space(self) -> Space:
        return PROBLEM.query_space

    @property
    def answer_space(self) -> Space:
        return PROBLEM.answer_space

    def begin(self, context: Tensor) -> Seen:
        return Seen(torch.zeros(len(context), dtype=torch.long))

    def prepare(self) -> None:
        self.watch.seconds += 0.0 if self.made else self.table
        self.made.append(True)

    def update(self, state: Seen, query: Tensor, observation: Tensor) -> Seen:
        assert self.made or not self.table, "the table is made before anybody looks at the clock"
        return Seen(state.time_B + 1)

    def assess(
        self,
        state: Seen,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Tensor] = (),
    ) -> Assessment:
        n = len(state.time_B)
        self.watch.seconds += n * self.each
        self.asked.append(n)
        confidence = torch.sigmoid(self.least + self.rise * state.time_B).expand(len(epsilons), n)
        answer = torch.zeros(len(epsilons), n, 1)
        none = torch.zeros(len(epsilons), 0, n)
        return Assessment(state.time_B, torch.zeros(n, 1, 1), answer, confidence, confidence, none, torch.ones(n, 1))

    def sample_answers(self, state: Any, n: int, rng: Generator) -> Tensor:
        return torch.zeros(len(state.time_B), n, 1)

    def tensors(self) -> dict[str, Tensor]:
        return {}


class Scanned(NamedTuple):
    time_B: Tensor
    last_above_B: Tensor
    """The last query that was below the target."""


STEP = 0.05
QUIET = BinarySearch(dim=1, noise=1e-6)


@dataclass(frozen=True)
class TooSure(Slow):
    """Scans a line from its lower end, and says that it is sure before it has seen all of it.

    Its log odds are those of 0.955 when it has seen four fifths, and of 0.995 when it has seen everything.
    """

    least: float = math.log(0.955 / 0.045) - 0.28 * 32
    rise: float = 0.28
    horizon: int = 41

    def begin(self, context: Tensor) -> Scanned:
        return Scanned(torch.zeros(len(context), dtype=torch.long), torch.full((len(context),), -1.0))

    def update(self, state: Scanned, query: Tensor, observation: Tensor) -> Scanned:
        above = observation[..., 0].flatten() > 0
        return Scanned(state.time_B + 1, torch.where(above, query.flatten(), state.last_above_B))

    def assess(self, state: Scanned, *args: Any, **options: Any) -> Assessment:
        found = super().assess(state, *args, **options)
        query = (-1.0 + STEP * (state.time_B + 1)).clamp(max=1.0)
        answer = (state.last_above_B + STEP / 2)[:, None].expand_as(found.recommendation)
        return found._replace(query=query[:, None, None], recommendation=answer)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(time, "perf_counter", watch)
    return watch


def test_a_round_over_several_contexts_is_no_longer_than_one_over_a_single_one(watch: Watch) -> None:
    belief, settings = Slow(watch, each=0.01), RecordSettings((0.2,))
    together = {
        contexts: find_pace(belief, PROBLEM, settings, 0.995, 600.0, 0, contexts).chunk for contexts in (1, 3, 9)
    }
    assert 4 <= together[9] < together[3] < together[1] <= 128
    for contexts, chunk in together.items():
        assert contexts * chunk == pytest.approx(together[1], abs=contexts)


@pytest.mark.parametrize("each", [0.0001, 0.003, 0.03, 0.3])
def test_a_calibration_keeps_to_its_time(watch: Watch, each: float) -> None:
    seconds, belief = 100.0, Slow(watch, each)
    belief = shortened(belief, PROBLEM, 0.3, seconds, seed=1)
    assert watch.seconds <= 0.35 * seconds
    left = seconds - watch.seconds
    result = calibrate(belief, PROBLEM, CalibrationRequest((0.3, 0.3), PLAN, 4096, seconds=left))
    assert watch.seconds <= 1.3 * seconds
    assert result.episodes >= 8


def test_where_time_is_short_episodes_end_at_a_lower_confidence_so_that_more_fit(watch: Watch) -> None:
    """From -2, log odds of 0.985 take 124 queries and of 0.955 only 102."""
    few = calibrate(Slow(watch, 0.002), PROBLEM, CalibrationRequest((0.3, 0.3), PLAN, 4096, seconds=100.0))
    strict = PLAN._replace(hasty=None)
    rarely = calibrate(Slow(watch, 0.002), PROBLEM, CalibrationRequest((0.3, 0.3), strict, 4096, seconds=100.0))
    per_episode = 0.002 * (1 + math.ceil((math.log(0.955 / 0.045) + 2) / 0.05))
    assert few.episodes == pytest.approx(90.0 / per_episode, rel=0.15)
    assert rarely.episodes < 0.7 * few.episodes


@pytest.mark.parametrize(("hasty", "is_served"), [(0.995, True), (0.955, False)])
def test_episodes_of_a_belief_that_is_too_sure_are_played_on_until_it_is_right(
    watch: Watch, hasty: float, is_served: bool
) -> None:
    """The time is so short that episodes would be left at 0.955, where one task in five is not found yet."""
    plan = PLAN._replace(hasty=hasty)
    found = calibrate(TooSure(watch, 0.004), QUIET, CalibrationRequest((0.06, 0.06), plan, 4096, seconds=100.0))
    assert watch.seconds <= 115.0
    cell = found.rules["confidence"][0][0][found.deltas.index(0.1)]
    assert (cell is not None) == is_served
    if cell is not None:
        assert 36 <= cell.queries <= 40
        assert cell.accuracy >= 0.9


def test_a_horizon_is_cut_only_where_the_time_is_short(watch: Watch) -> None:
    assert shortened(Slow(watch, 0.0001), PROBLEM, 0.3, 100.0, seed=1).horizon == 400
    slow = shortened(Slow(watch, 0.01), PROBLEM, 0.3, 100.0, seed=1)
    assert slow.horizon < 100  # what it recommends never changes, so that no query is worth making
    # A belief that is sure soon is played to its end in no time, however long its horizon is.
    assert shortened(Slow(watch, 0.01, rise=2.0), PROBLEM, 0.3, 100.0, seed=1).horizon == 400


@pytest.mark.parametrize("each", [0.001, 0.2])
def test_queries_that_only_a_handful_of_episodes_could_make_are_given_up(watch: Watch, each: float) -> None:
    """About forty queries are needed; at 0.2 s each there would be a dozen episodes, which promise nothing."""
    horizon = shortened(TooSure(watch, each), QUIET, 0.06, 100.0, seed=1).horizon
    assert LEAST_EPISODES * each * horizon <= 105.0 or horizon >= 40
    assert (horizon < 40) == (each == 0.2)


@pytest.mark.parametrize(
    ("lengths", "horizon"),
    [
        ((10,) * 32, 80),  # 100 s for 400 episodes of ten queries at 0.02 s: all fit, whatever the horizon
        ((5,) * 30 + (80, 80), 80),  # a few hard tasks of many easy ones are played to the end
        ((80,) * 32, 12),
        ((5,) * 16 + (80,) * 16, 20),
    ],
)
def test_a_horizon_that_few_episodes_reach_costs_little(lengths: tuple[int, ...], horizon: int) -> None:
    estimate = PilotEstimate(40, 1.0, 0.02, 0.9, lengths)
    assert estimate.affordable(100.0, 400, 80) == horizon


@pytest.mark.parametrize(
    ("horizon", "epsilon", "least"),
    [
        pytest.param(20, 0.06, 38, id="half of the line is seen, and more queries show the rest"),
        pytest.param(41, 0.06, 41, id="all of it is seen"),
        pytest.param(20, 2.0, 20, id="any answer is right"),
    ],
)
def test_more_queries_are_made_only_where_they_help(watch: Watch, horizon: int, epsilon: float, least: int) -> None:
    belief = replace(TooSure(watch, 1e-6), horizon=horizon)
    longer = lengthened(belief, QUIET, epsilon, math.inf, seed=1)
    assert least <= longer.horizon <= max(horizon, 1.6 * 40)
    if least == horizon:
        assert longer is belief


def test_queries_that_tell_nothing_are_not_added(watch: Watch) -> None:
    assert lengthened(Slow(watch, 1e-6, horizon=10), PROBLEM, 0.3, math.inf, seed=1).horizon == 10


@pytest.mark.parametrize(("each", "is_fitted"), [(1e-5, True), (0.05, False)])
def test_a_pilot_of_an_alarm_ends_once_it_is_clear_that_there_is_no_time(
    watch: Watch, each: float, is_fitted: bool
) -> None:
    sizes = AlarmSizes(episodes=256, ranked=199, knots=1)
    affordable = affordable_sizes(
        Slow(watch, each), PROBLEM, query_spread=0.0, epsilon=0.3, sizes=sizes, seconds=30.0, seed=0
    )
    assert (affordable is not None) == is_fitted
    assert watch.seconds <= 0.2 * 30.0


def test_a_table_that_is_made_once_is_not_counted_for_every_query(watch: Watch) -> None:
    sizes = AlarmSizes(episodes=256, ranked=199, knots=1)
    belief = Slow(watch, 1e-4, table=6.0)
    affordable = affordable_sizes(belief, PROBLEM, query_spread=0.0, epsilon=0.3, sizes=sizes, seconds=30.0, seed=0)
    assert affordable == sizes
    # A horizon is not cut for its sake, more episodes are scored than the first few, and as many as fit calibrate.
    assert shortened(Slow(watch, 1e-4, table=6.0), PROBLEM, 0.3, 100.0, seed=1).horizon == 400
    assert played(Slow(watch, 1e-4, table=6.0, horizon=20), PROBLEM, (0.3,), 5.0, seed=1).loss.shape[1] == EPISODES
    episodes = []
    for table in (0.0, 6.0):
        request = CalibrationRequest((0.3, 0.3), PLAN, 3000, 1, seconds=30.0)
        episodes.append(calibrate(Slow(watch, 5e-4, table=table, horizon=40), PROBLEM, request).episodes)
    assert episodes[1] > 0.7 * episodes[0]


def test_the_watch_is_what_the_limits_are_read_from(watch: Watch) -> None:
    """Without a limit nothing is hurried: the negative control of the tests above."""
    belief = replace(Slow(watch, 0.3), horizon=20)
    calibrate(belief, PROBLEM, CalibrationRequest((0.3, 0.3), PLAN, 128))
    assert watch.seconds >= 128 * 20 * 0.3
