"""Stop thresholds on synthetic episodes whose right answer is known, and the table that a model carries."""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.stats import beta, binomtest
from torch import Generator, Tensor

from cicpe.agents.stop_rules import STOP_RULES, first_passages, first_true
from cicpe.beliefs.base import CalibrationPlan
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import Network, NetworkConfig
from cicpe.beliefs.network.query_rules import Thompson
from cicpe.calibration import thresholds
from cicpe.calibration.table import MARGIN, Calibration, ThresholdCell, reserve
from cicpe.calibration.thresholds import DELTAS, CalibrationRequest, calibrate
from cicpe.episodes.outcomes import run_episodes
from cicpe.episodes.table import EpisodeTable, RecordSettings, tabulate
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.binary_search import BinarySearch, BinarySearchTask
from cicpe.problems.context import ContextGrid
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import build_network
from stopping import stopping_at

ALPHA = 1e-3
COLUMN = DELTAS.index(0.1)


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


# Synthetic episodes. What is known grows at a random pace; success is a coin with that probability.


KAPPAS = STOP_RULES["confidence"].thresholds(None)


def confidence_stops(confidence: Tensor) -> list[Tensor]:
    return first_passages(confidence, KAPPAS)


def episodes(n: int, seed: int, prefixes: int = 12) -> tuple[Tensor, Tensor]:
    """Whether each prefix would succeed, and the logit of the true probability of it."""
    rng = make_rng(seed)
    pace = 0.2 + 0.8 * torch.rand(n, 1, generator=rng)
    logit = -1.0 + pace * torch.arange(prefixes) + 0.3 * torch.randn(n, prefixes, generator=rng)
    return torch.rand(n, prefixes, generator=rng) < torch.sigmoid(logit), logit


def chosen(success: Tensor, confidence: Tensor) -> tuple[ThresholdCell | None, ...]:
    return thresholds.choose_cells(success, confidence_stops(confidence), KAPPAS, 0.05)


def accuracy_by_kappa(shift: float) -> dict[float, float]:
    """The true accuracy of every threshold, from many fresh episodes with this bias of the confidence."""
    success, logit = episodes(50_000, seed=10**6)
    rows = torch.arange(len(success))
    stops = confidence_stops(torch.sigmoid(logit + shift))[::8]
    found = [float(success[rows, stop].double().mean()) for stop in stops]
    return dict(zip(KAPPAS[::8].tolist(), found, strict=True))


@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["calibrated", "over-confident"])
def test_the_chosen_threshold_keeps_its_promise(shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "reserve", lambda episodes: 0.0)  # the exact bound alone keeps it
    truth = accuracy_by_kappa(shift)
    repetitions = 200
    broken = {0.05: 0, 0.5: 0}
    for seed in range(repetitions):
        success, logit = episodes(400, seed)
        stops = confidence_stops(torch.sigmoid(logit + shift))[::8]
        for alpha in broken:
            cell = thresholds.choose_cells(success, stops, KAPPAS[::8], alpha)[COLUMN]
            assert cell is not None
            broken[alpha] += truth[cell.threshold] < 0.9
    # At most 5 % of calibrations may promise too much.
    assert binomtest(broken[0.05], repetitions, 0.05, "greater").pvalue > ALPHA
    # Negative control: without the margin of the bound, about half of them do.
    assert binomtest(broken[0.5], repetitions, 0.05, "greater").pvalue < ALPHA


def test_a_perfectly_calibrated_confidence_needs_no_higher_kappa_than_it_says() -> None:
    success, logit = episodes(10_000, seed=0)
    cell = chosen(success, torch.sigmoid(logit))[COLUMN]
    assert cell is not None
    # Whoever stops at 0.9 or above is right at least that often, so kappa may even lie below.
    assert 0.5 < cell.threshold < 0.9
    assert cell.accuracy >= 0.9


def test_over_confidence_is_answered_by_a_higher_kappa() -> None:
    success, logit = episodes(10_000, seed=0)
    fair, over, under = (chosen(success, torch.sigmoid(logit + shift))[COLUMN] for shift in (0.0, 1.0, -1.0))
    assert fair is not None
    assert over is not None
    assert under is not None
    assert under.threshold < fair.threshold < over.threshold
    # The same decisions, so the same queries, whatever the numbers are called.
    assert over.queries == pytest.approx(fair.queries, rel=0.05)


