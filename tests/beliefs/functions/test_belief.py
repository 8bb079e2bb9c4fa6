"""A belief over functions: its algebra against textbook Gaussian processes, its answers and its confidence."""

import math
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator
from scipy.stats import kstest, norm

from cicpe import trees
from cicpe.beliefs.base import Sampling
from cicpe.beliefs.functions.belief import TIE, FunctionBelief, FunctionConfig, FunctionState
from cicpe.beliefs.sampled import SampledQueries
from cicpe.episodes.table import RecordSettings, tabulate
from cicpe.errors import InvalidInput
from cicpe.gp.mixture import FLOOR, GPMixture
from cicpe.problems import TaskBatch
from cicpe.spaces import Box, Interval, Space
from cicpe.testing import check_agent
from functions_by_hand import (
    LEVEL,
    LINE,
    MATERN_3,
    MATERN_5,
    RBF,
    Array,
    Smooth,
    Truth,
    histories,
    mixture_of,
    only,
    rng,
    single,
    truths,
)
from stopping import NEVER, stopping_at


def believer(
    mixture: GPMixture, answers: Space = LINE, horizon: int = 12, aim: float = 0.1, **config: object
) -> FunctionBelief:
    return FunctionBelief(LINE, answers, mixture, horizon, FunctionConfig.model_validate(config), aim)


def told(belief: FunctionBelief, place: Array, value: Array, batch: int = 1) -> FunctionState:
    """The state after a history, the same in every episode."""
    state = belief.begin(torch.zeros(batch, 0))
    for x, y in zip(place, value, strict=True):
        query = torch.tensor(x, dtype=torch.float32).expand(batch, -1)
        state = belief.update(state, query, torch.full((batch, 1), float(y)))
    return state


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_observing_one_by_one_gives_the_evidence_of_the_history_in_any_order(data: st.DataObject) -> None:
    kinds, (place, value) = data.draw(truths(1)), data.draw(histories(1))
    order = data.draw(st.permutations(range(len(value))))
    belief = believer(mixture_of(kinds), functions=16, groups=1)
    states = [told(belief, place, value), told(belief, place[order], value[order])]
    evidence = np.array([truth.log_density(place, value) for truth in kinds])
    for state in states:
        np.testing.assert_allclose(state.posterior_BJ.log_evidence()[0].numpy(), evidence, rtol=1e-6, atol=1e-6)
        share = np.exp(evidence - np.logaddexp.reduce(evidence))
        np.testing.assert_allclose(belief.shares(state)[0].numpy(), share, rtol=1e-5, atol=1e-8)


PLACES = np.array([10, 50, 51, 90, 50])
"""Of a history, on the lattice."""

VALUES = np.array([0.5, 1.5, 1.3, -0.7, 1.2])


@pytest.mark.parametrize("kind", [MATERN_3, MATERN_5, RBF])
def test_drawn_functions_have_the_moments_of_the_posterior(kind: int) -> None:
    truth, draws = Truth(kind, level=0.3, wander=0.2), 4096
    belief = believer(only(truth), functions=draws, groups=1)
    lattice = belief.lattice_GQ.numpy()
    found = belief.draw(told(belief, lattice[PLACES], VALUES))
    mean, cover = truth.posterior(lattice[PLACES], VALUES, lattice)
    value = found.value_BNG[0].double().numpy()
    std = np.sqrt(cover.diagonal())
    assert float(found.weight_BN.sum()) == pytest.approx(1.0, abs=1e-5)
    assert np.abs(value.mean(axis=0) - mean).max() < (5 * std / math.sqrt(draws)).max()
    error = np.sqrt((np.outer(std**2, std**2) + cover**2) / draws)
    assert (np.abs(np.cov(value.T) - cover) < 6 * error + 1e-4).all()
    torch.testing.assert_close(found.height_BN, found.value_BNG.amax(dim=-1))
    torch.testing.assert_close(found.value_BNG.gather(2, found.point_BN[..., None])[..., 0], found.height_BN)


