"""Actor rules as distributions: exact laws where there is one, and the refusals."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest, mannwhitneyu, norm
from torch import Generator, Tensor

from cicpe.beliefs.network.memories.base import MemoryFeatures
from cicpe.beliefs.network.network import NetworkOutput, NetworkState
from cicpe.beliefs.network.posteriors.gaussian import GaussianPosterior
from cicpe.beliefs.network.query_rules import Actor, Thompson, TopTwo, Uniform, make_actor
from cicpe.errors import InvalidInput
from cicpe.spaces import Box, Interval, Space, Sphere

ALPHA = 1e-3
N = 20_000
WIDE = Box([-10.0, 0.0], [10.0, 40.0])  # far wider than the beliefs below, so that nothing is projected


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def belief_in(posterior: GaussianPosterior) -> NetworkOutput:
    """A belief that is a posterior and nothing else."""
    nothing = MemoryFeatures(torch.zeros(len(posterior.mean_unit), 1, 0))
    return NetworkOutput(
        posterior, nothing, nothing, NetworkState(None, None, torch.zeros(len(posterior.mean_unit), 1))
    )


def believe(space: Space, mean: Tensor, log_std: Tensor, n: int = N) -> NetworkOutput:
    """The same belief, in unit coordinates, for n episodes at one prefix."""
    return belief_in(GaussianPosterior(space, mean.expand(n, 1, -1), log_std.expand(n, 1, -1)))


MEAN, STD = torch.tensor([0.1, -0.2]), torch.tensor([0.03, 0.05])


def standardised(actor: Actor, scale: Tensor | float = 1.0, seed: int = 0) -> np.ndarray:
    query = actor.propose(believe(WIDE, MEAN, STD.log()), make_rng(seed), scale)
    return ((WIDE.to_unit(query) - MEAN) / STD).numpy()


# Thompson sampling.


def moments_p(z: np.ndarray) -> float:
    """Smallest p-value of: mean 0, variance 1, no correlation, for standardised draws."""
    n = len(z)
    spread = (z**2).sum(axis=0)
    p = [
        *2 * norm.sf(np.abs(z.mean(axis=0)) * np.sqrt(n)),
        *2 * np.minimum(chi2.sf(spread, n), chi2.cdf(spread, n)),
        2 * norm.sf(abs((z[:, 0] * z[:, 1]).mean()) * np.sqrt(n)),
    ]
    return float(min(p))


def test_thompson_has_the_moments_of_the_posterior() -> None:
    z = standardised(Thompson(WIDE))
    assert moments_p(z) > ALPHA / 5
    assert kstest(z[:, 0], norm.cdf).pvalue > ALPHA
    # Negative control: three per cent too wide is seen.
    assert moments_p(1.03 * z) < ALPHA / 5


def test_scale_multiplies_the_spread_episode_by_episode() -> None:
    scale = torch.tensor([0.0, 0.5, 1.0]).repeat(N)[:N]
    z = standardised(Thompson(WIDE), scale[:, None, None])
    assert np.abs(z[scale == 0]).max() < 1e-3
    assert moments_p(z[scale == 0.5] / 0.5) > ALPHA / 5
    assert moments_p(z[scale == 1]) > ALPHA / 5


@pytest.mark.parametrize("space", [WIDE, Sphere(2)], ids=str)
@pytest.mark.parametrize("kind", [Thompson, TopTwo])
def test_greedy_is_the_recommendation(kind: type[Thompson | TopTwo], space: Space) -> None:
    unit = space.to_unit(space.sample(50, make_rng()))
    posterior = GaussianPosterior(space, unit[:, None], torch.zeros(50, 1, 2))
    query = kind(space).propose(belief_in(posterior), make_rng(), 0.0)
    assert torch.equal(query, posterior.recommendation[:, 0])


def test_queries_lie_in_the_space_however_wide_the_belief() -> None:
    for space in (Box([0.0, 0.0], [1.0, 2.0]), Sphere(2)):
        output = believe(space, torch.tensor([0.9, -0.9]), torch.tensor([1.0, 1.0]), n=500)
        for actor in (Thompson(space), TopTwo(space), Uniform(space)):
            query = actor.propose(output, make_rng(), 1.0)
            assert query.shape == (500, 2)
            torch.testing.assert_close(space.project(query), query)


@pytest.mark.parametrize("kind", [Thompson, TopTwo, Uniform])
def test_a_seed_fixes_the_queries(kind: type[Thompson | TopTwo | Uniform]) -> None:
    output, actor = believe(WIDE, MEAN, STD.log(), n=20), kind(WIDE)
    one, again, two = (actor.propose(output, make_rng(seed), 1.0) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, two)


# Top-two: half of the time, a draw that is closer to the mean than another gives way to a challenger that is farther.
# With F the law of one draw's distance from the mean, the law of the query's is then (F + 3/2 F^2 - 1/2 F^3) / 2: for
# a bound m on what is close, F^2 below m and F - F(m) + F(m) F above, averaged over m.


def top_two_law(share: np.ndarray) -> np.ndarray:
    return (share + 1.5 * share**2 - 0.5 * share**3) / 2


def test_top_two_has_its_exact_law_in_a_box() -> None:
    space = Box([-10.0, -10.0], [10.0, 10.0])
    output = believe(space, torch.zeros(2), torch.full((2,), -3.0))
    distance = {
        kind: (space.to_unit(kind(space).propose(output, make_rng(), 1.0)).norm(dim=-1) * np.exp(3.0)).numpy()
        for kind in (Thompson, TopTwo)
    }

    def rayleigh(r: np.ndarray) -> np.ndarray:
        return 1 - np.exp(-(r**2) / 2)

    def top_two(r: np.ndarray) -> np.ndarray:
        return top_two_law(rayleigh(r))

    def without_proviso(r: np.ndarray) -> np.ndarray:
        return (rayleigh(r) + rayleigh(r) ** 2) / 2

    assert kstest(distance[TopTwo], top_two).pvalue > ALPHA
    assert kstest(distance[Thompson], rayleigh).pvalue > ALPHA
    # Negative control: Thompson sampling is not taken for top-two, nor is a challenger of every draw.
    assert kstest(distance[Thompson], top_two).pvalue < ALPHA
    assert kstest(distance[TopTwo], without_proviso).pvalue < ALPHA


def test_top_two_goes_farther_from_the_mean_on_a_sphere() -> None:
    space = Sphere(4)
    mean = space.project(torch.ones(4))
    output = believe(space, mean, torch.full((4,), -1.0))

    def distances(actor: Actor, seed: int) -> np.ndarray:
        return space.distance(actor.propose(output, make_rng(seed), 1.0), mean).numpy()

    thompson, top_two = distances(Thompson(space), 1), distances(TopTwo(space), 2)
    assert mannwhitneyu(top_two, thompson, alternative="greater").pvalue < ALPHA
    # Negative control: the same test on two runs of Thompson sampling finds nothing.
    assert mannwhitneyu(distances(Thompson(space), 3), thompson, alternative="greater").pvalue > ALPHA
    # And the law is that of the box, with F from the Thompson draws themselves.
    order = np.sort(distances(Thompson(space), 4))
    share = np.searchsorted(order, top_two) / len(order)
    assert kstest(share, top_two_law).pvalue > ALPHA


# Uniform.


def test_uniform_covers_the_space_whatever_the_belief() -> None:
    space = Box([0.0, 5.0], [1.0, 9.0])
    query = Uniform(space).propose(believe(space, torch.ones(2), torch.full((2,), -5.0)), make_rng(), 0.0)
    for column in ((space.to_unit(query) + 1) / 2).T.numpy():
        assert kstest(column, "uniform").pvalue > ALPHA
    greedy = Thompson(space).propose(believe(space, torch.zeros(2), torch.full((2,), -5.0)), make_rng(), 1.0)
    assert kstest(((space.to_unit(greedy) + 1) / 2).numpy()[:, 0], "uniform").pvalue < ALPHA


# Making an actor by its name.


def test_make_actor() -> None:
    assert make_actor("ts", WIDE, WIDE) == Thompson(WIDE)
    assert make_actor("ttps", Sphere(3), Sphere(3)) == TopTwo(Sphere(3))
    assert make_actor("uniform", WIDE, Interval(0.0, 1.0)) == Uniform(WIDE)


@pytest.mark.parametrize("name", ["ts", "ttps"])
def test_actors_that_query_answers_refuse_two_spaces(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"actor must be one of uniform.*; got '{name}'") as caught:
        make_actor(name, WIDE, Interval(0.0, 1.0))  # type: ignore[arg-type]
    assert caught.value.field == "actor"


def test_an_unknown_actor_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidInput, match=r"actor must be one of ts, ttps.*; got 'magic'"):
        make_actor("magic", WIDE, WIDE)  # type: ignore[arg-type]
