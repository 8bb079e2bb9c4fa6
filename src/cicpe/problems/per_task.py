"""Problems written for one task at a time, in plain NumPy.

A user who does not want to batch, or to write PyTorch, fills in methods that see a single task::

    class Threshold(PerTaskProblem):
        query_space = Box(low=[0.0], high=[1.0])
        answer_space = Box(low=[0.0], high=[1.0])

        def sample_one(self, rng):
            return {"threshold": rng.uniform(0, 1)}

        def observe_one(self, task, query, rng):
            return float(query[0] > task["threshold"]) + 0.1 * rng.normal()

        def target_one(self, task):
            return task["threshold"]

A task is any Python object. This is slower than a batched ``Problem`` by about the size of the batch.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.errors import ProblemError
from cicpe.problems.base import Problem

Tasks = npt.NDArray[np.object_]
"""A batch of tasks: a one-dimensional array of whatever ``sample_one`` returned."""
Numbers = float | Sequence[float] | npt.NDArray[Any]
"""One number, or a flat list or array of them."""


class PerTaskProblem(Problem):
    """A family of tasks given by functions of one task. Subclass it, set the two spaces, write three methods."""

    @abstractmethod
    def sample_one(self, rng: np.random.Generator) -> Any:
        """Draws one hidden task from the prior, using ``rng`` for all that is random.

        Args:
            rng: Draws whatever is random.

        Returns:
            The task: any Python object, which only the other methods look into.
        """

    @abstractmethod
    def observe_one(self, task: Any, query: npt.NDArray[np.float64], rng: np.random.Generator) -> Numbers:
        """One observation of a task at a query: a number, or always the same count of numbers.

        Args:
            task: What ``sample_one`` returned.
            query: Where it is measured: a point of the query space.
            rng: Draws the noise.

        Returns:
            What is observed.
        """

    @abstractmethod
    def target_one(self, task: Any) -> Numbers:
        """The answer with zero loss: a point of the answer space.

        Args:
            task: What ``sample_one`` returned.

        Returns:
            A number, or as many as the answer space has coordinates.
        """

    def loss_one(self, task: Any, answer: npt.NDArray[np.float64]) -> float:
        """How wrong an answer is, zero at the target. Default: the distance of the answer space.

        Args:
            task: What ``sample_one`` returned.
            answer: A point of the answer space.

        Returns:
            A number of at least zero, in the unit of epsilon.
        """
        target = np.atleast_1d(np.asarray(self.target_one(task), dtype=np.float64))
        return float(self.answer_space.distance(torch.from_numpy(answer), torch.from_numpy(target)))

    def context_one(self, task: Any) -> Numbers:
        """What the agent is told at the start: one number for each of ``context_names``.

        Args:
            task: What ``sample_one`` returned.

        Returns:
            As many numbers as there are names.
        """
        return ()

    @property
    def has_default_loss(self) -> bool:
        """Whether nobody has written a loss, which is then the answer space's own distance to the target."""
        cls = type(self)
        return cls.loss_one is PerTaskProblem.loss_one and cls.loss is PerTaskProblem.loss

    @final
    def sample(self, n: int, rng: Generator) -> Tasks:
        numpy_rng = _numpy_generator(rng)
        tasks = np.empty(n, dtype=object)
        for row in range(n):
            tasks[row] = self.sample_one(numpy_rng)
        return tasks

    @final
    def observe(self, task: Tasks, query: Float[Tensor, "n query"], rng: Generator) -> Float[Tensor, "n observation"]:
        numpy_rng = _numpy_generator(rng)
        places = _rows(query)
        observations = [self.observe_one(single, place, numpy_rng) for single, place in zip(task, places, strict=True)]
        return self._stack("observe_one", observations, self.__dict__.get("observation_dim"), "as many for every task")

    @final
    def target(self, task: Tasks) -> Float[Tensor, "n answer"]:
        dim = self.answer_space.dim
        return self._stack(
            "target_one", [self.target_one(single) for single in task], dim, "a point of the answer space"
        )

    def loss(self, task: Tasks, answer: Float[Tensor, "n answer"]) -> Float[Tensor, " n"]:
        if self.has_default_loss:
            return super().loss(task, answer)
        losses = [self.loss_one(single, point) for single, point in zip(task, _rows(answer), strict=True)]
        return self._stack("loss_one", losses, 1, "the loss of one answer")[:, 0]

    @final
    def context(self, task: Tasks) -> Float[Tensor, "n context"]:
        names = ", ".join(self.context_names) or "context_names is empty"
        return self._stack("context_one", [self.context_one(single) for single in task], len(self.context_names), names)

    def _stack(self, method: str, values: Iterable[Any], length: int | None, what: str) -> Tensor:
        """Joins what a user's method returned for each task, refusing a row that is not ``length`` numbers."""
        rows: list[npt.NDArray[np.float64]] = []
        for row, value in enumerate(values):
            try:
                numbers = np.atleast_1d(np.asarray(value, dtype=np.float64))
            except (TypeError, ValueError):
                numbers = np.full((0, 0), np.nan)  # not numbers at all: refused below
            length = numbers.size if length is None and numbers.ndim == 1 else length
            if numbers.shape != (length,):
                count = "numbers" if length is None else "1 number" if length == 1 else f"{length} numbers"
                raise ProblemError(
                    f"{type(self).__name__}.{method} returned {value!r} for task {row}; expected {count} ({what})"
                )
            rows.append(numbers)
        stacked = np.array(rows, dtype=np.float32).reshape(len(rows), length or 0)
        return torch.from_numpy(stacked)


def _numpy_generator(rng: Generator) -> np.random.Generator:
    """A NumPy generator that a PyTorch one determines; the next call gives another."""
    seed = torch.randint(0, 2**63 - 1, (), generator=rng, dtype=torch.int64)
    return np.random.default_rng(int(seed))


def _rows(points: Float[Tensor, "n dim"]) -> npt.NDArray[np.float64]:
    """A copy in double precision, so that a user's code cannot change our tensors."""
    copy: npt.NDArray[np.float64] = points.detach().to(torch.float64, copy=True).numpy()
    return copy