def test_a_smaller_delta_needs_a_higher_kappa_and_more_queries() -> None:
    success, logit = episodes(10_000, seed=0)
    cells = [cell for cell in chosen(success, torch.sigmoid(logit)) if cell is not None]
    assert len(cells) > 6
    for strict, loose in pairwise(cells):
        assert strict.threshold >= loose.threshold
        assert strict.queries >= loose.queries


def test_a_confidence_that_says_nothing_of_success_is_refused() -> None:
    rng = make_rng()
    success = torch.rand(4000, 12, generator=rng) < 0.75
    cells = chosen(success, torch.rand(4000, 12, generator=rng))
    for delta, cell in zip(DELTAS, cells, strict=True):
        assert (cell is None) == (delta < 0.25 + 1e-9)
    # Negative control: with more success at every prefix the same confidences are let through.
    assert chosen(torch.rand(4000, 12, generator=rng) < 0.99, torch.rand(4000, 12, generator=rng))[COLUMN] is not None


def test_the_tests_end_at_the_first_failure() -> None:
    n = 1000
    accuracy = torch.tensor([0.99, 0.97, 0.80, 0.99, 0.99])
    success = torch.arange(n)[:, None] < accuracy * n
    stops = [torch.full((n,), column) for column in range(5)]
    values = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5])
    cell = thresholds.choose_cells(success, stops, values, 0.05)[COLUMN]
    assert cell is not None
    assert cell[:3] == (pytest.approx(0.8), 0.97, 1.0)
    assert (cell.risky, cell.share) == (pytest.approx(0.7), pytest.approx(0.1 / 0.17))
    # The last that passes would have been 0.5; nothing passes where the first fails.
    assert thresholds.choose_cells(success[:, [2, 0]], stops[:2], values[:2], 0.05)[COLUMN] is None


def test_the_bound_is_exact() -> None:
    n = 200
    for delta in (0.05, 0.1, 0.2):
        column = DELTAS.index(delta)
        for correct in range(n + 1):
            success = (torch.arange(n) < correct)[:, None]
            cell = thresholds.choose_cells(success, [torch.zeros(n, dtype=torch.long)], torch.tensor([0.9]), 0.05)[
                column
            ]
            bound = 0.0 if correct == 0 else beta.ppf(0.05, correct, n - correct + 1)
            assert (cell is not None) == (bound >= 1 - delta)


def test_a_reserve_is_kept_where_that_is_possible_and_no_reason_to_refuse() -> None:
    n, values = 4000, torch.tensor([0.9, 0.8])
    stops = [torch.full((n,), column) for column in range(2)]

    def chosen_of(*accuracy: float) -> float | None:
        success = torch.arange(n)[:, None] < torch.tensor(accuracy) * n
        cell = thresholds.choose_cells(success, stops, values, 0.05)[COLUMN]
        return None if cell is None else cell.accuracy

    assert beta.ppf(0.05, 0.912 * n, n - 0.912 * n + 1) > 0.9
    assert chosen_of(0.93, 0.912) == pytest.approx(0.93), "the next one would keep no reserve"
    assert chosen_of(0.912, 0.912) == pytest.approx(0.912), "safe, and all that there is"
    assert chosen_of(0.905, 0.93) is None, "not safe by its bound"


def test_few_episodes_are_asked_for_no_more_than_their_wide_bound() -> None:
    assert [reserve(n) for n in (0, 500, 2000, 10**6)] == [0.0, pytest.approx(0.025), MARGIN, MARGIN]
    # What has to be seen of the episodes falls with their number, and never below what the reserve asks for.
    needed = [
        min(k for k in range(n + 1) if beta.ppf(0.05, k, n - k + 1) >= 1 - (1 - reserve(n)) * 0.1) / n
        for n in (200, 1000, 4000)
    ]
    assert needed == sorted(needed, reverse=True)
    assert needed[-1] > 0.91


# Recording, against playing.


@pytest.fixture(scope="module")
def network() -> Network:
    config = TrainingConfig(network=NetworkConfig(memory=RecurrentConfig(hidden=12)))
    made = build_network(BinarySearch(dim=1, noise=0.0), config, make_rng(1)).eval().requires_grad_(False)
    # Untrained confidences hardly differ; spread them out so that thresholds separate episodes.
    for heads, gain in ((made.critic.stop, -40), (made.critic.go, 40)):
        for head in heads:
            head[-1].weight.mul_(gain)
    return made


