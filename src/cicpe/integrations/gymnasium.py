"""Every problem as a Gymnasium environment: ``pip install 'cicpe[gymnasium]'``.

    import gymnasium
    import cicpe.integrations.gymnasium  # registers cicpe/binary-search-v0 and the others

    env = gymnasium.make("cicpe/binary-search-v0", dim=2)

An episode is one hidden task. Each step either makes a query, which costs, or stops with an answer, which is worth 1
if it is within epsilon. ``terminated`` is a stop by choice; ``truncated`` is the end of the horizon without one.
"""

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error.name} is missing: install it with  pip install 'cicpe[gymnasium]'") from None

from cicpe.errors import InvalidInput, SessionError
from cicpe.problems import Problem, TaskBatch, make_problem
from cicpe.problems.registry import FAMILIES
from cicpe.spaces import Box, Interval, Space

Observation = dict[str, Any]
Action = dict[str, Any]
ROUNDING = 1e-6
"""How far outside its bounds a coordinate may lie, as a share of their distance: double precision may round there."""


@final
class CampaignEnv(gymnasium.Env[Observation, Action]):
    """One campaign of a problem, in the place of the agent.

    An action is a dictionary: ``query``, where to measure; ``stop``, 1 to end now; ``answer``, what to answer then.
    An action outside the action space is refused, and changes nothing. An observation is a dictionary too: the last
    ``query``, what was observed there, how many were ``made``, and the ``context`` where the problem has one. Before
    the first query both are zero. ``info`` says the ``loss`` of the answer, and whether it is a ``success``, once the
    episode has ended. An episode is terminated by a stop, and truncated with the last query that the horizon allows;
    a truncated one is not rewarded for its answer.

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
        self._under_way = False
        query, answer = _box(self.problem.query_space), _box(self.problem.answer_space)
        self.action_space: spaces.Dict = spaces.Dict({"query": query, "stop": spaces.Discrete(2), "answer": answer})
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
        """A fresh task.

        Args:
            seed: Seeds this task and all that follow.
            options: Not used.

        Returns:
            The first observation, and an empty ``info``.
        """
        super().reset(seed=seed)
        self._rng = torch.Generator().manual_seed(int(self.np_random.integers(2**62)))
        self._hidden = TaskBatch.draw(self.problem, 1, self._rng)
        self._made = 0
        self._last = torch.zeros(1, self.problem.query_space.dim), torch.zeros(1, self.problem.observation_dim)
        self._under_way = True
        return self._seen(), {}

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """A query, or the end.

        Args:
            action: A dictionary of ``query``, ``stop`` and ``answer``.

        Returns:
            The observation, the reward, whether it was terminated, whether it was truncated, and ``info``.
        """
        if not self._under_way:
            raise SessionError("no episode is under way: it has ended or has not begun; call reset()")
        query, stop, answer = self._checked(action)
        loss = float(self._hidden.loss(self.problem.answer_space.project(answer))[0])
        judged = {"loss": loss, "success": loss <= self.epsilon}
        if stop:
            self._under_way = False
            return self._seen(), float(judged["success"]), True, False, judged
        query = self.problem.query_space.project(query)
        self._last = query, self._hidden.observe(query, self._rng)
        self._made += 1
        self._under_way = self._made < self.horizon
        return self._seen(), -self.cost, False, not self._under_way, {} if self._under_way else judged

    def _checked(self, action: Action) -> tuple[Tensor, bool, Tensor]:
        """The parts of an action, or an error that names the one that is not of the action space."""
        names = list(self.action_space.spaces)
        if not isinstance(action, Mapping) or set(action) != set(names):
            raise InvalidInput("action", action, f"a dictionary of {', '.join(names)}")
        stop = np.asarray(action["stop"])
        if stop.shape != () or stop.dtype.kind not in "biu" or int(stop) not in (0, 1):
            raise InvalidInput("stop", action["stop"], "0 or 1")
        query, answer = (_point(name, action[name], self.action_space[name]) for name in ("query", "answer"))
        return query, bool(stop), answer

    def _seen(self) -> Observation:
        """New arrays each time: whoever gets them may keep and change them."""
        query, observation = (part[0].numpy().copy() for part in self._last)
        seen: Observation = {"query": query, "observation": observation, "made": np.int64(self._made)}
        if self.problem.context_names:
            seen["context"] = self._hidden.context[0].numpy().copy()
        return seen


def _point(name: str, value: object, space: spaces.Space[Any]) -> Tensor:
    """A point of a box, in single precision and as a batch of one; every other value is refused by name."""
    assert isinstance(space, spaces.Box)
    try:
        point = np.asarray(value)
    except ValueError:  # lists of different lengths
        raise InvalidInput(name, value, f"numbers of shape {space.shape}") from None
    if point.dtype.kind not in "iuf":
        raise InvalidInput(name, value, f"numbers of shape {space.shape}")
    if point.shape != space.shape:
        raise InvalidInput(name, value, f"of shape {space.shape}, not {point.shape}")
    if not np.isfinite(point).all():
        raise InvalidInput(name, value, "finite numbers")
    room = ROUNDING * (space.high - space.low)
    if ((point < space.low - room) | (point > space.high + room)).any():
        raise InvalidInput(name, value, f"from {space.low.tolist()} to {space.high.tolist()}")
    return torch.as_tensor(point, dtype=torch.float32)[None]


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
