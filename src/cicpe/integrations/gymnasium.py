"""Every problem as a Gymnasium environment: ``pip install 'cicpe[gymnasium]'``.

    import gymnasium
    import cicpe.integrations.gymnasium  # registers cicpe/binary-search-v0 and the others

    env = gymnasium.make("cicpe/binary-search-v0", dim=2)

An episode is one hidden task. Each step either makes a query, which costs, or stops with an answer, which is worth 1
if it is within epsilon.
"""

from typing import Any, final

import numpy as np
import torch

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error.name} is missing: install it with  pip install 'cicpe[gymnasium]'") from None

from cicpe.errors import InvalidInput
from cicpe.problems import Problem, TaskBatch, make_problem
from cicpe.problems.registry import FAMILIES
from cicpe.spaces import Box, Interval, Space

Observation = dict[str, Any]
Action = dict[str, Any]


@final
class CampaignEnv(gymnasium.Env[Observation, Action]):
    """One campaign of a problem, in the place of the agent.

    An action is a dictionary: ``query``, where to measure; ``stop``, 1 to end now; ``answer``, what to answer then.
    An observation is one too: the last ``query``, what was observed there, how many were ``made``, and the ``context``
    where the problem has one. Before the first query both are zero. ``info`` says the ``loss`` of the answer, and
    whether it is a ``success``, once the episode has ended.

    Args:
        problem: A problem, or its name.
        epsilon: How far off an answer may be; the middle of the problem's own range where not given.
        cost: The price of a query.
        options: Of the problem, where it is given by name.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self, problem: Problem | str, epsilon: float | None = None, cost: float = 0.01, **options: Any
    ) -> None:
        self.problem = make_problem(problem, **options) if isinstance(problem, str) else problem
        self.epsilon = sum(self.problem.default_epsilon) / 2 if epsilon is None else epsilon
        if not self.epsilon > 0:
            raise InvalidInput("epsilon", epsilon, "a positive number")
        self.cost, self.horizon = cost, self.problem.horizon
        query, answer = _box(self.problem.query_space), _box(self.problem.answer_space)
        self.action_space = spaces.Dict({"query": query, "stop": spaces.Discrete(2), "answer": answer})
        seen: dict[str, spaces.Space[Any]] = {
            "query": spaces.Box(np.minimum(query.low, 0), np.maximum(query.high, 0), dtype=np.float32),
            "observation": _unbounded(self.problem.observation_dim),
            "made": spaces.Discrete(self.horizon + 1),
        }
        if self.problem.context_names:
            seen["context"] = _unbounded(len(self.problem.context_names))
        self.observation_space = spaces.Dict(seen)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A fresh task."""
        super().reset(seed=seed)
        self._rng = torch.Generator().manual_seed(int(self.np_random.integers(2**62)))
        self._hidden = TaskBatch.draw(self.problem, 1, self._rng)
        self._made = 0
        self._last = torch.zeros(1, self.problem.query_space.dim), torch.zeros(1, self.problem.observation_dim)
        return self._seen(), {}

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """A query, or the end."""
        query, answer = (torch.as_tensor(action[name], dtype=torch.float32)[None] for name in ("query", "answer"))
        query = self.problem.query_space.project(query)
        loss = float(self._hidden.loss(self.problem.answer_space.project(answer))[0])
        judged = {"loss": loss, "success": loss <= self.epsilon}
        if action["stop"]:
            return self._seen(), float(judged["success"]), True, False, judged
        self._last = query, self._hidden.observe(query, self._rng)
        self._made += 1
        truncated = self._made >= self.horizon
        return self._seen(), -self.cost, False, truncated, judged if truncated else {}

    def _seen(self) -> Observation:
        """New arrays each time: whoever gets them may keep and change them."""
        query, observation = (part[0].numpy().copy() for part in self._last)
        seen: Observation = {"query": query, "observation": observation, "made": np.int64(self._made)}
        if self.problem.context_names:
            seen["context"] = self._hidden.context[0].numpy().copy()
        return seen


def _box(space: Space) -> spaces.Box:
    match space:
        case Box(low=low, high=high):
            return spaces.Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32)
        case Interval(low=low, high=high):
            return spaces.Box(np.float32(low), np.float32(high), (1,), np.float32)
    return spaces.Box(-1.0, 1.0, (space.dim,), np.float32)  # any direction: only that of the vector counts


def _unbounded(dim: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (dim,), np.float32)


for _family in FAMILIES:
    gymnasium.register(
        id=f"cicpe/{_family}-v0",
        entry_point="cicpe.integrations.gymnasium:CampaignEnv",
        kwargs={"problem": _family},
    )
