"""The certificate: a statistical statement about a frozen model, with its evidence, and the file that keeps them.

``certificate.json`` in a model's folder is a list. Every test of the same weights spends alpha, whether it
succeeded or not: the chance that any of them is a false certificate is at most the sum. The list remembers, and
no more than ``ALPHA_LIMIT`` may be spent on one set of weights; after that the tests say too little together. A test
holds the list's lock from reading it to adding to it (``open_ledger``), so that tests at once cannot all spend what
is left: which of them is added must not depend on how they end.
Calibrating or training anew makes other thresholds or weights, which older certificates do not speak about.
"""

import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from pydantic import Field, ValidationError, model_validator

from cicpe.config import Config
from cicpe.display import as_table, in_a_line
from cicpe.errors import InvalidInput, ModelError
from cicpe.files import locked, read_file, write_json
from cicpe.frames import to_frame
from cicpe.problems import Problem, spec_of
from cicpe.problems.source import source_of

if TYPE_CHECKING:
    from pandas import DataFrame

LEDGER = "certificate.json"
ALPHA_LIMIT = 0.2
"""The most alpha that may be spent on one set of weights: four tests at the usual 0.05."""
PATIENCE = 600.0
"""Seconds that a test waits for another of the same file to end."""


@final
class Certificate(Config):
    """What was tested, on what evidence, and whether it passed."""

    format: Literal["cicpe-certificate-1"] = "cicpe-certificate-1"
    certified: bool
    sentence: str
    """The same in words."""
    problem: str
    problem_options: dict[str, Any]
    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    noise: float | None
    """The one noise level that was tested; None for the family's own prior over levels."""
    context: dict[str, float] = Field(default={})
    """All contexts that were tested at one value, by name."""
    stop: str
    threshold: tuple[float, float] | None
    """Lowest and highest stop threshold among the episodes; None for an agent without one."""
    horizon: int = Field(ge=1)
    model_sha256: str
    calibration_sha256: str
    """Of the stop thresholds: other thresholds make another agent."""
    problem_sha256: str
    """Of the family's definition: class, options, spaces, context and source code."""
    problem_source: str | None = None
    """Of the program of a family that is not registered, as the model names it."""
    fingerprint: str | None = None
    """Of everything that decides: config, weights, thresholds, alarm, problem. None in certificates of old versions."""
    seed: int
    """As the user gave it."""
    stream_seed: int
    """What it became: the seed of the fresh episodes."""
    episodes: int = Field(ge=1)
    """How many could have been played."""
    episodes_used: int = Field(ge=0)
    successes: int = Field(ge=0)
    mean_queries: float = Field(ge=0)
    alpha: float = Field(gt=0, lt=1)
    alpha_of_run: float | None = None
    """For a checkpoint: the budget of all checkpoints of its training run. All that passed are right at once with
    confidence 1 - this, so that the best of them may be kept."""
    alpha_spent: float = Field(gt=0)
    """By this test and all earlier ones of the same weights that its file remembers."""
    log_martingale: float
    """Its largest value; certified at log(1 / alpha)."""
    alternatives: tuple[float, ...]
    path: tuple[tuple[int, float], ...]
    """Some points of the way: episodes and log martingale."""
    success_lower_bound: float = Field(ge=0, le=1)
    """With confidence 1 - alpha the true success probability is above it; see ``martingale.success_lower_bound``."""
    made: str
    """When, in UTC."""
    versions: dict[str, str]

    @model_validator(mode="after")
    def _consistent(self) -> "Certificate":
        if not self.successes <= self.episodes_used <= self.episodes:
            raise ValueError("episodes_used: needs at most episodes, and at least successes")
        if self.alpha_spent < self.alpha * (1 - 1e-9):
            raise ValueError("alpha_spent: needs at least alpha")
        return self

    def __repr__(self) -> str:
        return in_a_line(self._name, self._facts())

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        return as_table(self._name, {**self._facts(), "in words": self.sentence})

    @property
    def _name(self) -> str:
        return "Certificate" if self.certified else "Certificate (not certified)"

    def _facts(self) -> dict[str, str]:
        """What a person wants to know of it at first sight."""
        return {
            "problem": self.problem,
            "epsilon": f"{self.epsilon:g}",
            "delta": f"{self.delta:g}",
            "right": f"{self.successes} of {self.episodes_used}",
            "at least": f"{self.success_lower_bound:.3f} at confidence {1 - self.alpha:g}",
            "queries": f"{self.mean_queries:.2f}",
            "weights": self.model_sha256[:12],
        }

    def to_frame(self) -> "DataFrame":
        """The certificate as one row of a pandas data frame, without its evidence's path.

        Returns:
            A data frame with a column per field.
        """
        return to_frame([self.model_dump(exclude={"path", "alternatives", "versions"})])

    def speaks_for(self, model_sha256: str, calibration_sha256: str, fingerprint: str | None = None) -> bool:
        """Whether it is about these weights and thresholds, and about the model of this fingerprint.

        Args:
            model_sha256: A hash of weights.
            calibration_sha256: A hash of thresholds.
            fingerprint: A hash of everything that decides; not compared where either side has none.

        Returns:
            Whether it is.
        """
        if (self.model_sha256, self.calibration_sha256) != (model_sha256, calibration_sha256):
            return False
        return None in (fingerprint, self.fingerprint) or fingerprint == self.fingerprint

    def check(self, model_sha256: str, calibration_sha256: str, fingerprint: str | None = None) -> None:
        """Refuses a certificate that is about another model.

        Args:
            model_sha256: A hash of weights.
            calibration_sha256: A hash of thresholds.
            fingerprint: A hash of everything that decides; not compared where either side has none.
        """
        if not self.speaks_for(model_sha256, calibration_sha256):
            raise ModelError(
                f"this certificate is for weights {self.model_sha256[:12]} with thresholds "
                f"{self.calibration_sha256[:12]}, not for {model_sha256[:12]} with {calibration_sha256[:12]}; "
                "it says nothing about this model: certify it again"
            )
        if not self.speaks_for(model_sha256, calibration_sha256, fingerprint):
            raise ModelError(
                f"this certificate is for the model of fingerprint {str(self.fingerprint)[:12]}, not for "
                f"{str(fingerprint)[:12]}: its config, alarm or problem have changed since; certify it again"
            )


