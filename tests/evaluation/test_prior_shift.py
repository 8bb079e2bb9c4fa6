"""Prior shift: the closed forms against quadrature, and the bounds against agents whose profiles are known."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta as beta_law

from cicpe.errors import InvalidInput
from cicpe.evaluation.prior_shift import (
    BetaShift,
    chi_square_queries,
    chi_square_success,
    density_ratio_queries,
    density_ratio_success,
    fast_set_queries,
    good_set_success,
    pinsker_success,
    total_variation_queries,
    total_variation_success,
)

VALUES = (0.5, 0.75, 1.0, 1.2, 3.0, 5.0, 7.0)
PAIRS = [(a, b) for a in VALUES for b in VALUES]


def integral(function: Callable[[float], float], breaks: tuple[float, ...] = ()) -> float:
    """Over [0, 1], in pieces; x = sin^2 takes the sting out of square-root poles at the ends."""
    edges = sorted({0.0, 0.5, 1.0, *breaks})
    total = 0.0
    for low, high in pairwise(edges):
        left, right = math.asin(math.sqrt(low)), math.asin(math.sqrt(high))
        total += quad(lambda v: function(math.sin(v) ** 2) * math.sin(2 * v), left, right, limit=400)[0]
    return total


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_closed_forms_agree_with_quadrature(a: float, b: float) -> None:
    shift, law = BetaShift(a, b), beta_law(a, b)

    def density(x: float) -> float:
        return float(law.pdf(min(max(x, 1e-300), 1 - 1e-16)))

    assert shift.divergence == pytest.approx(integral(lambda x: density(x) * math.log(density(x) or 1)), abs=1e-6)
    assert shift.reversed_divergence == pytest.approx(integral(lambda x: -math.log(max(density(x), 1e-300))), abs=1e-5)
    breaks = tuple(shift._crossings())
    assert shift.total_variation == pytest.approx(integral(lambda x: abs(density(x) - 1), breaks) / 2, abs=1e-6)
    if min(a, b) > 0.5:
        assert shift.chi_square == pytest.approx(integral(lambda x: density(x) ** 2) - 1, rel=1e-5, abs=1e-9)
    else:
        assert shift.chi_square == math.inf
    # A density on a fine grid that holds the ends.
    grid = law.pdf(np.linspace(0, 1, 20_001))
    if min(a, b) >= 1:
        assert shift.density_ratio == pytest.approx(grid.max(), rel=1e-6)
    else:
        assert shift.density_ratio == math.inf


@pytest.mark.parametrize("coordinates", [1, 6, 20])
def test_no_shift_is_no_distance(coordinates: int) -> None:
    none = BetaShift(1, 1, coordinates)
    assert none.density_ratio == pytest.approx(1)
    assert (none.chi_square, none.divergence, none.reversed_divergence, none.total_variation) == (0, 0, 0, 0)


@pytest.mark.parametrize(("a", "b"), [(0.75, 1), (1.2, 1.2), (3, 1), (3, 5), (0.75, 0.75)])
def test_products_over_two_coordinates(a: float, b: float) -> None:
    """Against a fine midpoint rule in the square, in coordinates that take the sting out of the poles."""
    n = 1500
    v = (np.arange(n) + 0.5) / n * math.pi / 2
    x, weight = np.sin(v) ** 2, np.sin(2 * v) * (math.pi / 2) / n
    density = beta_law(a, b).pdf(x)
    joint, area = np.outer(density, density), np.outer(weight, weight)
    shift = BetaShift(a, b, 2)
    assert shift.chi_square == pytest.approx(float((area * (joint - 1) ** 2).sum()), rel=1e-2, abs=1e-3)
    assert shift.divergence == pytest.approx(float((area * joint * np.log(joint)).sum()), rel=1e-3, abs=1e-4)
    assert shift.reversed_divergence == pytest.approx(float(-(area * np.log(joint)).sum()), rel=1e-3, abs=1e-4)
    exact = float((area * abs(joint - 1)).sum()) / 2
    assert BetaShift(a, b).total_variation <= exact + 1e-4
    assert exact <= shift.total_variation + 1e-4
    assert shift.total_variation <= 1.35 * exact  # not a loose bound
    if min(a, b) >= 1:
        assert shift.density_ratio == pytest.approx(BetaShift(a, b).density_ratio ** 2)


def test_total_variation_of_many_coordinates_stays_a_probability() -> None:
    for a, b in PAIRS:
        assert 0 <= BetaShift(a, b, 20).total_variation <= 1
        assert BetaShift(a, b, 20).total_variation >= BetaShift(a, b).total_variation


def test_log_ratio_is_the_density() -> None:
    points = np.random.default_rng(0).random((50, 3))
    expected = np.log(beta_law(3, 0.5).pdf(points)).sum(axis=-1)
    assert BetaShift(3, 0.5, 3).log_ratio(points) == pytest.approx(expected)


@pytest.mark.parametrize("bad", [{"alpha": 0}, {"beta": -1}, {"alpha": math.nan}, {"coordinates": 0}])
def test_bad_shifts_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        BetaShift(**({"alpha": 1, "beta": 1, "coordinates": 1} | bad))  # type: ignore[arg-type]


# --- the bounds, on profiles that are known ---------------------------------------------------------

HORIZON = 30.0
GRID = (np.arange(200_000) + 0.5) / 200_000
PROFILES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "bad at the low end": lambda x: np.where(x < 0.12, 0.3, 0.985),
    "bad in the middle": lambda x: 1 - 0.6 * np.exp(-(((x - 0.5) / 0.08) ** 2)),
    "smooth": lambda x: 0.8 + 0.2 * x,
    "even": lambda x: np.full_like(x, 0.92),
}


def averages(profile: str, a: float, b: float) -> tuple[float, float]:
    """p' and T' under Beta(a, b): profiles averaged at the law's own quantiles."""
    points = beta_law(a, b).ppf(GRID[::20])
    success = PROFILES[profile](points)
    return float(success.mean()), float((2 + (HORIZON - 2) * (1 - success)).mean())


