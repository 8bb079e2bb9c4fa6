"""The stop rules themselves: what each compares, and when recorded episodes would have stopped."""

import pytest
import torch
from torch import Tensor

from cicpe.agents.stop_rules import REFERENCE_TIME, STOP_RULES, first_passages, first_true, stop_rule
from cicpe.beliefs.base import StopView
from cicpe.calibration.thresholds import DELTAS, choose_cells
from cicpe.episodes.table import EpisodeTable
from cicpe.errors import InvalidInput
from cicpe.scoring import needed


def view(time: Tensor, confidence: Tensor, stop: Tensor, going: Tensor, minimum_time: int = 0) -> StopView:
    return StopView(time, minimum_time, confidence, torch.zeros(*confidence.shape, 1), stop, going)


def test_confidence_stops_at_the_threshold_and_above() -> None:
    seen = view(torch.zeros(3), torch.tensor([0.89, 0.9, 0.95]), torch.zeros(3), torch.zeros(3))
    rule = STOP_RULES["confidence"]
    assert rule.would_stop(seen, torch.full((3,), 0.9)).tolist() == [False, True, True]
    assert not rule.uses_cost
    assert rule.safer(torch.tensor([[0.2, 0.7]])).tolist() == pytest.approx([0.7])


@pytest.mark.parametrize("name", ["bellman", "shaped", "own"])
def test_bellman_compares_the_values_after_the_minimum_time(name: str) -> None:
    time, stop = torch.tensor([0, 2, 3, 3, 3]), torch.tensor([0.9, 0.9, 0.9, 0.5, 0.4])
    seen = view(time, torch.zeros(5), stop, torch.full((5,), 0.5), minimum_time=3)
    rule = STOP_RULES[name]
    assert rule.would_stop(seen, torch.full((5,), 0.01)).tolist() == [False, False, True, True, False]
    assert rule.uses_cost
    assert rule.safer(torch.tensor([[0.2, 0.7]])).tolist() == pytest.approx([0.2])


@pytest.mark.parametrize("name", STOP_RULES)
def test_thresholds_go_from_the_safest_down(name: str) -> None:
    rule = STOP_RULES[name]
    thresholds = rule.thresholds((1e-3, 0.1))
    assert len(thresholds) > 1
    pairs = torch.stack([thresholds[:-1], thresholds[1:]], dim=1)
    assert torch.equal(rule.safer(pairs), thresholds[:-1])


def test_a_rule_that_values_queries_needs_costs() -> None:
    with pytest.raises(InvalidInput, match="does not value queries"):
        STOP_RULES["bellman"].thresholds(None)


def test_a_rule_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match="confidence, each, bellman, shaped, own"):
        stop_rule("never")


def test_first_passages_are_the_first_prefixes_at_each_threshold() -> None:
    score = torch.rand(50, 9, generator=torch.Generator().manual_seed(0)) ** 0.2
    thresholds = STOP_RULES["confidence"].thresholds(None)
    for level, stop in zip(thresholds.tolist(), first_passages(score, thresholds), strict=True):
        assert torch.equal(stop, first_true(score >= level))
        for row, found in zip(score.tolist(), stop.tolist(), strict=True):
            assert found == next((t for t, value in enumerate(row) if value >= level), 8)


def learners(rate_B: Tensor, queries: int, rng: torch.Generator) -> EpisodeTable:
    """Episodes whose posterior is normal and narrows as rate / sqrt(n): confidence within 1 is exact."""
    error = rate_B[:, None] * torch.randn((len(rate_B), queries), generator=rng).cumsum(dim=1)
    time = torch.arange(1, queries + 1)
    loss = torch.cat([torch.full((len(rate_B), 1), 9.0), (error / time).abs()], dim=1)
    sure = torch.special.erf(time.sqrt() / (rate_B[:, None] * 2**0.5))
    confidence = torch.cat([torch.zeros(len(rate_B), 1), sure], dim=1)
    length = torch.full((len(rate_B),), queries)
    nothing = torch.zeros(len(rate_B), queries + 1, 1)
    return EpisodeTable(loss[None], torch.zeros(len(rate_B), 0), confidence[None], {}, nothing, length)


def queries_at(table: EpisodeTable, fall: float, accuracy: float = 0.9) -> float:
    return needed(table, 1.0, 400, accuracy, by_confidence=True, fall=fall).queries


def test_a_falling_confidence_keeps_an_average_with_fewer_queries_where_tasks_teach_at_different_rates() -> None:
    rng = torch.Generator().manual_seed(0)
    different = learners((torch.randn(4000, generator=rng) * 0.5).exp() * 3, 400, rng)
    assert queries_at(different, 0.75) < 0.93 * queries_at(different, 0.0)
    success = different.loss[0] <= 1
    rule = STOP_RULES["confidence"].falling(0.75)
    cells = choose_cells(success, rule.stop_times(different, 0, rule.thresholds(None)), rule.thresholds(None), 0.05)
    cell = cells[DELTAS.index(0.1)]
    assert cell is not None
    assert 0.9 < cell.accuracy < 0.94


def test_it_gains_nothing_where_all_teach_alike() -> None:
    alike = learners(torch.full((500,), 3.0), 400, torch.Generator().manual_seed(1))
    assert queries_at(alike, 0.75) == pytest.approx(queries_at(alike, 0.0))


def test_recorded_episodes_stop_where_a_live_one_would() -> None:
    rng = torch.Generator().manual_seed(2)
    table, rule = learners(torch.rand(40, generator=rng) * 4 + 1, 60, rng), STOP_RULES["confidence"].falling(0.5)
    thresholds = rule.thresholds(None)[::20]
    for threshold, stop in zip(thresholds, rule.stop_times(table, 0, thresholds), strict=True):
        assert torch.equal(stop, first_true(rule.would_stop(table.view(0), threshold)))


def test_what_is_asked_is_the_threshold_at_the_reference_and_falls_with_the_queries() -> None:
    rule = STOP_RULES["confidence"].falling(0.75)
    asked = rule.asked(torch.tensor(0.9), torch.tensor([0, 4, REFERENCE_TIME, 99]))
    assert float(asked[2]) == pytest.approx(0.9, abs=1e-6)
    assert asked.tolist() == sorted(asked.tolist(), reverse=True)
    assert float(asked[3]) == pytest.approx(1 / (1 + (1 / 9) * 10**0.75), abs=1e-5)
    seen = view(torch.tensor([4, 99]), asked[[1, 3]] + 1e-4, torch.zeros(2), torch.zeros(2))
    assert rule.would_stop(seen, torch.tensor(0.9)).all()
    assert not rule.would_stop(seen._replace(confidence=asked[[1, 3]] - 1e-4), torch.tensor(0.9)).any()


@pytest.mark.parametrize("name", ["each", "bellman", "shaped", "own"])
def test_other_rules_do_not_fall(name: str) -> None:
    assert stop_rule(name).falling(0.75) is stop_rule(name)
