"""The conformance suite of agents: any ``Agent``, ours or a user's, can be run through it."""

from typing import Any

import torch
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.plates import observe_plate
from cicpe.problems.base import Problem, TaskBatch
from cicpe.spaces import Space

TOLERANCE = 1e-4
"""Largest difference between two ways to the same number: absolute within [-1, 1], relative beyond."""
STEPS = 6
"""How many observations are made, where the agent's horizon allows it."""
OTHER_SEEDS = 3
"""Seeds that must leave a field as it is before it counts as independent of the seed: few episodes that choose among
a few queries may well choose the same ones twice."""
SAID = tuple(name for name in Proposal._fields if name not in Proposal._field_defaults)
"""What every agent says."""


def check_agent(agent: Agent, problem: Problem, n: int = 32, seed: int = 0) -> None:
    """Checks that an agent keeps the promises of its interface, on ``n`` fresh tasks of a problem.

    Episodes are played as the runner plays them: those that stop are taken out of the batch.

    * Proposals have the shapes of their fields and are finite; queries and recommendations lie in their
      spaces, a confidence is a probability, no standard deviation is negative.
    * States are trees whose leaves have the episode as first dimension; ``observe`` leaves them alone.
    * Repeatability: the same state and seed give the same proposal.
    * Independence: what does not depend on the generator (a greedy agent's query, say) does not depend
      either on which other episodes are in the batch, whether they were left out from the start or later.

    Args:
        agent: What to check.
        problem: The family that it is for.
        n: Episodes, at least 2.
        seed: Seed of tasks, proposals and observations.

    Raises:
        AssertionError: A promise is broken; the message says which, where, and what was found.
    """
    if n < 2:
        raise InvalidInput("n", n, "at least 2")
    horizon = getattr(agent, "horizon", None)
    _require(isinstance(horizon, int) and horizon >= 1, "horizon", f"must be a whole number from 1 up, not {horizon!r}")
    tasks = TaskBatch.draw(problem, n, _rng(seed))
    state = agent.begin(tasks.context)
    some = torch.arange(n).flip(0)[: (n + 1) // 2]
    # Other ways to the states of the episodes ``some`` of the batch.
    others: dict[str, Any] = {"begun without the rest": agent.begin(tasks.context[some])}
    last = min(agent.horizon, STEPS)
    for t in range(last + 1):
        where = f"after {t} observations"
        _check_state(state, len(tasks), where)
        if t in (0, last // 2):
            others[f"selected {where}"] = trees.select(state, some)
        proposal = agent.propose(state, _rng(seed + t))
        _check_proposal(proposal, problem, len(tasks), where)
        _check_same("repeatability", f"{where}, asked again", agent.propose(state, _rng(seed + t)), proposal)
        fixed = _fixed(proposal, [agent.propose(state, _rng(seed + t + 1_000 * k)) for k in range(1, 1 + OTHER_SEEDS)])
        for way, other in others.items():
            expected = trees.select(proposal, some)
            actual = agent.propose(other, _rng(seed + t))
            _check_same("independence of episodes", f"{where}, of episodes {way}", actual, expected, fixed)
        keep = ~proposal.stop
        if t == last or not bool(keep.any()):
            return
        kept = keep[some]
        others = {way: trees.select(other, kept) for way, other in others.items()} if bool(kept.any()) else {}
        some = (keep.cumsum(dim=0) - 1)[some[kept]]
        tasks, state, proposal = tasks.select(keep), trees.select(state, keep), trees.select(proposal, keep)
        before = agent.propose(state, _rng(seed + t))
        observation = observe_plate(tasks, proposal.query, _rng(seed + t))
        after = agent.observe(state, proposal.query, observation)
        _check_same("states", f"{where}, after observe", agent.propose(state, _rng(seed + t)), before)
        for way, other in others.items():
            others[way] = agent.observe(other, proposal.query[some], observation[some])
        state = after


def _rng(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def _require(holds: bool, promise: str, problem: str) -> None:
    if not holds:
        raise AssertionError(f"{promise}: {problem}")


def _check_state(state: Any, n: int, where: str) -> None:
    try:
        leaves = trees.leaves(state)
    except TypeError as error:
        raise AssertionError(f"states: {where}, {error}") from None
    for leaf in leaves:
        first = leaf.shape[0] if leaf.ndim else None
        shape = " x ".join(map(str, leaf.shape)) or "a single number"
        _require(first == n, "states", f"{where}, the first dimension of every leaf must be {n} episodes, not {shape}")


def _check_proposal(proposal: Proposal, problem: Problem, n: int, where: str) -> None:
    query, answer = problem.query_space, problem.answer_space
    wanted: dict[str, tuple[int, ...]] = {
        "query": (n, proposal.query.shape[1] if proposal.query.ndim == 3 else 1, query.dim),
        "stop": (n,),
        "recommendation": (n, answer.dim),
        "confidence": (n,),
        "std": (n, answer.dim),
    }
    for name, shape in wanted.items():
        value: Tensor = getattr(proposal, name)
        kind = torch.bool if name == "stop" else torch.float32
        actual = f"{tuple(value.shape)} of {value.dtype}"
        _require(
            tuple(value.shape) == shape and value.dtype == kind,
            "shapes",
            f"{where}, {name} must be {shape} of {kind}, not {actual}",
        )
        _require(bool(value.isfinite().all()), "values", f"{where}, {name} is not finite")
    for name, space in (("query", query), ("recommendation", answer)):
        _check_inside(space, getattr(proposal, name), name, where)
    outside = (proposal.confidence < 0) | (proposal.confidence > 1)
    _require(not bool(outside.any()), "values", f"{where}, confidence leaves [0, 1]: {_first(proposal, outside)}")
    _require(bool((proposal.std >= 0).all()), "values", f"{where}, std is negative")


def _first(proposal: Proposal, wrong: Tensor) -> str:
    return f"{float(proposal.confidence[wrong][0]):g}" if bool(wrong.any()) else ""


def _check_inside(space: Space, point: Tensor, name: str, where: str) -> None:
    distance = (space.project(point) - point).abs() / space.unit_scale
    wrong = (distance > TOLERANCE).any(dim=-1)
    if bool(wrong.any()):
        raise AssertionError(f"values: {where}, {name} {point[wrong][0].tolist()} is not a point of {space}")


def _fixed(proposal: Proposal, others: list[Proposal]) -> tuple[str, ...]:
    """The fields that other seeds leave as they are."""
    return tuple(
        name for name in SAID if all(torch.equal(getattr(proposal, name), getattr(other, name)) for other in others)
    )


def _check_same(promise: str, where: str, actual: Proposal, expected: Proposal, names: tuple[str, ...] = SAID) -> None:
    for name in names:
        left, right = getattr(actual, name).float(), getattr(expected, name).float()
        _require(left.shape == right.shape, promise, f"{where}, {name} has another shape")
        worst = float(((left - right).abs() / right.abs().clamp_min(1)).max()) if left.numel() else 0.0
        # Written so that a NaN fails.
        _require(worst <= TOLERANCE, promise, f"{where}, {name} differs by {worst:.2g} (allowed: {TOLERANCE:.2g})")