def test_kinds_are_mixed_by_their_evidence() -> None:
    kinds = [Truth(kind, (0.2 + 0.2 * kind,), 0.3, level=kind - 1.0, noise=1.2) for kind in range(3)]
    belief = believer(mixture_of(kinds, shares := (0.2, 0.5, 0.3)), functions=4000, groups=40)
    lattice, value = belief.lattice_GQ.numpy(), single([0.6, 0.1, -0.7, 0.9, -0.4])
    state = told(belief, lattice[PLACES], value)
    weight = np.array(shares) * np.exp([truth.log_density(lattice[PLACES], value) for truth in kinds])
    weight /= weight.sum()
    assert weight.min() > 0.02  # otherwise this tests nothing
    moments = [truth.posterior(lattice[PLACES], value, lattice) for truth in kinds]
    means, variances = np.array([mean for mean, _ in moments]), np.array([cover.diagonal() for _, cover in moments])
    found = belief.draw(state)
    mean = torch.einsum("n,ng->g", found.weight_BN[0], found.value_BNG[0]).numpy()
    # Weights give each kind its share exactly; within a kind, what is left is chance.
    chance = np.sqrt((weight**2 * variances.T / np.bincount(groups(weight, 40), minlength=3)).sum(axis=1) / 100)
    assert (np.abs(mean - weight @ means) < 5 * chance).all()

    seen_mean, seen_std = belief.predict_moments(state, belief.places_GQ[[70]])
    expected = float(weight @ means[:, 70])
    second = float(weight @ (variances[:, 70] + 1.2**2 + means[:, 70] ** 2))
    assert float(seen_mean) == pytest.approx(expected, abs=1e-5)
    assert float(seen_std) == pytest.approx(math.sqrt(second - expected**2), rel=1e-5)


def groups(weight: Array, n: int) -> NDArray[np.int64]:
    """The kind of every group: in the order of the kinds, as many as their shares are worth."""
    return np.searchsorted(np.cumsum(weight), (np.arange(n) + 0.5) / n).astype(np.int64)


def test_predictions_are_in_the_units_of_the_observations() -> None:
    truth = Truth(RBF, noise=0.2)
    plain, scaled = only(truth), only(truth)
    scaled.centre, scaled.spread = torch.tensor(5.0).double(), torch.tensor(3.0).double()
    query, place = torch.tensor([[0.1]]), np.array([[0.0], [0.3]])
    mean, std = believer(plain).predict_moments(told(believer(plain), place, np.array([0.5, 1.0])), query)
    other = believer(scaled).predict_moments(told(believer(scaled), place, np.array([6.5, 8.0])), query)
    torch.testing.assert_close(other, (5 + 3 * mean, 3 * std))


@pytest.mark.parametrize("where", ["on the lattice", "between its points"])
def test_functions_pass_through_what_was_seen_without_noise(where: str) -> None:
    belief = believer(only(Truth(RBF, (0.4,), noise=FLOOR)), horizon=40, functions=64, groups=1)
    lattice = belief.lattice_GQ.numpy()
    index = np.random.default_rng(0).integers(0, 127, 40)
    part = 0.0 if where == "on the lattice" else 0.37
    value = (1 - part) * np.sin(3 * lattice[index, 0]) + part * np.sin(3 * lattice[index + 1, 0])
    drawn = (
        belief.draw(told(belief, (1 - part) * lattice[index] + part * lattice[index + 1], value)).value_BNG[0].numpy()
    )
    seen = (1 - part) * drawn[:, index] + part * drawn[:, index + 1]
    assert np.abs(seen - value).max() < 6 * FLOOR