def read_ledger(path: Path) -> tuple[Certificate, ...]:
    """Every certificate in a file, oldest first; none where there is no file."""
    try:
        return tuple(Certificate.model_validate(item) for item in _items(path))
    except ValidationError as error:
        fault = error.errors()[0]
        raise ModelError(
            f"{path} is not valid at {'.'.join(map(str, fault['loc'])) or 'its top'}: {fault['msg']}"
        ) from None


def _items(path: Path) -> list[Any]:
    try:
        items = json.loads(read_file(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(items, list):
        raise ModelError(f"{path} is not a list of certificates")
    return items


@final
class Ledger:
    """The certificates of a file, which nobody else can add to for the time being."""

    def __init__(self, path: Path) -> None:
        self.path, self.certificates = path, read_ledger(path)

    def append(self, certificate: Certificate) -> None:
        """Adds a certificate, written whole or not at all; refused where its alpha is more than what is left."""
        check_alpha(certificate.alpha, tests_of(certificate.model_sha256, self.certificates))
        items = (*self.certificates, certificate)
        try:
            write_json(self.path, [item.model_dump(mode="json") for item in items])
        except OSError as error:
            raise ModelError(f"the certificate could not be written to {self.path}: {error}") from error
        self.certificates = items


@contextmanager
def open_ledger(path: Path, patience: float | None = None) -> Iterator[Ledger]:
    """A file of certificates, to read, to test, and to add to. Others wait for their turn, ``patience`` seconds."""
    seconds = PATIENCE if patience is None else patience
    with ExitStack() as until:
        try:
            until.enter_context(locked(path, seconds))
        except TimeoutError:
            raise ModelError(
                f"{path} is being used by another test, and was for the {seconds:g} seconds that this one has waited; "
                "nothing was tested: try again when that one has ended"
            ) from None
        except OSError as error:
            raise ModelError(f"{path} cannot be locked: {error.strerror or error}") from None
        yield Ledger(path)


def append_certificate(path: Path, certificate: Certificate) -> None:
    """Adds a certificate to a file. A test whose alpha depends on the file holds it all the time: ``open_ledger``."""
    with open_ledger(path) as ledger:
        ledger.append(certificate)


def tests_of(model_sha256: str, ledger: Sequence[Certificate]) -> list[Certificate]:
    """The tests that these weights have undergone."""
    return [item for item in ledger if item.model_sha256 == model_sha256]


def check_alpha(alpha: float, earlier: Sequence[Certificate]) -> None:
    """Refuses an alpha that is not one, or that the weights have no room left for."""
    if not 0 < alpha <= ALPHA_LIMIT:
        raise InvalidInput("alpha", alpha, f"a probability of a false certificate, above 0 and at most {ALPHA_LIMIT:g}")
    left = ALPHA_LIMIT - sum(item.alpha for item in earlier)
    if alpha > left + 1e-9:
        raise InvalidInput(
            "alpha",
            alpha,
            f"at most {max(left, 0):.3g}: {len(earlier)} earlier tests of these weights have spent the rest of "
            f"{ALPHA_LIMIT:g}; what they said stands",
        )


def problem_sha256(problem: Problem) -> str:
    """A hash of a family's definition: its class, options, spaces and context, and its module's source, if any."""
    cls = type(problem)
    try:
        source = source_of(cls) or inspect.getsource(inspect.getmodule(cls) or cls)
    except (OSError, TypeError):
        source = None
    definition = {
        "class": cls.__qualname__,
        "options": dict(spec_of(problem).options),
        "query_space": problem.query_space.to_json(),
        "answer_space": problem.answer_space.to_json(),
        "context_names": list(problem.context_names),
        "source": source,
    }
    return hashlib.sha256(json.dumps(definition, sort_keys=True, default=repr).encode()).hexdigest()
