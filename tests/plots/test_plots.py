"""The trace of one episode, and every figure: labels and values, read back from the axes."""

import io
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.episodes.trace import trace_episode
from cicpe.errors import InvalidInput
from cicpe.plots.ackley import Reach, plot_ackley_ranges
from cicpe.plots.bands import plot_spread, plot_survival
from cicpe.plots.heat import plot_robustness
from cicpe.plots.maps import Map, plot_maps
from cicpe.plots.methods import MethodRow, plot_methods
from cicpe.plots.query_space import PathQueries, Plane, plot_paths, plot_planes
from cicpe.plots.reliability import AtTheStop, plot_reliability
from cicpe.plots.scaling import ScalingCurve, Slope, plot_scaling
from cicpe.plots.style import INK, THEME, svg
from cicpe.plots.training import plot_training
from cicpe.plots.trajectory import plot_trajectory
from cicpe.problems import TaskBatch
from cicpe.problems.binary_search import BinarySearch


@dataclass(frozen=True)
class Counter(Agent):
    """Its query and its recommendation are the number of observations so far; it stops at ``patience``."""

    dim: int
    patience: int
    horizon: int = 8

    def begin(self, context: Tensor) -> Tensor:
        return torch.zeros(len(context))

    def propose(self, state: Tensor, rng: Generator) -> Proposal:
        point = (state / 10)[:, None].expand(-1, self.dim)
        return Proposal(point[:, None], state >= self.patience, point, state / 20, 1 / (1 + point))

    def update(self, state: Tensor, query: Tensor, observation: Tensor) -> Tensor:
        assert torch.equal(query, (state / 10)[:, None].expand(-1, self.dim))
        assert observation.shape == query.shape
        return state + 1


def one_task(dim: int, n: int = 1) -> TaskBatch:
    return TaskBatch.draw(BinarySearch(dim), n, Generator().manual_seed(0))


@pytest.mark.parametrize(("patience", "extra", "queries"), [(3, 0, 3), (3, 2, 5), (7, 4, 8), (0, 0, 0)])
def test_a_trace_keeps_every_step(patience: int, extra: int, queries: int) -> None:
    tasks = one_task(2)
    trace = trace_episode(Counter(2, patience), tasks, Generator().manual_seed(1), extra)
    steps = np.arange(queries + 1, dtype=np.float32) / 10
    np.testing.assert_allclose(trace.query, np.stack([steps[:-1]] * 2, axis=1))
    np.testing.assert_allclose(trace.mean, np.stack([steps] * 2, axis=1))
    np.testing.assert_allclose(trace.std, 1 / (1 + trace.mean))
    np.testing.assert_allclose(trace.confidence, steps / 2, rtol=1e-6)
    assert (trace.stop_time, trace.stopped) == (patience, True)
    assert trace.observation.shape == trace.query.shape
    assert trace.loss == pytest.approx(np.linalg.norm(trace.mean[patience] - tasks.target[0].numpy()), rel=1e-5)


def test_a_trace_that_reaches_the_horizon_is_truncated() -> None:
    trace = trace_episode(Counter(1, patience=99, horizon=5), one_task(1), Generator().manual_seed(1), extra=3)
    assert (len(trace.query), trace.stop_time, trace.stopped) == (5, 5, False)


def test_a_trace_is_of_one_task() -> None:
    with pytest.raises(InvalidInput, match="a single task"):
        trace_episode(Counter(1, 3), one_task(1, n=2), Generator().manual_seed(1))


def drawn(dim: int, query_dim: int | None = None, steps: int = 9, **more: object) -> Figure:
    rng = np.random.default_rng(0)
    query = rng.uniform(-1, 1, (steps, dim if query_dim is None else query_dim))
    return plot_trajectory(query, rng.normal(size=(steps + 1, dim)), rng.uniform(size=(steps + 1, dim)), **more)  # type: ignore[arg-type]


def lines(figure: Figure, panel: int) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata()) for line in figure.axes[panel].get_lines()]


