"""Memories by name. A memory is imported when it is first asked for, and one may be registered from outside."""

from collections.abc import Mapping
from typing import Any

from cicpe.beliefs.network.memories.base import MemoryConfig
from cicpe.config import class_of_kind

_FOLDER = "cicpe.beliefs.network.memories"

MEMORIES: dict[str, str | type[MemoryConfig]] = {
    "gru": f"{_FOLDER}.recurrent:RecurrentConfig",
    "lstm": f"{_FOLDER}.recurrent:RecurrentConfig",
    "attention": f"{_FOLDER}.attention:AttentionConfig",
    "delta": f"{_FOLDER}.delta_rule:DeltaRuleConfig",
    "axis": f"{_FOLDER}.per_axis:PerAxisConfig",
    "regression": f"{_FOLDER}.regression:RegressionConfig",
    "lattice": f"{_FOLDER}.lattice:LatticeConfig",
}
"""Kind -> where its configuration is."""


def register_memory(config: type[MemoryConfig]) -> type[MemoryConfig]:
    """Makes a memory known by the default of its field ``kind``; may be used as a decorator.

    Args:
        config: The configuration of the new memory.

    Returns:
        The same class.
    """
    MEMORIES[config.model_fields["kind"].default] = config
    return config


def read_memory(data: Mapping[str, Any]) -> MemoryConfig:
    """A memory's configuration from what was saved of it, or typed.

    Args:
        data: The fields, ``kind`` among them.

    Returns:
        The validated configuration of that kind.
    """
    return class_of_kind(MEMORIES, str(data.get("kind"))).model_validate(dict(data))
