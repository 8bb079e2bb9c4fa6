"""Confidence as a probability: the fit finds what was put in."""

import pytest
import torch

from cicpe.calibration.platt import Platt, fit_platt
from cicpe.evaluation.reliability import reliability
from confidences import outcomes


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.4, 0.3), (2.5, -1.0)])
def test_the_fit_finds_the_truth(slope: float, intercept: float) -> None:
    confidence, success = outcomes(40_000, slope, intercept)
    platt = fit_platt(confidence, success)
    assert platt == Platt(pytest.approx(slope, abs=0.06), pytest.approx(intercept, abs=0.08))
    shown = torch.sigmoid(platt.slope * torch.logit(confidence) + platt.intercept)
    assert reliability(shown, success).error < 0.01


def test_a_fit_to_nothing_new_stays_put_and_of_extremes_is_finite() -> None:
    assert fit_platt(torch.tensor([0.7]), torch.tensor([True])) == Platt(
        pytest.approx(1, abs=0.15), pytest.approx(0, abs=0.15)
    )
    for success in (torch.ones(500, dtype=torch.bool), torch.zeros(500, dtype=torch.bool)):
        platt = fit_platt(torch.linspace(0, 1, 500), success)
        assert all(abs(value) < 100 for value in platt)
        assert platt.slope > 0
