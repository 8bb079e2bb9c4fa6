"""Tests a frozen agent on fresh episodes, one after the other, and says whether it keeps its promise."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from cicpe._version import __version__
from cicpe.agents.base import Agent
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.certification.certificate import Certificate, check_alpha, problem_sha256, tests_of
from cicpe.certification.martingale import (
    alternatives,
    check_probability,
    first_crossing,
    log_path,
    success_lower_bound,
)
from cicpe.episodes.blocks import EpisodeBlock, blocks
from cicpe.episodes.outcomes import Outcomes, run_episodes
from cicpe.errors import InvalidInput
from cicpe.model import Model
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, TaskBatch
from cicpe.streams import block_stream

PATH_POINTS = 200
"""How many points of the martingale's path are kept."""


class CheckResult(NamedTuple):
    """What a test of one frozen agent found."""

    certified: bool
    episodes_used: int
    """Up to the first crossing, or all of them."""
    successes: int
    mean_queries: float
    log_martingale: float
    """Its largest value."""
    success_lower_bound: float
    path: tuple[tuple[int, float], ...]
    threshold: tuple[float, float] | None
    """Lowest and highest stop threshold, for an agent that has one."""


def certify_checkpoint(
    agent: Agent,
    problem: Problem,
    epsilon: float,
    delta: float,
    alpha: float,
    episodes: int,
    seed: int,
    executor: Executor = HERE,
) -> CheckResult:
    """Tests one frozen agent at level ``alpha`` on at most ``episodes`` fresh tasks; accepts at the first crossing.

    For a run of checkpoints give checkpoint k its share alpha_k of a budget (``martingale.back_loaded_budgets``)
    and a seed of its own from ``stream_seed``. Every checkpoint that passes is then right at once, with
    confidence 1 - alpha, and the best of them may be chosen afterwards. A truncated episode counts as it ends.

    Episodes are played in blocks, wherever the executor plays them; the test looks at them one by one, in their order.
    """
    check_probability("delta", delta)
    check_probability("alpha", alpha)
    if not epsilon > 0:
        raise InvalidInput("epsilon", epsilon, "a positive number")
    if episodes < 1:
        raise InvalidInput("episodes", episodes, "a whole number of at least 1")
    outcomes, queries, thresholds = np.zeros(0, dtype=bool), np.zeros(0), []
    used = 0
    play = partial(_play_block, agent, problem, seed)
    with closing(executor.map(play, blocks(episodes, agent.most_at_once))) as blocks_played:
        for played in blocks_played:
            outcomes = np.concatenate([outcomes, (played.loss <= epsilon).numpy()])
            queries = np.concatenate([queries, played.queries.numpy()])
            if isinstance(agent, BeliefAgent):
                thresholds.append(agent.threshold(played.context))
            path = log_path(outcomes, 1 - delta)
            used = int(first_crossing(path, alpha))
            if used > 0:
                break
    certified = used > 0
    used = used or episodes
    outcomes, path = outcomes[:used], path[:used]
    limits = torch.cat(thresholds).aminmax() if thresholds else None
    return CheckResult(
        certified=certified,
        episodes_used=used,
        successes=int(outcomes.sum()),
        mean_queries=float(queries[:used].mean()),
        log_martingale=max(0.0, float(path.max())),
        success_lower_bound=success_lower_bound(outcomes, alpha),
        path=_thinned(path),
        threshold=None if limits is None else (float(limits.min), float(limits.max)),
    )


def _play_block(agent: Agent, problem: Problem, seed: int, block: EpisodeBlock) -> Outcomes:
    rng = block_stream(seed, block.number)
    return run_episodes(agent, TaskBatch.draw(problem, block.size, rng), rng)


