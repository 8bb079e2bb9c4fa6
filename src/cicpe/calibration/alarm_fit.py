"""Fits an alarm to a trained belief: after training, on fresh episodes that it plays to the horizon.

The belief stays as it is. First the predictive head, on prior episodes; then the detector, on prior episodes
against worlds that are off; then, on prior episodes that neither has seen, the statistics' quantiles and the
ranks that p-values come from. A wrong head or a poor detector costs power, never false alarms.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe import trees
from cicpe.agents.alarm import STATISTICS, TAILS, Alarm, AlarmConfig, AlarmState, AlarmTables, detector_inputs
from cicpe.beliefs.base import Assessment, Belief
from cicpe.episodes.blocks import EpisodeBlock, blocks
from cicpe.episodes.play import Step, never, play
from cicpe.episodes.table import Assessor
from cicpe.errors import InvalidInput
from cicpe.parallel import HERE, Executor
from cicpe.plates import only_query
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.context import ContextGrid
from cicpe.problems.shifted import shift_ranges
from cicpe.streams import block_stream, seed_for

N_CONTEXT_KNOTS = 5
NUMBERS = 2e7
"""How many numbers of recorded features are held at once."""
HEAD_BATCH, DETECTOR_BATCH = 1024, 192
LEARNING_RATE = 8e-3
"""The highest, a third of the way."""
STRAYS = 0.15
"""Share of the queries of fitted episodes that are random."""
LEAST_RANKED = 99
"""With fewer ranked episodes, no p-value is as small as 0.01."""
SUPPORT = 4
"""Episodes beyond a quantile that make it one; farther out, quantiles go on as they did before."""
PILOT = 32
"""Episodes by which the time of one is known, where the time is limited."""
PILOT_SHARE = 0.1
"""Share of the time after which such a pilot ends, where it is clear by then that no alarm can be fitted."""
OVERDUE = 1.5
"""How many times its limit the smallest alarm may take; where even that takes longer, there is none."""


@final
class AlarmSizes(NamedTuple):
    """How much an alarm is fitted to."""

    head_episodes: int = 2048
    head_updates: int = 400
    detector_episodes: int = 3072
    """Of the prior; as many again are of worlds that are off."""
    detector_updates: int = 250
    episodes: int = 4096
    """Prior episodes for the statistics' quantiles."""
    ranked: int = 999
    """Prior episodes at every context for the p-values: none is below 1 / (ranked + 1)."""
    knots: int = N_CONTEXT_KNOTS
    """Values of each context at which false alarms are held to their share."""

    def scaled(self, share: float) -> "AlarmSizes":
        """A share of everything, down to what an alarm needs: a p-value of 0.01 takes 99 ranked episodes."""
        least = AlarmSizes(128, 40, 128, 20, 96, LEAST_RANKED, 1)
        scaled = (min(size, max(low, int(share * size))) for size, low in zip(self, least, strict=True))
        return AlarmSizes(*scaled)

    def cost(self, has_head: bool) -> float:
        """About how many played episodes it is worth."""
        fitted = self.head_episodes + 2 * self.detector_episodes
        fitted += self.head_updates * HEAD_BATCH // 25 + self.detector_updates * DETECTOR_BATCH
        return self.episodes + self.knots * self.ranked + (fitted if has_head else 0)

    def within(self, share: float, has_head: bool) -> "AlarmSizes":
        """The largest of these sizes, scaled, whose cost is at most a share of what all of them cost."""
        shares = [0.5 ** (k / 2) for k in range(20)]
        fits = [size for size in map(self.scaled, shares) if size.cost(has_head) <= share * self.cost(has_head)]
        return fits[0] if fits else self.scaled(0.0)


USUAL = AlarmSizes()


