"""The paper's own figures."""

from cicpe.baselines.published import published


def test_published_figures() -> None:
    cell = published("ackley", 3, 0.2, 0.05)
    assert cell is not None
    assert cell.methods["TPE"].accuracy == 0.098
    assert cell.methods["TPE"].queries is None
    assert cell.best.queries == 14.9
    assert cell.reference_queries == 6.3
    assert published("ackley", 3, 0.21, 0.05) is None