def test_three_labelled_panels_share_the_time_axis() -> None:
    figure = drawn(3, title="A title")
    assert [panel.get_ylabel() for panel in figure.axes] == ["query", "posterior mean", "posterior std"]
    assert figure.axes[-1].get_xlabel() == "observations, t"
    assert figure.get_suptitle() == "A title"
    assert [len(curve) for curve in lines(figure, 0)] == [9] * 3
    assert [len(curve) for curve in lines(figure, 1)] == [10] * 3
    assert figure.axes[0].get_shared_x_axes().joined(figure.axes[0], figure.axes[2])


def test_targets_stop_and_confidence_are_drawn() -> None:
    target = np.array([0.25, -0.5])
    figure = drawn(2, target=target, stop_time=6, confidence=np.linspace(0, 1, 10), names=["dose", "time"])
    assert [panel.get_ylabel() for panel in figure.axes][3] == "confidence"
    for panel in (0, 1):
        assert {float(curve[0]) for curve in lines(figure, panel) if len(curve) == 2} >= set(target)
    assert all(any(list(line.get_xdata()) == [6, 6] for line in panel.get_lines()) for panel in figure.axes)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["coordinate dose", "time", "target", "stop", "had it gone on"]


def test_a_target_in_another_space_is_not_drawn_on_the_queries() -> None:
    figure = drawn(1, query_dim=2, target=np.array([0.7]))
    assert [len(curve) for curve in lines(figure, 0)] == [9, 9]
    assert [len(curve) for curve in lines(figure, 1)] == [10, 2]


def test_coordinates_differ_in_colour_or_marker() -> None:
    figure = drawn(20)
    styles = {(line.get_color(), line.get_marker()) for line in figure.axes[0].get_lines()}
    assert len(styles) == 20


@pytest.mark.parametrize("steps", [0, 1, 60])
def test_any_length_can_be_saved(steps: int) -> None:
    file = io.BytesIO()
    drawn(2, steps=steps, target=np.zeros(2), stop_time=steps).savefig(file, dpi=40)
    assert file.getvalue().startswith(b"\x89PNG")


def test_no_figure_state_is_kept() -> None:
    code = "import sys, cicpe.plots.trajectory; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_methods_show_values_intervals_and_the_paper() -> None:
    rows = [
        MethodRow("ours", "ours", 0.93, (0.91, 0.95), 7.5, (7.3, 7.7), 0.91, 22.7),
        MethodRow("tpe", "baseline", 0.48, (0.43, 0.54), 8.0, (8.0, 8.0)),
    ]
    figure = plot_methods(rows, goal=0.9, title="n = 10, seed 0")
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["ours", "tpe"]
    assert (left.get_xlabel(), right.get_xlabel()) == ("accuracy", "queries")
    drawn_values = [float(line.get_xdata()[0]) for line in left.get_lines() if len(line.get_xdata()) == 1]
    assert drawn_values == [0.93, 0.91, 0.48]
    assert [line.get_xdata()[0] for line in right.get_lines()] == [7.5, 22.7, 8.0]
    np.testing.assert_allclose(left.collections[0].get_segments()[0][:, 0], [0.91, 0.95])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["ours, 95 %", "baseline, 95 %", "the paper", "asked for, 0.9"]
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the first method on top


def test_queries_that_differ_much_are_logarithmic() -> None:
    rows = [MethodRow(str(q), "baseline", 0.9, (0.8, 1.0), q, (q, q)) for q in (5.0, 5000.0)]
    assert plot_methods(rows).axes[1].get_xscale() == "log"


CURVE = (np.array([1.0, 0.5, 0.1]), np.array([0.9, 0.4, 0.05]), np.array([1.0, 0.6, 0.2]))


def test_survival_and_spread_draw_their_curves() -> None:
    figure = plot_survival({"a": CURVE, "b": CURVE}, title="t")
    panel = figure.axes[0]
    assert (panel.get_xlabel(), "P(" in panel.get_ylabel()) == ("queries, t", True)
    np.testing.assert_allclose(panel.get_lines()[0].get_ydata(), CURVE[0])
    assert len(panel.collections) == 2
    assert len({(line.get_color(), str(line.get_linestyle())) for line in panel.get_lines()}) == 2
    narrowing = plot_spread({"a": CURVE}, {"a": 1.5}).axes[0]
    assert narrowing.get_yscale() == "log"
    assert list(narrowing.get_lines()[1].get_xdata()) == [1.5, 1.5]


