"""Certificates during training: checkpoints are tested as they come, and the best that passed is kept.

Checkpoint k is tested at its share alpha_k of one budget, on fresh episodes. By the union bound all that pass are
right at once with confidence 1 - alpha, so the run may end with the one that needs the fewest queries.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from cicpe.certification.certificate import LEDGER, Certificate, append_certificate, read_ledger
from cicpe.certification.certify import certify
from cicpe.certification.martingale import back_loaded_budgets
from cicpe.errors import InvalidInput, ModelError
from cicpe.model import Model

CERTIFIED = "certified"
"""Folder, inside that of a run, of the best checkpoint that has passed so far."""


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
@dataclass
class CheckpointCertifier:
    """Tests a checkpoint whenever another share of the run is done."""

    wanted: CertificationTarget
    seed: int
    folder: Path | None
    report: Callable[[str], None]
    done: int = 0
    """Checkpoints that were due so far."""
    best: tuple[Model, Certificate] | None = None

    def resume(self, progress: float) -> None:
        """Goes on in the middle of a run: what was tested is not tested again, and the best is read back."""
        self.done = self._due(progress)
        if self.folder is not None and (self.folder / CERTIFIED / "config.json").exists():
            try:
                model = Model.load(self.folder / CERTIFIED)
                self.best = (model, read_ledger(self.folder / CERTIFIED / LEDGER)[-1])
            except (ModelError, IndexError):
                self.best = None

    def _due(self, progress: float) -> int:
        return int(progress * self.wanted.checks + 1e-9)

    def inspect(self, progress: float, make: Callable[[], Model]) -> None:
        """Tests the present state of the run, if a checkpoint is due."""
        if self._due(progress) <= self.done:
            return
        self.done = self._due(progress)
        wanted = self.wanted
        alpha = back_loaded_budgets(wanted.alpha, wanted.checks)[self.done - 1]
        model = make()
        name = f"checkpoint {self.done} of {wanted.checks}"
        try:
            found = certify(
                model,
                epsilon=wanted.epsilon,
                delta=wanted.delta,
                alpha=alpha,
                episodes=wanted.episodes,
                seed=self.seed + self.done,
                alpha_of_run=wanted.alpha,
            )
        except InvalidInput as error:
            self.report(f"{name}: not tested, since no threshold was safe enough ({error})")
            return
        if not found.certified:
            self.report(f"{name}: not certified (success above {found.success_lower_bound:.3f})")
            return
        self.report(f"{name}: certified, {found.mean_queries:.2f} queries")
        if self.best is None or found.mean_queries < self.best[1].mean_queries:
            self.best = (model, found)
            if self.folder is not None:
                self._keep(self.folder / CERTIFIED, model, found)

    def _keep(self, folder: Path, model: Model, certificate: Certificate) -> None:
        (folder / LEDGER).unlink(missing_ok=True)
        model.save(folder)
        append_certificate(folder / LEDGER, certificate)
