"""``scripts/baseline_budgets.py``: one play serves all budgets of a noise level."""

from types import ModuleType

import pytest

from cicpe.parallel import HERE
from commands import script


@pytest.fixture
def budgets() -> ModuleType:
    return script("baseline_budgets")


def test_every_cell_has_the_papers_budget_and_ours(budgets: ModuleType) -> None:
    own = [budget for budget in budgets.budgets("gp-max") if budget.whose == "paper"]
    assert [budget.queries for budget in own] == [14, 23, 40, 44]
    ackley = list(budgets.budgets("ackley"))
    assert len(ackley) == 24
    assert {budget.whose for budget in ackley} == {"paper", "ours"}


def test_one_play_serves_the_budgets_of_a_noise_level(budgets: ModuleType) -> None:
    chosen = [budget for budget in budgets.budgets("ackley") if budget.dim == 3]
    assert [len(served) for served in budgets.plays("tpe", chosen)] == [4, 2, 2]
    gp = list(budgets.budgets("gp-max"))
    assert all(len({budget.queries for budget in served}) == 1 for served in budgets.plays("uniform-bins", gp))


def test_a_budget_is_read_from_a_longer_play_as_if_it_were_the_only_one(budgets: ModuleType) -> None:
    at = "gp-max", 1, 0.1, 0.5
    short, long = budgets.Budget(*at, 4, "ours"), budgets.Budget(*at, 9, "paper")
    together = {row["queries"]: row for row in budgets.measured("uniform-top", [short, long], 64, HERE)}
    (alone,) = budgets.measured("uniform-top", [short], 64, HERE)
    assert together[4] == alone
    assert together[9]["accuracy"] > together[4]["accuracy"]
    low, high = alone["accuracy_ci"]
    assert low < alone["accuracy"] < high


def test_the_page_has_the_papers_figure_beside_its_own_budget_only(budgets: ModuleType) -> None:
    row = {"problem": "ackley", "dim": 3, "noise": 0.05, "epsilon": 0.2, "method": "tpe", "tasks": 500}
    row |= {"accuracy": 0.2, "accuracy_ci": [0.1, 0.3]}
    text = budgets.page([row | {"queries": 15, "whose": "paper"}, row | {"queries": 7, "whose": "ours"}])
    assert "| 3 | 0.2 | 0.05 | 15, the paper's | 0.200 (0.100-0.300) [0.098] |" in text
    assert "| 3 | 0.2 | 0.05 | 7, ours | 0.200 (0.100-0.300) |" in text


def test_what_was_measured_is_not_measured_again(budgets: ModuleType) -> None:
    budget = budgets.Budget("ackley", 3, 0.05, 0.2, 15, "paper")
    row = budget._asdict() | {"method": "tpe", "tasks": 100}
    assert budgets.is_kept([row], "tpe", budget, 100)
    assert not budgets.is_kept([row], "tpe", budget, 500)
    assert not budgets.is_kept([row], "cma-es", budget, 100)
    assert not budgets.is_kept([row], "tpe", budget._replace(queries=16), 100)