def test_the_matched_prior_is_boxed_and_every_cell_says_its_value() -> None:
    value = np.arange(9.0).reshape(3, 3) / 10
    figure = plot_robustness((0.5, 1.0, 3.0), (0.5, 1.0, 3.0), [("accuracy", value, value - 0.01, value + 0.01)])
    panel = figure.axes[0]
    boxes = [patch for patch in panel.patches if isinstance(patch, Rectangle)]
    assert {box.get_xy() for box in boxes} == {(1, 1)}
    assert [text.get_text().split("\n")[0] for text in panel.texts] == [f"{v:.2f}" for v in value.flat]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0.5", "1", "3"]
    np.testing.assert_allclose(panel.collections[0].get_array(), value)


def test_reliability_has_a_diagonal_and_the_stop() -> None:
    x = np.array([0.2, 0.8])
    stop = AtTheStop(0.9, 0.92, (0.9, 0.94))
    top, bottom = plot_reliability(x, x, x - 0.1, x + 0.1, np.array([5.0, 9.0]), stop=stop).axes
    assert [list(line.get_xdata()) for line in top.get_lines()] == [[0, 1], [0.2, 0.8], [0.9]]
    assert [bar.get_height() for bar in bottom.patches] == [5.0, 9.0]
    assert (bottom.get_xlabel(), top.get_ylabel()) == ("confidence", "right answers")


def test_queries_are_coloured_by_their_order() -> None:
    rng = np.random.default_rng(0)
    episodes = [Plane(rng.uniform(size=(n, 2)), np.zeros(2), np.ones(2), 0.1, f"{n}") for n in (3, 6)]
    panels = plot_planes(episodes, (0.0, 0.0), (1.0, 1.0)).axes
    np.testing.assert_allclose(panels[1].collections[0].get_array(), np.arange(1, 7))
    np.testing.assert_allclose(panels[1].collections[0].get_offsets(), episodes[1].query)
    assert panels[-1].get_ylabel() == "query number"
    assert [panel.get_title(loc="left") for panel in panels[:2]] == ["3", "6"]
    grid = np.linspace(0, 1, 5)
    path = PathQueries(grid, grid**2, np.array([0.5]), np.array([0.3]), 1.0, 0.9, (0.8, 1.0), "one")
    panel = plot_paths([path]).axes[0]
    np.testing.assert_allclose(panel.get_lines()[0].get_ydata(), grid**2)
    np.testing.assert_allclose(panel.collections[0].get_offsets(), [[0.5, 0.3]])
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("place, x", "value")


def a_map(queries: int, gap: bool = False) -> Map:
    """A slope that rises with the first coordinate only, peak in the middle of the far side."""
    x, y = np.meshgrid(np.linspace(0, 2, 41), np.linspace(0, 1, 21), indexing="ij")
    loss = 2 - x if gap else np.hypot(x - 2, y - 0.5)
    query = np.random.default_rng(queries).uniform(size=(queries, 2))
    return Map(x, loss, 0.25, query, np.array([1.5, 0.4]), np.array([2.0, 0.5]), f"{queries} queries")


def corners(figure: Figure) -> tuple[np.ndarray, np.ndarray]:
    """The mesh's values and their places."""
    mesh = figure.axes[0].collections[0]
    return np.asarray(mesh.get_array()).reshape(21, 41), mesh.get_coordinates()


def test_a_map_shows_the_field_with_the_first_coordinate_along_the_x_axis() -> None:
    figure = plot_maps([a_map(3)], (0.0, 0.0), (2.0, 1.0), names=("east", "north"), title="t")
    panel, bar = figure.axes
    value, place = corners(figure)
    np.testing.assert_allclose(value, place[..., 0])
    assert (panel.get_xlim(), panel.get_ylim()) == ((0.0, 2.0), (0.0, 1.0))
    assert (panel.get_xlabel(), panel.get_ylabel(), bar.get_ylabel()) == ("east", "north", "value in each panel")
    assert panel.get_title(loc="left") == "3 queries"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["query, by number", "answer", "target", "answers within epsilon"]