@final
@dataclass(frozen=True)
class Straying:
    """A belief as a player, some of whose queries are random: the alarm is to know queries that agents do not make.

    Redundant queries before a stop are such, and so are measurements that were made elsewhere.
    """

    belief: Belief
    assessor: Assessor

    @property
    def horizon(self) -> int:
        """The belief's own."""
        return self.belief.horizon

    def begin(self, context: Tensor) -> Any:
        """The belief's state before the first query."""
        return self.assessor.begin(context)

    def propose(self, state: Any, rng: Generator) -> Assessment:
        """What the belief makes of its histories, with another query here and there."""
        assessment = self.assessor.propose(state, rng)
        n = len(assessment.query)
        strays = torch.rand(n, generator=rng) < STRAYS
        elsewhere = self.belief.random_queries(n, rng)[:, None].expand_as(assessment.query)
        return assessment._replace(query=torch.where(strays[:, None, None], elsewhere, assessment.query))

    def observe(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        """The belief's state after the observations."""
        return self.assessor.observe(state, query, observation)


class Fit(NamedTuple):
    """What an alarm is fitted to."""

    belief: Belief
    problem: Problem
    query_spread: float
    epsilon: float
    seed: int

    def rng(self, part: int, block: int = 0) -> Generator:
        """Every part has tasks of its own, and so has every block of one."""
        return block_stream(seed_for(self.seed, "alarm", part), block)

    def steps(self, problem: Problem, episodes: int, rng: Generator) -> Iterator[Step[Assessment]]:
        """Fresh episodes to the horizon, a step per query."""
        tasks = TaskBatch.draw(problem, episodes, rng)
        player = Straying(self.belief, Assessor(self.belief, (self.epsilon,), self.query_spread))
        for step in play(player, tasks, rng, ends=never):
            if step.observation is not None:
                yield step


def fit_alarm(
    belief: Belief,
    problem: Problem,
    *,
    query_spread: float,
    epsilon: float,
    sizes: AlarmSizes = USUAL,
    seed: int = 2,
    executor: Executor = HERE,
) -> Alarm:
    """An alarm for a core on its family.

    Args:
        belief: What plays.
        problem: Its prior.
        query_spread: Spread of the deployed queries.
        epsilon: Any of its epsilons: queries do not depend on it.
        sizes: How much it is fitted to.
        seed: Seeds everything.
        executor: Where the episodes for quantiles and p-values are played.

    Returns:
        The alarm.
    """
    if sizes.ranked < LEAST_RANKED:
        allowed = f"at least {LEAST_RANKED}: with fewer, no p-value is as small as 0.01"
        raise InvalidInput("ranked", sizes.ranked, allowed)
    fit = Fit(belief, problem, query_spread, epsilon, seed)
    grid, places = _places(problem, sizes.knots)
    prediction = belief.prediction_head()
    config = AlarmConfig(
        prediction=prediction,
        inputs=0 if prediction is None else prediction.features + 2 * prediction.entries // prediction.channels,
        context_knots=grid.knots,
        ranked=sizes.ranked,
        horizon=belief.horizon,
        entries=problem.observation_dim,
        episodes=sizes.episodes,
        seed=seed,
        statistics=STATISTICS,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed_for(seed, "alarm", "head"))
        tables = AlarmTables(config)
    alarm = Alarm(config, tables, belief.predictor(tables.head))
    if tables.head is not None:
        _fit_head(fit, alarm, sizes)
        _fit_detector(fit, alarm, sizes)
    alarm.tables.eval().requires_grad_(False)
    _measure(fit, alarm, places, executor)
    return alarm


def affordable_sizes(
    belief: Belief,
    problem: Problem,
    *,
    query_spread: float,
    epsilon: float,
    sizes: AlarmSizes,
    seconds: float,
    seed: int,
) -> AlarmSizes | None:
    """The sizes of an alarm that can be fitted in a time.

    Args:
        belief: What plays; a few episodes of it say how long they take.
        problem: Its prior.
        query_spread: Spread of the deployed queries.
        epsilon: Any of its epsilons.
        sizes: What there is to be with enough time.
        seconds: The limit.
        seed: Seeds the episodes.

    Returns:
        All of the sizes or a share of them; None where even the smallest alarm takes much longer.
    """
    start = time.perf_counter()
    belief.prepare()
    prepared = time.perf_counter() - start
    fit, has_head = Fit(belief, problem, query_spread, epsilon, seed), belief.prediction_head() is not None
    least, affordable = sizes.scaled(0.0).cost(has_head), 0.0
    for step in fit.steps(problem, PILOT, fit.rng(0)):
        spent = time.perf_counter() - start
        if step.time == 0:
            continue
        # Episodes of a network cost less the more of them are played together.
        each = (spent - prepared) * belief.horizon / step.time / PILOT / (4.0 if has_head else 1.0)
        affordable = (seconds - spent) / max(each, 1e-9)
        if spent > PILOT_SHARE * seconds and least > OVERDUE * affordable:
            return None  # the pilot itself would outlast the time
    if least > OVERDUE * affordable:
        return None
    return sizes.within(affordable / sizes.cost(has_head), has_head)


def tail_quantiles(statistic_TNS: Float[Tensor, "time episode statistic"]) -> Float[Tensor, "time statistic tail"]:
    """Upper quantiles of statistics at every time.

    The largest few of the episodes say little of rarer ones: two of them may lie close together by chance, and what is
    beyond would look far odder than it is. Tails of fewer than ``SUPPORT`` episodes are continued from the fuller ones.

    Args:
        statistic_TNS: Of prior episodes.

    Returns:
        One per tail, rising.
    """
    found_TSJ = torch.quantile(statistic_TNS, 1 - torch.tensor(TAILS), dim=1).permute(1, 2, 0).contiguous()
    last = max(1, sum(tail * statistic_TNS.shape[1] >= SUPPORT for tail in TAILS) - 1)
    first = max(0, last - SUPPORT)
    slope_TS = (found_TSJ[..., last] - found_TSJ[..., first]) / (last - first)
    for tail in range(last + 1, len(TAILS)):
        found_TSJ[..., tail] = found_TSJ[..., tail - 1] + slope_TS
    return found_TSJ


def _fit_head(fit: Fit, alarm: Alarm, sizes: AlarmSizes) -> None:
    """The likelihood of what prior episodes observe."""
    head, rng = alarm.tables.head, fit.rng(1)
    assert head is not None
    with torch.no_grad():
        rows = [
            alarm.predictor.training_rows(step.state, step.tasks.context, *_asked_and_seen(step))
            for step in fit.steps(fit.problem, _affordable(alarm, sizes.head_episodes), rng)
        ]
        inputs, observation = trees.concatenate(rows)
        head.normalise(inputs.features, observation)

    def loss() -> Tensor:
        some = torch.randint(len(observation), (HEAD_BATCH,), generator=rng)
        return head.predict(trees.select(inputs, some)).log_loss(observation[some]).mean()

    _descend(head, loss, sizes.head_updates)


def _asked_and_seen(step: Step[Assessment]) -> tuple[Tensor, Tensor]:
    """The one query of every episode, and what it returned."""
    assert step.observation is not None
    return only_query(step.proposal.query), only_query(step.observation)


def _affordable(alarm: Alarm, episodes: int) -> int:
    """At most so many episodes, fewer where their features are many."""
    return int(min(episodes, max(128, NUMBERS / (alarm.config.inputs * alarm.channels * alarm.config.horizon))))


def _descend(module: nn.Module, loss: Callable[[], Tensor], updates: int) -> None:
    optimiser = torch.optim.Adam(module.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=updates)
    for _ in range(updates):
        optimiser.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        schedule.step()


def _evidence(fit: Fit, alarm: Alarm, problem: Problem, n: int, rng: Generator) -> Tensor:
    """Whole episodes as a detector sees them: step x episode x channel x inputs."""
    return torch.stack(
        [
            detector_inputs(*alarm.predictor.surprise(step.state, step.tasks.context, *_asked_and_seen(step)))
            for step in fit.steps(problem, n, rng)
        ]
    )


def _fit_detector(fit: Fit, alarm: Alarm, sizes: AlarmSizes) -> None:
    """The log odds, after every observation, of a world that is off."""
    detector, rng = alarm.tables.detector, fit.rng(2)
    assert detector is not None
    worlds = shift_ranges(fit.problem)
    half = _affordable(alarm, sizes.detector_episodes)
    parts = [_evidence(fit, alarm, fit.problem, half, rng)]
    parts += [_evidence(fit, alarm, world, half // len(worlds), rng) for world in worlds]
    inputs_TBWF = torch.cat(parts, dim=1)
    off_B = (torch.arange(inputs_TBWF.shape[1]) >= half).float()

    def loss() -> Tensor:
        some = torch.randint(len(off_B), (DETECTOR_BATCH,), generator=rng)
        hidden, total = torch.zeros(DETECTOR_BATCH, alarm.channels, alarm.config.hidden), torch.zeros(())
        for inputs_BWF in inputs_TBWF[:, some]:
            hidden = detector.step(hidden, inputs_BWF)
            total = total + nn.functional.binary_cross_entropy_with_logits(detector.logit(hidden), off_B[some])
        return total / len(inputs_TBWF)

    _descend(detector, loss, sizes.detector_updates)


def _alarm_states(fit: Fit, alarm: Alarm, problem: Problem, n: int, rng: Generator) -> Iterator[AlarmState]:
    """Fresh episodes as the alarm follows them, after every observation."""
    state = None
    for step in fit.steps(problem, n, rng):
        state = alarm.begin(step.tasks.context) if state is None else state
        state = alarm.observe(state, step.state, *_asked_and_seen(step))
        yield state


def _measure(fit: Fit, alarm: Alarm, places: Sequence[Problem], executor: Executor) -> None:
    """Quantiles of the statistics over time, then the ranks of whole episodes."""
    most = fit.belief.most_at_once
    parts = list(executor.map(partial(_statistics_block, fit, alarm), blocks(alarm.config.episodes, most)))
    alarm.tables.quantiles_TSJ.copy_(tail_quantiles(torch.cat(parts, dim=1)))
    ranked = blocks(alarm.config.ranked, most)
    work = [(point, block) for point in range(len(places)) for block in ranked]
    ends = list(executor.map(partial(_lowest_block, fit, alarm, tuple(places)), work))
    for point in range(len(places)):
        own = ends[point * len(ranked) : (point + 1) * len(ranked)]
        alarm.tables.lowest_KR[point] = torch.cat(own).sort().values


def _statistics_block(fit: Fit, alarm: Alarm, block: EpisodeBlock) -> Tensor:
    """The alarm's statistics after every observation: step x episode x statistic."""
    states = _alarm_states(fit, alarm, fit.problem, block.size, fit.rng(4, block.number))
    return torch.stack([alarm.statistics(state) for state in states])


def _lowest_block(fit: Fit, alarm: Alarm, places: Sequence[Problem], work: tuple[int, EpisodeBlock]) -> Tensor:
    """What whole episodes are ranked by, at one place."""
    point, block = work
    states = list(_alarm_states(fit, alarm, places[point], block.size, fit.rng(5 + point, block.number)))
    return states[-1].lowest


def _places(problem: Problem, n_knots: int) -> tuple[ContextGrid, list[Problem]]:
    """The problem at several known contexts; as it is, where they cannot be set or one is enough."""
    grid = problem.context_grid(n_knots) if n_knots > 1 else None
    if grid is None or len(grid) == 1:
        return ContextGrid(((0.0,),)), [problem]
    return grid, [problem.at_context(point) for point in grid.points]