@pytest.mark.parametrize("lengths", [(1.0, 3.0), (2.0, 1.0, 4.0)])
def test_every_axis_of_the_lattice_is_its_own(lengths: tuple[float, ...]) -> None:
    """Functions pass between lattice points where they were seen, by another interpolation than the belief's."""
    dim = len(lengths)
    space = Box([0.0] * dim, [10.0] * dim)
    config = FunctionConfig(answer="height", functions=16, groups=1)
    belief = FunctionBelief(space, Interval(-9.0, 9.0), mixture_of([Truth(MATERN_3, lengths, noise=FLOOR)]), 20, config)
    chance = np.random.default_rng(0)
    place = single(chance.uniform(0, 10, (20, dim)))
    value = np.sin(place / 3) @ np.arange(1.0, dim + 1) / dim
    state = told(belief, place, value)
    drawn, assessment = belief.draw(state).value_BNG[0].numpy(), belief.assess(state, (0.1, 0.3), rng())
    side = round(drawn.shape[1] ** (1 / dim))
    axes = [np.linspace(0, 10, side)] * dim
    seen = [RegularGridInterpolator(axes, function.reshape([side] * dim))(place) for function in drawn]
    assert np.sqrt(np.square(np.array(seen) - value).mean()) < 0.05 * dim * np.std(value)
    assert (assessment.query.shape, assessment.recommendation.shape, assessment.std.shape) == (
        (1, 1, dim),
        (2, 1, 1),
        (1, 1),
    )
    # The places of the lattice are in the same order.
    torch.testing.assert_close(belief.places_GQ[1] - belief.places_GQ[0], 10 / (side - 1) * torch.eye(dim)[-1])


def test_an_episode_does_not_depend_on_the_others() -> None:
    belief = believer(mixture_of([Truth(kind) for kind in range(3)]), functions=64, groups=4)
    values = torch.randn((11, 4), generator=rng(1))
    state = belief.begin(torch.zeros(11, 0))
    for t in range(4):
        state = belief.update(state, torch.full((11, 1), 0.4 * t - 0.7), values[:, t : t + 1])
    some = torch.tensor([9, 2])
    together, alone = belief.assess(state, (0.1,), rng()), belief.assess(trees.select(state, some), (0.1,), rng())
    torch.testing.assert_close(alone.confidence, together.confidence[:, some])
    torch.testing.assert_close(alone.recommendation, together.recommendation[:, some])
    torch.testing.assert_close(alone.std, together.std[some])


def test_the_draws_for_a_chart_are_the_targets_of_the_functions() -> None:
    belief = believer(only(Truth(RBF)), Interval(-9.0, 9.0), answer="height", functions=512, groups=1)
    state = told(belief, np.array([[0.0]]), np.array([2.0]), batch=2)
    answers, height = belief.sample_answers(state, 4000, rng()), belief.draw(state).height_BN
    assert answers.shape == (2, 4000, 1)
    assert set(answers.flatten().tolist()) <= set(height.flatten().tolist())
    error = float(height[0].std()) * math.sqrt(1 / 4000)
    assert float(answers[0].mean()) == pytest.approx(float(height[0].mean()), abs=4 * error)


def mid_way(belief: FunctionBelief, steps: int, batch: int = 12) -> FunctionState:
    """After random queries of functions from the belief itself."""
    chance = rng(steps)
    truth = belief.prior_JNG[RBF, torch.randint(belief.config.functions, (batch,), generator=chance)]
    state, rows = belief.begin(torch.zeros(batch, 0)), torch.arange(batch)
    for _ in range(steps):
        index = torch.randint(len(belief.places_GQ), (batch,), generator=chance)
        state = belief.update(state, belief.places_GQ[index], truth[rows, index][:, None])
    return state