def _thinned(path: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[tuple[int, float], ...]:
    rows = np.unique(np.linspace(0, len(path) - 1, min(PATH_POINTS, len(path))).round().astype(int))
    return ((0, 0.0), *((int(row) + 1, float(path[row])) for row in rows))


def stream_seed(seed: int, *labels: object) -> int:
    """The seed of fresh episodes for a test: a hash of the user's seed and of what is tested.

    It lies in the upper half of what a generator can tell apart (2^31 to 2^32 - 1: PyTorch's looks at 32 bits),
    where no seed of training, calibration or evaluation lies that is itself below 2^31.
    """
    text = " ".join(map(str, ("cicpe certificate", seed, *labels)))
    return 2**31 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 2**31


def calibration_sha256(model: Model) -> str:
    """A hash of a model's stop thresholds."""
    return hashlib.sha256(model.calibration.model_dump_json().encode()).hexdigest()


def certify(
    model: Model,
    *,
    epsilon: float,
    delta: float,
    context: Mapping[str, float] | None = None,
    stop: str = "confidence",
    alpha: float = 0.05,
    episodes: int = 20_000,
    seed: int = 0,
    problem: Problem | None = None,
    ledger: Sequence[Certificate] = (),
    alpha_of_run: float | None = None,
    executor: Executor = HERE,
) -> Certificate:
    """Tests whether a model is within epsilon more often than 1 - delta, with probability alpha of a false yes.

    Args:
        model: What to test, frozen.
        epsilon: How far off an answer may be.
        delta: How often it may be farther off.
        context: Known contexts by name, at one value each; as the family draws them where not given.
        stop: The stop rule: ``confidence``, ``each``, ``bellman``, or ``own`` for a model of the recipe ``paper``.
        alpha: Probability of certifying a model that does not deserve it.
        episodes: The most fresh tasks to play. A model well above 1 - delta needs a few hundred, one that is
            a tenth of delta above it several thousand.
        seed: Seeds the tasks, through ``stream_seed``; a test that the ledger already holds is never replayed.
        problem: The family, where the model's own place has moved.
        ledger: Earlier certificates. Tests of the same weights among them have spent alpha.
        alpha_of_run: For a checkpoint, the budget of which ``alpha`` is its share.
        executor: Where the tasks are played; the certificate does not depend on it.

    Returns:
        The certificate, with its evidence; ``certified`` says yes or no.
    """
    about, weights = model.description, model.sha256
    earlier = tests_of(weights, ledger)
    check_alpha(alpha, earlier)
    family = problem or model.problem
    known = dict(context or {})
    tasks = model.tasks(known, family)
    agent = model.agent(epsilon, delta, stop)
    thresholds = calibration_sha256(model)
    fresh = stream_seed(seed, weights, thresholds, epsilon, delta, sorted(known.items()), stop, len(earlier))
    result = certify_checkpoint(agent, tasks, epsilon, delta, alpha, episodes, fresh, executor)
    spent = alpha + sum(item.alpha for item in earlier)
    evidence = result._asdict()
    return Certificate(
        sentence=_sentence(result, about.problem, epsilon, delta, known, alpha, spent, len(earlier)),
        problem=about.problem,
        problem_options=_plain(about.problem_options),
        epsilon=epsilon,
        delta=delta,
        noise=known.get("noise"),
        context=known,
        stop=stop,
        horizon=agent.horizon,
        model_sha256=weights,
        calibration_sha256=thresholds,
        problem_sha256=problem_sha256(family),
        problem_source=about.problem_source,
        fingerprint=model.fingerprint,
        seed=seed,
        stream_seed=fresh,
        episodes=episodes,
        alpha=alpha,
        alpha_of_run=alpha_of_run,
        alpha_spent=spent,
        alternatives=tuple(alternatives(1 - delta).tolist()),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"cicpe": __version__, "torch": torch.__version__, "numpy": np.__version__}
        | {"python": platform.python_version()},
        **evidence,
    )


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Tuples as the lists that they are in JSON, so that a certificate equals its own round trip."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


def _sentence(
    result: CheckResult,
    problem: str,
    epsilon: float,
    delta: float,
    context: Mapping[str, float],
    alpha: float,
    spent: float,
    earlier: int,
) -> str:
    at = "".join(f" at {name} {value:g}" for name, value in context.items())
    counts = f"{result.successes:,} of {result.episodes_used:,} fresh episodes succeeded"
    if result.certified:
        sentence = (
            f"Certified: on {problem}{at}, tasks drawn from the prior, the answer is within {epsilon:g} with "
            f"probability above {1 - delta:g}. A model for which this is false passes with probability at most "
            f"{alpha:g} ({counts})."
        )
    else:
        sentence = (
            f"Not certified: the evidence does not show that on {problem}{at} the answer is within {epsilon:g} with "
            f"probability above {1 - delta:g} ({counts}; at confidence {1 - alpha:g} they show more than "
            f"{result.success_lower_bound:.4f})."
        )
    if earlier:
        sentence += f" With {earlier} earlier test{'s' * (earlier > 1)} of these weights, alpha spent is {spent:g}."
    return sentence
