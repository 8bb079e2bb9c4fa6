"""What a family looks like before anything is trained: what is hidden, what an observation tells, what could go wrong.

The least number of queries follows from Fano's inequality: to be within epsilon in 1 - delta of tasks, the history has
to tell at least KL(1 - delta || p) about the task, where p is how often the best guess without any query succeeds, and
an observation tells at most as much as the most informative query does on average.
"""

import math
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from cicpe.beliefs.answers.head_choice import choose_heads
from cicpe.beliefs.answers.heads import BinaryHead, CategoricalHead, Head, LogisticMixtureHead
from cicpe.beliefs.answers.hidden import MOST_NUMBERS, Nuisance
from cicpe.beliefs.answers.point_masses import PointMassHead
from cicpe.beliefs.numbers import flat_numbers
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.observations import MOST_CATEGORIES
from cicpe.problems.structure import declared_kinds, seconds_per_observation
from cicpe.statistics import log_grid
from cicpe.streams import stream

TASKS = 512
QUERIES = 64
GUESSES = 256
AGAIN = 16
"""How many times more tasks the most informative query is tried on."""
SLOW = 1e-3
"""Seconds per observation above which training is short of simulations."""
DELTA = 0.1


@final
class EpsilonBound(NamedTuple):
    """What one epsilon asks for."""

    epsilon: float
    guess: float
    """How often the best answer without any query is within epsilon."""
    least_queries: float
    """That any agent needs for an error of at most DELTA, if the estimate of what an observation tells is right."""


@final
class FamilyPortrait(NamedTuple):
    """A family before training."""

    hidden: int | None
    """Hidden numbers beside the answer (or, where they give it, in all); None where they cannot be read."""
    gives_answer: bool
    """Whether the answer is a function of several of those numbers."""
    task_numbers: int | None
    """All numbers of a task; None where it holds something else."""
    answer: int
    observation: tuple[str, ...]
    """What every entry of an observation is."""
    bits: float
    """What the most informative single query tells about the task, in bits; an estimate."""
    best_query: tuple[float, ...]
    """That query."""
    milliseconds: float
    """Of one simulated observation."""
    bounds: tuple[EpsilonBound, ...]
    warnings: tuple[str, ...]


def diagnose_problem(problem: Problem, epsilon: tuple[float, float] | None = None, seed: int = 0) -> FamilyPortrait:
    """Looks at a family through simulations.

    Args:
        problem: The family.
        epsilon: The range of epsilon that is of interest; the problem's own where not given.
        seed: Seeds the simulations.

    Returns:
        What was seen, with warnings in words.
    """
    rng = stream(seed, "doctor")
    tasks = TaskBatch.draw(problem, TASKS, rng)
    seconds = seconds_per_observation(tasks)
    n_queries = QUERIES if seconds < SLOW else 8
    few = tasks if seconds < SLOW else tasks.select(torch.arange(64))
    bits, best, observed = _most_informative(few, n_queries, rng)
    heads = choose_heads(observed, declared=declared_kinds(problem, observed.shape[-1]))
    nuisance, numbers = Nuisance.find(problem, TASKS, rng), flat_numbers(tasks.task)
    bounds = tuple(_bound(tasks, value, bits) for value in log_grid(*(epsilon or problem.default_epsilon), 3))
    diagnosis = FamilyPortrait(
        hidden=None if nuisance is None else nuisance.size,
        gives_answer=nuisance is not None and nuisance.gives_answer,
        task_numbers=None if numbers is None else numbers.shape[1],
        answer=problem.answer_space.dim,
        observation=tuple(_kind(head) for head in heads),
        bits=bits,
        best_query=tuple(best.tolist()),
        milliseconds=1000 * seconds,
        bounds=bounds,
        warnings=(),
    )
    return diagnosis._replace(warnings=tuple(_warnings(problem, diagnosis, tasks)))


def _most_informative(tasks: TaskBatch, n_queries: int, rng: Generator) -> tuple[float, Tensor, Tensor]:
    """The bits of the query that tells most, that query, and all observations.

    Two observations of the same tasks at one query agree as far as tasks decide them: with a correlation r an
    observation tells -log2(1 - r) / 2 bits if it is Gaussian, and at most the logarithm of its number of values; what
    two values tell is bounded by how often they differ.
    """
    queries = tasks.problem.query_space.sample(n_queries, rng)
    bits, seen = [], []
    for query in queries:
        both = [tasks.observe(query.expand(len(tasks), -1), rng) for _ in range(2)]
        seen += both
        bits.append(sum(_bits(a, b) for a, b in zip(both[0].T, both[1].T, strict=True)))
    best = queries[max(range(n_queries), key=bits.__getitem__)]
    # The largest of many estimates is too large: the query is tried again on other tasks.
    fresh = TaskBatch.draw(tasks.problem, AGAIN * len(tasks), rng)
    both = [fresh.observe(best.expand(len(fresh), -1), rng) for _ in range(2)]
    return sum(_bits(a, b) for a, b in zip(both[0].T, both[1].T, strict=True)), best, torch.cat(seen)


