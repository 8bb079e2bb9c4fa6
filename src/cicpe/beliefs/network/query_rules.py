"""Actor rules: which query to make next, given the belief."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe.beliefs.network.memories.base import FunctionMemory
from cicpe.beliefs.network.network import Network, NetworkOutput
from cicpe.beliefs.sampling import top_two
from cicpe.errors import InvalidInput
from cicpe.spaces import Space
from cicpe.statistics import first_of_best

ActorName = Literal["ts", "ttps", "ucb", "fts", "td3", "search", "acquisition", "uniform"]
REFINEMENTS = 8
"""Points around the best probe that the optimist compares."""
CANDIDATES = 32
"""Queries that a search compares."""
REACHES = (0.1, 0.02)
"""How far around the best candidate an acquisition looks for a better one, round by round, in unit coordinates."""
CENTRAL = 1e-3
"""Probes whose distances from the centre differ by less, in unit coordinates, are as central."""


class Aim(NamedTuple):
    """The epsilon and the cost at which an actor looks at values.

    One for all episodes: calibration plays an episode once and judges it at every epsilon.
    """

    epsilon: float = 0.1
    cost: float = 0.01


class Actor(ABC):
    """Proposes a query for every episode from its belief (one prefix each)."""

    @abstractmethod
    def propose(
        self, output: NetworkOutput, rng: Generator, query_spread: Tensor | float
    ) -> Float[Tensor, "batch query"]:
        """Proposes a query per episode.

        Args:
            output: What the network makes of each history, at one prefix.
            rng: Draws what is random in the rule.
            query_spread: Multiplies the spread of the rule's own draws: 0 is greedy, 1 as sampled.

        Returns:
            A query per episode, in the query space.
        """


@final
@dataclass(frozen=True)
class Thompson(Actor):
    """A ~ I(. | h): query a plausible target (greedy: the recommendation). Needs X = A."""

    query_space: Space

    def propose(
        self, output: NetworkOutput, rng: Generator, query_spread: Tensor | float
    ) -> Float[Tensor, "batch query"]:
        draw = output.posterior.sample(rng, query_spread)[:, 0]
        return self.query_space.project(draw)


@final
@dataclass(frozen=True)
class TopTwo(Actor):
    """Top-two posterior sampling: half of the time, a challenger of a draw that lies too close to the mean."""

    query_space: Space

    def propose(
        self, output: NetworkOutput, rng: Generator, query_spread: Tensor | float
    ) -> Float[Tensor, "batch query"]:
        draws = torch.stack([output.posterior.sample(rng, query_spread)[:, 0] for _ in range(3)])
        mean = output.posterior.recommendation[:, 0]
        return self.query_space.project(top_two(self.query_space, draws, mean, rng))


@final
@dataclass(frozen=True)
class Uniform(Actor):
    """Uniform over the query space: the control that isolates what active querying buys."""

    query_space: Space

    def propose(
        self, output: NetworkOutput, rng: Generator, query_spread: Tensor | float
    ) -> Float[Tensor, "batch query"]:
        return self.query_space.sample(output.posterior.recommendation.shape[0], rng)


@final
@dataclass(frozen=True)
class Optimist(Actor):
    """Upper confidence bound: the largest mean + spread x std of the memory's function, refined between probes.

    It needs no training of its own and works where queries and answers differ. Of probes that are as good, the most
    central one is taken.
    """

    query_space: Space
    memory: FunctionMemory

    @cached_property
    def _from_the_centre(self) -> Int[Tensor, " probe"]:
        """The probes by their distance from the centre, on a scale so coarse that every processor agrees on it."""
        away_K = torch.linalg.vector_norm(self.memory.probes_KQ.double(), dim=-1)
        order_K: Tensor = (away_K / CENTRAL).round().argsort(stable=True)
        return order_K

    def propose(
        self, output: NetworkOutput, rng: Generator, query_spread: Tensor | float
    ) -> Float[Tensor, "batch query"]:
        mean, std = output.memory_features.function_mean, output.memory_features.function_std
        assert mean is not None
        assert std is not None
        weight = query_spread if isinstance(query_spread, float) else query_spread.view(-1, 1)
        order_K = self._from_the_centre
        best = order_K[first_of_best((mean[:, 0] + weight * std[:, 0])[:, order_K])]
        return _refined(self, output, self.memory.probes_KQ[best].float(), rng, weight)


@final
@dataclass(frozen=True)
class FunctionThompson(Actor):
    """Thompson sampling of functions: the highest probe of one function drawn from the memory's posterior."""

    query_space: Space
    memory: FunctionMemory

    def propose(
        self, output: NetworkOutput, rng: Generator, query_spread: Tensor | float
    ) -> Float[Tensor, "batch query"]:
        drawn = self.memory.sample_probes(output.state.inference, rng)
        unit = self.memory.probes_KQ[drawn.argmax(dim=-1)].float()
        return self.query_space.project(self.query_space.from_unit(unit))


