"""What a person sees while a model is trained: a live bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cicpe.cli.output import note

if TYPE_CHECKING:
    from cicpe.parallel import Executor
    from cicpe.training.base import AnyTrainer, Snapshot
    from cicpe.training.callbacks import TrainingCallback

CALIBRATING = "choosing the stop thresholds on held-out tasks"
SILENCE = 15.0
"""Seconds that calibration is silent for, where lines are written."""
LONG_SILENCE = 60.0
"""Seconds that a study is silent for, where lines are written."""
REDRAW = 0.2
"""Seconds between two updates of the bar."""


@contextmanager
def followed() -> "Iterator[TrainingCallback]":
    """A watcher for ``cicpe.train`` that reports on standard error until the block ends."""
    with _live_bar() if sys.stderr.isatty() else _plain_lines() as callback:
        yield callback


@contextmanager
def _plain_lines() -> "Iterator[TrainingCallback]":
    from cicpe.training.callbacks import TrainingCallback

    yield TrainingCallback(
        on_choice=_explain,
        on_snapshot=lambda snapshot: note(
            f"{snapshot.progress:4.0%}  {_time_left(snapshot)}  {_figures(snapshot)}  update {snapshot.update}"
        ),
        on_calibration=_Calibrating(),
        on_certificate=note,
        on_stage=_Stages(),
    )


@contextmanager
def _live_bar() -> "Iterator[TrainingCallback]":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from cicpe.training.callbacks import TrainingCallback

    # Narrow enough for a terminal of 80 columns, figures included.
    columns = BarColumn(bar_width=10), TaskProgressColumn(), TextColumn("{task.fields[status]}")
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=1.0, status="")
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
                bar.update(task, completed=trainer.progress, status=f"{left} left  {figures}")

        def on_calibration(share: float) -> None:
            bar.update(task, completed=1.0, status=f"{CALIBRATING}: {share:.0%}")

        def on_stage(stage: str, share: float) -> None:
            bar.update(task, status=f"{stage}: {share:.0%}" if share else stage)

        yield TrainingCallback(_explain, on_iteration, on_snapshot, on_calibration, note, on_stage)


@contextmanager
def playing(jobs: int | None, backend: str) -> "Iterator[Executor]":
    """Where a command plays its episodes; how far they are is told on standard error until the block ends."""
    from cicpe.parallel import Executor

    told = _Played()
    try:
        yield Executor(jobs, backend, told)
    finally:
        told.clear()


class _Played:
    """How far episodes are played by all workers: a line that changes on a terminal, elsewhere one now and then."""

    def __init__(self) -> None:
        self.live, self.told, self.shown = sys.stderr.isatty(), time.perf_counter(), False

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if now - self.told < (REDRAW if self.live else LONG_SILENCE):
            return
        self.told, line = now, f"{done / total:4.0%}  of the episodes played"
        if self.live:
            print(f"\r{line}", end="", file=sys.stderr, flush=True)
            self.shown = True
        else:
            note(line)

    def clear(self) -> None:
        """Takes the line away."""
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class _Stages:
    """A line for every stage, and one more now and then where it takes long."""

    def __init__(self) -> None:
        self.stage, self.told = "", 0.0

    def __call__(self, stage: str, share: float) -> None:
        now = time.perf_counter()
        if stage != self.stage or now - self.told > SILENCE:
            note(f"{stage}: {share:.0%}" if share else stage)
            self.stage, self.told = stage, now


class _Calibrating:
    """A line at the start, and one more now and then where it takes long."""

    def __init__(self) -> None:
        self.said = 0.0

    def __call__(self, share: float) -> None:
        now = time.perf_counter()
        if share == 0:
            note(CALIBRATING)
        elif now - self.said < SILENCE:
            return
        else:
            note(f"{share:4.0%}  of those tasks played")
        self.said = now


def _explain(reasons: tuple[str, ...]) -> None:
    for reason in reasons:
        note(reason if reason.startswith("tried ") else f"chosen: {reason}")


def _figures(snapshot: "Snapshot") -> str:
    """Accuracy and queries at confidence 0.9 and the middle epsilon; the inference loss."""
    figures = f"acc {snapshot.accuracy:.2f}  queries {snapshot.queries:.1f}  horizon {snapshot.horizon}"
    return f"{figures}  loss {snapshot.losses.inference:.2f}"


def _time_left(snapshot: "Snapshot") -> str:
    return f"{_duration(snapshot.seconds * (1 / max(snapshot.progress, 1e-6) - 1))} left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
