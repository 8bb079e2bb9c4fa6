"""The conformance suite of memories: any ``Memory``, ours or a user's, can be run through it."""

from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.network.memories.base import Dims, FunctionMemory, Memory, MemoryFeatures, PrefixState, State
from cicpe.errors import InvalidInput


class _History(NamedTuple):
    """Random episodes, and one candidate query to read them at per prefix."""

    context_BC: Tensor
    query_BTQ: Tensor
    observation_BTY: Tensor
    candidate_BPQ: Tensor


class _Seen(NamedTuple):
    """Everything that can be read from a state."""

    memory_features: MemoryFeatures
    at_BPF: Tensor

    def outputs(self) -> dict[str, Tensor | None]:
        """Every output by its name."""
        return {**self.memory_features._asdict(), "read_at": self.at_BPF}


def check_memory(
    memory: Memory, dims: Dims, horizon: int = 12, batch: int = 5, seed: int = 0, tolerance: float = 1e-4
) -> None:
    """Checks that a memory keeps the promises of its interface, on random histories.

    * Shapes: every output has the size that the memory declares, and every leaf of a stepping state
      has the episode as its first dimension.
    * Causality: changing step t changes no reading at the prefixes 0 ... t, which precede it.
    * Agreement: ``unroll`` and ``begin``/``step`` read the same at every prefix, also after later steps.
    * Selection: going on with some of the episodes gives what going on with all of them gives.
    * Functions, where a memory holds one: ``predict`` at the probes is what ``read`` says of them.
    * Prefixes: an unrolled state at some of its prefixes (``at_prefixes``) reads as all of it does there.
    * Gradients: those of everything that is read, at all prefixes, are finite for every parameter.

    Args:
        memory: What to check, in evaluation mode for the time of the check.
        dims: The sizes that the memory was built for.
        horizon: Steps of the histories, at least 2.
        batch: Episodes, at least 2.
        seed: Seed of the histories.
        tolerance: Largest difference allowed, absolute for values within [-1, 1] and relative beyond.

    Raises:
        AssertionError: A promise is broken; the message says which, where, and by how much.
    """
    for name, value in (("horizon", horizon), ("batch", batch)):
        if value < 2:
            raise InvalidInput(name, value, "at least 2")
    history = _draw(dims, horizon, batch, torch.Generator().manual_seed(seed))
    training = memory.training
    memory.eval()
    try:
        with torch.no_grad():
            _check_shapes(memory, dims, history)
            _check_causality(memory, history, tolerance)
            _check_agreement(memory, history, tolerance)
            _check_selection(memory, history, tolerance)
            _check_prefixes(memory, history, tolerance)
            if isinstance(memory, FunctionMemory):
                _check_function(memory, history, tolerance)
        _check_gradients(memory, history)
    finally:
        memory.train(training)


def _draw(dims: Dims, horizon: int, batch: int, rng: Generator) -> _History:
    return _History(
        torch.randn(batch, dims.context, generator=rng),
        2 * torch.rand(batch, horizon, dims.query, generator=rng) - 1,
        torch.randn(batch, horizon, dims.observation, generator=rng),
        2 * torch.rand(batch, horizon + 1, dims.query, generator=rng) - 1,
    )


def _see(memory: Memory, state: State, candidate_BPQ: Tensor) -> _Seen:
    memory_features = memory.features(state)
    return _Seen(memory_features, memory.features_at(state, memory_features, candidate_BPQ))


def _unrolled(memory: Memory, history: _History) -> _Seen:
    state = memory.unroll(history.context_BC, history.query_BTQ, history.observation_BTY)
    return _see(memory, state, history.candidate_BPQ)


def _stepped(memory: Memory, history: _History, state: State, begin: int) -> list[State]:
    """The states from ``begin`` on."""
    states = [state]
    for t in range(begin, history.query_BTQ.shape[1]):
        states.append(memory.step(states[-1], history.query_BTQ[:, t], history.observation_BTY[:, t]))
    return states