def _refined(actor: Optimist, output: NetworkOutput, unit: Tensor, rng: Generator, weight: Tensor | float) -> Tensor:
    """The best of a few points around a probe and the probe itself, by the same bound.

    The probe comes last: where all are as good, queries of different episodes differ, as they did in training.
    """
    reach, space = 1.0 / len(actor.memory.probes_KQ) ** (1 / unit.shape[-1]), actor.query_space
    candidates = _around(space, unit, reach, rng)
    mean, std = actor.memory.predict(output.state.inference, space.to_unit(candidates))
    return candidates[torch.arange(len(unit)), first_of_best(mean + weight * std)]


@final
@dataclass(frozen=True, eq=False)
class Learned(Actor):
    """TD3: the query of the network's own actor, with exploration noise of ``query_spread`` times its spread."""

    network: Network
    aim: Aim

    def propose(
        self, output: NetworkOutput, rng: Generator, query_spread: Tensor | float
    ) -> Float[Tensor, "batch query"]:
        policy = self.network.policy(output, _features(self.network, output, self.aim))
        noise = torch.randn(policy.mean_unit.shape, generator=rng)
        assert self.network.actor is not None
        return self.network.actor.draw(policy, noise, query_spread)[:, 0]


@final
@dataclass(frozen=True, eq=False)
class Search(Actor):
    """The most valuable of a few candidate queries, by the critic (the smaller of its twins).

    Candidates are plausible answers where X = A, places where the memory's function may be high, and
    uniform points. Above 0, ``query_spread`` is the temperature of a draw by value, in units of the values'
    own spread. With a critic that tells queries apart by what they gain, and with rounds that look for better ones
    around the best, it is a learned acquisition function.
    """

    network: Network
    aim: Aim
    reaches: tuple[float, ...] = ()
    """How far around the best candidate each round looks, in unit coordinates."""

    def propose(
        self, output: NetworkOutput, rng: Generator, query_spread: Tensor | float
    ) -> Float[Tensor, "batch query"]:
        candidates = self._candidates(output, rng)
        value = self._values(output, candidates)
        # The highest of value plus Gumbel noise is a draw from the softmax of the value.
        gumbel = -torch.empty_like(value).exponential_(generator=rng).log()
        spread = query_spread if isinstance(query_spread, float) else query_spread.view(-1, 1)
        temperature = spread * value.std(dim=1, keepdim=True)
        best = candidates[torch.arange(len(value)), first_of_best(value + temperature * gumbel)]
        for reach in self.reaches:
            around = _around(self.network.query_space, self.network.query_space.to_unit(best), reach, rng)
            best = around[torch.arange(len(best)), first_of_best(self._values(output, around))]
        return best

    def _values(
        self, output: NetworkOutput, candidates: Float[Tensor, "batch candidate query"]
    ) -> Float[Tensor, "batch candidate"]:
        """The value of each candidate, by the smaller of the twins."""
        n, many = candidates.shape[:2]
        # Each candidate is a prefix of its own: the same history, seen from another query.
        repeated = torch.zeros((n, many), dtype=torch.long)
        seen = output._replace(
            state=output.state.at_prefixes(repeated), critic_features=output.critic_features.at_prefixes(repeated)
        )
        features = _features(self.network, output, self.aim).expand(-1, many, -1)
        cost = torch.full((n,), self.aim.cost)
        return self.network.continue_values(seen.state, seen, features, candidates, cost).amin(dim=-1)

    def _candidates(self, output: NetworkOutput, rng: Generator) -> Float[Tensor, "batch candidate query"]:
        space = self.network.query_space
        parts: list[Tensor] = []
        if space == self.network.answer_space:
            spreads = (0.0, *[0.5] * 7, *[1.0] * 8, *[2.0] * 4)
            parts.append(space.project(torch.cat([output.posterior.sample(rng, s) for s in spreads], dim=1)))
        mean, std = output.memory_features.function_mean, output.memory_features.function_std
        memory = self.network.memory
        if isinstance(memory, FunctionMemory) and mean is not None and std is not None:
            room = (CANDIDATES - sum(part.shape[1] for part in parts)) // 2
            best = (mean[:, 0] + 2 * std[:, 0]).topk(min(room, mean.shape[-1]), dim=-1).indices
            parts.append(space.project(space.from_unit(memory.probes_KQ.float()[best])))
        n, left = len(output.state.prefix_BP), CANDIDATES - sum(part.shape[1] for part in parts)
        return torch.cat([*parts, space.sample(n * left, rng).view(n, left, -1)], dim=1)


