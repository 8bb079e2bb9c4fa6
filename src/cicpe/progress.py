"""What a person sees while a model is trained: a bar on a terminal or in a notebook, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cicpe.training.callbacks import TrainingCallback

if TYPE_CHECKING:
    from cicpe.training.base import AnyTrainer, Snapshot

CALIBRATING = "choosing the stop thresholds on held-out tasks"
SILENCE = 15.0
"""Seconds that calibration is silent for, where lines are written."""
REDRAW = 0.2
"""Seconds between two updates of the bar."""


@contextmanager
def followed(progress: bool | None = None) -> Iterator[TrainingCallback]:
    """A callback for training that reports on standard error, or below a notebook's cell, until the block ends.

    Args:
        progress: Whether to; where that is not said, on a terminal and in a notebook.
    """
    if progress is False:
        yield TrainingCallback()
    elif _in_notebook():
        with _notebook_bar() as callback:
            yield callback
    elif sys.stderr.isatty():
        with _live_bar() as callback:
            yield callback
    else:
        yield _plain_lines() if progress else TrainingCallback()


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this; nothing is imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _plain_lines(write: Callable[[str], None] = _write) -> TrainingCallback:
    return TrainingCallback(
        on_choice=lambda reasons: _explain(reasons, write),
        on_snapshot=lambda snapshot: write(
            f"{snapshot.progress:4.0%}  {_time_left(snapshot)}  {_figures(snapshot)}  update {snapshot.update}"
        ),
        on_calibration=_Calibrating(write),
        on_certificate=write,
        on_stage=_Stages(write),
    )


@contextmanager
def _live_bar() -> Iterator[TrainingCallback]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    # Narrow enough for a terminal of 80 columns, figures included.
    columns = BarColumn(bar_width=10), TaskProgressColumn(), TextColumn("{task.fields[status]}")
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=1.0, status="")

        def show(share: float | None, status: str) -> None:
            bar.update(task, completed=share, status=status)

        yield _bar_callback(show, _write)


@contextmanager
def _notebook_bar() -> Iterator[TrainingCallback]:
    """A bar of tqdm where that is installed; lines below the cell otherwise."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield _plain_lines()
        return
    form = "{percentage:3.0f}%|{bar}| {postfix}"
    with tqdm(total=100, bar_format=form, leave=True) as bar:

        def show(share: float | None, status: str) -> None:
            bar.n = bar.n if share is None else round(100 * share)
            bar.set_postfix_str(status)

        yield _bar_callback(show, lambda line: tqdm.write(line, file=sys.stderr))


def _bar_callback(show: Callable[[float | None, str], None], write: Callable[[str], None]) -> TrainingCallback:
    """Moves a bar: ``show`` takes the share that is done (None where it stays) and the words beside it."""
    figures, drawn = "", 0.0

    def on_snapshot(snapshot: "Snapshot") -> None:
        nonlocal figures
        figures = _figures(snapshot)

    def on_iteration(trainer: "AnyTrainer") -> None:
        nonlocal drawn
        now = time.perf_counter()
        if now - drawn > REDRAW or trainer.progress >= 1:
            drawn = now
            left = _duration(trainer.at.seconds * (1 / max(trainer.progress, 1e-6) - 1))
            show(trainer.progress, f"{left} left  {figures}")

    def on_calibration(share: float) -> None:
        show(1.0, f"{CALIBRATING}: {share:.0%}")

    def on_stage(stage: str, share: float) -> None:
        show(None, f"{stage}: {share:.0%}" if share else stage)

    def on_choice(reasons: tuple[str, ...]) -> None:
        _explain(reasons, write)

    return TrainingCallback(on_choice, on_iteration, on_snapshot, on_calibration, write, on_stage)


class _Stages:
    """A line for every stage, and one more now and then where it takes long."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write, self.stage, self.told = write, "", 0.0

    def __call__(self, stage: str, share: float) -> None:
        now = time.perf_counter()
        if stage != self.stage or now - self.told > SILENCE:
            self.write(f"{stage}: {share:.0%}" if share else stage)
            self.stage, self.told = stage, now


class _Calibrating:
    """A line at the start, and one more now and then where it takes long."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write, self.said = write, 0.0

    def __call__(self, share: float) -> None:
        now = time.perf_counter()
        if share == 0:
            self.write(CALIBRATING)
        elif now - self.said < SILENCE:
            return
        else:
            self.write(f"{share:4.0%}  of those tasks played")
        self.said = now


def _explain(reasons: tuple[str, ...], write: Callable[[str], None]) -> None:
    for reason in reasons:
        write(reason if reason.startswith("tried ") else f"chosen: {reason}")


def _figures(snapshot: "Snapshot") -> str:
    """Accuracy and queries at confidence 0.9 and the middle epsilon; the inference loss."""
    figures = f"acc {snapshot.accuracy:.2f}  queries {snapshot.queries:.1f}  horizon {snapshot.horizon}"
    return f"{figures}  loss {snapshot.losses.inference:.2f}"


def _time_left(snapshot: "Snapshot") -> str:
    return f"{_duration(snapshot.seconds * (1 / max(snapshot.progress, 1e-6) - 1))} left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
