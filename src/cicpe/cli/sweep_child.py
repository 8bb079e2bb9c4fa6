"""The process of one run of a sweep: ``python -m cicpe.cli.sweep_child``, with what is asked for on standard input.

It trains by the command line itself, so that a run of a sweep is what ``cicpe train`` would have made.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cicpe.cli.evaluate import measured
from cicpe.cli.main import main
from cicpe.cli.output import note
from cicpe.cli.sweep_process import FIGURES, MODEL
from cicpe.cli.tasks import load_model, tasks_of
from cicpe.cli.train import NOT_RELIABLE
from cicpe.errors import CicpeError, InvalidInput
from cicpe.files import write_json
from cicpe.parallel import when_parent_ends

INTERRUPT_SECONDS = 2.0
"""Between two interrupts of a process whose parent is gone."""


def run() -> int:
    """Trains and measures; the exit code is that of the command line."""
    asked = json.loads(sys.stdin.readline())
    # Whatever a shell starts in the background ignores interrupts, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    when_parent_ends(_interrupt)
    folder = Path(asked["folder"])
    if not (folder / MODEL).exists():
        code = main(asked["train"])
        if code not in (0, NOT_RELIABLE) or not (folder / MODEL).exists():
            return code or 1
    try:
        write_json(folder / FIGURES, [_figures(asked, cell) for cell in asked["cells"]])
    except CicpeError as error:
        note(f"error: {error}")
        return 2
    return 0


def _interrupt() -> None:
    """Interrupts this process, and more than once: after the first interrupt, training calibrates the best so far."""
    while True:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(INTERRUPT_SECONDS)


def _figures(asked: dict[str, Any], cell: dict[str, Any]) -> dict[str, Any]:
    """The figures of fresh tasks at one cell, or why the model refuses."""
    model = load_model(asked["folder"], asked["problem"])
    row = cell | {"model_sha256": model.sha256, "minutes": model.description.minutes, "refused": None}
    pairs = [f"{key}={json.dumps(value)}" for key, value in asked["tasks"].items()]
    try:
        played = tasks_of(model, None, pairs, cell["noise"])
        summary, outcomes = measured(
            model,
            played,
            cell["epsilon"],
            cell["delta"],
            episodes=asked["episodes"],
            seed=model.description.seed if asked["trajectories"] > 1 else 0,
            trajectories=asked["trajectories"],
        )
    except InvalidInput as error:
        return row | {"refused": str(error)}
    return row | summary | {"all_queries": outcomes.queries.tolist(), "all_losses": outcomes.loss.tolist()}


if __name__ == "__main__":
    sys.exit(run())
