"""Campaigns that are fed nonsense do not stop quietly: the quick ones of ``benchmarks/nonsense.py``."""

import importlib.util
import sys
from types import ModuleType

import pytest

import cicpe
from cicpe.evaluation.alarm_study import alarm_study
from commands import REPOSITORY


@pytest.fixture(scope="module")
def nonsense() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nonsense", REPOSITORY / "benchmarks" / "nonsense.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nonsense"] = module
    spec.loader.exec_module(module)
    return module


def test_none_stops_quietly(nonsense: ModuleType) -> None:
    quick = [setting for setting in nonsense.SETTINGS if setting.model in ("best-arm-5d", "binary-search-6d")]
    ends = {
        (setting.model, name): nonsense.play(setting, fault, 0, 0).how
        for setting in quick
        for name, fault in setting.faults.items()
    }
    assert [campaign for campaign, how in ends.items() if how == "quiet"] == []
    assert ends["best-arm-5d", "wrong unit (x 1000)"] == "confirm"
    assert ends["best-arm-5d", "wrong sign"] == "warned"
    assert ends["binary-search-6d", "wrong code (7 for yes)"] == "refused"


def test_a_campaign_without_a_fault_is_told_and_stops(nonsense: ModuleType) -> None:
    """The negative control: nothing is caught where nothing is wrong."""
    for setting in nonsense.SETTINGS[::2]:
        assert nonsense.play(setting, nonsense.scaled(1.0), 0, 2).how == "harmless"


def test_redundant_queries_expose_what_a_stop_alone_does_not() -> None:
    model = cicpe.load("best-arm-5d")
    agent, tasks = model.agent(0.01, 0.1, "each"), model.tasks({"noise": 0.01})
    rows = {
        (row.world, verify): row
        for verify in (0, 2)
        for row in alarm_study(agent, None, tasks, 0.01, 0.1, 150, 3, verify)
        if row.world in ("the prior", "drift")
    }
    assert rows["drift", 0].no < 0.3
    assert rows["drift", 2].no > 0.7
    assert rows["the prior", 2].no < 0.04  # 1 % is allowed
    assert rows["the prior", 2].mean_queries == pytest.approx(rows["the prior", 0].mean_queries + 2, abs=0.2)
