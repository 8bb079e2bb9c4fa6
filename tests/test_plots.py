"""The trace of one episode, and its figure."""

import io
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.evaluation.trajectory import trace_episode
from cicpe.plots.trajectory import plot_trajectory
from cicpe.problems import HiddenTasks
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
        return Proposal(point, state >= self.patience, point, state / 20, 1 / (1 + point))

    def observe(self, state: Tensor, query: Tensor, observation: Tensor) -> Tensor:
        assert torch.equal(query, (state / 10)[:, None].expand(-1, self.dim))
        assert observation.shape == query.shape
        return state + 1


def one_task(dim: int, n: int = 1) -> HiddenTasks:
    return HiddenTasks.draw(BinarySearch(dim), n, Generator().manual_seed(0))


@pytest.mark.parametrize(("patience", "extra", "queries"), [(3, 0, 3), (3, 2, 5), (7, 4, 8), (0, 0, 0)])
def test_a_trace_keeps_every_step(patience: int, extra: int, queries: int) -> None:
    hidden = one_task(2)
    trace = trace_episode(Counter(2, patience), hidden, Generator().manual_seed(1), extra)
    steps = np.arange(queries + 1, dtype=np.float32) / 10
    np.testing.assert_allclose(trace.query, np.stack([steps[:-1]] * 2, axis=1))
    np.testing.assert_allclose(trace.mean, np.stack([steps] * 2, axis=1))
    np.testing.assert_allclose(trace.std, 1 / (1 + trace.mean))
    np.testing.assert_allclose(trace.confidence, steps / 2, rtol=1e-6)
    assert (trace.stop_time, trace.stopped) == (patience, True)
    assert trace.loss == pytest.approx(np.linalg.norm(trace.mean[patience] - hidden.target[0].numpy()), rel=1e-5)


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
