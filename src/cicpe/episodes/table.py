"""Episodes that go on past every stop: what would have been done at every prefix, so that any rule can be judged."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Agent
from cicpe.agents.stop_rules import StopRule
from cicpe.beliefs.base import Assessment, Belief, StopView
from cicpe.episodes.blocks import EpisodeBlock, blocks
from cicpe.episodes.play import never, play
from cicpe.errors import InvalidInput
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, TaskBatch
from cicpe.streams import block_stream, seed_for

CHUNK = 512
CERTAIN = 0.9995
"""Confidence above which no threshold that matters is."""


@final
class EpisodeTable(NamedTuple):
    """What a belief would have done at every prefix of some episodes."""

    loss: Float[Tensor, "epsilon episode prefix"]
    """Of what would be recommended at each epsilon."""
    context: Float[Tensor, "episode context"]
    confidence: Float[Tensor, "epsilon episode prefix"]
    stops: Mapping[str, Bool[Tensor, "epsilon threshold episode prefix"]]
    """Where rules that value queries would stop, by their names."""
    std: Float[Tensor, "episode prefix answer"]
    """Spread of the target."""
    length: Int[Tensor, " episode"]
    """Observations that were made; what was so at that prefix stays so in the later ones."""

    def select(self, rows: Tensor) -> "EpisodeTable":
        """Some of the episodes."""
        return EpisodeTable(
            self.loss[:, rows],
            self.context[rows],
            self.confidence[:, rows],
            {name: stops[:, :, rows] for name, stops in self.stops.items()},
            self.std[rows],
            self.length[rows],
        )

    def until(self, queries: int) -> "EpisodeTable":
        """The same episodes with so many queries at most."""
        n = queries + 1
        return self._replace(
            loss=self.loss[..., :n],
            confidence=self.confidence[..., :n],
            stops={name: stops[..., :n] for name, stops in self.stops.items()},
            std=self.std[:, :n],
            length=self.length.clamp_max(queries),
        )

    def view(self, epsilon: int) -> StopView:
        """What a rule that does not value queries sees at every prefix, at the epsilon of that position."""
        confidence = self.confidence[epsilon]
        time = torch.arange(confidence.shape[1]).expand_as(confidence)
        nothing = torch.zeros_like(confidence)
        return StopView(time, 0, confidence, self.std, nothing, nothing)

    @staticmethod
    def joined(parts: "Sequence[EpisodeTable]") -> "EpisodeTable":
        """The episodes of all parts."""
        return EpisodeTable(
            torch.cat([part.loss for part in parts], dim=1),
            torch.cat([part.context for part in parts]),
            torch.cat([part.confidence for part in parts], dim=1),
            {name: torch.cat([part.stops[name] for part in parts], dim=2) for name in parts[0].stops},
            torch.cat([part.std for part in parts]),
            torch.cat([part.length for part in parts]),
        )


@final
@dataclass(frozen=True)
class RecordSettings:
    """What is written down of every episode."""

    epsilons: tuple[float, ...]
    query_spread: float = 0.0
    rules: tuple[StopRule, ...] = ()
    """Rules that value queries; others are judged by the confidence and the spread that are always kept."""
    costs: tuple[float, float] | None = None
    """The range of costs that they are tried at."""
    minimum_time: int = 1
    """Queries before such a rule may stop."""
    certain: float = CERTAIN
    """Confidence at which an episode need not be played on: rules with a higher threshold are judged too strictly."""
    deadline: float | None = None
    """When all episodes end, by ``time.perf_counter``, wherever they are."""


@final
@dataclass(frozen=True)
class Assessor:
    """A belief as a player: its proposals are its whole assessments, at some epsilons and costs."""

    belief: Belief
    epsilons: tuple[float, ...]
    query_spread: float = 0.0
    costs: tuple[float, ...] = ()

    @property
    def horizon(self) -> int:
        """The belief's own."""
        return self.belief.horizon

    def begin(self, context: Tensor) -> Any:
        """The belief's state before the first query."""
        return self.belief.begin(context)

    def propose(self, state: Any, rng: Generator) -> Assessment:
        """What the belief makes of its histories."""
        prices = []
        if self.costs:
            n = len(trees.leaves(state)[0])
            prices = [torch.full((n,), cost) for cost in self.costs]
        return self.belief.assess(state, self.epsilons, rng, self.query_spread, prices)

    def observe(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        """The belief's state after the observations."""
        return self.belief.observe(state, query, observation)


def tabulate(belief: Belief, tasks: TaskBatch, settings: RecordSettings, rng: Generator) -> EpisodeTable:
    """Plays every task to the horizon and writes down what each stop rule would see.

    An episode ends before that where it is sure at every epsilon, and stopped by every rule at every threshold.

    Args:
        belief: Who plays.
        tasks: The hidden tasks.
        settings: What is written down.
        rng: Draws queries and observations.

    Returns:
        One row per task. What an ended episode had last stays in its later columns.
    """
    n, prefixes, epsilons = len(tasks), belief.horizon + 1, settings.epsilons
    grids = {rule.name: rule.thresholds(settings.costs) for rule in settings.rules}
    costs = tuple(float(cost) for grid in grids.values() for cost in grid)
    loss, confidence = torch.zeros(len(epsilons), n, prefixes), torch.zeros(len(epsilons), n, prefixes)
    stops = {name: torch.zeros(len(epsilons), len(grid), n, prefixes, dtype=torch.bool) for name, grid in grids.items()}
    std, length = torch.zeros(n, prefixes, belief.answer_space.dim), torch.full((n,), belief.horizon)
    stopped = {name: torch.zeros(part.shape[:3], dtype=torch.bool) for name, part in stops.items()}

    def settled(rows: Tensor, assessment: Assessment) -> Tensor:
        if settings.deadline is not None and time.perf_counter() > settings.deadline:
            return torch.ones(len(rows), dtype=torch.bool)
        over = (assessment.confidence >= settings.certain).all(dim=0)
        for name, now in _decisions(settings, grids, assessment).items():
            stopped[name][:, :, rows] |= now
            over = over & stopped[name][:, :, rows].flatten(0, 1).all(dim=0)
        return over

    for step in play(Assessor(belief, epsilons, settings.query_spread, costs), tasks, rng, ends=settled):
        assessment, rows = step.proposal, step.rows
        length[rows[step.ends]] = step.time
        std[rows, step.time :] = assessment.std[:, None]
        confidence[:, rows, step.time :] = assessment.confidence[..., None]
        loss[:, rows, step.time :] = _losses(step.tasks, assessment.recommendation)[..., None]
        for name, now in _decisions(settings, grids, assessment).items():
            stops[name][:, :, rows, step.time :] = now[..., None]
    return EpisodeTable(loss, tasks.context, confidence, stops, std, length)


def _decisions(
    settings: RecordSettings, grids: Mapping[str, Tensor], assessment: Assessment
) -> dict[str, Bool[Tensor, "epsilon threshold batch"]]:
    """Which thresholds of each rule that values queries end which episodes."""
    decisions, first = {}, 0
    for rule in settings.rules:
        grid = grids[rule.name]
        continue_value = assessment.continue_value[:, first : first + len(grid)]
        shape = continue_value.shape
        view = StopView(
            assessment.time.expand(shape),
            settings.minimum_time,
            assessment.confidence[:, None].expand(shape),
            assessment.std.expand(*shape, -1),
            assessment.stop_value[:, None].expand(shape),
            continue_value,
        )
        decisions[rule.name] = rule.would_stop(view, grid[:, None])
        first += len(grid)
    return decisions


def _losses(tasks: TaskBatch, recommendation: Float[Tensor, "epsilon batch answer"]) -> Float[Tensor, "#epsilon batch"]:
    """The loss at every epsilon; computed once where the recommendation is the same at all of them."""
    different = recommendation[:1] if recommendation.stride(0) == 0 else recommendation
    return torch.stack([tasks.loss(answer) for answer in different])


class AgentTable(NamedTuple):
    """What an agent believed after every number of queries, whatever it said about stopping."""

    loss_BT: Float[Tensor, "episode prefix"]
    confidence_BT: Float[Tensor, "episode prefix"]
    std_BT: Float[Tensor, "episode prefix"]
    """Mean over the coordinates of the answer."""
    stop_BT: Bool[Tensor, "episode prefix"]


def tabulate_agent(
    agent: Agent,
    problem: Problem,
    episodes: int,
    steps: int,
    seed: int,
    chunk: int = CHUNK,
    executor: Executor = HERE,
) -> AgentTable:
    """Plays fresh tasks for ``steps`` queries each (at most the horizon), past every stop, a block at a time.

    Args:
        agent: Any decision-maker with a confidence.
        problem: Draws the tasks.
        episodes: How many.
        steps: Queries of each.
        seed: Seeds tasks, queries and observations, block by block.
        chunk: Episodes that are played together, as a block.
        executor: Where they are played; the table does not depend on it.

    Returns:
        One row per episode and one column per step, from before the first on.
    """
    if episodes < 1 or steps < 0:
        raise InvalidInput("episodes, steps", (episodes, steps), "at least one episode, and no negative steps")
    work = blocks(episodes, min(chunk, agent.most_at_once))
    parts = executor.map(partial(_tabulate_block, agent, problem, steps, seed), work)
    return AgentTable(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _tabulate_block(agent: Agent, problem: Problem, steps: int, seed: int, block: EpisodeBlock) -> list[Tensor]:
    rng = block_stream(seed_for(seed, "table"), block.number)
    tasks = TaskBatch.draw(problem, block.size, rng)
    proposals = [step.proposal for step in play(agent, tasks, rng, ends=never, limit=steps)]
    columns = [(tasks.loss(p.recommendation), p.confidence, p.std.mean(dim=-1), p.stop) for p in proposals]
    return [torch.stack(column, dim=1) for column in zip(*columns, strict=True)]