def test_what_is_recorded_is_what_is_played(network: Network) -> None:
    # Noise-free and greedy, so that the recorded episodes can be played again.
    problem, horizon, epsilon = BinarySearch(dim=1, noise=0.0), 7, 0.15
    actor = Thompson(problem.query_space)
    tasks = TaskBatch.draw(problem, 300, make_rng())
    belief = NetworkBelief(network, actor, horizon)
    rules = (STOP_RULES["bellman"],)
    settings = RecordSettings((0.1, epsilon), rules=rules, costs=(0.01, 0.3), minimum_time=3)
    costs = rules[0].thresholds(settings.costs).tolist()
    seen = tabulate(belief, tasks, settings, make_rng())
    assert seen.loss.shape == (2, 300, 8)
    assert seen.confidence.shape == (2, 300, 8)
    assert seen.stops["bellman"].shape == (2, len(costs), 300, 8)
    rows = torch.arange(300)
    lowest, highest = seen.confidence[1].amin(dim=1), seen.confidence[1].amax(dim=1)
    kappas = [float((lowest.max() + highest.min()) / 2), *highest.quantile(torch.tensor([0.3, 0.6])).tolist()]
    times: set[int] = set()
    for kappa in kappas:
        stop = first_true(seen.confidence[1] >= kappa)
        played = run_episodes(stopping_at(belief, kappa, epsilon), tasks, make_rng())
        assert torch.equal(played.queries, stop)
        torch.testing.assert_close(played.loss, seen.loss[1][rows, stop], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(played.confidence, seen.confidence[1][rows, stop], rtol=1e-4, atol=1e-5)
        times |= set(stop.tolist())
    assert len(times) >= 3  # otherwise this would have compared nothing
    for c, cost in enumerate(costs):
        played = run_episodes(stopping_at(belief, cost, epsilon, "bellman", minimum_time=3), tasks, make_rng())
        assert torch.equal(played.queries, first_true(seen.stops["bellman"][1, c]))
        assert played.queries.min() >= 3


def test_calibration_keeps_the_minimum_time_of_the_bellman_rule(network: Network) -> None:
    problem = BinarySearch(dim=1, noise=0.0)
    made = calibrate(
        NetworkBelief(network, Thompson(problem.query_space), horizon=6),
        problem,
        CalibrationRequest((0.9, 1.5), CalibrationPlan(costs=(0.2, 0.5), minimum_time=4), episodes=400),
    )
    assert made.minimum_time == 4  # deployed as it was calibrated
    cells = [cell for rows in made.rules["bellman"] for row in rows for cell in row if cell is not None]
    assert cells
    assert all(cell.queries >= 4 for cell in cells)


def by_context(network: Network, problem: Problem, episodes: int) -> tuple[ContextGrid, list[EpisodeTable]]:
    belief = NetworkBelief(network, Thompson(problem.query_space), horizon=1)
    run, request = thresholds.CalibrationRun(belief, problem, RecordSettings((0.5,))), CalibrationRequest((0.5, 0.5))
    return thresholds._by_context(run, episodes, request, "episodes", 5)


def test_a_range_of_noise_is_calibrated_level_by_level(network: Network) -> None:
    grid, tables = by_context(network, BinarySearch(dim=1, noise=(0.025, 0.1)), 100)
    (levels,) = grid.knots
    assert levels[0] == 0.025
    assert levels[-1] == 0.1
    assert np.diff(np.log(levels)) == pytest.approx(np.log(4) / (len(levels) - 1))
    for level, table in zip(levels, tables, strict=True):
        assert table.loss.shape == (1, 100 // len(levels), 2)
        torch.testing.assert_close(table.context, torch.full_like(table.context, level))


def test_one_noise_level_is_one_knot(network: Network) -> None:
    grid, (table,) = by_context(network, BinarySearch(dim=1, noise=0.05), 60)
    assert grid.knots == ((pytest.approx(0.05),),)
    assert table.loss.shape[1] == 60


class Told(BinarySearch):
    """Another context than the noise: one of a few levels."""

    context_names = ("level",)

    def context(self, task: BinarySearchTask) -> Tensor:
        return (task.target[:, :1] * 2).round()


def test_a_context_that_cannot_be_set_is_grouped_by_rank(network: Network) -> None:
    grid, tables = by_context(network, Told(dim=1, noise=0.0), 500)
    (values,) = grid.knots
    assert list(values) == sorted(values)
    assert values[0] == -2.0
    assert grid.edges != ()
    assert sum(table.loss.shape[1] for table in tables) == 500
    for below, above in pairwise(tables):
        assert float(below.context.max()) < float(above.context.min())


# The table.


def cell(threshold: float) -> ThresholdCell:
    return ThresholdCell(threshold, 0.95, 7.0)


def make_table(**changes: Any) -> Calibration:
    fields: dict[str, Any] = {
        "episodes": 1000,
        "seed": 3,
        "alpha": 0.05,
        "query_spread": 0.5,
        "epsilons": (0.1, 0.2, 0.4),
        "deltas": (0.05, 0.1, 0.3),
        "context_knots": ((1.0, 2.0, 4.0),),
    }
    rules = {
        "confidence": tuple(
            tuple(
                (None if e == 0 else cell(0.9), cell(0.8 + 0.01 * k + 0.001 * e), cell(0.5 + 0.1 * k)) for e in range(3)
            )
            for k in range(3)
        ),
        "bellman": (((None, None, None), (None, None, None), (None, None, cell(0.02))),) * 3,
    }
    rules = {name: changes.pop(name, table) for name, table in rules.items()}
    return Calibration.model_validate(fields | {"rules": rules} | changes)


def at(table: Calibration, epsilon: float, delta: float, *context: float) -> list[float]:
    found: list[float] = table.threshold("confidence", epsilon, delta)(torch.tensor(context)[:, None]).tolist()
    return found


def test_a_threshold_is_looked_up() -> None:
    assert at(make_table(), 0.1, 0.1, 1.0, 2.0, 4.0) == pytest.approx([0.80, 0.81, 0.82])
    assert at(make_table(), 0.4, 0.1, 1.0, 2.0, 4.0) == pytest.approx([0.802, 0.812, 0.822])
    assert at(make_table(), 0.2, 0.05, 1.0) == pytest.approx([0.9])


def test_an_epsilon_between_two_is_served_by_the_smaller() -> None:
    table = make_table()
    asked = (0.1, 0.15, 0.2 - 1e-9, 0.2, 0.39, 0.4, 0.4 + 1e-9)
    assert [table.supported_epsilon(epsilon) for epsilon in asked] == [0.1, 0.1, 0.2, 0.2, 0.2, 0.4, 0.4]


def test_a_context_between_two_knots_takes_the_safer_threshold() -> None:
    assert at(make_table(), 0.1, 0.3, 1.5, 3.0, 0.0, 9.0) == pytest.approx([0.6, 0.7, 0.5, 0.7])
    rows = tuple(((cell(0.01 * (k + 1)),) * 3,) * 3 for k in range(3))
    costs = make_table(bellman=rows).threshold("bellman", 0.1, 0.1)(torch.tensor([[1.5], [3.0], [0.0], [9.0]]))
    assert costs.tolist() == pytest.approx([0.01, 0.02, 0.01, 0.03])


def test_a_context_of_a_group_takes_the_threshold_of_that_group() -> None:
    grouped = make_table(context_edges=((1.5, 3.0),))
    assert at(grouped, 0.1, 0.3, 0.2, 1.4, 1.6, 2.9, 3.1, 9.0) == pytest.approx([0.5, 0.5, 0.6, 0.6, 0.7, 0.7])
    again = Calibration.model_validate_json(grouped.model_dump_json())
    assert again == grouped


def test_knots_may_coincide() -> None:
    # Where a context takes few values, several knots have the same one.
    first, last = (make_table(context_knots=(knots,)) for knots in ((1.0, 1.0, 4.0), (1.0, 4.0, 4.0)))
    assert at(first, 0.1, 0.3, 1.0, 0.0, 4.0, 2.5) == pytest.approx([0.6, 0.6, 0.7, 0.7])
    assert at(last, 0.1, 0.3, 1.0, 4.0, 2.5) == pytest.approx([0.5, 0.7, 0.6])


def test_a_context_next_to_a_knot_without_a_threshold_is_refused() -> None:
    rows = ((None, cell(0.8), cell(0.7)),) * 3
    table = make_table(confidence=(((cell(0.9), cell(0.8), cell(0.7)),) * 3, rows, rows))
    assert at(table, 0.1, 0.05, 1.0, 0.5) == pytest.approx([0.9, 0.9])
    assert at(table, 0.1, 0.1, 1.0, 2.0, 3.0) == pytest.approx([0.8] * 3)
    for context in (1.5, 2.0, 4.0):
        with pytest.raises(InvalidInput, match=f"delta must be at least 0.1 .*context {context:g}.*; got 0.05"):
            at(table, 0.1, 0.05, 1.0, context)


def test_delta_falls_back_to_the_next_safer_one() -> None:
    table = make_table()
    assert at(table, 0.1, 0.29, 1.0) == at(table, 0.1, 0.1, 1.0)
    assert at(table, 0.1, 0.99, 1.0) == at(table, 0.1, 0.3, 1.0)
    assert at(table, 0.1, 0.1 - 1e-12, 1.0) == at(table, 0.1, 0.1, 1.0)


@pytest.mark.parametrize(
    ("shares", "measured", "help_with"),
    [
        ((0.1, 0.5, 0.8), r"after 60 \(the most\) 0.80: still rising", "a horizon above 60 queries"),
        ((0.1, 0.8, 0.8), "more queries hardly help", "more minutes of training$"),
        ((0.2, 0.21, 0.2), r"After 60 queries \(the most\) 0.20 of tasks are within 0.1, as after none", "doctor"),
    ],
)
def test_a_refusal_says_what_queries_did_and_what_would_help(
    shares: tuple[float, ...], measured: str, help_with: str
) -> None:
    """Where as few tasks are right at the end as before the first query, observations may tell nothing at all."""
    curve = tuple(zip((0, 30, 60), shares, strict=True))
    table = make_table(curves=((curve,) * 3,) * 3)
    with pytest.raises(InvalidInput, match=measured) as caught:
        table.threshold("confidence", 0.1, 0.05)
    assert re.search(help_with, str(caught.value.allowed))


def test_without_context_there_is_one_threshold() -> None:
    rows = ((cell(0.7), cell(0.6), cell(0.5)),) * 3
    table = make_table(context_knots=(), confidence=(rows,), bellman=(rows,))
    assert table.threshold("confidence", 0.2, 0.1)(torch.zeros(4, 0)).tolist() == pytest.approx([0.6] * 4)
    assert table.threshold("bellman", 0.2, 0.05)(torch.zeros(2, 0)).tolist() == pytest.approx([0.7] * 2)


@pytest.mark.parametrize(
    ("stop", "epsilon", "delta", "field", "message"),
    [
        ("confidence", 0.2, 0.01, "delta", "delta must be at least 0.05"),
        ("confidence", 0.2, 0.0, "delta", "between 0 and 1"),
        ("confidence", 0.2, 1.0, "delta", "between 0 and 1"),
        ("confidence", 0.2, float("nan"), "delta", "between 0 and 1"),
        ("confidence", 0.1, 0.05, "delta", "at least 0.1 at epsilon 0.1: with less, this model's confidence rule"),
        ("bellman", 0.4, 0.1, "delta", "at least 0.3 at epsilon 0.4: with less, this model's bellman rule"),
        ("bellman", 0.1, 0.3, "delta", "above 0.3 at epsilon 0.1: .* What would help: epsilon 0.4"),
    ],
)
def test_what_was_not_calibrated_is_refused_with_what_was(
    stop: str, epsilon: float, delta: float, field: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        make_table().threshold(stop, epsilon, delta)
    assert caught.value.field == field


@pytest.mark.parametrize("epsilon", [0.05, 0.5, float("nan"), -1.0, 0.0, float("inf")])
def test_an_epsilon_out_of_range_is_refused_with_the_range(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match=rf"epsilon must be from 0.1 to 0.4.*; got {epsilon!r}") as caught:
        make_table().supported_epsilon(epsilon)
    assert caught.value.field == "epsilon"


def test_the_table_survives_json() -> None:
    table = make_table()
    again = Calibration.model_validate_json(table.model_dump_json())
    assert again == table
    assert again.threshold("confidence", 0.2, 0.1)(torch.tensor([[1.7]])).equal(
        table.threshold("confidence", 0.2, 0.1)(torch.tensor([[1.7]]))
    )
    assert isinstance(again.rules["confidence"][0][1][0], ThresholdCell)


@pytest.mark.parametrize(
    "change",
    [
        {"context_knots": ((1.0, 2.0),)},
        {"context_edges": ((1.5,),)},
        {"context_edges": ((3.0, 1.5),)},
        {"context_knots": ((),)},
        {"epsilons": (0.1, 0.2)},
        {"epsilons": (0.4, 0.2, 0.1)},
        {"epsilons": (0.0, 0.2, 0.4)},
        {"deltas": (0.05, 0.1)},
        {"deltas": ()},
        {"confidence": ()},
        {"bellman": (((None,),),)},
        {"query_spread": float("nan")},
        {"alpha": 0.0},
        {"episodes": 0},
        {"kappas": (0.9,)},
    ],
    ids=str,
)
def test_a_table_that_does_not_fit_together_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_table(**change)


def test_the_grid_of_thresholds_goes_from_the_safest_down() -> None:
    assert np.all(np.diff(KAPPAS.numpy()) < 0)
    assert float(KAPPAS[0]) > 0.999
    assert list(DELTAS) == sorted(DELTAS)


# Time-sharing between two thresholds.


def test_sharing_meets_one_minus_delta_exactly() -> None:
    success, logit = episodes(200_000, seed=4)
    cell = chosen(success[:20_000], torch.sigmoid(logit[:20_000]))[COLUMN]
    assert cell is not None
    assert cell.risky is not None
    assert 0 < cell.share < 1
    assert cell.risky < cell.threshold
    stops = [first_true(torch.sigmoid(logit) >= kappa) for kappa in (cell.threshold, cell.risky)]
    rows = torch.arange(len(success))
    safe, risky = (float(success[rows, stop].float().mean()) for stop in stops)
    assert risky < safe
    mixed = cell.share * safe + (1 - cell.share) * risky
    # Standard error of the accuracies on the 20,000 episodes of the choice: 0.002.
    assert mixed == pytest.approx(0.9, abs=0.008)
    assert safe > 0.905


def test_each_episode_draws_once() -> None:
    row = (ThresholdCell(0.9, 0.93, 7.0, 0.5, 0.75),) * 3
    table = make_table(confidence=((row,) * 3,) * 3)
    drawn = table.threshold("confidence", 0.1, 0.1, make_rng())(torch.full((4000, 1), 2.0))
    assert sorted(set(drawn.tolist())) == pytest.approx([0.5, 0.9])
    assert float((drawn > 0.7).float().mean()) == pytest.approx(0.75, abs=0.03)
    between = table.threshold("confidence", 0.1, 0.1, make_rng())(torch.full((4000, 1), 1.5))
    assert float((between > 0.7).float().mean()) == pytest.approx(0.75, abs=0.03)
    # Without a generator nothing is drawn.
    assert at(table, 0.1, 0.1, *[2.0] * 10) == pytest.approx([0.9] * 10)


def test_the_first_format_is_read() -> None:
    """It named the rules' tables, the spread and the knots by themselves, and cells had no risky threshold."""
    table = make_table()
    data = table.model_dump(mode="json")
    rules, (knots,) = data.pop("rules"), data.pop("context_knots")
    short = [[[None if cell is None else cell[:3] for cell in row] for row in rows] for rows in rules["confidence"]]
    old = {"scale": data.pop("query_spread"), "knots": knots, "tempering": data.pop("platt")}
    assert Calibration.model_validate(data | old | {"confidence": short, "bellman": rules["bellman"]}) == table


@pytest.mark.parametrize("cost", [None, (1e-3, 0.1)])
def test_calibration_says_how_far_it_is(network: Network, cost: tuple[float, float] | None) -> None:
    said: list[float] = []
    problem = BinarySearch(dim=1, noise=(0.05, 0.1))
    belief = NetworkBelief(network, Thompson(problem.query_space), horizon=4)
    plan = CalibrationPlan(n_context_knots=3, chunk=20, costs=cost)
    calibrate(belief, problem, CalibrationRequest((0.2, 0.4), plan, episodes=300, on_progress=said.append))
    assert said == sorted(said)
    assert said[0] < 0.1
    assert said[-1] > 0.98