@pytest.mark.parametrize("steps", [0, 2, 6])
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.5])
def test_the_best_window_of_heights_is_found(steps: int, epsilon: float) -> None:
    belief = believer(only(Truth(RBF)), Interval(-9.0, 9.0), answer="height", functions=96, groups=3)
    state = mid_way(belief, steps)
    draws, assessment = belief.draw(state), belief.assess(state, (epsilon,), rng())
    for b in range(len(state.context_BC)):
        height, weight = draws.height_BN[b].double().numpy(), draws.weight_BN[b].double().numpy()
        # An answer with the most mass can be moved until two heights (or one, twice) are as far above as below.
        answers = (height[:, None] + height[None]).ravel() / 2
        inside = np.abs(height - answers[:, None]) <= epsilon * (1 + 1e-5)
        assert float(assessment.confidence[0, b]) == pytest.approx((inside @ weight).max(), abs=1e-5)
        reached = weight[np.abs(height - float(assessment.recommendation[0, b, 0])) <= epsilon * (1 + 1e-4)].sum()
        assert float(assessment.confidence[0, b]) == pytest.approx(reached, abs=1e-5)


@pytest.mark.parametrize("steps", [0, 2, 6])
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("loss", ["distance", "gap"])
def test_the_best_place_is_found(steps: int, epsilon: float, loss: str) -> None:
    mixture = only(Truth(RBF, (0.2,)))
    mixture.spread = torch.tensor(0.7).double()
    belief = believer(mixture, functions=96, groups=3, loss=loss)
    state = mid_way(belief, steps)
    draws, assessment = belief.draw(state), belief.assess(state, (epsilon,), rng())
    place = belief.places_GQ[:, 0].double().numpy()
    for b in range(len(state.context_BC)):
        value, weight = draws.value_BNG[b].double().numpy(), draws.weight_BN[b].double().numpy()
        if loss == "gap":
            losses = 0.7 * (value.max(axis=1, keepdims=True) - value)
        else:
            losses = np.abs(place[value.argmax(axis=1)][:, None] - place)
        mass, sure = (weight @ (losses <= epsilon * (1 + sign * 1e-5)) for sign in (1, -1))
        answer = int(np.abs(place - float(assessment.recommendation[0, b, 0])).argmin())
        confidence = float(assessment.confidence[0, b])
        assert sure[answer] - 1e-5 <= confidence <= mass[answer] + 1e-5
        # A little may be given up for an answer with room to spare, no more.
        assert confidence >= sure.max() - TIE


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_where_all_agree_on_one_peak_that_is_the_answer(epsilon: float) -> None:
    belief = believer(only(Truth(RBF, (0.5,), noise=FLOOR)), horizon=30, functions=64, groups=1)
    place = np.linspace(-1, 1, 25)[:, None]
    state = told(belief, place, np.exp(-8 * (place[:, 0] - 0.3) ** 2))
    peaks = belief.places_GQ[belief.draw(state).point_BN[0], 0]
    assert float(peaks.max() - peaks.min()) < 0.04
    assessment = belief.assess(state, (epsilon,), rng())
    assert float(assessment.recommendation[0, 0, 0]) == pytest.approx(0.3, abs=0.03)
    assert float(assessment.confidence[0, 0]) == pytest.approx(1.0, abs=1e-6)


def test_only_functions_that_cross_once_count_and_their_crossings_are_the_answers() -> None:
    belief = believer(only(Truth(RBF, (0.4,))), answer="crossing", level=LEVEL, functions=128, groups=1)
    state = mid_way(belief, 3)
    draws, answers = belief.draw(state), belief.sample_answers(state, 500, rng())[..., 0].numpy()
    place, value = belief.places_GQ[:, 0].numpy(), draws.value_BNG.numpy()
    for b in range(len(value)):
        crossings = []
        for function, weight in zip(value[b], draws.weight_BN[b].tolist(), strict=True):
            (changes,) = np.nonzero(np.diff(function > LEVEL))
            assert (weight > 0) == (len(changes) == 1)
            if len(changes) == 1:
                around = slice(changes[0], changes[0] + 2)
                order = np.argsort(function[around])
                crossings.append(np.interp(LEVEL, function[around][order], place[around][order]))
        assert 4 < len(crossings) < 128
        assert np.abs(answers[b][:, None] - np.array(crossings)).min(axis=1).max() < 1e-5


