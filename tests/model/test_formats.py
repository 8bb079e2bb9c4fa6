"""Folders of the first format are read, and are the same models."""

from pathlib import Path

import pytest

import cicpe
from cicpe.model import Model

OLD = Path(__file__).parent / "format-1"


@pytest.mark.parametrize("name", ["best-arm-5d", "ackley-3d"])
def test_a_folder_of_the_first_format_is_the_same_model(name: str, tmp_path: Path) -> None:
    old, new = Model.load(OLD / name), cicpe.load(name)
    assert old.description.format == "cicpe-model-1"
    if name != "best-arm-5d":  # which was calibrated anew since
        assert old.calibration == new.calibration
    assert old.description.training == new.description.training
    assert old.sha256 == new.sha256
    # Saved again, it has the present format.
    again = Model.load(old.save(tmp_path / name))
    assert again.description.format == "cicpe-model-2"
    assert again.fingerprint == new.fingerprint or new.alarm is not None  # the zoo's alarms were fitted anew


def test_its_alarm_is_read_too() -> None:
    old, new = Model.load(OLD / "best-arm-5d").alarm, cicpe.load("best-arm-5d").alarm
    assert old is not None
    assert new is not None
    assert old.config.statistics == 4  # before there was one for readings in too small a unit
    fitted_anew = {"statistics": new.config.statistics, "context_knots": new.config.context_knots}
    assert old.config.model_copy(update=fitted_anew) == new.config
