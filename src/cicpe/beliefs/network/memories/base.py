"""The history encoder's interface, and small parts that every network shares.

Shape suffixes inside networks: B episodes, P prefixes, T steps, Q query, Y observation, C context,
X answer, F features, H hidden units, J regression heads.

A memory has two consistent views of the same mathematics:

* ``unroll`` encodes every prefix of a batch of trajectories in one causal pass (P = T + 1: the
  empty history, then one prefix per observation);
* ``begin`` and ``step`` carry one prefix along (P = 1) with work that does not grow with t.

``cicpe.testing.check_memory`` holds the two equal.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from cicpe.config import Config


class Dims(NamedTuple):
    """The sizes that a problem fixes."""

    query: int
    observation: int
    context: int
    answer: int


class MemoryFeatures(NamedTuple):
    """What a memory says of a history."""

    summary: Float[Tensor, "batch prefix features"]
    """Features of the whole history."""
    axes: Float[Tensor, "batch prefix answer axis_features"] | None = None
    """Features of each answer coordinate, where the memory treats coordinates alike."""
    point_estimate: Float[Tensor, "batch prefix answer"] | None = None
    """A natural estimate of the target in unit coordinates, to which the head adds a correction."""
    log_spread: Float[Tensor, "batch prefix answer"] | None = None
    """Log of the estimate's own standard deviation: the unit in which the head corrects it."""
    function_mean: Float[Tensor, "batch prefix probe"] | None = None
    """Posterior mean of the observed function at the memory's probes, where it holds one."""
    function_std: Float[Tensor, "batch prefix probe"] | None = None
    """Posterior standard deviation there."""
    place_scores: Float[Tensor, "batch prefix place"] | None = None
    """How likely the target is to be at each of the memory's places, as logits, where it scores some."""

    def at_prefixes(self, index_BK: Int[Tensor, "batch chosen"]) -> "MemoryFeatures":
        """The features at K prefixes per episode: every field has a prefix axis.

        Args:
            index_BK: Positions along the prefix axis.

        Returns:
            The same features, with K prefixes in place of P.
        """
        return MemoryFeatures._make(None if field is None else gather_prefixes(field, index_BK) for field in self)


def gather_prefixes(
    value_BP: Float[Tensor, "batch prefix *features"] | Int[Tensor, "batch prefix"],
    index_BK: Int[Tensor, "batch chosen"],
) -> Tensor:
    """Picks K positions per episode along the second axis of a tensor.

    Args:
        value_BP: A tensor with one entry per prefix, and any further axes.
        index_BK: Positions along the prefix axis.

    Returns:
        A tensor of shape ``batch chosen *features``.
    """
    index = index_BK.view(*index_BK.shape, *[1] * (value_BP.ndim - 2)).expand(-1, -1, *value_BP.shape[2:])
    return value_BP.gather(1, index)


@runtime_checkable
class PrefixState(Protocol):
    """A state that says itself which of its fields have a prefix axis."""

    def at_prefixes(self, index_BK: Int[Tensor, "batch chosen"]) -> "PrefixState":
        """The state at K prefixes per episode, for reading, in place of all of them."""


State = Any
"""A memory's own NamedTuple of tensors; the first dimension is the episode.

It is a ``PrefixState``: its ``at_prefixes`` picks from the fields that have one entry per prefix
(``gather_prefixes``) and leaves the others, such as a cache of all tokens, as they are.
"""


