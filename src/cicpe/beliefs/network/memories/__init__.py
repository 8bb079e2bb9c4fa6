"""Memories: networks that encode a history."""

from cicpe.beliefs.network.memories.attention import AttentionConfig, AttentionMemory
from cicpe.beliefs.network.memories.base import Dims, FunctionMemory, Memory, MemoryFeatures, PrefixState
from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig, DeltaRuleMemory
from cicpe.beliefs.network.memories.per_axis import PerAxisConfig, PerAxisMemory
from cicpe.beliefs.network.memories.pooling import HiddenStateMemory, QueryPooling
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig, RecurrentMemory
from cicpe.beliefs.network.memories.regression import RegressionConfig, RegressionMemory

__all__ = [
    "AttentionConfig",
    "AttentionMemory",
    "DeltaRuleConfig",
    "DeltaRuleMemory",
    "Dims",
    "FunctionMemory",
    "HiddenStateMemory",
    "Memory",
    "MemoryFeatures",
    "PerAxisConfig",
    "PerAxisMemory",
    "PrefixState",
    "QueryPooling",
    "RecurrentConfig",
    "RecurrentMemory",
    "RegressionConfig",
    "RegressionMemory",
]
