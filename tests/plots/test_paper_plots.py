"""The figures of the paper: what is handed over is what is drawn, and nothing is left without a label."""

import io
import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from cicpe.plots.bands import StoppingCurves, plot_stopping
from cicpe.plots.growth import GrowthCurve, GrowthPanel, plot_growth
from cicpe.plots.heat import plot_robustness
from cicpe.plots.methods import MethodRow, plot_benchmarks
from cicpe.plots.regions import BoundCurve, RegionSamples, plot_bounds, plot_regions
from cicpe.plots.scaling import BoundLine, ScalingCurve, plot_separation

CURVE = (np.array([1.0, 0.5, 0.1]), np.array([0.9, 0.4, 0.05]), np.array([1.0, 0.6, 0.2]))


def words_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def saved(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, dpi=40)
    return file.getvalue()


def test_stopping_has_both_halves_and_one_legend() -> None:
    both = {"d = 5": CURVE, "d = 9": CURVE}
    figure = plot_stopping({"": StoppingCurves(both, both, {"d = 5": 2.0})})
    left, right = figure.axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("queries, t", "queries, t")
    np.testing.assert_allclose(left.get_lines()[0].get_ydata(), CURVE[0])
    assert right.get_yscale() == "log"
    assert any(list(line.get_xdata()) == [2.0, 2.0] for line in right.get_lines())
    assert left.get_shared_x_axes().joined(left, right)
    assert words_of(figure) == ["d = 5", "d = 9"]


def test_a_label_looks_the_same_in_every_row_of_stopping() -> None:
    """Though the second row lacks the first label."""
    rows = [{"ts": CURVE, "uniform": CURVE}, {"uniform": CURVE}]
    curves = {f"d = {i}": StoppingCurves(row, row, dict.fromkeys(row, 1.0)) for i, row in enumerate(rows)}
    figure = plot_stopping(curves, log_queries=True)
    above, _, below, _ = figure.axes
    looks = [(line.get_color(), line.get_linestyle()) for line in (*above.get_lines(), *below.get_lines())]
    assert looks[1] == looks[2] != looks[0]
    assert words_of(figure) == ["ts", "uniform"]
    assert [panel.get_title(loc="left") for panel in (above, below)] == ["d = 0; band: exact 95 %", "d = 1"]
    assert (above.get_xscale(), above.get_xlim()[0]) == ("log", 1)
    assert saved(figure)
    alone = plot_stopping({"": curves["d = 1"]}, order=["ts", "uniform"])
    assert alone.axes[0].get_lines()[0].get_color() == looks[1][0]
    assert words_of(alone) == ["uniform"]


def test_stops_at_the_same_time_are_all_seen() -> None:
    three = {"a": CURVE, "b": CURVE, "c": CURVE}
    figure = plot_stopping({"": StoppingCurves(three, three, {"a": 2.0, "b": 2.0, "c": 1.0})})
    patterns = [line._unscaled_dash_pattern for line in figure.axes[1].get_lines()[1::2]]  # type: ignore[attr-defined]
    assert patterns == [(0.0, (2.0, 2.0)), (2.0, (2.0, 2.0)), (0.0, (2.0, 2.0))]


def test_heat_maps_can_share_their_colours() -> None:
    low, high = np.full((2, 2), 0.2), np.array([[0.6, 0.7], [0.8, 0.9]])
    panels = [("a", low, None, None), ("b", high, None, None)]
    shared = plot_robustness((0.5, 1.0), (0.5, 1.0), panels, scales=[(0.2, 0.9)] * 2)
    assert [panel.collections[0].get_clim() for panel in shared.axes[:2]] == [(0.2, 0.9)] * 2
    apart = plot_robustness((0.5, 1.0), (0.5, 1.0), panels)
    assert apart.axes[1].collections[0].get_clim() == (0.6, 0.9)