def _bits(first: Tensor, second: Tensor) -> float:
    """What an entry tells about the task, by two observations of each."""
    values = sorted(set(first.tolist()) | set(second.tolist()))
    if len(values) < 2:
        return 0.0
    pair = torch.stack([first, second]).double()
    if len(values) == 2:
        # With H(p) >= 4 p (1 - p): at most H(mean of p) - 4 E[p (1 - p)], and two answers differ with 2 p (1 - p).
        share = float((pair == values[1]).double().mean())
        differ = float((pair[0] != pair[1]).double().mean())
        return max(0.0, _entropy(share) - 2 * differ)
    if len(values) > MOST_CATEGORIES:
        pair = pair.argsort(dim=1, stable=True).argsort(dim=1, stable=True).double()
    if float(pair.std(dim=1).min()) == 0:
        return 0.0
    correlation = float(torch.corrcoef(pair)[0, 1].clamp(0, 1 - 1e-9))
    return min(-0.5 * math.log2(1 - correlation), math.log2(len(values)))


def _entropy(share: float) -> float:
    """Of a coin, in bits."""
    return -sum(p * math.log2(p) for p in (share, 1 - share) if p > 0)


def _bound(tasks: TaskBatch, epsilon: float, bits: float) -> EpsilonBound:
    space = tasks.problem.answer_space
    guesses = torch.cat([tasks.target[:GUESSES], space.project(tasks.target.mean(dim=0, keepdim=True))])
    loss = torch.stack([tasks.loss(guess.expand(len(tasks), -1)) for guess in guesses])
    guess = min(float((loss <= epsilon).double().mean(dim=1).max()), 1 - 1e-6)
    if guess >= 1 - DELTA:
        return EpsilonBound(epsilon, guess, 0.0)
    wanted = (1 - DELTA) * math.log2((1 - DELTA) / max(guess, 1e-9)) + DELTA * math.log2(DELTA / (1 - guess))
    return EpsilonBound(epsilon, guess, wanted / bits if bits > 0 else math.inf)


def _kind(head: Head) -> str:
    if isinstance(head, BinaryHead):
        return f"one of two values ({head.low:g} or {head.high:g})"
    if isinstance(head, CategoricalHead):
        return f"one of {len(head.values)} values"
    if isinstance(head, LogisticMixtureHead) and head.whole:
        return f"a number in steps of {head.step:g}" if head.signed else "a count"
    if isinstance(head, PointMassHead):
        return f"{_kind(head.rest)}, or just {' or '.join(f'{value:g}' for value in head.values)}"
    return "a real number with extreme values" if getattr(head, "transform", "") == "asinh" else "a real number"


def _warnings(problem: Problem, seen: FamilyPortrait, tasks: TaskBatch) -> list[str]:
    words = []
    if seen.bits < 0.005:
        words.append(
            "no single query was seen to tell anything about the task: is the noise larger than the signal, "
            "or does only a small part of the query space tell?"
        )
    worst = max(seen.bounds, key=lambda bound: bound.least_queries)
    if math.isfinite(worst.least_queries) and worst.least_queries > problem.horizon:
        words.append(
            f"epsilon {worst.epsilon:g} needs at least {worst.least_queries:.0f} queries, and the problem allows "
            f"{problem.horizon}: raise its horizon or epsilon"
        )
    if seen.milliseconds > 1000 * SLOW:
        words.append(
            f"an observation takes {seen.milliseconds:.1f} ms to simulate: training sees few of them; "
            "simulate many tasks at once, or give it more minutes"
        )
    if seen.hidden is None and seen.answer > 1:
        what = "no numbers" if seen.task_numbers is None else f"{seen.task_numbers} numbers"
        words.append(
            f"a task is {what} (at most {MOST_NUMBERS} beside the answer can be inferred), and the answer has "
            f"{seen.answer} coordinates: only networks and functions apply"
        )
    outside = float((problem.answer_space.distance(problem.answer_space.project(tasks.target), tasks.target)).max())
    if outside > 1e-4:
        words.append(f"some targets lie outside the answer space, by up to {outside:.3g}")
    return words
