"""What a guarantee under the training prior is worth under another one.

A frozen agent has two profiles over tasks: s(theta), its probability of success, and t(theta), its mean number
of queries. Under a prior they average to p and T; under another prior to p' and T'. The functions below bound p'
from below and T' from above, each by another distance between the two priors. A bound that says nothing comes
out as 0 (or the horizon, or infinity): a distance may be infinite.

``BetaShift`` has these distances in closed form where a coordinate is uniform in training and Beta(alpha, beta)
in deployment, independently for each of several coordinates.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betainc, betaln, digamma, xlogy

from cicpe.errors import InvalidInput

# --- success ----------------------------------------------------------------------------------------


def density_ratio_success(success: float, density_ratio: float) -> float:
    """p' >= 1 - C (1 - p), with C the largest value of d nu' / d nu."""
    return _at_least_zero(1 - density_ratio * (1 - success)) if math.isfinite(density_ratio) else 0.0


def chi_square_success(success: float, chi_square: float, variance: float | None = None) -> float:
    """p' >= p - sqrt(chi^2 Var s). Where the variance of s is not known, 1 - p is above it."""
    spread = 1 - success if variance is None else variance
    return _at_least_zero(success - math.sqrt(chi_square * spread)) if math.isfinite(chi_square) else 0.0


def total_variation_success(success: float, total_variation: float) -> float:
    """p' >= p - TV; the priors may have different supports."""
    return _at_least_zero(success - total_variation)


def pinsker_success(success: float, divergence: float) -> float:
    """p' >= p - sqrt(KL / 2), for the Kullback-Leibler divergence in either direction."""
    return _at_least_zero(success - math.sqrt(divergence / 2))


def good_set_success(eta: float, mass: float) -> float:
    """p' >= (1 - eta) nu'(G), where s >= 1 - eta on G."""
    return (1 - eta) * mass


# --- queries ----------------------------------------------------------------------------------------


def density_ratio_queries(queries: float, density_ratio: float) -> float:
    """T' <= C T."""
    return density_ratio * queries


def chi_square_queries(queries: float, chi_square: float, variance: float) -> float:
    """T' <= T + sqrt(chi^2 Var t)."""
    return queries + math.sqrt(chi_square * variance) if math.isfinite(chi_square) else math.inf


def total_variation_queries(queries: float, total_variation: float, horizon: float) -> float:
    """T' <= T + T_max TV, where no episode takes more than T_max queries."""
    return queries + horizon * total_variation


def fast_set_queries(fast: float, mass_outside: float, horizon: float) -> float:
    """T' <= tau + (T_max - tau) nu'(not F), where t <= tau on F."""
    return fast + (horizon - fast) * mass_outside


def _at_least_zero(bound: float) -> float:
    return max(0.0, bound)


def _exponential(power: float, minus_one: bool = False) -> float:
    """e^power, or infinity where that is too large for a number."""
    if power > 700:
        return math.inf
    return math.expm1(power) if minus_one else math.exp(power)


# --- Beta against uniform ---------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class BetaShift:
    """Deployment Beta(alpha, beta) against training Uniform(0, 1), in each of ``coordinates`` independent ones."""

    alpha: float
    beta: float
    coordinates: int = 1

    def __post_init__(self) -> None:
        for field in ("alpha", "beta"):
            value = getattr(self, field)
            if not 0 < value < math.inf:
                raise InvalidInput(field, value, "a positive number")
        if self.coordinates < 1:
            raise InvalidInput("coordinates", self.coordinates, "a whole number of at least 1")

    def log_ratio(self, unit: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """log d nu' / d nu at points of [0, 1]^k (last axis)."""
        return np.asarray(self._log_density(np.asarray(unit, dtype=np.float64)).sum(axis=-1))

    def _log_density(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        powers = xlogy(self.alpha - 1, x) + xlogy(self.beta - 1, 1 - x)
        return np.asarray(powers - betaln(self.alpha, self.beta))

    @property
    def _bend(self) -> float | None:
        """Where the density has its mode (or its lowest point); None where it rises or falls all the way."""
        a, b = self.alpha - 1, self.beta - 1
        return a / (a + b) if a * b > 0 else None

    @property
    def density_ratio(self) -> float:
        """C, the largest density ratio: finite if and only if alpha and beta are at least 1."""
        if min(self.alpha, self.beta) < 1:
            return math.inf
        return _exponential(self.coordinates * self._log_extreme)

    @property
    def _log_extreme(self) -> float:
        a, b = self.alpha - 1, self.beta - 1
        place = a / (a + b) if a + b != 0 else 0.5
        return float(self._log_density(np.float64(place)))  # type: ignore[arg-type]

    @property
    def chi_square(self) -> float:
        """B(2 alpha - 1, 2 beta - 1) / B(alpha, beta)^2 - 1; infinite unless both are above 1/2."""
        a, b = self.alpha, self.beta
        if min(a, b) <= 0.5:
            return math.inf
        log_moment = float(betaln(2 * a - 1, 2 * b - 1) - 2 * betaln(a, b))
        return max(0.0, _exponential(self.coordinates * log_moment, minus_one=True))

    @property
    def divergence(self) -> float:
        """KL(Beta || uniform) = (a - 1)(psi(a) - psi(a + b)) + (b - 1)(psi(b) - psi(a + b)) - log B(a, b)."""
        a, b = self.alpha, self.beta
        mean_log, mean_log_rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        per_coordinate = (a - 1) * mean_log + (b - 1) * mean_log_rest - betaln(a, b)
        return self.coordinates * max(0.0, float(per_coordinate))

    @property
    def reversed_divergence(self) -> float:
        """KL(uniform || Beta) = log B(a, b) + a + b - 2."""
        a, b = self.alpha, self.beta
        return self.coordinates * max(0.0, float(betaln(a, b)) + a + b - 2)

    @property
    def total_variation(self) -> float:
        """The total variation distance; for several coordinates a bound from above.

        In one coordinate it is the difference of the two distribution functions between the points at which the
        densities cross. For k, independent couplings give 1 - (1 - TV)^k and the Bhattacharyya coefficient
        B((a + 1) / 2, (b + 1) / 2) / sqrt(B(a, b)) to the power k gives sqrt(1 - BC^2): the smaller is taken.
        """
        crossings = self._crossings()
        excess = betainc(self.alpha, self.beta, crossings) - crossings
        per_coordinate = float(abs(np.diff(excess)[0])) if len(crossings) == 2 else float(abs(excess).max(initial=0.0))
        if self.coordinates == 1:
            return per_coordinate
        a, b = self.alpha, self.beta
        log_affinity = float(betaln((a + 1) / 2, (b + 1) / 2) - betaln(a, b) / 2)
        by_affinity = math.sqrt(max(0.0, -math.expm1(2 * self.coordinates * log_affinity)))
        return min(1 - (1 - per_coordinate) ** self.coordinates, by_affinity)

    def _crossings(self) -> npt.NDArray[np.float64]:
        """Where the Beta density is 1: once where it is monotone, else twice."""
        ends = [np.nextafter(0, 1), 1 - np.finfo(float).epsneg]
        bend = self._bend
        pieces = [(ends[0], ends[1])] if bend is None else [(ends[0], bend), (bend, ends[1])]

        def height(x: float) -> float:
            return float(self._log_density(np.float64(x)))  # type: ignore[arg-type]

        crossings = [brentq(height, low, high, xtol=1e-15) for low, high in pieces if height(low) * height(high) < 0]
        return np.array(crossings)