def test_benchmarks_stand_below_each_other_and_published_rows_have_diamonds_alone() -> None:
    ours = MethodRow("ours", "ours", 0.93, (0.91, 0.95), 7.5, (7.3, 7.7))
    paper = MethodRow.published("TPE", 0.44, None)
    figure = plot_benchmarks({"first": [ours, paper], "second": [ours]}, goal=0.9)
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["first", "", "second", ""]
    left, right = figure.axes[:2]
    drawn = [float(line.get_xdata()[0]) for line in left.get_lines() if len(line.get_xdata()) == 1]
    assert [value for value in drawn if math.isfinite(value)] == [0.93, 0.44]
    assert right.get_xlim()[1] == pytest.approx(1.08 * 7.7)
    assert words_of(figure) == ["ours, 95 %", "the paper", "asked for, 0.9"]


def test_bounds_of_a_heat_map_have_no_interval_and_stand_below() -> None:
    value = np.linspace(0.1, 0.9, 9).reshape(3, 3)
    panels = [("accuracy", value, value - 0.01, value + 0.01), ("queries", 20 * value, value, value)]
    panels += [("lower bound", value, None, None), ("upper bound", value, None, None)]
    figure = plot_robustness((0.5, 1.0, 3.0), (0.5, 1.0, 3.0), panels)
    measured, _, bound = figure.axes[:3]
    assert measured.texts[0].get_text() == "0.10\n0.09-0.11"
    assert bound.texts[0].get_text() == "0.10"
    assert measured.get_subplotspec().get_gridspec().get_geometry() == (2, 2)


def test_every_region_has_a_panel_with_its_samples_and_its_peak() -> None:
    rng = np.random.default_rng(0)
    regions = [RegionSamples(f"r{i}", rng.random((9, 2)), rng.normal(size=9), rng.random(2), i > 0) for i in range(8)]
    figure = plot_regions(regions)
    panels = [panel for panel in figure.axes[:-1] if panel.get_visible()]
    assert [panel.get_title(loc="left") for panel in panels] == [region.name for region in regions]
    np.testing.assert_allclose(panels[3].collections[0].get_offsets(), regions[3].place)
    np.testing.assert_allclose(panels[3].get_lines()[0].get_xydata()[0], regions[3].peak)
    assert saved(figure).startswith(b"\x89PNG")


def test_bounds_of_fits_are_drawn_by_step_with_their_last_rise() -> None:
    curves = [BoundCurve("a", np.linspace(-2, -1, 20), True), BoundCurve("b", np.full(20, -1.5), False)]
    left, right = plot_bounds(curves, step=5).axes
    assert list(left.get_lines()[0].get_xdata()[:2]) == [5, 10]
    assert float(right.get_lines()[0].get_xdata()[0]) == pytest.approx(2 / 19)
    assert float(right.get_lines()[1].get_xdata()[0]) == 0.0


def test_a_bound_that_says_nothing_is_not_drawn_and_slopes_are_those_between_neighbours() -> None:
    epsilon = np.array([0.1, 0.01, 0.001])
    method = ScalingCurve("value", epsilon, epsilon**-2, epsilon**-2, epsilon**-2)
    bounds = [BoundLine("bound", epsilon, np.array([0.0, 5.0, 50.0]))]
    left, right = plot_separation([method], bounds, [("theorem", -2.0)]).axes
    assert np.isnan(left.get_lines()[1].get_ydata()[0])
    np.testing.assert_allclose(right.get_lines()[0].get_ydata(), [-2.0, -2.0])
    assert left.xaxis_inverted()


def test_growth_is_drawn_on_logarithmic_axes_with_its_limit() -> None:
    size = np.array([2.0, 20.0])
    curve = GrowthCurve(size, size, 0.9 * size, 1.1 * size)
    panels = [GrowthPanel("title", "d", "ms", {"one": curve}, limit=100.0)] * 3
    figure = plot_growth(panels)
    assert sum(panel.get_visible() for panel in figure.axes) == 3
    panel = figure.axes[0]
    assert (panel.get_xscale(), panel.get_yscale(), panel.get_xlabel(), panel.get_ylabel()) == ("log", "log", "d", "ms")
    np.testing.assert_allclose(panel.get_lines()[0].get_ydata(), size)
    assert list(panel.get_lines()[1].get_ydata()) == [100.0, 100.0]
