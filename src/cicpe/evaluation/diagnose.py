"""Is the confidence what it says, and is the posterior? Checks on fresh episodes, each of which can fail.

- Reliability of the confidence: within bins of equal size, how far it is from the share that succeeds (expected
  calibration error), and the Brier score; at the stop and at every time.
- Simulation-based calibration of the posterior: the rank of the true target among draws is uniform, by chi-square.
- Two bounds on success. Markov, from the losses alone: P(loss <= epsilon) >= E[(1 - loss/epsilon)+]. Second moment, for
  a distance loss: an answer drawn from the posterior succeeds with at least 1 - E|draw - target|^2 / rho^2.
- What the posterior says of its own answers, for a distance loss: the reward of the best one, of the recommendation
  and of a drawn one, and the paper's bound on what the recommendation gives away (``evaluation.theory``).
"""

from functools import partial
from typing import NamedTuple

import torch
from scipy.stats import chi2
from torch import Tensor

from cicpe import trees
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.episodes.blocks import EpisodeBlock, blocks
from cicpe.episodes.play import play
from cicpe.errors import InvalidInput
from cicpe.evaluation.reliability import Reliability, reliability
from cicpe.evaluation.theory import posterior_rewards, second_moment_bound
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, TaskBatch
from cicpe.streams import block_stream, seed_for

RANKS = 16
"""Bins of the rank histogram."""
DRAWS = RANKS * 8 - 1


class RankTest(NamedTuple):
    """Simulation-based calibration: one chi-square test per coordinate of the answer."""

    p_value: float
    """The smallest of them, times their number."""
    histogram: tuple[int, ...]
    """Ranks of all coordinates."""
    episodes: int


class MeanRewards(NamedTuple):
    """Of ``theory.Rewards``, the mean over episodes."""

    ideal: float
    recommended: float
    drawn: float
    gap_bound: float


class Diagnosis(NamedTuple):
    """What was found on fresh episodes of one (epsilon, delta)."""

    episodes: int
    accuracy: float
    mean_queries: float
    at_stop: Reliability
    by_time: tuple[tuple[int, float, float], ...]
    """Time, calibration error and Brier score of the episodes that were still going on."""
    ranks: RankTest
    """Of the posterior at the stop."""
    markov_bound: float
    """Success is at least this, by Markov's inequality."""
    sampled_accuracy: float
    """Success of an answer drawn from the posterior at the stop."""
    second_moment_bound: float | None
    """It is at least this; None where the loss is not a distance."""
    rewards: MeanRewards | None
    """What the posteriors at the stop say of their own answers; None where the loss is not a distance."""


def rank_test(ranks: Tensor, draws: int, bins: int = RANKS) -> RankTest:
    """Chi-square of ranks (episode x coordinate), each from 0 to ``draws``, which should be uniform."""
    each = (draws + 1) // bins
    if each * bins != draws + 1:
        raise InvalidInput("draws", draws, f"one less than a multiple of {bins}")
    n, coordinates = ranks.shape
    counts = torch.stack([torch.bincount(column, minlength=bins) for column in (ranks // each).T])
    expected = n / bins
    statistic = ((counts.double() - expected).square() / expected).sum(dim=1)
    p = chi2.sf(statistic.numpy(), bins - 1)
    return RankTest(float(min(1.0, p.min() * coordinates)), tuple(counts.sum(dim=0).tolist()), n)


def diagnose(agent: BeliefAgent, problem: Problem, episodes: int, seed: int, executor: Executor = HERE) -> Diagnosis:
    """Plays fresh episodes to their stop and looks at what was believed on the way.

    Args:
        agent: Who plays.
        problem: Draws the tasks.
        episodes: How many.
        seed: Seeds them, block by block.
        executor: Where they are played; the figures do not depend on it.

    Returns:
        What was found.
    """
    parts = executor.map(partial(_play_block, agent, problem, seed), blocks(episodes, agent.most_at_once))
    ends, ways = zip(*parts, strict=True)
    end = _End(*(torch.cat(column) for column in zip(*ends, strict=True)))
    time, confidence, right = (torch.cat(column) for column in zip(*ways, strict=True))
    by_time = []
    for t in range(int(time.max()) + 1):
        here = time == t
        if int(here.sum()) >= 100:
            table = reliability(confidence[here], right[here])
            by_time.append((t, table.error, table.brier))
    success = end.loss <= agent.epsilon
    second_moment, rewards = None, None
    if problem.has_distance_loss:
        margin = problem.answer_space.margin(agent.epsilon)
        second_moment = float(second_moment_bound(end.second_moment.double().mean(), margin))
        rewards = MeanRewards(*(float(column.double().mean()) for column in end.rewards.unbind(dim=1)))
    return Diagnosis(
        episodes=episodes,
        accuracy=float(success.double().mean()),
        mean_queries=float(end.queries.double().mean()),
        at_stop=reliability(end.confidence, success),
        by_time=tuple(by_time),
        ranks=rank_test(end.rank, DRAWS),
        markov_bound=float((1 - end.loss.double() / agent.epsilon).clamp_min(0).mean()),
        sampled_accuracy=float((end.sampled_loss <= agent.epsilon).double().mean()),
        second_moment_bound=second_moment,
        rewards=rewards,
    )


class _End(NamedTuple):
    """Episodes as they ended."""

    queries: Tensor
    confidence: Tensor
    loss: Tensor
    sampled_loss: Tensor
    rank: Tensor
    second_moment: Tensor
    """Mean squared distance from draws to the target."""
    rewards: Tensor
    """As in ``MeanRewards``; zero where the loss is not a distance."""


def _play_block(
    agent: BeliefAgent, problem: Problem, seed: int, block: EpisodeBlock
) -> tuple[_End, tuple[Tensor, Tensor, Tensor]]:
    n, rng = block.size, block_stream(seed_for(seed, "diagnosis"), block.number)
    tasks = TaskBatch.draw(problem, n, rng)
    end = _End(
        torch.zeros(n, dtype=torch.long),
        torch.zeros(n),
        torch.zeros(n),
        torch.zeros(n),
        torch.zeros(n, tasks.target.shape[-1], dtype=torch.long),
        torch.zeros(n),
        torch.zeros(n, len(MeanRewards._fields)),
    )
    way: list[tuple[Tensor, Tensor, Tensor]] = []
    for step in play(agent, tasks, rng):
        proposal, ends = step.proposal, step.ends
        loss = step.tasks.loss(proposal.recommendation)
        way.append((torch.full((len(loss),), step.time), proposal.confidence, loss <= agent.epsilon))
        if bool(ends.any()):
            done, part = step.rows[ends], step.tasks.select(ends)
            draws = agent.belief.sample_answers(trees.select(step.state, ends).belief, DRAWS, rng)
            end.queries[done], end.confidence[done], end.loss[done] = step.time, proposal.confidence[ends], loss[ends]
            end.sampled_loss[done] = part.loss(draws[:, 0])
            end.rank[done] = (draws < part.target[:, None]).sum(dim=1)
            end.second_moment[done] = (draws - part.target[:, None]).square().sum(dim=-1).mean(dim=1)
            if problem.has_distance_loss:
                answers = problem.answer_space, draws, proposal.recommendation[ends]
                end.rewards[done] = torch.stack(posterior_rewards(*answers, agent.epsilon), dim=1)
    time, confidence, right = (torch.cat(column) for column in zip(*way, strict=True))
    return end, (time, confidence, right)
