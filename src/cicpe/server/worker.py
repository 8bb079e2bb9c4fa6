"""A process that trains or estimates: ``python -m cicpe.server.worker``, with what is asked for on standard input.

It says on standard output how far it is, a JSON object per line, and ends when its standard input does.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cicpe.errors import CicpeError, InvalidInput, UnservedWarning
from cicpe.parallel import when_parent_ends

if TYPE_CHECKING:
    from cicpe.model import Model

NICE = 5
"""How much it gives way to the server and to others."""
SILENCE = 0.2
"""Seconds between two lines about the same stage."""


def run() -> int:
    """Does what is asked; the exit code is 0 where that could be done."""
    asked = json.loads(sys.stdin.buffer.readline())
    when_parent_ends(lambda: os._exit(1))
    os.nice(NICE)
    try:
        _say(**{"train": _train, "estimate": _estimate}[asked["work"]](asked))
    except CicpeError as error:
        _say(error=str(error))
        return 2
    return 0


def _say(**news: Any) -> None:
    print(json.dumps(news, allow_nan=False), flush=True)


class _Stages:
    """Says what is being done: at once where it is something new, and now and then how far it is."""

    def __init__(self) -> None:
        self._stage, self._said = "", 0.0

    def __call__(self, stage: str, share: float) -> None:
        now = time.perf_counter()
        if stage != self._stage or now - self._said > SILENCE:
            _say(stage=f"{stage}: {share:.0%}" if share else stage)
            self._stage, self._said = stage, now


def _train(asked: dict[str, Any]) -> dict[str, Any]:
    """Trains a model of an experiment into a folder. Nothing is in the folder before it is done."""
    import torch

    import cicpe
    from cicpe.experiments import Experiment
    from cicpe.progress import CALIBRATING
    from cicpe.training.callbacks import TrainingCallback

    torch.set_num_threads(1)
    show = _Stages()
    callback = TrainingCallback(
        on_choice=lambda reasons: _say(lines=list(reasons)),
        on_iteration=lambda trainer: show("training", trainer.progress),
        on_calibration=lambda share: show(CALIBRATING, share),
        on_stage=show,
    )
    experiment = Experiment.from_document(asked["document"])
    show("looking at simulated experiments", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnservedWarning)  # what it can is told below
        model = cicpe.train(experiment, callback=callback, **asked["how"])
    model.save(Path(asked["folder"]))
    return {"done": _offer(model) | {"at_most": model.description.horizon}}


def _offer(model: "Model") -> dict[str, Any]:
    """How sure the model's sessions can be, at least as often wrong as was asked for, and how long they take."""
    wanted = model.description.units.delta
    assert wanted is not None, "an experiment says how sure"
    for delta in (wanted, *(wider for wider in model.calibration.deltas if wider > wanted)):
        try:
            session = model.session(delta=delta)
        except InvalidInput:
            continue
        return {"delta": delta, "expected_queries": session.expected_remaining_queries}
    return {"delta": None, "expected_queries": None}


def _estimate(asked: dict[str, Any]) -> dict[str, Any]:
    """Estimates how many measurements an experiment takes."""
    import torch

    from cicpe.estimate import estimate_queries
    from cicpe.experiments import Experiment

    torch.set_num_threads(1)
    problem = Experiment.from_document(asked["document"]).problem()
    assert problem.units.delta is not None
    estimate = estimate_queries(problem, problem.default_epsilon[0], problem.units.delta, asked["seconds"], 0)
    return {"done": {**estimate._asdict(), "words": estimate.words(problem.horizon)}}


if __name__ == "__main__":
    sys.exit(run())