def test_where_no_function_crosses_it_goes_on() -> None:
    """The one that comes nearest to the level stands for the answer, and nothing is divided by nothing."""
    belief = believer(only(Truth(RBF, (0.5,))), answer="crossing", level=50.0, functions=64, groups=1)
    assessment = belief.assess(belief.begin(torch.zeros(2, 0)), (0.1,), rng())
    assert bool(assessment.confidence.isfinite().all() and assessment.recommendation.isfinite().all())
    assert float(assessment.confidence.max()) < 0.9


@pytest.mark.parametrize("query", ["agreement", "thompson", "ucb"])
@pytest.mark.parametrize("answer", ["place", "height", "crossing"])
def test_queries_do_not_depend_on_the_epsilons_that_are_looked_at(query: str, answer: str) -> None:
    answers = Interval(-9.0, 9.0) if answer == "height" else LINE
    belief = believer(only(Truth(RBF)), answers, answer=answer, query=query, functions=64, groups=2, candidates=8)
    state = mid_way(belief, 3)
    one, three = (belief.assess(state, epsilons, rng(1)) for epsilons in ((0.1,), (0.1, 0.2, 0.4)))
    assert torch.equal(one.query, three.query)
    assert torch.equal(one.recommendation[0], three.recommendation[0])
    assert bool((three.confidence[1:] >= three.confidence[:-1] - TIE).all())
    assert three.recommendation.shape == (3, 12, 1)


def queried(rule: Sampling, episodes: int = 4000) -> tuple[Array, Array]:
    """Queries of many episodes with one history, and draws of the target from the posterior of it."""
    belief = believer(only(Truth(RBF, (0.3,))), query="thompson", functions=512, groups=1)
    state = told(belief, belief.lattice_GQ[PLACES].numpy(), VALUES, episodes)
    one = told(belief, belief.lattice_GQ[PLACES].numpy(), VALUES)
    query_B = SampledQueries(belief, rule).assess(state, (0.1,), rng(1)).query[:, 0, 0]
    return query_B.numpy(), belief.sample_answers(one, episodes, rng(2))[0, :, 0].numpy()


def test_thompson_queries_are_draws_of_the_target() -> None:
    query, target = queried("ts")
    assert target.std() > 0.05  # otherwise this tests nothing
    assert query.mean() == pytest.approx(target.mean(), abs=float(5 * target.std() / math.sqrt(len(query))))
    assert query.std() == pytest.approx(target.std(), rel=0.1)
    assert len(np.unique(query)) > 0.9 * len(query)  # without noise a place that was queried tells nothing again


def test_top_two_queries_are_farther_from_the_mean_than_draws_of_the_target() -> None:
    query, target = queried("ttps")
    assert np.abs(query - target.mean()).mean() > 1.05 * np.abs(target - target.mean()).mean()


def test_uniform_queries_know_nothing_of_the_history() -> None:
    query, target = queried("uniform")
    low, high = float(LINE.from_unit(torch.tensor([[-1.0]]))), float(LINE.from_unit(torch.tensor([[1.0]])))
    assert kstest(query, "uniform", (low, high - low)).pvalue > 1e-3
    assert kstest(target, "uniform", (low, high - low)).pvalue < 1e-3  # the negative control


def test_it_says_what_it_cannot_do() -> None:
    with pytest.raises(InvalidInput, match="query dimensions"):
        FunctionBelief(Box([0.0] * 4, [1.0] * 4), LINE, only(Truth(RBF)), 5)
    with pytest.raises(InvalidInput, match="1 where a crossing is sought"):
        FunctionBelief(Box([0.0] * 2, [1.0] * 2), LINE, only(Truth(RBF)), 5, FunctionConfig(answer="crossing"))
    belief = believer(only(Truth(RBF)))
    with pytest.raises(InvalidInput, match="does not value queries"):
        belief.assess(belief.begin(torch.zeros(1, 0)), (0.1,), rng(), 0.0, (torch.zeros(1),))


