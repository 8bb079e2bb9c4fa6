"""Training on the server: one experiment at a time, in a process of its own, into a folder that the server owns."""

import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from cicpe.experiments import Experiment
from cicpe.files import lock_within, read_file, sync_folder, write_json
from cicpe.server.errors import Refused, fault
from cicpe.server.experiment_schemas import TrainingState, TrainingView, TrainingWish
from cicpe.server.jobs import Job, News
from cicpe.server.schemas import Fault

BEGUN = ".training-"
"""How the folders of trainings that are not done begin: they are no models, and nobody looks into them."""
REQUEST = "request.json"
MODEL = "model"
STARTING = "starting"
LINES = 40
"""Lines about what was tried that are kept."""
NOTHING = TrainingView(
    state="none",
    id="",
    name="",
    title="",
    minutes=0,
    share=0,
    seconds_left=0,
    stage="",
    lines=[],
    message="",
    model=None,
    expected_queries=None,
    at_most=None,
    delta=None,
    wanted_delta=None,
    document=None,
)


def trained_models(folder: Path) -> list[Path]:
    """The folders of the models that were trained into a folder."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if not path.name.startswith(".") and (path / "config.json").is_file()]


def how_to_train(wish: TrainingWish) -> dict[str, Any]:
    """What ``cicpe.train`` is given beside the experiment."""
    return {"minutes": wish.minutes, "seed": wish.seed}


@final
class TrainingService:
    """The one training of a server, and the last one when there is none. Safe for threads.

    A training is done in a folder that begins with ``BEGUN``, which gets a model's name when the model in it is whole.
    Whoever makes that folder holds a lock on it, which ends with the processes that hold it: what is not locked was
    left behind by a server that was killed, and is swept away by the next.

    Args:
        folder: Where models are kept; None where the server was given no such place.
        on_model: Told the folder of every model that is done; says what campaigns call it.
    """

    def __init__(self, folder: Path | None, on_model: Callable[[Path], str]) -> None:
        self.folder = folder
        self._on_model = on_model
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._last = NOTHING if folder is None else _sweep(folder)

    def view(self) -> TrainingView:
        """How far the training is; the last one where none is under way."""
        with self._lock:
            return self._last if self._run is None else self._run.view()

    def start(self, wish: TrainingWish, experiment: Experiment) -> TrainingView:
        """Begins a training.

        Args:
            wish: Its name, its time and its seed.
            experiment: What is trained for, without faults.

        Returns:
            How far it is. Where another is under way, that is refused.
        """
        folder = self.folder
        if folder is None:
            words = "this server was started without a folder for models, and cannot train"
            raise Refused(409, fault("training", None, "possible: start the server with --trained DIR", words))
        with self._lock:
            if self._run is not None:
                raise Refused(409, _busy(self._run.view()))
            try:
                self._run = _Run(folder, wish, experiment, self._ended)
            except OSError as error:
                words = f"the folder for models cannot be written, or no process can be started: {error.strerror}"
                raise Refused(409, fault("training", str(folder), "possible", words)) from None
            return self._run.view()

    def cancel(self, which: str) -> TrainingView:
        """Ends the training that is under way, and keeps nothing of it.

        Args:
            which: Its id, so that nobody ends another than they see.

        Returns:
            The training, which is over.
        """
        with self._lock:
            run = self._run
            if run is None or run.id != which:
                words = "this training is not under way any more"
                raise Refused(409, fault("id", which, "of the training that is under way", words))
            run.cancel()
        run.job.wait()
        return self.view()

    def close(self) -> None:
        """Ends what is under way."""
        with self._lock:
            run = self._run
        if run is not None:
            run.cancel()
            run.job.wait()

    def _ended(self, code: int) -> None:
        """What is left when the process has ended: a model, or nothing."""
        with self._lock:  # whoever cancels it does so before this, or is told that it is over
            run = self._run
            assert run is not None, "only a training that is under way ends"
            model = run.keep() if code == 0 else None
            run.clean()
            self._last, self._run = run.ended(code, None if model is None else self._on_model(model)), None


@final
class _Run:
    """One training: its folder, its process, and what it has said so far."""

    def __init__(self, folder: Path, wish: TrainingWish, experiment: Experiment, on_end: Callable[[int], None]) -> None:
        self.id = secrets.token_hex(8)
        self.folder, self.wish, self.experiment = folder, wish, experiment
        self.stage, self.error = STARTING, ""
        self.lines: list[str] = []
        self.done: dict[str, Any] | None = None
        self.cancelled = False
        self._began = 0.0  # when it has started: until then it is only getting ready
        self._place = folder / f"{BEGUN}{self.id}"
        self._place.mkdir(parents=True)
        self._handle = lock_within(self._place, 0)
        try:
            write_json(self._place / REQUEST, self.view().model_dump(mode="json"))
            self.job = self._started(on_end)
        except OSError:
            self.clean()
            raise

    def _started(self, on_end: Callable[[int], None]) -> Job:
        asked = {
            "work": "train",
            "document": self.experiment.document,
            "how": how_to_train(self.wish),
            "folder": str(self._place / MODEL),
        }
        return Job(asked, self._take, on_end, [] if self._handle is None else [self._handle])

    def cancel(self) -> None:
        """Ends it; nothing of it is kept."""
        self.cancelled = True
        self.job.kill()

    def _take(self, news: News) -> None:
        if self.stage == STARTING:
            self._began = time.monotonic()
        self.stage = str(news.get("stage", self.stage))
        self.lines = [*self.lines, *map(str, news.get("lines", []))][-LINES:]
        self.error = str(news.get("error", self.error))
        self.done = news.get("done", self.done)

    def keep(self) -> Path | None:
        """Gives the model its name, or the next that is free; None where there is no model to keep."""
        model_folder = self._place / MODEL
        if self.cancelled or self.done is None or not (model_folder / "config.json").is_file():
            return None
        for number in range(1, 1000):
            place = self.folder / (self.wish.name if number == 1 else f"{self.wish.name}-{number}")
            if place.exists():
                continue
            try:
                model_folder.rename(place)
            except OSError:
                continue  # someone else has just taken this name
            sync_folder(self.folder)
            return place.resolve()
        return None

    def clean(self) -> None:
        """Takes away what is not kept."""
        shutil.rmtree(self._place, ignore_errors=True)
        if self._handle is not None:
            os.close(self._handle)

    def view(self) -> TrainingView:
        """How far it is."""
        seconds = 60 * self.wish.minutes
        spent = 0.0 if self.stage == STARTING else time.monotonic() - self._began
        return NOTHING.model_copy(
            update={
                "state": "running",
                "id": self.id,
                "name": self.wish.name,
                "title": self.experiment.title,
                "minutes": self.wish.minutes,
                "share": min(spent / seconds, 0.99),
                "seconds_left": max(seconds - spent, 0.0),
                "stage": self.stage,
                "lines": self.lines,
                "wanted_delta": round(1 - self.experiment.goal.sure, 6),
                "document": self.experiment.document,
            }
        )

    def ended(self, code: int, model: str | None) -> TrainingView:
        """How it ended: with a model of this name, or with none."""
        state: TrainingState = "cancelled" if self.cancelled else "failed" if model is None else "done"
        over = {"state": state, "share": 1.0 if model else self.view().share, "seconds_left": 0.0, "stage": ""}
        if model is not None:
            over |= {"model": model, **(self.done or {})}
        elif not self.cancelled:
            ended = f"its process was ended from outside (signal {-code})" if code < 0 else f"exit code {code}"
            over |= {"message": self.error or ended}
        return self.view().model_copy(update=over)


def _busy(now: TrainingView) -> Fault:
    left = max(1, round(now.seconds_left / 60))
    words = (
        f"this server trains one experiment at a time, and {now.name} is being trained: about {left} min are left. "
        "Wait for it, or cancel it first"
    )
    return fault("training", now.name, "the only one", words)


def _sweep(folder: Path) -> TrainingView:
    """Takes away what killed servers left behind; the last training among it, so that it can be begun again."""
    left = NOTHING
    for place in sorted(folder.glob(f"{BEGUN}*")):
        with suppress(OSError):
            handle = lock_within(place, 0)
            if handle is None:
                continue  # another server's, under way
            with suppress(OSError, ValueError):
                request = json.loads(read_file(place / REQUEST))
                left = TrainingView.model_validate(request).model_copy(
                    update={"state": "interrupted", "seconds_left": 0.0, "message": "the server was ended meanwhile"}
                )
            shutil.rmtree(place, ignore_errors=True)
            os.close(handle)
    return left
