"""An alarm of the size that its time allows, at the end of every training."""

import math
from pathlib import Path

import pytest
import torch

import cicpe
from cicpe.agents.alarm import TAILS
from cicpe.calibration.alarm_fit import LEAST_RANKED, USUAL, AlarmSizes, affordable_sizes, tail_quantiles
from cicpe.model import Model
from cicpe.problems.observations import YesNo
from small_runs import train_with_checkpoints


def test_sizes_shrink_down_to_what_a_p_value_needs() -> None:
    shares = [USUAL.scaled(share) for share in (1.0, 0.3, 0.1, 0.0)]
    assert shares[0] == USUAL
    assert shares[-1].ranked == LEAST_RANKED
    costs = [sizes.cost(has_head=True) for sizes in shares]
    assert costs == sorted(costs, reverse=True)
    # What is small already is not made larger.
    few = AlarmSizes(episodes=64, ranked=99, knots=1)
    assert few.scaled(0.0).episodes == 64


@pytest.mark.parametrize("has_head", [True, False])
def test_the_largest_sizes_within_a_share_are_taken(has_head: bool) -> None:
    assert USUAL.within(1.0, has_head) == USUAL
    half = USUAL.within(0.5, has_head)
    assert 0.2 * USUAL.cost(has_head) < half.cost(has_head) <= 0.5 * USUAL.cost(has_head)


def sizes_in(model: Model, seconds: float) -> AlarmSizes | None:
    return affordable_sizes(
        model.belief, model.problem, query_spread=0.0, epsilon=0.3, sizes=USUAL, seconds=seconds, seed=0
    )


def test_a_training_ends_with_an_alarm_and_the_kinds_of_its_observations(tmp_path: Path) -> None:
    model = train_with_checkpoints(tmp_path / "model")
    assert model.alarm is not None
    assert model.observations.kinds == (YesNo(-1.0, 1.0),)
    loaded = cicpe.load(tmp_path / "model")
    assert loaded.alarm is not None
    assert loaded.observations == model.observations
    assert loaded.fingerprint == model.fingerprint
    assert sizes_in(model, 1e6) == USUAL
    assert sizes_in(model, 1e-3) is None


def test_quantiles_of_rare_values_go_on_as_the_fuller_ones_do() -> None:
    """Of exponential values each halving of the tail is as wide as the one before."""
    values = torch.empty(1, 96, 1).exponential_(generator=torch.Generator().manual_seed(0))
    found = tail_quantiles(values)[0, 0]
    assert bool((found.diff() > 0.3).all())
    assert float(found[-1]) == pytest.approx(math.log(1024), rel=0.35)
    # What it is there for: the largest of 96 values say nothing of one in a thousand.
    plain = torch.quantile(values[0, :, 0], 1 - torch.tensor(TAILS))
    assert float(plain.diff()[-1]) < 0.1


def test_quantiles_of_many_episodes_are_their_own() -> None:
    values = torch.randn(2, 4096, 3, generator=torch.Generator().manual_seed(0))
    plain = torch.quantile(values, 1 - torch.tensor(TAILS), dim=1).permute(1, 2, 0)
    torch.testing.assert_close(tail_quantiles(values), plain)
