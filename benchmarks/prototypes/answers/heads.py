"""Observation heads: how a network's outputs become a probability of an observation.

An observation has Y entries, and every entry gets the head that a pilot of simulated observations asks for:
two values get a logit, a few values a softmax, whole numbers a discretised mixture, and real numbers either a
Gaussian whose mean may have unknown linear effects (integrated out in closed form) or a mixture of
logistic components, which has heavier tails. Given the candidate answer and the code, entries are independent.

Every head describes its evidence by *statistics* that add up over observations, so that a candidate keeps
running sums and a new observation is scored once. For all but the linear-effects head the only statistic is the
log-likelihood itself.

Shapes: B episodes, N candidates, K codes, P head parameters, Y observation entries, S statistics, J outcomes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

MOST_CATEGORIES = 12
"""Entries with at most this many different values in the pilot are categories."""
LOG_2PI = math.log(2 * math.pi)


class Head(ABC):
    """The distribution of one entry of an observation."""

    parameters: int
    """How many network outputs it takes."""
    statistics: int = 1
    """How many numbers a candidate keeps for it."""
    discrete: int | None = None
    """The number of outcomes where they can be listed."""

    @abstractmethod
    def encode(self, value: Tensor) -> Tensor:
        """The entry as the head works with it, for example standardised."""

    @abstractmethod
    def evidence(self, parameters: Float[Tensor, "*batch P"], encoded: Tensor) -> Float[Tensor, "*batch S"]:
        """The statistics of one encoded observation; they add up over observations."""

    def log_likelihood(self, sums: Float[Tensor, "*batch S"]) -> Tensor:
        """The log-likelihood of everything whose statistics were added up."""
        return sums[..., 0]

    def predictive(
        self, parameters: Float[Tensor, "*batch P"], sums: Float[Tensor, "*batch S"]
    ) -> Float[Tensor, "*batch P"]:
        """Head parameters of the next observation, with what the sums tell about it taken in."""
        return parameters

    def simplified(self, parameters: Float[Tensor, "*batch P"]) -> tuple["Head", Tensor]:
        """A head that is quick to evaluate and near enough for comparing queries, with its parameters."""
        return self, parameters

    @abstractmethod
    def outcomes(self, parameters: Float[Tensor, "*batch P"], uniform: Tensor) -> Tensor:
        """Encoded observations at the given quantile-like numbers in (0, 1), two for each draw."""

    @abstractmethod
    def log_density(self, parameters: Float[Tensor, "*batch P"], encoded: Tensor) -> Tensor:
        """Log probability (density) of an encoded entry under predictive parameters."""


@final
class BinaryHead(Head):
    """Two values, by the logit of the larger."""

    parameters = 1
    discrete = 2

    def __init__(self, values: Sequence[float]) -> None:
        self.values = tuple(values)

    def encode(self, value: Tensor) -> Tensor:
        return (value > (self.values[0] + self.values[1]) / 2).float()

    def evidence(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        return self.log_density(parameters, encoded)[..., None]

    def log_density(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        return functional.logsigmoid(parameters[..., 0] * (2 * encoded - 1))

    def outcomes(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        return (uniform[..., 0] < torch.sigmoid(parameters[..., 0])).float()


@final
class CategoricalHead(Head):
    """A few values, by a softmax over those that the pilot showed. Others count as the nearest seen value."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = torch.tensor(sorted(values))
        self.parameters = len(self.values)
        self.discrete = len(self.values)

    def encode(self, value: Tensor) -> Tensor:
        return (value[..., None] - self.values).abs().argmin(dim=-1).float()

    def evidence(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        return self.log_density(parameters, encoded)[..., None]

    def log_density(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        one_hot = (encoded[..., None] == torch.arange(self.parameters)).to(parameters)
        return (parameters * one_hot).sum(dim=-1) - parameters.logsumexp(dim=-1)

    def outcomes(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        share = parameters.softmax(dim=-1).cumsum(dim=-1)
        return (uniform[..., :1] > share[..., :-1]).sum(dim=-1).float()


class _Scaled(Head):
    """A numeric entry: optionally square-rooted or squeezed by asinh, then standardised.

    A fixed one-to-one transformation multiplies every candidate's likelihood by the same factor.
    """

    def __init__(self, pilot: Tensor, transform: str) -> None:
        self.transform = transform
        quartiles = torch.quantile(pilot[:100_000].double(), torch.tensor([0.25, 0.5, 0.75]).double())
        self.middle = float(quartiles[1])
        self.width = max(float(quartiles[2] - quartiles[0]), 1e-3 * float(pilot.std()), 1e-12)
        moved = self._moved(pilot)
        self.centre, self.spread = float(moved.mean()), max(float(moved.std()), 1e-12)

    def _moved(self, value: Tensor) -> Tensor:
        if self.transform == "root":
            return (value.clamp_min(0) + 0.375).sqrt()
        if self.transform == "asinh":
            return torch.asinh((value - self.middle) / self.width)
        return value

    def encode(self, value: Tensor) -> Tensor:
        return (self._moved(value) - self.centre) / self.spread


@final
class GaussianHead(_Scaled):
    """A real entry: y = mean + effects . w + noise, with w ~ N(0, I) unknown and integrated out.

    The parameters are the mean, the log spread of the noise and R effects. The statistics are the natural
    parameters of w's posterior: they add up, and the likelihood follows from them in closed form,
    log p = s - (log det A - b' A^-1 b) / 2 with A = I + sum f f' / v, b = sum f e / v and e = y - mean.
    """

    def __init__(self, pilot: Tensor, transform: str = "none", effects: int = 0) -> None:
        super().__init__(pilot, transform)
        self.effects = effects
        self.parameters = 2 + effects
        self.statistics = 1 + effects + effects * (effects + 1) // 2
        self.rows, self.columns = torch.tril_indices(effects, effects)

    def _parts(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return parameters[..., 0], parameters[..., 1].clamp(-7.0, 3.0), parameters[..., 2:]

    def evidence(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        mean, log_spread, effects = self._parts(parameters)
        error = (encoded - mean) * torch.exp(-log_spread)
        own = -0.5 * error.square() - log_spread - 0.5 * LOG_2PI
        if self.effects == 0:
            return own[..., None]
        scaled = effects * torch.exp(-log_spread)[..., None]
        pairs = scaled[..., self.rows] * scaled[..., self.columns]
        return torch.cat([own[..., None], scaled * error[..., None], pairs], dim=-1)

    def _posterior(self, sums: Tensor) -> tuple[list[list[Tensor]], list[Tensor], Tensor]:
        """The Cholesky factor L of A, the solution of L u = b, and half the log determinant of A."""
        r = self.effects
        b, packed = sums[..., 1 : 1 + r], sums[..., 1 + r :]
        factor: list[list[Tensor]] = []
        solved: list[Tensor] = []
        half_log_det = torch.zeros_like(sums[..., 0])
        place = 0
        for i in range(r):
            row: list[Tensor] = []
            for j in range(i + 1):
                entry = packed[..., place] + (1.0 if i == j else 0.0)
                place += 1
                for m in range(j):
                    entry = entry - row[m] * (row if i == j else factor[j])[m]
                row.append(entry.clamp_min(1e-6).sqrt() if i == j else entry / factor[j][j])
            factor.append(row)
            rest = b[..., i]
            for m in range(i):
                rest = rest - row[m] * solved[m]
            solved.append(rest / row[i])
            half_log_det = half_log_det + row[i].log()
        return factor, solved, half_log_det

    def log_likelihood(self, sums: Tensor) -> Tensor:
        if self.effects == 0:
            return sums[..., 0]
        _, solved, half_log_det = self._posterior(sums)
        return sums[..., 0] - half_log_det + 0.5 * sum(u.square() for u in solved)

    def predictive(self, parameters: Tensor, sums: Tensor) -> Tensor:
        if self.effects == 0:
            return parameters
        mean, log_spread, effects = self._parts(parameters)
        factor, solved, _ = self._posterior(sums)
        towards: list[Tensor] = []
        variance = torch.exp(2 * log_spread)
        for i in range(self.effects):
            rest = effects[..., i]
            for m in range(i):
                rest = rest - factor[i][m] * towards[m]
            towards.append(rest / factor[i][i])
            mean = mean + towards[i] * solved[i]
            variance = variance + towards[i].square()
        return torch.stack([mean, 0.5 * variance.log()], dim=-1)

    def log_density(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        mean, log_spread = parameters[..., 0], parameters[..., 1].clamp(-7.0, 3.0)
        error = (encoded - mean) * torch.exp(-log_spread)
        return -0.5 * error.square() - log_spread - 0.5 * LOG_2PI

    def outcomes(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        z = torch.special.ndtri(uniform[..., 0].double().clamp(1e-6, 1 - 1e-6)).to(parameters)
        return parameters[..., 0] + torch.exp(parameters[..., 1].clamp(-7.0, 3.0)) * z


@final
class MixtureHead(_Scaled):
    """A real or whole-number entry by a mixture of logistic components, discretised for whole numbers."""

    def __init__(self, pilot: Tensor, transform: str = "none", whole: bool = False, components: int = 3) -> None:
        super().__init__(pilot, transform)
        self.whole = whole
        self.components = components
        self.parameters = 3 * components
        self.start = torch.linspace(-1.0, 1.0, components)

    def encode(self, value: Tensor) -> Tensor:
        return value if self.whole else super().encode(value)

    def _parts(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        share, mean, log_scale = parameters.unflatten(-1, (3, self.components)).unbind(dim=-2)
        return functional.log_softmax(share, dim=-1), mean, log_scale.clamp(-7.0, 3.0)

    def evidence(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        return self.log_density(parameters, encoded)[..., None]

    def log_density(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        share, mean, log_scale = self._parts(parameters)
        if not self.whole:
            z = (encoded[..., None] - mean) * torch.exp(-log_scale)
            return (share - z.abs() - log_scale - 2 * functional.softplus(-z.abs())).logsumexp(dim=-1)
        upper = (super().encode(encoded + 0.5)[..., None] - mean) * torch.exp(-log_scale)
        lower = (super().encode(encoded - 0.5)[..., None] - mean) * torch.exp(-log_scale)
        lower = torch.where(encoded[..., None] <= 0, torch.full_like(lower, -1e4), lower)
        # log of a difference of sigmoids: sigmoid(u) sigmoid(-l) (1 - exp(l - u))
        gap = (upper - lower).clamp_min(1e-6)
        inside = functional.logsigmoid(upper) + functional.logsigmoid(-lower) + torch.log(-torch.expm1(-gap))
        return (share + inside).logsumexp(dim=-1)

    def simplified(self, parameters: Tensor) -> tuple[Head, Tensor]:
        """One Gaussian. Its spread is a geometric mean, so that a rare wide component does not set it."""
        log_share, mean, log_scale = self._parts(parameters)
        share = log_share.exp()
        middle = (share * mean).sum(dim=-1)
        between = (share * (mean - middle[..., None]).square()).sum(dim=-1)
        within = (1.8 * (share * log_scale).sum(dim=-1).exp()).square()  # a logistic's deviation is 1.8 scales
        if self.whole:
            # What lies between two whole numbers cannot be seen: nothing below zero, nothing within half a step.
            root = (middle * self.spread + self.centre).clamp_min(0.375**0.5)
            middle = (root - self.centre) / self.spread
            within = within + (0.25 / root / self.spread).square()
        return NORMAL, torch.stack([middle, 0.5 * (between + within).log()], dim=-1)

    def outcomes(self, parameters: Tensor, uniform: Tensor) -> Tensor:
        share, mean, log_scale = self._parts(parameters)
        chosen = (uniform[..., :1] > share.exp().cumsum(dim=-1)[..., :-1]).sum(dim=-1, keepdim=True)
        mean, log_scale = mean.gather(-1, chosen)[..., 0], log_scale.gather(-1, chosen)[..., 0]
        value = mean + log_scale.exp() * torch.logit(uniform[..., 1].clamp(1e-6, 1 - 1e-6))
        if not self.whole:
            return value
        root = (value * self.spread + self.centre).clamp_min(0)
        return (root.square() - 0.375 if self.transform == "root" else root).round().clamp_min(0)


NORMAL = GaussianHead(torch.tensor([-1.0, 1.0]))
"""A Gaussian for entries that are encoded already."""


@final
class Heads:
    """One head an entry, treated as a single head for whole observations."""

    def __init__(self, heads: Sequence[Head]) -> None:
        self.heads = tuple(heads)
        self.parameters = sum(head.parameters for head in heads)
        self.statistics = sum(head.statistics for head in heads)
        self._parameter_sizes = [head.parameters for head in heads]
        self._statistic_sizes = [head.statistics for head in heads]

    @property
    def plain(self) -> bool:
        """Whether the only statistic of every head is its log-likelihood."""
        return self.statistics == len(self.heads)

    @property
    def kept(self) -> int:
        """How many numbers a candidate keeps: one where the statistics are log-likelihoods."""
        return 1 if self.plain else self.statistics

    def encode(self, observation: Float[Tensor, "*batch Y"]) -> Float[Tensor, "*batch Y"]:
        """Every entry as its head works with it."""
        return torch.stack([head.encode(observation[..., y]) for y, head in enumerate(self.heads)], dim=-1)

    def evidence(self, parameters: Float[Tensor, "*batch P"], encoded: Tensor) -> Float[Tensor, "*batch S"]:
        """Statistics of encoded observations; they add up over observations."""
        parts = parameters.split(self._parameter_sizes, dim=-1)
        found = [
            head.evidence(part, encoded[..., y]) for y, (head, part) in enumerate(zip(self.heads, parts, strict=True))
        ]
        if self.plain:
            return sum(found[1:], found[0])
        return torch.cat(found, dim=-1)

    def log_likelihood(self, sums: Float[Tensor, "*batch S"]) -> Tensor:
        """The log-likelihood that running sums amount to."""
        if self.plain:
            return sums[..., 0]
        parts = sums.split(self._statistic_sizes, dim=-1)
        return sum(head.log_likelihood(part) for head, part in zip(self.heads, parts, strict=True))

    def predictive(self, parameters: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
        """For each entry, the head parameters of the next observation given the sums."""
        parts = parameters.split(self._parameter_sizes, dim=-1)
        if self.plain:
            return parts
        kept = sums.split(self._statistic_sizes, dim=-1)
        return tuple(head.predictive(part, own) for head, part, own in zip(self.heads, parts, kept, strict=True))

    def simplified(self, predictive: Sequence[Tensor]) -> tuple["Heads", tuple[Tensor, ...]]:
        """Heads that are quick to evaluate, for comparing queries, with their predictive parameters."""
        pairs = [head.simplified(part) for head, part in zip(self.heads, predictive, strict=True)]
        return Heads([head for head, _ in pairs]), tuple(part for _, part in pairs)

    def log_density(self, predictive: Sequence[Tensor], encoded: Tensor) -> Tensor:
        """Log density of encoded observations under predictive parameters."""
        return sum(
            head.log_density(p, encoded[..., y]) for y, (head, p) in enumerate(zip(self.heads, predictive, strict=True))
        )

    def outcomes(self, predictive: Sequence[Tensor], uniform: Float[Tensor, "*batch Y 2"]) -> Tensor:
        """Encoded observations drawn with given uniform numbers."""
        drawn = [
            head.outcomes(p, uniform[..., y, :]) for y, (head, p) in enumerate(zip(self.heads, predictive, strict=True))
        ]
        return torch.stack(drawn, dim=-1)

    def listed(self, most: int = 16) -> Float[Tensor, "J Y"] | None:
        """All outcomes, encoded, where there are at most ``most``; else None."""
        counts = [head.discrete for head in self.heads]
        if any(count is None for count in counts) or math.prod(counts) > most:  # type: ignore[arg-type]
            return None
        return torch.cartesian_prod(*[torch.arange(count).float() for count in counts]).reshape(-1, len(counts))


def choose_heads(pilot: Float[Tensor, "n Y"], effects: int = 0, tails: bool = False) -> Heads:
    """The heads that a pilot of observations asks for.

    ``effects`` is the number of unknown linear effects of real entries; with ``tails`` real entries get a mixture.
    """
    return Heads([_choose(entry, effects, tails) for entry in pilot.unbind(dim=-1)])


def has_real_entries(pilot: Float[Tensor, "n Y"]) -> bool:
    """Whether some entry is neither two-valued, categorical nor a whole number."""
    return any(isinstance(_choose(entry, 0, False), GaussianHead) for entry in pilot.unbind(dim=-1))


def _choose(entry: Tensor, effects: int, tails: bool) -> Head:
    values = entry.unique()
    if len(values) == 1:
        values = torch.cat([values, values + 1])
    if len(values) == 2:
        return BinaryHead(values.tolist())
    if len(values) <= MOST_CATEGORIES:
        return CategoricalHead(values.tolist())
    if bool((entry == entry.round()).all()) and float(values[0]) >= 0:
        return MixtureHead(entry, "root", whole=True)
    quartiles = torch.quantile(entry[:100_000].double(), torch.tensor([0.25, 0.5, 0.75]).double())
    width = float(quartiles[2] - quartiles[0])
    extreme = float((entry - quartiles[1]).abs().max()) > 25 * max(width, 1e-12)
    transform = "asinh" if extreme else "none"
    return MixtureHead(entry, transform) if tails else GaussianHead(entry, transform, effects)