def _see_each(memory: Memory, history: _History, states: list[State], begin: int) -> list[_Seen]:
    """What each of the states reads, seen from the candidate of its prefix."""
    candidates = [history.candidate_BPQ[:, t, None] for t in range(begin, begin + len(states))]
    return [_see(memory, state, candidate) for state, candidate in zip(states, candidates, strict=True)]


def _at(seen: _Seen, prefixes: slice) -> _Seen:
    return trees.map_leaves(lambda leaf: leaf[:, prefixes], seen)


def _require(holds: bool, promise: str, problem: str) -> None:
    if not holds:
        raise AssertionError(f"{promise}: {problem}")


def _require_same(promise: str, where: str, actual: _Seen, expected: _Seen, tolerance: float) -> None:
    for name, right in expected.outputs().items():
        left = actual.outputs()[name]
        _require((left is None) == (right is None), promise, f"{where}, {name} is given one way and not the other")
        if left is None or right is None:
            continue
        _require(left.shape == right.shape, promise, f"{where}, {name} is {_shape(left)} and {_shape(right)}")
        worst = float(((left - right).abs() / right.abs().clamp_min(1)).max())
        # Written so that a NaN fails.
        _require(worst <= tolerance, promise, f"{where}, {name} differs by {worst:.2g} (allowed: {tolerance:.2g})")


def _shape(tensor: Any) -> str:
    return " x ".join(str(size) for size in tensor.shape)


def _check_shapes(memory: Memory, dims: Dims, history: _History) -> None:
    batch, horizon = history.query_BTQ.shape[:2]
    state = memory.begin(history.context_BC)
    begun = _see(memory, state, history.candidate_BPQ[:, :1])
    for seen, prefixes, view in ((begun, 1, "begin"), (_unrolled(memory, history), horizon + 1, "unroll")):
        outputs = seen.outputs()
        promise = f"shapes after {view}"
        _require(
            (outputs["axes"] is None) == (memory.axis_width is None),
            promise,
            f"axis_width is {memory.axis_width}, but axes are {'not ' if outputs['axes'] is None else ''}given",
        )
        probes = len(memory.probes_KQ) if isinstance(memory, FunctionMemory) else 0
        features: dict[str, tuple[int, ...]] = {
            "summary": (memory.width,),
            "axes": (dims.answer, memory.axis_width or 0),
            "point_estimate": (dims.answer,),
            "log_spread": (dims.answer,),
            "function_mean": (probes,),
            "function_std": (probes,),
            "place_scores": (0 if memory.scored_places is None else len(memory.scored_places),),
            "read_at": (memory.width_at,),
        }
        for name, value in outputs.items():
            if value is not None:
                wanted = (batch, prefixes, *features[name])
                text = " x ".join(map(str, wanted))
                _require(tuple(value.shape) == wanted, promise, f"{name} must be {text}, not {_shape(value)}")
                _require(bool(value.isfinite().all()), promise, f"{name} is not finite")
    state = memory.step(state, history.query_BTQ[:, 0], history.observation_BTY[:, 0])
    for leaf in trees.leaves(state):
        first = leaf.shape[0] if leaf.ndim else None
        _require(first == batch, "shapes of a state", f"the first dimension must be {batch} episodes: {_shape(leaf)}")


def _check_causality(memory: Memory, history: _History, tolerance: float) -> None:
    before = _unrolled(memory, history)
    for t in range(history.query_BTQ.shape[1]):
        query_BTQ, observation_BTY = history.query_BTQ.clone(), history.observation_BTY.clone()
        query_BTQ[:, t] = -query_BTQ[:, t]
        observation_BTY[:, t] += 3
        after = _unrolled(memory, history._replace(query_BTQ=query_BTQ, observation_BTY=observation_BTY))
        past = slice(0, t + 1)
        where = f"at the prefixes 0 ... {t} after a change of step {t}, which lies in their future"
        _require_same("causality", where, _at(after, past), _at(before, past), tolerance)


def _check_agreement(memory: Memory, history: _History, tolerance: float) -> None:
    unrolled = _unrolled(memory, history)
    # All states are made before any is read: a step must leave the states before it alone.
    states = _stepped(memory, history, memory.begin(history.context_BC), 0)
    for t, seen in enumerate(_see_each(memory, history, states, 0)):
        where = f"at prefix {t}"
        _require_same("agreement of unroll and step", where, _at(unrolled, slice(t, t + 1)), seen, tolerance)