class Memory(nn.Module, ABC):
    """Encodes histories. Inputs are scaled: queries in unit coordinates, the rest near unit variance."""

    width: int
    """Number of summary features."""
    axis_width: int | None = None
    """Number of features per answer coordinate, for memories that give them."""
    width_at: int
    """Number of features that ``features_at`` gives."""

    @property
    def scored_places(self) -> Float[Tensor, "place query"] | None:
        """The places that it scores, in unit coordinates, for memories that do."""
        return None

    @property
    def width_near(self) -> int:
        """Number of features that ``features_near`` gives."""
        return self.width_at

    @abstractmethod
    def begin(self, context_BC: Float[Tensor, "batch context"]) -> State:
        """The state of the empty history."""

    @abstractmethod
    def step(
        self, state: State, query_BQ: Float[Tensor, "batch query"], observation_BY: Float[Tensor, "batch observation"]
    ) -> State:
        """The state after one more observation."""

    @abstractmethod
    def unroll(
        self,
        context_BC: Float[Tensor, "batch context"],
        query_BTQ: Float[Tensor, "batch step query"],
        observation_BTY: Float[Tensor, "batch step observation"],
    ) -> State:
        """The state at every prefix, t = 0 ... T."""

    @abstractmethod
    def features(self, state: State) -> MemoryFeatures:
        """The features of the history at every prefix of the state."""

    def features_at(
        self, state: State, memory_features: MemoryFeatures, query_BPQ: Float[Tensor, "batch prefix query"]
    ) -> Float[Tensor, "batch prefix features"]:
        """The history seen from a candidate query. Default: the summary and the query side by side.

        It serves the critic. Where the critic shares the memory of inference, the state and its features come
        without gradient; the gradient by the query, which a learned actor follows, must pass.

        Args:
            state: The state of the histories.
            memory_features: What ``features`` says of them.
            query_BPQ: A candidate per prefix, in unit coordinates.

        Returns:
            ``width_at`` features per prefix.
        """
        return torch.cat([memory_features.summary, query_BPQ], dim=-1)

    def features_near(
        self, state: State, memory_features: MemoryFeatures, query_BPQ: Float[Tensor, "batch prefix query"]
    ) -> Float[Tensor, "batch prefix features"]:
        """What a candidate query's own neighbourhood looks like. Default: all that ``features_at`` gives.

        Args:
            state: The state of the histories.
            memory_features: What ``features`` says of them.
            query_BPQ: A candidate per prefix, in unit coordinates.

        Returns:
            ``width_near`` features per prefix.
        """
        return self.features_at(state, memory_features, query_BPQ)

    def sample_largest(self, state: State, n: int, rng: Generator) -> Float[Tensor, "batch draw"] | None:
        """Draws of the target, for memories whose own posterior is of a function whose largest value that is.

        Args:
            state: A stepping state (P = 1).
            n: How many.
            rng: Draws.

        Returns:
            Values on the scale of observations, as the memory sees them; None where the target is something else.
        """
        return None

    def query_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that ``features_at`` alone uses: the critic trains them, whoever trains the others."""
        yield from ()


class MemoryConfig(Config, ABC):
    """Describes a memory. ``cicpe.beliefs.network.memories.registry`` finds the class by its ``kind``."""

    holds_function: ClassVar[bool] = False
    """Whether it builds a ``FunctionMemory``."""

    kind: str

    @abstractmethod
    def build(self, dims: Dims) -> Memory:
        """The memory that this describes."""


class FunctionMemory(Memory):
    """A memory that holds a posterior over the observed function, which actors may look at."""

    probes_KQ: Tensor
    """Where ``MemoryFeatures.function_mean`` and ``function_std`` are given, in unit coordinates."""

    @abstractmethod
    def predict(
        self, state: State, query_BKQ: Float[Tensor, "batch candidate query"]
    ) -> tuple[Float[Tensor, "batch candidate"], Float[Tensor, "batch candidate"]]:
        """Mean and standard deviation of the function at candidate queries, for a stepping state (P = 1)."""

    @abstractmethod
    def features_near_probes(
        self, state: State, memory_features: MemoryFeatures
    ) -> Float[Tensor, "batch prefix probe near_features"]:
        """What ``features_near`` says of every probe, from what was read already.

        Args:
            state: The state of the histories.
            memory_features: What ``features`` says of the histories.

        Returns:
            ``width_near`` features per probe.
        """

    @abstractmethod
    def sample_probes(self, state: State, rng: Generator) -> Float[Tensor, "batch probe"]:
        """One function drawn from the posterior of a stepping state, at the probes."""
