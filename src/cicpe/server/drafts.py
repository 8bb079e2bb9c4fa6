"""Experiments that are being written: what was understood, eight that might happen, how long one may take."""

import asyncio
import math
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, final

import numpy as np

from cicpe.experiments import Experiment, ExperimentError, FileFault, template_names, template_path
from cicpe.experiments.experiment import check_dots
from cicpe.experiments.formula import CONSTANTS, FUNCTIONS
from cicpe.experiments.predictive import Array, prior_predictive
from cicpe.experiments.words import in_words
from cicpe.server.errors import Refused, fault
from cicpe.server.experiment_schemas import (
    DrawnCurve,
    EstimateView,
    ExperimentDraft,
    ExperimentFault,
    ExperimentPicture,
    ExperimentTemplate,
    ExperimentTemplates,
    ExperimentView,
)
from cicpe.server.jobs import Job

DIGITS = 5
"""Of a number in a picture."""
MOST_WAITING = 8
"""Drafts that wait to be looked at."""
ESTIMATE_SECONDS = 8.0
"""How long simulated campaigns are played for an estimate."""
PATIENCE = 90.0
"""Seconds after which an estimate is given up."""


@lru_cache(1)
def _templates() -> tuple[ExperimentTemplate, ...]:
    experiment_templates = []
    for name in template_names():
        text, plan = template_path(name).read_text(encoding="utf-8"), Experiment.read(name)
        about = text.partition("\n")[0].removeprefix("#").strip()
        experiment_templates.append(
            ExperimentTemplate(name=name, title=plan.title, about=about, document=plan.document)
        )
    return tuple(experiment_templates)


def templates(can_train: bool) -> ExperimentTemplates:
    """What a new experiment can begin with, and what a formula may hold."""
    return ExperimentTemplates(
        templates=list(_templates()), functions=list(FUNCTIONS), constants=list(CONSTANTS), can_train=can_train
    )


def understood(draft: ExperimentDraft) -> ExperimentView:
    """What a draft says, with eight experiments of its kind; or all that is wrong with it."""
    document = None if draft.toml is None else _document_of(draft.toml)
    try:
        plan = _experiment(draft)
        problem: Any = plan.problem()
        drawn = prior_predictive(problem, seed=draft.seed)
    except ExperimentError as error:
        faults = [_fault(file_fault) for file_fault in error.faults]
        return ExperimentView(
            faults=faults, document=document, toml=None, words=[], units=None, at_most=None, picture=None
        )
    units = problem.units
    return ExperimentView(
        faults=[],
        document=document,
        toml=plan.to_toml(),
        words=in_words(plan),
        units=units,
        at_most=problem.horizon,
        picture=ExperimentPicture(
            grid=[_numbers(line) for line in drawn.grid],
            draws=[
                DrawnCurve(
                    truth=_numbers(np.atleast_2d(draw.truth)),
                    read_at=_numbers(draw.read_at),
                    readings=_numbers(draw.readings),
                    answer=_numbers(draw.answer),
                )
                for draw in drawn.draws
            ],
            answer_is_place=[answer.name for answer in units.answers] == [setting.name for setting in units.settings],
        ),
    )


def _experiment(draft: ExperimentDraft) -> Experiment:
    if draft.toml is not None:
        return Experiment.from_toml(draft.toml)
    assert draft.document is not None, "one of both is given"
    return Experiment.from_document(draft.document)


def _document_of(text: str) -> dict[str, Any] | None:
    """The content of a file as JSON can hold it; None where it is no TOML."""
    try:
        check_dots(text)
        plain: dict[str, Any] = _plain(tomllib.loads(text))
        return plain
    except (ValueError, RecursionError, ExperimentError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_plain(inside) for inside in value]
    if isinstance(value, bool | str) or (isinstance(value, int | float) and math.isfinite(value)):
        return value
    return str(value)


def _fault(file_fault: FileFault) -> ExperimentFault:
    return ExperimentFault(path=list(file_fault.path), allowed=file_fault.allowed, **file_fault.row)


def _numbers(values: Array) -> Any:
    """An array as nested lists of short numbers; None where one is not finite."""
    if values.ndim > 1:
        return [_numbers(row) for row in values]
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]


@final
class DraftService:
    """Looks at drafts, one after the other in a thread of its own, and estimates in a process of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "cicpe-drafts")
        self._waiting = 0
        self._lock = threading.Lock()
        self._estimating: Job | None = None

    async def check(self, draft: ExperimentDraft) -> ExperimentView:
        """What was understood of a draft, after those that came before it. Called by one event loop."""
        if self._waiting >= MOST_WAITING:
            words = "too many drafts are being looked at: try again in a moment"
            raise Refused(429, fault("experiment", None, f"one of {MOST_WAITING} at a time", words))
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, understood, draft)
        finally:
            self._waiting -= 1

    def estimate(self, document: dict[str, Any]) -> EstimateView:
        """How many measurements to expect. One at a time: the newest wish ends the one before."""
        experiment = Experiment.from_document(document)
        reply: dict[str, Any] = {}
        asked = {"work": "estimate", "document": experiment.document, "seconds": ESTIMATE_SECONDS}
        with self._lock:
            if self._estimating is not None:
                self._estimating.kill()
            job = self._estimating = Job(asked, reply.update, lambda code: None)
        if not job.wait(PATIENCE):
            job.kill()
            job.wait()
        with self._lock:
            overtaken = self._estimating is not job
            if not overtaken:
                self._estimating = None
        if "done" not in reply:
            ended = "another estimate took its place" if overtaken else "the estimate took too long, or was ended"
            raise Refused(409, fault("estimate", None, "one at a time", reply.get("error", ended)))
        return EstimateView.model_validate(reply["done"])

    def close(self) -> None:
        """Ends what is under way."""
        with self._lock:
            if self._estimating is not None:
                self._estimating.kill()
        self._thread.shutdown()