def test_queries_are_numbered_in_their_order_and_the_answer_is_beside_the_target() -> None:
    episode = a_map(12)
    panel = plot_maps([episode], (0.0, 0.0), (2.0, 1.0)).axes[0]
    assert [text.get_text() for text in panel.texts] == [str(i) for i in range(1, 13)]
    np.testing.assert_allclose([text.get_position() for text in panel.texts], episode.query)
    drawn_at = [tuple(float(v) for v in line.get_xydata()[0]) for line in panel.get_lines()]
    assert drawn_at == [(2.0, 0.5), (1.5, 0.4)]
    assert len({line.get_marker() for line in panel.get_lines()}) == 2


@pytest.mark.parametrize("gap", [False, True])
def test_the_edge_of_success_is_where_the_loss_is_epsilon(gap: bool) -> None:
    """A circle about the target for a distance, a level line of the field for a gap in value."""
    edge = plot_maps([a_map(1, gap)], (0.0, 0.0), (2.0, 1.0)).axes[0].collections[1].get_paths()[0].vertices
    x, y = np.asarray(edge).T
    np.testing.assert_allclose(2 - x if gap else np.hypot(x - 2, y - 0.5), 0.25, atol=0.002)
    assert len(edge) > 10


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3)), (6, (2, 3))])
def test_maps_side_by_side_have_colours_of_their_own(count: int, shape: tuple[int, int]) -> None:
    maps = [a_map(i)._replace(field=(i + 1) * a_map(i).field) for i in range(count)]
    figure = plot_maps(maps, (0.0, 0.0), (2.0, 1.0), title="t")
    panels, bar = figure.axes[:-1], figure.axes[-1]
    assert panels[0].get_subplotspec().get_gridspec().get_geometry() == shape
    assert sum(panel.get_visible() for panel in panels) == count
    limits = [panel.collections[0].get_clim() for panel in panels[:count]]
    assert limits == [(0.0, 2.0 * (i + 1)) for i in range(count)]
    assert [label.get_text() for label in bar.get_yticklabels()] == ["lowest", "highest"]
    assert "http" not in svg(figure)


def test_numbers_stay_dark_on_their_light_discs_whatever_the_page() -> None:
    panel = plot_maps([a_map(3)], (0.0, 0.0), (2.0, 1.0)).axes[0]
    for text in panel.texts:
        box = text.get_bbox_patch()
        assert box is not None
        assert not {text.get_color(), to_hex(box.get_facecolor())} & set(THEME)


@pytest.mark.filterwarnings("error")
def test_a_field_where_every_answer_is_right_has_no_edge() -> None:
    flat = a_map(2)._replace(field=np.zeros((41, 21)), loss=np.zeros((41, 21)))
    file = io.BytesIO()
    plot_maps([flat], (0.0, 0.0), (2.0, 1.0)).savefig(file, dpi=40)
    assert file.getvalue().startswith(b"\x89PNG")


def test_ranges_and_scalings_and_training_are_labelled() -> None:
    x = np.array([0.1, 0.3, 0.5])
    left, right = plot_ackley_ranges({3: Reach(x, 2 * x, 3 * x)}, {3: Reach(x, x, x)}).axes
    assert left.get_xlabel().startswith("b")
    assert right.get_xlabel().startswith("c")
    np.testing.assert_allclose(left.get_lines()[0].get_ydata(), 3 * x)
    np.testing.assert_allclose(left.get_lines()[1].get_ydata(), 2 * x)
    scaling = plot_scaling([ScalingCurve("value", x, x**-2, x**-2, x**-2)], [Slope("-2", (0.5, 0.1), 4.0, -2.0)]).axes[
        0
    ]
    assert (scaling.get_xscale(), scaling.get_yscale(), scaling.xaxis_inverted()) == ("log", "log", True)
    np.testing.assert_allclose(scaling.get_lines()[1].get_ydata(), [4.0, 100.0])
    panels = plot_training(x, x, 10 * x, x, {"inference": x}).axes
    assert {panel.get_ylabel() for panel in panels} == {
        "accuracy of its own rollouts",
        "loss: inference",
        "mean queries",
    }


def test_an_svg_follows_the_page_and_links_to_nothing() -> None:
    text = svg(plot_survival({"a": CURVE}, title="t"))
    assert text.startswith("<svg")
    assert "http" not in text
    assert "currentColor" in text
    assert INK not in text
    assert text == svg(plot_survival({"a": CURVE}, title="t"))
