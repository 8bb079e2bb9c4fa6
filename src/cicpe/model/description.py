"""What a model is and where it came from: the content of ``config.json``."""

import json
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from pydantic import Field, SerializeAsAny, field_validator, model_validator

from cicpe._version import __version__
from cicpe.beliefs.base import BeliefConfig, TaskShape
from cicpe.beliefs.registry import read_config
from cicpe.config import Config
from cicpe.problems import Problem, ProblemSpec
from cicpe.problems.observations import ObservationKinds
from cicpe.spaces import space_from_json
from cicpe.units import Units

FORMAT = "cicpe-model-2"
READABLE = ("cicpe-model-1", FORMAT)
"""Formats that this version reads."""


@final
class Description(Config):
    """Everything about a model but its weights and its thresholds."""

    format: str = FORMAT
    cicpe: str = __version__
    torch: str = torch.__version__
    problem: str
    """Registered name, module:Class, or file.py:Class without its folder. What is not registered is never imported."""
    problem_options: dict[str, Any]
    problem_source: str | None = None
    """A SHA-256 of the program of a problem that is not registered; see ``cicpe.problems.source``."""
    units: Units = Units()
    """What coordinates mean to whoever measures, where the problem says it."""
    query_space: dict[str, Any]
    answer_space: dict[str, Any]
    observation_dim: int = Field(ge=1, le=10**4)
    observations: tuple[dict[str, Any], ...] | None = None
    """What each entry of an observation can be, by ``cicpe.problems.observations``; older models do not say."""
    context_names: tuple[str, ...]
    default_context: tuple[float, ...] | None
    context_low: tuple[float, ...]
    """Smallest context values seen in calibration."""
    context_high: tuple[float, ...]
    recipe: str
    training: SerializeAsAny[BeliefConfig]
    """The configuration of the belief, of the kind that its field ``kind`` names."""
    horizon: int = Field(ge=1, le=10**6)
    """The most queries of an episode."""
    seed: int
    minutes: float
    """Wall-clock minutes of training and calibration."""
    updates: int
    threads: int
    files: dict[str, str] = Field(default={})
    """SHA-256 of the other files as they were saved beside this one; what is listed is checked on loading."""

    @field_validator("training", mode="before")
    @classmethod
    def _by_kind(cls, value: Any) -> Any:
        """The configuration of the kind that was saved."""
        return read_config(value) if isinstance(value, Mapping) else value

    @field_validator("problem_options")
    @classmethod
    def _lists(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Tuples as the lists that they are in JSON, so that a description equals its own round trip."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}

    @model_validator(mode="after")
    def _contexts(self) -> "Description":
        for name in ("context_low", "context_high", "default_context"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.context_names):
                raise ValueError(f"{name}: needs one number for each of {self.context_names}")
        return self

    @model_validator(mode="after")
    def _observations(self) -> "Description":
        if self.observations is not None:
            kinds = ObservationKinds.from_json(self.observations).kinds
            if len(kinds) != self.observation_dim:
                raise ValueError(f"observations: needs one kind for each of {self.observation_dim} entries")
        return self

    @model_validator(mode="after")
    def _units(self) -> "Description":
        sizes = {
            "settings": (self.units.settings, self.query_space),
            "answers": (self.units.answers, self.answer_space),
        }
        for name, (scales, space) in sizes.items():
            if scales and len(scales) != (dim := space_from_json(space).dim):
                raise ValueError(f"units.{name}: needs one scale for each of {dim} coordinates")
        if self.units.readout is not None and self.observation_dim != 1:
            raise ValueError(f"units.readout: needs an observation of one number, not {self.observation_dim}")
        return self

    @property
    def problem_spec(self) -> ProblemSpec:
        """The family that the model was trained on, as data."""
        return ProblemSpec(self.problem, self.problem_options, self.problem_source)

    def shape(self, make_problem: Callable[[], Problem]) -> TaskShape:
        """What the belief has to know of the problem; ``make_problem`` gives it to those that simulate.

        Args:
            make_problem: Makes the problem, when it is called.

        Returns:
            Spaces, sizes and names.
        """
        return TaskShape(
            space_from_json(self.query_space),
            space_from_json(self.answer_space),
            self.observation_dim,
            self.context_names,
            make_problem,
        )

    @property
    def identity(self) -> str:
        """What decides an agent beside its weights, as JSON: saved with the weights, and compared on loading."""
        names = {"problem", "problem_options", "query_space", "answer_space", "context_names", "training", "horizon"}
        if self.problem_source is not None:
            names.add("problem_source")
        return json.dumps(self.model_dump(mode="json", include=names), sort_keys=True)

    def has_identity(self, saved: str) -> bool:
        """Whether an identity that was saved is this one: fields that came later have their defaults in it.

        Args:
            saved: What ``identity`` gave when the weights were saved.

        Returns:
            True where both decide alike.
        """
        try:
            fields = json.loads(saved)
            training = type(self.training).model_validate(fields["training"])
        except (ValueError, TypeError, KeyError):
            return False
        fields["training"] = training.model_dump(mode="json")
        return json.dumps(fields, sort_keys=True) == self.identity
