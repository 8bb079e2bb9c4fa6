"""A teacher: particles play whole episodes, and the network learns from their histories.

What a history says about the target does not depend on who chose its queries, so the posterior and the
confidence may be learned on anyone's. A young agent's own histories hardly say anything; a teacher's say enough
from the start.
"""

import torch
from torch import Generator

from cicpe import trees
from cicpe.agents.core import Core
from cicpe.agents.particle_core import ParticleCore
from cicpe.errors import InvalidInput
from cicpe.problems import HiddenTasks, Problem
from cicpe.training.config import TrainingConfig
from cicpe.training.rollout import Trajectories

LESSON = 64
"""Episodes that are played together."""
SURE = 0.999
"""Confidence, at the smallest epsilon, from which a history says no more."""


def make_teacher(problem: Problem, config: TrainingConfig) -> Core:
    """The particles that the configuration describes, refused where the problem gives them nothing to go by."""
    assert config.teacher is not None
    try:
        return ParticleCore(problem, min(config.horizon, problem.horizon), config.teacher.particles, config.aim.epsilon)
    except InvalidInput as error:
        raise InvalidInput("teacher", error.value, f"None, or {error.allowed}") from None


def lesson(teacher: Core, hidden: HiddenTasks, epsilon: float, rng: Generator) -> Trajectories:
    """Plays every task until the teacher is sure within ``epsilon``, or to its horizon."""
    n, horizon = len(hidden), teacher.horizon
    query = torch.zeros(n, horizon, hidden.problem.query_space.dim)
    observation = torch.zeros(n, horizon, hidden.problem.observation_dim)
    length, active = torch.full((n,), horizon), torch.arange(n)
    playing, state = hidden, teacher.begin(hidden.context)
    for t in range(horizon):
        look = teacher.look(state, (epsilon,), rng)
        # The first query is always made: a history without one teaches nothing, and has nothing to be filled up with.
        go, asked = (look.confidence[0] < SURE) | (t == 0), look.query
        if not bool(go.all()):
            length[active[~go]] = t
            playing, active, asked, state = playing.select(go), active[go], asked[go], trees.select(state, go)
            if not len(active):
                break
        seen = playing.observe(asked, rng)
        state = teacher.observe(state, asked, seen)
        # What an ended episode had last stays in its later columns.
        query[active, t:], observation[active, t:] = asked[:, None], seen[:, None]
    own = torch.zeros(n, dtype=torch.bool)
    return Trajectories(hidden, query, observation, length, stopped=own, own=own)
