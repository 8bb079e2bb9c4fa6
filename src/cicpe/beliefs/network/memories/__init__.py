"""Memories: networks that encode a history."""

from typing import TYPE_CHECKING

from cicpe.lazy import lazily

if TYPE_CHECKING:
    from cicpe.beliefs.network.memories.attention import AttentionConfig as AttentionConfig
    from cicpe.beliefs.network.memories.attention import AttentionMemory as AttentionMemory
    from cicpe.beliefs.network.memories.base import Dims as Dims
    from cicpe.beliefs.network.memories.base import FunctionMemory as FunctionMemory
    from cicpe.beliefs.network.memories.base import Memory as Memory
    from cicpe.beliefs.network.memories.base import MemoryConfig as MemoryConfig
    from cicpe.beliefs.network.memories.base import MemoryFeatures as MemoryFeatures
    from cicpe.beliefs.network.memories.base import PrefixState as PrefixState
    from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig as DeltaRuleConfig
    from cicpe.beliefs.network.memories.delta_rule import DeltaRuleMemory as DeltaRuleMemory
    from cicpe.beliefs.network.memories.lattice import LatticeConfig as LatticeConfig
    from cicpe.beliefs.network.memories.lattice import LatticeMemory as LatticeMemory
    from cicpe.beliefs.network.memories.per_axis import PerAxisConfig as PerAxisConfig
    from cicpe.beliefs.network.memories.per_axis import PerAxisMemory as PerAxisMemory
    from cicpe.beliefs.network.memories.pooling import HiddenStateMemory as HiddenStateMemory
    from cicpe.beliefs.network.memories.pooling import QueryPooling as QueryPooling
    from cicpe.beliefs.network.memories.recurrent import RecurrentConfig as RecurrentConfig
    from cicpe.beliefs.network.memories.recurrent import RecurrentMemory as RecurrentMemory
    from cicpe.beliefs.network.memories.registry import MEMORIES as MEMORIES
    from cicpe.beliefs.network.memories.registry import read_memory as read_memory
    from cicpe.beliefs.network.memories.registry import register_memory as register_memory
    from cicpe.beliefs.network.memories.regression import RegressionConfig as RegressionConfig
    from cicpe.beliefs.network.memories.regression import RegressionMemory as RegressionMemory
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "attention": "AttentionConfig AttentionMemory",
            "base": "Dims FunctionMemory Memory MemoryConfig MemoryFeatures PrefixState",
            "delta_rule": "DeltaRuleConfig DeltaRuleMemory",
            "lattice": "LatticeConfig LatticeMemory",
            "per_axis": "PerAxisConfig PerAxisMemory",
            "pooling": "HiddenStateMemory QueryPooling",
            "recurrent": "RecurrentConfig RecurrentMemory",
            "registry": "MEMORIES read_memory register_memory",
            "regression": "RegressionConfig RegressionMemory",
        },
    )
