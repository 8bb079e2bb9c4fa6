"""From a problem to a belief within a budget: race, fit, episodes of its own queries, and more fitting."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from answer_prior import AnswerPrior
from belief import AnswerBelief, BeliefConfig
from clock import CLOCK
from closeness import Closeness
from fit import Choice, Fit, FitConfig, race
from particles import ParticleSearch
from search import GridSearch, Likelihood
from simulate import Histories, nuisance_of
from task_numbers import TaskNumbers
from torch import Tensor

from cicpe.problems.base import Problem, TaskBatch
from cicpe.spaces import Sphere

FIT = FitConfig()
FULL = BeliefConfig()
QUICK = BeliefConfig(candidates=24, stride=8, table=64, pairs=64, outcomes=8)
"""Queries of episodes to learn from need not be the best."""


def make_belief(
    fit: Fit, prior: AnswerPrior, closeness: Closeness, epsilons: Sequence[float], config: BeliefConfig = FULL
) -> AnswerBelief:
    """The belief of a fitted network: a grid where answers are a line or a finite set, else particles."""
    problem = fit.problem
    likelihood = Likelihood(problem, fit.heads, fit.network)
    aim = min(epsilons)
    if problem.answer_space.dim == 1 or prior.values is not None:
        scale = float(problem.answer_space.unit_scale[0])
        width = float(prior.high[0] - prior.low[0]) * scale
        points = int(min(512, max(128, 5 * width / aim)))
        search: GridSearch | ParticleSearch = GridSearch(likelihood, prior, points)
    else:
        sphere = isinstance(problem.answer_space, Sphere)
        reach = math.sqrt(2 * aim) if sphere else aim / float(problem.answer_space.unit_scale.mean())
        search = ParticleSearch(likelihood, prior, reach=reach)
        if config is QUICK:
            search = replace(search, particles=128, prior_particles=1024, moves=1, restarts=0)
    context = problem.context(problem.sample(256, torch.Generator().manual_seed(5)))
    same = bool((context == context[:1]).all())
    return AnswerBelief(likelihood, search, closeness, aim, context[0] if same else None, config)


@torch.no_grad()
def play(belief: AnswerBelief, n: int, steps: int, seed: int, numbers: TaskNumbers | None = None) -> Histories:
    """Episodes that the belief queries itself, to learn from."""
    problem = belief.problem
    rng = torch.Generator().manual_seed(seed)
    hidden = TaskBatch.draw(problem, n, rng)
    state = belief.begin(hidden.context)
    queries: list[Tensor] = []
    observations: list[Tensor] = []
    for _ in range(steps):
        query = belief.assess(state, (), rng).query
        observation = hidden.observe(query, rng)
        state = belief.observe(state, query, observation)
        queries.append(query)
        observations.append(observation)
    asked, seen = torch.stack(queries, dim=1), torch.stack(observations, dim=1)
    return Histories(asked, seen, hidden.target, hidden.context, nuisance_of(hidden, numbers))


def learn(
    problem: Problem,
    epsilons: Sequence[float],
    seconds: float = 150.0,
    config: FitConfig = FIT,
    choice: Choice | None = None,
    given: bool = False,
    rounds: int = 2,
    say: Callable[[str], None] = print,
) -> AnswerBelief:
    """A belief about the answer, learned from simulations for some seconds of wall-clock."""
    began = CLOCK()
    rng = torch.Generator().manual_seed(config.seed + 7)
    numbers = TaskNumbers.find(problem, rng) if given else None
    given = numbers is not None
    prior = AnswerPrior(problem, 20_000 if _is_fast(problem) else 6_000, rng, numbers)
    closeness = Closeness(problem, rng)
    left = seconds - (CLOCK() - began)
    fit = (
        race(problem, config.race_share * left, config, given, say)
        if choice is None
        else Fit.start(problem, choice, config)
    )
    own: Histories | None = None
    say(f"chosen {fit.choice} after {CLOCK() - began:.0f} s")
    rounds = rounds if problem.answer_space.dim == 1 else 0
    for turn in range(rounds + 1):
        left = seconds - (CLOCK() - began)
        share = 1 / (rounds + 1 - turn)
        last = turn == rounds
        fit.train(
            seconds=left * share,
            played=own,
            start_rate=1.0 if turn == 0 else 0.5,
            end_rate=0.02 if last else 0.2,
        )
        if not last:
            started = CLOCK()
            belief = make_belief(fit, prior, closeness, epsilons, QUICK)
            own = _play_for(
                belief, 0.05 * seconds, steps=_length(problem, fit.config), seed=1000 + turn, numbers=fit.numbers
            )
            say(f"own episodes {len(own.target_BX)} in {CLOCK() - started:.1f} s")
    say(f"fitted: {fit.updates} updates in {CLOCK() - began:.0f} s")
    return make_belief(fit, prior, closeness, epsilons)


def _is_fast(problem: Problem) -> bool:
    began = CLOCK()
    problem.sample(200, torch.Generator().manual_seed(0))
    return CLOCK() - began < 0.05


def _length(problem: Problem, config: FitConfig) -> int:
    return min(problem.horizon, int(1.5 * config.steps) if problem.answer_space.dim == 1 else config.steps)


def _play_for(belief: AnswerBelief, seconds: float, steps: int, seed: int, numbers: TaskNumbers | None) -> Histories:
    """As many episodes as fit in some seconds, found by playing a few."""
    if belief.table_queries is not None:
        belief.table_ANKP  # noqa: B018  made once, before the time of an episode is taken
    began = CLOCK()
    found = play(belief, 8, steps, seed, numbers)
    one = (CLOCK() - began) / 8
    more = int(min(512, (seconds - 8 * one) / one))
    return found if more < 8 else found.joined(play(belief, more, steps, seed + 500, numbers))