def _around(
    space: Space, unit: Float[Tensor, "batch query"], reach: float, rng: Generator
) -> Float[Tensor, "batch candidate query"]:
    """A few queries around a place in unit coordinates, which comes last itself."""
    jitter = reach * torch.randn((len(unit), REFINEMENTS, unit.shape[-1]), generator=rng)
    jitter[:, -1] = 0
    return space.project(space.from_unit(unit[:, None] + jitter))


def _features(network: Network, output: NetworkOutput, aim: Aim) -> Tensor:
    epsilon = torch.full((len(output.state.prefix_BP),), aim.epsilon)
    return network.goal_features(output.state, output, epsilon)


ANYWHERE = "uniform, ucb, fts, td3, search or acquisition"


def make_actor(
    name: ActorName, query_space: Space, answer_space: Space, network: Network | None = None, aim: Aim | None = None
) -> Actor:
    """Makes a query rule by its name.

    Args:
        name: The rule.
        query_space: Where queries lie.
        answer_space: Where answers lie; ts and ttps need it to be the query space.
        network: What rules that read a memory's function (ucb, fts) or values (td3, search, acquisition) look at.
        aim: The epsilon and the cost at which values are read.

    Returns:
        The rule.

    Raises:
        InvalidInput: The spaces or the network do not allow that rule.
    """
    match name:
        case "uniform":
            return Uniform(query_space)
        case "ucb" | "fts":
            memory = None if network is None else network.memory
            if not isinstance(memory, FunctionMemory):
                raise InvalidInput("actor", name, "ts, ttps or uniform: ucb and fts need the regression memory")
            return Optimist(query_space, memory) if name == "ucb" else FunctionThompson(query_space, memory)
        case "td3" | "search" | "acquisition":
            if network is None or (name == "td3" and network.actor is None):
                raise InvalidInput("actor", name, f"a rule without a network of its own: {name} needs a trained one")
            if name == "search":
                return Search(network, aim or Aim())
            if name == "acquisition":
                return Search(network, aim or Aim(), REACHES)
            assert network.actor is not None
            if network.actor.config.gaussian and query_space != answer_space:
                why = "a Gaussian actor imitates the posterior, so both spaces must be one"
                raise InvalidInput("actor", name, f"used with actor_kl = 0: {why}")
            return Learned(network, aim or Aim())
        case "ts" | "ttps":
            if query_space != answer_space:
                why = "ts and ttps query plausible answers, so both spaces must be one"
                raise InvalidInput("actor", name, f"one of {ANYWHERE}: {why}")
            return Thompson(query_space) if name == "ts" else TopTwo(query_space)
    raise InvalidInput("actor", name, f"one of ts, ttps, {ANYWHERE}")
