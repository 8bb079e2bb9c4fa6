"""The stop rule *each*: every episode that stops is as sure as is promised, and not their average alone."""

import math
from dataclasses import replace

import pytest
import torch

import cicpe
from cicpe.agents.belief_agent import calibrated_confidence
from cicpe.agents.stop_rules import STOP_RULES, first_passages
from cicpe.calibration.platt import Platt
from cicpe.calibration.thresholds import DELTAS, choose_cells


def test_each_asks_of_every_episode_what_the_average_asks_of_all() -> None:
    """Four in five are certain, one in five is a coin's toss: their average would do, the toss would not."""
    rng = torch.Generator().manual_seed(0)
    certain = torch.rand(2000, generator=rng) < 0.85
    confidence = torch.where(certain, 0.999, 0.5)[:, None].expand(-1, 3).clone()
    confidence[:, 0], confidence[:, 2] = 0.1, 0.99
    success = torch.stack(
        [torch.zeros(2000), (certain | (torch.rand(2000, generator=rng) < 0.5)).float(), torch.ones(2000)]
    )
    rule = STOP_RULES["each"]
    thresholds = rule.thresholds(None)
    stops = first_passages(confidence, thresholds)
    average = choose_cells(success.T.bool(), stops, thresholds, 0.05)[DELTAS.index(0.1)]
    floors = [Platt(1.0, 0.0).raw(1 - delta) for delta in DELTAS]
    each = choose_cells(success.T.bool(), stops, thresholds, 0.05, floors)[DELTAS.index(0.1)]
    assert average is not None
    assert each is not None
    assert average.threshold <= 0.5 < 0.9 <= each.threshold
    assert each.accuracy > average.accuracy
    assert each.queries > average.queries
    assert each.risky is None


def test_a_raw_confidence_is_shown_as_it_says() -> None:
    platt = Platt(1.7, -0.4)
    shown = 1 / (1 + math.exp(-(1.7 * math.log(0.8 / 0.2) - 0.4)))
    assert platt.raw(shown) == pytest.approx(0.8)


def test_no_more_confidence_is_shown_than_the_held_out_episodes_can_show() -> None:
    """400 of them per noise level, had all been right, show 401 / 402; 6,554 of them show more."""
    shown = {}
    for name in ("ackley-3d", "binary-search-10d"):
        calibration = cicpe.load(name).calibration
        how = calibration.platt_at(0.2)
        assert how is not None
        shown[name] = float(calibrated_confidence(torch.ones(1), how(torch.tensor([[0.05]])))[0])
    assert shown["ackley-3d"] == pytest.approx(401 / 402, abs=1e-6)
    assert shown["binary-search-10d"] > 0.9998


def test_models_of_earlier_versions_stop_for_each_too() -> None:
    model = cicpe.load("best-arm-5d")
    rules = {name: table for name, table in model.calibration.rules.items() if name != "each"}
    model = replace(model, calibration=model.calibration.model_copy(update={"rules": rules}))
    average, each = (
        cicpe.evaluate(model, epsilon=0.02, delta=0.1, stop=stop, episodes=1500, seed=3) for stop in ("average", "each")
    )
    assert (
        float((average.outcomes.confidence < 0.8).float().mean()) > 0.1
    )  # what a person with one campaign would not call sure
    assert float(each.outcomes.confidence[each.outcomes.stopped].min()) >= 0.9 - 1e-4
    assert each.accuracy > average.accuracy
    assert each.mean_queries < 1.15 * average.mean_queries
