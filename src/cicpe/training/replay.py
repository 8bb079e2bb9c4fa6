"""A replay of whole trajectories: the last few rollouts, and the last that were all uniform, sampled across."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from cicpe import trees
from cicpe.problems import Problem, TaskBatch
from cicpe.training.rollout import Trajectories


class StoredRollout(NamedTuple):
    """A rollout and the seed its tasks were drawn with: enough to write it down without the tasks."""

    seed: int
    trajectories: Trajectories


@final
class Replay:
    """A first-in first-out store of rollouts of one horizon, and another of those whose queries were all uniform.

    An actor that follows a critic soon fills the first with queries of one kind; the second keeps what the critic knows
    of the others.
    """

    def __init__(self, rollouts: int, uniform: int = 0) -> None:
        self._rollouts: deque[StoredRollout] = deque(maxlen=rollouts)
        self._uniform: deque[StoredRollout] = deque(maxlen=uniform)

    def __iter__(self) -> Iterator[StoredRollout]:
        """All rollouts, those that are all uniform first, each kind from the oldest on."""
        yield from self._uniform
        yield from self._rollouts

    def __len__(self) -> int:
        """The number of trajectories."""
        return sum(len(stored.trajectories.length) for stored in self)

    def add(self, seed: int, trajectories: Trajectories) -> None:
        """Keeps a rollout; the oldest goes. A new horizon empties the store first."""
        if any(stored.trajectories.query.shape[1] != trajectories.query.shape[1] for stored in self):
            self._clear()
        all_uniform = self._uniform.maxlen != 0 and not bool(trajectories.own.any())
        (self._uniform if all_uniform else self._rollouts).append(StoredRollout(seed, trajectories))

    def _clear(self) -> None:
        self._rollouts.clear()
        self._uniform.clear()

    def sample(self, n: int, rng: Generator) -> Trajectories:
        """``n`` trajectories, uniformly over all that are stored."""
        sizes = torch.tensor([float(len(stored.trajectories.length)) for stored in self])
        share = torch.multinomial(sizes, n, replacement=True, generator=rng).bincount(minlength=len(sizes))
        parts = []
        for stored, count in zip(self, share.tolist(), strict=True):
            if count:
                rows = torch.randint(len(stored.trajectories.length), (count,), generator=rng)
                parts.append(select_rows(stored.trajectories, rows))
        return join(parts)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: everything but the tasks, which their seeds give back."""
        kept: dict[str, Tensor] = {}
        for i, (seed, t) in enumerate(self):
            size = torch.tensor([seed, len(t.length)])
            parts = dict(zip(t._fields[1:], t[1:], strict=True))
            kept |= {f"replay.{i}.{name}": value.contiguous() for name, value in (parts | {"seed": size}).items()}
        return kept

    def restore(self, problem: Problem, tensors: dict[str, Tensor]) -> None:
        """Rebuilds the store from ``tensors``."""
        self._clear()
        i = 0
        while f"replay.{i}.seed" in tensors:
            seed, n = tensors[f"replay.{i}.seed"].tolist()
            tasks = TaskBatch.draw(problem, n, torch.Generator().manual_seed(seed))
            names = Trajectories._fields[1:]
            self.add(seed, Trajectories(tasks, *(tensors[f"replay.{i}.{name}"] for name in names)))
            i += 1


def select_rows(t: Trajectories, rows: Tensor) -> Trajectories:
    """The trajectories at ``rows`` (integers or a mask)."""
    return Trajectories(t.tasks.select(rows), *(column[rows] for column in t[1:]))


def join(parts: Sequence[Trajectories]) -> Trajectories:
    """One batch of several."""
    tasks = [part.tasks for part in parts]
    joined = TaskBatch(
        tasks[0].problem,
        trees.concatenate([batch.task for batch in tasks]),
        torch.cat([batch.context for batch in tasks]),
        torch.cat([batch.target for batch in tasks]),
    )
    return Trajectories(joined, *(torch.cat(column) for column in list(zip(*parts, strict=True))[1:]))
