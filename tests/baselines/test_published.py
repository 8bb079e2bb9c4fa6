"""The paper's own figures."""

from cicpe.baselines.published import published
from cicpe.problems.best_arm import BestArm
from cicpe.problems.geochem import Geochem


def test_published_figures() -> None:
    cell = published("ackley", 3, 0.2, 0.05)
    assert cell is not None
    assert cell.methods["TPE"].accuracy == 0.098
    assert cell.methods["TPE"].queries is None
    assert cell.best.queries == 14.9
    assert cell.reference_queries == 6.3
    assert published("ackley", 3, 0.21, 0.05) is None


def test_episodes_are_as_long_as_the_papers() -> None:
    cells = [
        ("best-arm", 15, 0.005, 0.0025),
        ("best-arm", 10, 0.005, 0.0025),
        ("gp-max", 1, 0.2, 0.1),
        ("geochem", 2, 0.15, 0.0),
    ]
    horizons = [cell.horizon for at in cells if (cell := published(*at)) is not None]
    assert horizons == [150, 100, 60, 150]
    assert BestArm(dim=15).horizon == 150
    assert BestArm(dim=10).horizon == 100
    assert Geochem.horizon == 150