def _check_selection(memory: Memory, history: _History, tolerance: float) -> None:
    batch, horizon = history.query_BTQ.shape[:2]
    states = _stepped(memory, history, memory.begin(history.context_BC), 0)
    everyone = _see_each(memory, history, states, 0)
    some = torch.arange(batch).flip(0)[: max(1, batch - 2)]
    few = trees.select(history, some)
    for begin in (0, horizon // 2):
        selected = _stepped(memory, few, trees.select(states[begin], some), begin)
        for t, seen in enumerate(_see_each(memory, few, selected, begin), start=begin):
            where = f"at prefix {t}, going on from prefix {begin} with the episodes {some.tolist()}"
            _require_same("selection of episodes", where, seen, trees.select(everyone[t], some), tolerance)


def _check_prefixes(memory: Memory, history: _History, tolerance: float) -> None:
    batch, horizon = history.query_BTQ.shape[:2]
    for steps in (1, horizon):
        whole = memory.unroll(history.context_BC, history.query_BTQ[:, :steps], history.observation_BTY[:, :steps])
        _require(isinstance(whole, PrefixState), "prefixes of a state", f"{type(whole).__name__} has no at_prefixes")
        everywhere = _see(memory, whole, history.candidate_BPQ[:, : steps + 1])
        index_BK = torch.stack([torch.arange(batch) % (steps + 1), (torch.arange(batch) + 1).clamp_max(steps)], dim=1)
        rows = torch.arange(batch)[:, None]
        some = _see(memory, whole.at_prefixes(index_BK), history.candidate_BPQ[rows, index_BK])
        expected = trees.map_leaves(lambda leaf: leaf[rows, index_BK], everywhere)  # noqa: B023
        where = f"at the prefixes {index_BK.tolist()} of {steps} steps"
        _require_same("prefixes of a state", where, some, expected, tolerance)


def _check_function(memory: FunctionMemory, history: _History, tolerance: float) -> None:
    batch, rng = len(history.context_BC), torch.Generator().manual_seed(0)
    for t, state in enumerate(_stepped(memory, history, memory.begin(history.context_BC), 0)):
        memory_features = memory.features(state)
        promise, where = "functions", f"at prefix {t}"
        _require(
            memory_features.function_mean is not None and memory_features.function_std is not None,
            promise,
            "read gives none",
        )
        probes_BKQ = memory.probes_KQ.float().expand(batch, -1, -1)
        mean_BK, std_BK = memory.predict(state, probes_BKQ)
        for name, predicted, read in (
            ("mean", mean_BK, memory_features.function_mean),
            ("std", std_BK, memory_features.function_std),
        ):
            assert read is not None
            worst = float((predicted - read[:, 0]).abs().max())
            _require(worst <= tolerance, promise, f"{where}, predict and read differ by {worst:.2g} in the {name}")
        drawn_BK = memory.sample_probes(state, rng)
        finite = drawn_BK.shape == mean_BK.shape and bool(drawn_BK.isfinite().all())
        _require(finite, promise, f"{where}, a draw must be {_shape(mean_BK)} finite numbers, not {_shape(drawn_BK)}")


def _check_gradients(memory: Memory, history: _History) -> None:
    named = [(name, parameter) for name, parameter in memory.named_parameters() if parameter.requires_grad]
    if not named:
        return
    rng = torch.Generator().manual_seed(1)
    values = [value for value in _unrolled(memory, history).outputs().values() if value is not None]
    loss = torch.stack([(value * torch.randn(value.shape, generator=rng)).sum() for value in values]).sum()
    _require(loss.requires_grad, "gradients", "nothing that is read depends on the parameters")
    gradients = torch.autograd.grad(loss, [parameter for _, parameter in named], allow_unused=True)
    for (name, _), gradient in zip(named, gradients, strict=True):
        finite = gradient is None or bool(gradient.isfinite().all())
        _require(finite, "gradients", f"that of {name} is not finite")