def excess_confidence(problem: Smooth, length: float, epsilon: float, episodes: int = 320) -> float:
    """How far the confidence at the end is above the share of successes, in standard deviations of a true one."""
    config = FunctionConfig(answer=problem.asks, level=LEVEL, functions=256, groups=1, query="thompson")
    mixture = only(Truth(RBF, (length,), noise=1 + FLOOR), contexts=1)
    belief = FunctionBelief(problem.query_space, problem.answer_space, mixture, 5, config)
    chance = rng(3)
    seen = tabulate(belief, TaskBatch.draw(problem, episodes, chance), RecordSettings((epsilon,)), chance)
    said, right = seen.confidence[0, :, -1].double(), (seen.loss[0, :, -1] <= epsilon).double()
    assert 0.3 < float(right.mean()) < 0.98
    return float((said - right).sum() / (said * (1 - said)).sum().sqrt())


LIMIT = norm.isf(5e-4)
"""Two-sided, alpha 1e-3."""


@pytest.mark.parametrize(("asks", "epsilon"), [("place", 0.15), ("height", 0.3), ("crossing", 0.05)])
def test_confidence_is_the_share_of_successes_on_its_own_prior(
    asks: Literal["place", "height", "crossing"], epsilon: float
) -> None:
    problem = Smooth(asks=asks)
    assert abs(excess_confidence(problem, problem.length, epsilon)) < LIMIT


@pytest.mark.parametrize(("asks", "epsilon"), [("place", 0.15), ("height", 0.3), ("crossing", 0.05)])
def test_a_belief_in_smoother_functions_is_found_to_be_too_sure(
    asks: Literal["place", "height", "crossing"], epsilon: float
) -> None:
    problem = Smooth(asks=asks)
    assert excess_confidence(problem, 5 * problem.length, epsilon) > 2 * LIMIT


@pytest.mark.parametrize("query", ["agreement", "ucb"])
def test_its_queries_tell_more_than_random_ones(query: str) -> None:
    """The share of successes after a few queries, against uniform queries with the same belief."""
    problem, chance = Smooth(), rng(5)
    config = FunctionConfig(functions=128, groups=1, query=query, candidates=16)
    belief = FunctionBelief(LINE, LINE, only(Truth(RBF, noise=1 + FLOOR), contexts=1), 6, config)
    hidden = TaskBatch.draw(problem, 160, chance)

    def right(uniform: bool) -> float:
        state = belief.begin(hidden.context)
        for _ in range(6):
            asked = LINE.sample(160, chance) if uniform else belief.assess(state, (0.1,), chance).query[:, 0]
            state = belief.update(state, asked, hidden.observe(asked, chance))
        answer = belief.assess(state, (0.1,), chance).recommendation[0]
        return float((hidden.loss(answer) <= 0.1).float().mean())

    assert right(uniform=False) > right(uniform=True) + 0.15


@pytest.mark.parametrize("asks", ["place", "height", "crossing"])
def test_it_is_an_agent(asks: Literal["place", "height", "crossing"]) -> None:
    problem = Smooth(asks=asks, levels=(0.05, 0.3))
    config = FunctionConfig(answer=asks, level=LEVEL, functions=64, groups=4, candidates=8)
    mixture = mixture_of([Truth(kind, noise=1 + FLOOR) for kind in range(3)], contexts=1)
    belief = FunctionBelief(LINE, problem.answer_space, mixture, 5, config)
    check_agent(stopping_at(belief, NEVER, 0.1), problem, n=10)
    check_agent(stopping_at(belief, 0.5, 0.2, stop_epsilon=0.1), problem, n=10)