def success_bounds(profile: str, shift: BetaShift) -> dict[str, float]:
    s = PROFILES[profile](GRID)
    p = float(s.mean())
    eta = 0.2
    edges = np.linspace(0, 1, 1001)
    mass = np.diff(beta_law(shift.alpha, shift.beta).cdf(edges))
    good = s.reshape(1000, -1).min(axis=1) >= 1 - eta
    return {
        "density_ratio": density_ratio_success(p, shift.density_ratio),
        "chi_square": chi_square_success(p, shift.chi_square, float(s.var())),
        "chi_square_promised": chi_square_success(p, shift.chi_square),
        "total_variation": total_variation_success(p, shift.total_variation),
        "pinsker": pinsker_success(p, shift.divergence),
        "pinsker_reversed": pinsker_success(p, shift.reversed_divergence),
        "good_set": good_set_success(eta, float(mass[good].sum())),
    }


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (0.5, 7), (1, 3), (3, 1), (5, 5), (7, 7), (1.2, 1), (1, 1)])
def test_every_bound_bounds(profile: str, a: float, b: float) -> None:
    shift = BetaShift(a, b)
    success, queries = averages(profile, a, b)
    for name, bound in success_bounds(profile, shift).items():
        assert bound <= success + 1e-3, name
    t = 2 + (HORIZON - 2) * (1 - PROFILES[profile](GRID))
    mean, fast = float(t.mean()), 6.0
    edges = np.linspace(0, 1, 1001)
    mass = np.diff(beta_law(a, b).cdf(edges))
    slow = t.reshape(1000, -1).max(axis=1) > fast
    bounds = {
        "density_ratio": density_ratio_queries(mean, shift.density_ratio),
        "chi_square": chi_square_queries(mean, shift.chi_square, float(t.var())),
        "total_variation": total_variation_queries(mean, shift.total_variation, HORIZON),
        "fast_set": fast_set_queries(fast, float(mass[slow].sum()), HORIZON),
    }
    for name, bound in bounds.items():
        assert bound >= queries - 1e-2, name


def test_the_bounds_of_a_smaller_shift_do_not_hold_for_a_larger_one() -> None:
    """The negative control: constants of a mild shift, set beside the averages of a strong one, are caught."""
    success, _ = averages("bad at the low end", 0.5, 7)
    mild = success_bounds("bad at the low end", BetaShift(1, 1.2))
    assert all(bound > success + 0.05 for bound in mild.values() if bound > 0.3)


def test_chi_square_is_tight_on_the_worst_profile() -> None:
    """Cauchy-Schwarz is an equality where s is an affine function of the density ratio."""
    shift = BetaShift(2, 1)
    s = 1 - 0.1 * np.exp(shift.log_ratio(GRID[:, None])) / 2
    success = float((s * np.exp(shift.log_ratio(GRID[:, None]))).mean())
    assert chi_square_success(float(s.mean()), shift.chi_square, float(s.var())) == pytest.approx(success, abs=1e-4)


def test_an_infinite_distance_says_nothing() -> None:
    assert density_ratio_success(1.0, math.inf) == 0
    assert chi_square_success(0.95, math.inf, 0.0) == 0
    assert pinsker_success(0.95, math.inf) == 0
    assert chi_square_queries(5.0, math.inf, 0.0) == math.inf
