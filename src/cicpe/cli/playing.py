"""Where a command plays its episodes, and what a person sees of it meanwhile."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from cicpe.cli.output import note

if TYPE_CHECKING:
    from cicpe.parallel import Executor

SILENCE = 60.0
"""Seconds that a study is silent for, where lines are written."""
REDRAW = 0.2
"""Seconds between two changes of the line on a terminal."""


@contextmanager
def playing(jobs: int | None, backend: str) -> "Iterator[Executor]":
    """Where a command plays its episodes; how far they are is told on standard error until the block ends."""
    from cicpe.parallel import Executor

    told = _Played()
    try:
        with on_a_cluster(backend):
            yield Executor(jobs, backend, told)
    finally:
        told.clear()


@contextmanager
def on_a_cluster(backend: str) -> Iterator[None]:
    """Keeps what Ray says (that a node has died, say) off standard output, and leaves its cluster at the end."""
    from cicpe.parallel import leave_ray

    if backend != "ray":
        yield
        return
    with redirect_stdout(sys.stderr):
        try:
            yield
        finally:
            leave_ray()


class _Played:
    """How far episodes are played by all workers: a line that changes on a terminal, elsewhere one now and then."""

    def __init__(self) -> None:
        self.live, self.told, self.shown = sys.stderr.isatty(), time.perf_counter(), False

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if now - self.told < (REDRAW if self.live else SILENCE):
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
