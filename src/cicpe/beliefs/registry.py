"""Kinds of belief by name. A kind is imported when it is first asked for, and one may be registered from outside.

A new kind takes a folder with a ``Belief`` and a ``BeliefConfig``, and a line here.
"""

from collections.abc import Mapping
from typing import Any

from cicpe.beliefs.base import BeliefConfig
from cicpe.config import class_of_kind

KINDS: dict[str, str | type[BeliefConfig]] = {
    "networks": "cicpe.training.config:TrainingConfig",
    "paper": "cicpe.training.config:PaperConfig",
    "particles": "cicpe.beliefs.particles.config:ParticleBeliefConfig",
    "functions": "cicpe.beliefs.functions.config:FunctionBeliefConfig",
    "answers": "cicpe.beliefs.answers.config:AnswerBeliefConfig",
}
"""Kind -> where its configuration is."""


def register(config: type[BeliefConfig]) -> type[BeliefConfig]:
    """Makes a kind of belief known by the default of its field ``kind``; may be used as a decorator.

    Args:
        config: The configuration of the new kind.

    Returns:
        The same class.
    """
    KINDS[config.model_fields["kind"].default] = config
    return config


def config_class(kind: str) -> type[BeliefConfig]:
    """The configuration of a kind of belief.

    Args:
        kind: One of ``KINDS``.

    Returns:
        Its class, imported if it was not yet.
    """
    return class_of_kind(KINDS, kind)


def read_config(data: Mapping[str, Any]) -> BeliefConfig:
    """A configuration from what was saved of it, by this version or by an earlier one.

    Args:
        data: The fields, ``kind`` among them.

    Returns:
        The validated configuration of that kind.
    """
    current = config_class(str(data.get("kind", "networks"))).migrate(dict(data))
    return config_class(str(current.get("kind", "networks"))).model_validate(current)
