"""Is a saved model whole, and does it keep its promise? What ``cicpe zoo verify`` looks at."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import binom

from cicpe.certification.certificate import LEDGER, read_ledger
from cicpe.certification.certify import calibration_sha256
from cicpe.data.places import DataError
from cicpe.errors import CicpeError, ModelError
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.files import read_file
from cicpe.model import Model
from cicpe.model.folder import CALIBRATION, WEIGHTS

LEVEL = 0.01
"""A model fails if so few successes are less likely than this, were its success probability 1 - delta."""
DELTA = 0.1


class Found(NamedTuple):
    """What a model did on fresh tasks."""

    epsilon: float
    delta: float
    episodes: int
    accuracy: float
    p_value: float
    """Probability of so few successes or fewer, were each to come with probability 1 - delta."""
    mean_queries: float
    seconds: float


class Verdict(NamedTuple):
    """What is known of a model afterwards."""

    name: str
    fault: str | None = None
    """What is wrong with it; None if nothing is."""
    not_played: str | None = None
    """Why it could not be played, where that is not the model's fault: data that are not here."""
    sha256: str | None = None
    found: Found | None = None

    def to_json(self) -> dict[str, Any]:
        """The verdict as one object."""
        played = dict.fromkeys(Found._fields) if self.found is None else self.found._asdict()
        about = {"name": self.name, "ok": self.fault is None, "fault": self.fault, "not_played": self.not_played}
        return about | {"sha256": self.sha256, **played}

    def cells(self) -> list[str]:
        """The verdict as a row of a table."""
        played, state = self.found, "ok" if self.fault is None else "FAILED"
        figures = [""] * 6
        if played is not None:
            figures = [f"{played.epsilon:.3g}", f"{played.delta:g}", f"{played.episodes}", f"{played.accuracy:.3f}"]
            figures += [f"{played.p_value:.2g}", f"{played.mean_queries:.2f}"]
        return [self.name, state, (self.sha256 or "")[:12], *figures, self.fault or self.not_played or ""]


def verify(name: str, folder: Path, episodes: int | None, seed: int) -> Verdict:
    """Reads a model's folder, checks what its files say of each other, and plays it."""
    try:
        model = Model.load(folder)
        _check_hashes(model, folder)
    except (CicpeError, OSError, UnicodeDecodeError) as error:
        return Verdict(name, fault=" ".join(str(error).split()))
    verdict = Verdict(name, sha256=model.sha256)
    try:
        played = _play(model, episodes, seed)
    except DataError as error:
        return verdict._replace(not_played=f"not played: {error}")
    except CicpeError as error:
        return verdict._replace(fault=str(error))
    if played.p_value < LEVEL:
        verdict = verdict._replace(fault=f"accuracy is significantly below {1 - played.delta:g}")
    return verdict._replace(found=played)


def _check_hashes(model: Model, folder: Path) -> None:
    """That config, card and certificates speak of these weights. (Loading has compared the files with the config.)"""
    listed = model.description.files
    for file in (WEIGHTS, CALIBRATION):
        if file not in listed:
            raise ModelError(f"config.json lists no SHA-256 of {file}")
    if listed[WEIGHTS] != model.sha256:
        raise ModelError(f"{WEIGHTS} read and written again has another SHA-256")
    try:
        card = read_file(folder / "card.md").decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"card.md is not text: {error}") from None
    for digest in re.findall(r"\b[0-9a-f]{64}\b", card):
        if digest not in (model.fingerprint, *listed.values()):
            raise ModelError(f"card.md names the SHA-256 {digest[:12]}..., which is none of this model's")
    for certificate in read_ledger(folder / LEDGER):
        certificate.check(model.sha256, calibration_sha256(model), model.fingerprint)


def _play(model: Model, episodes: int | None, seed: int) -> Found:
    count = model.description.training.calibration.verify_episodes if episodes is None else episodes
    epsilon, delta = _middle(model)
    result = evaluate_agent(model.agent(epsilon, delta), model.problem, epsilon, count, seed)
    successes = round(result.accuracy * count)
    p_value = float(binom.cdf(successes, count, 1 - delta))
    return Found(epsilon, delta, count, result.accuracy, p_value, result.mean_queries, result.seconds)


def _middle(model: Model) -> tuple[float, float]:
    """The middle epsilon of the calibration, with the smallest delta from ``DELTA`` up that is safe at every knot."""
    table = model.calibration
    row = len(table.epsilons) // 2
    for column, delta in enumerate(table.deltas):
        if delta >= DELTA and all(by_epsilon[row][column] is not None for by_epsilon in table.rules["confidence"]):
            return table.epsilons[row], delta
    raise ModelError(f"it promises nothing at epsilon {table.epsilons[row]:g}: no threshold was safe at any delta")
