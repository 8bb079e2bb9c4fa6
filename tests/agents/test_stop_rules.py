"""The stop rules themselves: what each compares, and when recorded episodes would have stopped."""

import pytest
import torch
from torch import Tensor

from cicpe.agents.stop_rules import STOP_RULES, first_passages, first_true, stop_rule
from cicpe.beliefs.base import StopView
from cicpe.errors import InvalidInput


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
