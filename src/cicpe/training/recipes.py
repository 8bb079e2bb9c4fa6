"""Recipes: training configurations with a name, chosen for a problem by its properties."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cicpe.errors import InvalidInput
from cicpe.networks.axis import AxisConfig
from cicpe.networks.critic import CriticConfig
from cicpe.networks.network import MemoryConfig, NetworkConfig
from cicpe.networks.posteriors import GaussianConfig
from cicpe.networks.recurrent import RecurrentConfig
from cicpe.problems import Problem
from cicpe.training.config import PrefixMixture, TrainingConfig


class Choice(NamedTuple):
    """A configuration and, in words, why it was chosen."""

    config: TrainingConfig
    reasons: tuple[str, ...]


def _memory_for(problem: Problem) -> tuple[MemoryConfig, str]:
    dims = (problem.query_space.dim, problem.observation_dim, problem.answer_space.dim)
    if dims[0] == dims[1] == dims[2]:
        return AxisConfig(), "memory axis: query, observation and answer have one entry per coordinate"
    return RecurrentConfig(hidden=96), "memory gru: nothing in the spaces suggests more structure"


def fast(problem: Problem) -> Choice:
    """The default: every prefix in one pass, calibrated stop head, lambda-returns, shared memory."""
    memory, why_memory = _memory_for(problem)
    same = problem.query_space == problem.answer_space
    why_actor = (
        "actor ts: queries and answers share a space, so a plausible answer is a query"
        if same
        else "actor uniform: queries and answers live in different spaces"
    )
    axes = problem.answer_space.dim if isinstance(memory, AxisConfig) else 1
    config = TrainingConfig(
        network=NetworkConfig(memory=memory, critic=CriticConfig(twin=False)),
        actor="ts" if same else "uniform",
        # A few hundred sequences an update at first, whether they are episodes or their coordinates.
        first_batch=max(32, min(128, 400 // axes)),
        batch=max(64, min(256, 1600 // axes)),
    )
    return Choice(config, (why_memory, why_actor))


def paper(problem: Problem) -> Choice:
    """The appendix as written: sampled prefixes, one-step TD, sampled reward, dual cost, own memories."""
    same = problem.query_space == problem.answer_space
    config = TrainingConfig(
        network=NetworkConfig(
            memory=RecurrentConfig(kind="lstm", hidden=128, readout="pooling"),
            posterior=GaussianConfig(hidden=128),
            critic=CriticConfig(hidden=128, twin=True),
            shared_memory=False,
        ),
        actor="ts" if same else "uniform",
        first_batch=128,
        batch=128,
        updates_per_rollout=4,
        replay_rollouts=64,
        adapt_horizon=False,
        horizon=problem.horizon,
        learning_rate=1e-3,
        weight_average=0.0,
        query_scales=(1.0,),
        prefixes="sampled",
        mixture=PrefixMixture(uniform=0.5, near_stop=0.25, terminal=0.25),
        stop_loss="squared",
        reward="sampled",
        returns="one-step",
        polyak=0.01,
        bootstrap_clip=(0.05, 0.95),
        run_past_stop=False,
        minimum_time=3,
        dual_cost=True,
    )
    return Choice(config, ("recipe paper: the published algorithm, for comparison",))


RECIPES: Mapping[str, Callable[[Problem], Choice]] = {"fast": fast, "paper": paper}


def choose(recipe: str, problem: Problem) -> Choice:
    """The named recipe for a problem."""
    if recipe not in RECIPES:
        raise InvalidInput("recipe", recipe, f"one of {', '.join(RECIPES)}")
    return RECIPES[recipe](problem)


__all__ = ["RECIPES", "Choice", "choose", "fast", "paper"]
