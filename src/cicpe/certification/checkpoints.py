"""Certificates during training: checkpoints are tested as they come, and the best that passed is kept.

Checkpoint k is tested at its share alpha_k of one budget, on fresh episodes. By the union bound all that pass are
right at once with confidence 1 - alpha, so the run may end with the one that needs the fewest queries. That holds
only if none is tested twice: which ones were is written down before each test, and an interrupted run goes on there.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from pydantic import Field, ValidationError

from cicpe.certification.certificate import LEDGER, Certificate, append_certificate, read_ledger
from cicpe.certification.certify import certify
from cicpe.certification.martingale import back_loaded_budgets
from cicpe.config import Config
from cicpe.errors import InvalidInput, ModelError
from cicpe.files import read_file, write_json
from cicpe.model.model import Model
from cicpe.parallel import HERE, Executor

CERTIFIED = "certified"
"""Folder, inside that of a run, of the best checkpoint that has passed so far."""
RECORD = "certification.json"
"""File, in the folder of a run, that says which checkpoints were tested."""


class CertificationTarget(NamedTuple):
    """What a run's checkpoints are tested for."""

    epsilon: float
    delta: float
    checks: int
    """How many checkpoints there are."""
    alpha: float = 0.05
    """The budget of all of them."""
    episodes: int = 4000
    """The most episodes of a test."""


@final
class CertificationRecord(Config):
    """What a run has tested, as it is written down."""

    target: CertificationTarget
    """How the budget is divided."""
    tested: int = Field(ge=0)
    """The checkpoints 1 ... tested were due, and their shares of the budget are spent."""


@final
@dataclass
class CheckpointCertifier:
    """Tests a checkpoint whenever another share of the run is done."""

    target: CertificationTarget
    seed: int
    folder: Path | None
    report: Callable[[str], None]
    done: int = 0
    """Checkpoints that were due so far."""
    best: tuple[Model, Certificate] | None = None
    executor: Executor = HERE
    """Where the episodes of a test are played."""

    def start(self) -> None:
        """Begins a run: what an earlier one in its folder has tested and kept is forgotten."""
        if self.folder is not None:
            (self.folder / RECORD).unlink(missing_ok=True)
            shutil.rmtree(self.folder / CERTIFIED, ignore_errors=True)

    def resume(self, progress: float) -> None:
        """Goes on in the middle of a run: what was tested is not tested again, and the best is read back.

        Args:
            progress: The share of the run at which it goes on, perhaps before its last test.

        Raises:
            InvalidInput: The run began with other tests, whose shares of the budget are spent.
        """
        record = None if self.folder is None else _read_record(self.folder / RECORD)
        if record is not None and record.target != self.target:
            raise InvalidInput("certify_every", self.target, f"the tests that this run began with: {record.target}")
        self.done = max(self._due(progress), 0 if record is None else record.tested)
        if self.folder is not None and (self.folder / CERTIFIED / "config.json").exists():
            try:
                model = Model.load(self.folder / CERTIFIED)
                self.best = (model, read_ledger(self.folder / CERTIFIED / LEDGER)[-1])
            except (ModelError, IndexError):
                self.best = None

    def _due(self, progress: float) -> int:
        return int(progress * self.target.checks + 1e-9)

    def inspect(self, progress: float, make: Callable[[], Model]) -> None:
        """Tests the present state of the run, if a checkpoint is due.

        Args:
            progress: The share of the run that is done.
            make: Makes a calibrated model of the present state.
        """
        if self._due(progress) <= self.done:
            return
        self.done = self._due(progress)
        model = make()
        self._write_record()
        name = f"checkpoint {self.done} of {self.target.checks}"
        try:
            certificate = self._test(model)
        except InvalidInput as error:
            self.report(f"{name}: not tested, since no threshold was safe enough ({error})")
            return
        if not certificate.certified:
            self.report(f"{name}: not certified (success above {certificate.success_lower_bound:.3f})")
            return
        self.report(f"{name}: certified, {certificate.mean_queries:.2f} queries")
        if self.best is None or certificate.mean_queries < self.best[1].mean_queries:
            self.best = (model, certificate)
            if self.folder is not None:
                self._keep(self.folder / CERTIFIED, model, certificate)

    def _test(self, model: Model) -> Certificate:
        target = self.target
        return certify(
            model,
            epsilon=target.epsilon,
            delta=target.delta,
            alpha=back_loaded_budgets(target.alpha, target.checks)[self.done - 1],
            episodes=target.episodes,
            seed=self.seed + self.done,
            alpha_of_run=target.alpha,
            executor=self.executor,
        )

    def _write_record(self) -> None:
        """Before the test: a run that is killed during it has spent its alpha, and does not repeat it."""
        if self.folder is not None:
            record = CertificationRecord(target=self.target, tested=self.done)
            try:
                write_json(self.folder / RECORD, record.model_dump(mode="json"))
            except OSError as error:
                raise ModelError(f"{self.folder / RECORD} could not be written: {error}") from error

    def _keep(self, folder: Path, model: Model, certificate: Certificate) -> None:
        (folder / LEDGER).unlink(missing_ok=True)
        model.save(folder)
        append_certificate(folder / LEDGER, certificate)


def _read_record(path: Path) -> CertificationRecord | None:
    """The record of a run; None where nothing was tested yet."""
    try:
        return CertificationRecord.model_validate(json.loads(read_file(path)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ValidationError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as a record of tests: {error}") from None
