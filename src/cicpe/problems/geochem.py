"""Where copper peaks in a region: tasks made from old geochemical surveys.

Each task is a region of a survey, its field the posterior mean of a Gaussian process fitted to the samples (see
``cicpe.data``). Queries and answers are places in the unit square (east, north). A query returns the field there,
bilinear between 200 x 200 grid points, plus noise where wanted; the target is the grid point with the largest value.

The agent has to find peaks in regions that it has never seen, and there are few regions to learn from. So tasks can
be varied. ``draws`` and ``twins`` are the shares of tasks whose field is simulated from the fit, as
``cicpe.data.sampling`` explains. ``augment`` lists what is done to any field: mirror images (flips), quarter turns
(rotations), square windows of at least half the side (crops), and a common factor on all values (rescaling). The target
of a varied task is the peak of the varied field, found exactly.

Train and held-out regions never touch; ``cicpe.data.splits`` says how they are chosen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe.data.collection import Collection, Entry, open_collection, read_tensor
from cicpe.data.places import DataError
from cicpe.data.splits import FOLDS, split
from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem
from cicpe.problems.context import Noise, noise_range, sample_noise
from cicpe.spaces import Box
from cicpe.statistics import log_uniform

AUGMENTATIONS = ("flips", "rotations", "crops", "rescaling")
BLOCKS = 20
"""Blocks of grid points along a side: windows consist of whole ones."""
HALF = BLOCKS // 2
"""Blocks along the side of the smallest window."""
FACTOR = 1.5
"""Rescaling multiplies values by a factor from 1 / FACTOR to FACTOR, uniform in its logarithm."""


class GeochemTask(NamedTuple):
    """``n`` hidden fields: which grid, how the unit square lies in it, and what follows from that."""

    grid: Int[Tensor, " n"]
    corner: Float[Tensor, "n 2"]
    side: Float[Tensor, " n"]
    """The window: its lower corner and its side, in the grid's unit square."""
    flip: Bool[Tensor, "n 2"]
    swap: Bool[Tensor, " n"]
    """Coordinates are swapped (or not), then mirrored (or not): the eight ways to lay a square on a square."""
    factor: Float[Tensor, " n"]
    peak: Float[Tensor, "n 2"]
    height: Float[Tensor, " n"]
    """The target and the value there, as the agent would see them."""
    noise: Float[Tensor, " n"]


class Bank(NamedTuple):
    """Every field that a problem can draw, region by region: the mean, then the draws, then the twins."""

    names: tuple[str, ...]
    noise: Float[Tensor, " region"]
    draws: int
    twins: int
    grids: Float[Tensor, "grid side side"]
    highest: Float[Tensor, "grid east north"]
    """The largest value in each square of half the side that begins at a block."""
    highest_point: Int[Tensor, "grid east north"]
    """The number of the grid point that has it."""


@final
@dataclass(frozen=True)
class Geochem(Problem):
    """Locate the peak of a mineral's concentration in a region of a geochemical survey."""

    fields: str = "copper"
    """Fitted fields, by the name that ``cicpe data fit`` gave them. Pinned to what they are now: ``name@digest``."""
    regions: str | tuple[str, ...] = "train"
    """``train``, ``held-out``, ``all``, or a list of names."""
    group: str = "all"
    """``all`` of these regions, or the ``resolvable`` ones: both fitted length scales at least a tenth of the side."""
    split: int = 0
    """Which split, from 0 to 4."""
    draws: float = 0.25
    """Share of tasks whose field is a draw from a region's posterior."""
    twins: float = 0.5
    """Share of tasks whose field is the posterior mean of a simulated survey."""
    augment: tuple[str, ...] = AUGMENTATIONS
    """What else is varied: any of flips, rotations, crops and rescaling."""
    noise: Noise | str = 0.0
    """Standard deviation of an observation, in standard scores and told to the agent: a number, a range over which it
    is log-uniform, or ``fitted`` for each region's own."""
    scored_by: str = "distance"
    """The loss: the ``distance`` to the peak, or how far the ``value`` at the answer is below the peak's."""

    context_names = ("noise",)
    horizon = 150
    default_epsilon = (0.15, 0.2)

    def __post_init__(self) -> None:
        if not isinstance(self.fields, str):
            raise InvalidInput("fields", self.fields, "the name of fitted fields")
        _one_of("group", self.group, ("all", "resolvable"))
        _one_of("scored_by", self.scored_by, ("distance", "value"))
        if self.split not in range(FOLDS):
            raise InvalidInput("split", self.split, f"a whole number from 0 to {FOLDS - 1}")
        if not (self.draws >= 0 and self.twins >= 0 and self.draws + self.twins <= 1):
            raise InvalidInput("draws, twins", (self.draws, self.twins), "two shares from 0 up with a sum of at most 1")
        if not set(self.augment) <= set(AUGMENTATIONS):
            raise InvalidInput("augment", self.augment, f"a list of some of {', '.join(AUGMENTATIONS)}")
        if isinstance(self.regions, str):
            _one_of("regions", self.regions, ("train", "held-out", "all"))
        if isinstance(self.noise, str):
            _one_of("noise", self.noise, ("fitted",))
        else:
            object.__setattr__(self, "noise", noise_range(self.noise))
        object.__setattr__(self, "fields", self._pinned())
        object.__setattr__(self, "query_space", Box([0.0, 0.0], [1.0, 1.0]))
        object.__setattr__(self, "answer_space", self.query_space)
        object.__setattr__(self, "observation_dim", 1)  # known without drawing a task, which needs the fields

    def _pinned(self) -> str:
        """With the digest, where the fields are here; a model is loaded, and a session run, where they are not."""
        name, at, _ = self.fields.partition("@")
        if at:
            return self.fields
        try:
            return f"{name}@{open_collection(name).digest}"
        except DataError:
            return name

    @cached_property
    def collection(self) -> Collection:
        """The fitted fields, or an error that says how to make them."""
        name, _, digest = self.fields.partition("@")
        return open_collection(name, digest)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The regions that tasks are drawn from."""
        collection = self.collection
        names = {entry.name for entry in collection.entries}
        if self.regions in ("train", "held-out"):
            parts = split(collection.boxes, self.split)
            names = set(parts.train if self.regions == "train" else parts.held_out)
        elif self.regions != "all":
            unknown = sorted(set(self.regions) - names)
            if unknown or not self.regions:
                raise InvalidInput("regions", unknown or self.regions, f"names among {', '.join(sorted(names))}")
            names = set(self.regions)
        chosen = [e for e in collection.entries if e.name in names and (self.group == "all" or e.resolvable)]
        if not chosen:
            raise InvalidInput("group", self.group, f"a group with a region among {', '.join(sorted(names))}")
        return tuple(chosen)

    def as_surveyed(self, regions: str | Sequence[str] = "held-out", group: str = "all") -> "Geochem":
        """Some regions just as they were fitted: what an agent is tested on.

        Args:
            regions: ``train``, ``held-out`` or ``all``, or the regions' names.
            group: ``all`` of these regions, or the ``resolvable`` ones.

        Returns:
            The problem without draws, twins and augmentation.
        """
        chosen = regions if isinstance(regions, str) else tuple(regions)
        return replace(self, regions=chosen, group=group, draws=0.0, twins=0.0, augment=())

    @property
    def bank(self) -> Bank:
        """All fields, in memory: shared by the problems that draw from the same ones."""
        return _bank(self.collection.folder, self.entries, self.draws > 0, self.twins > 0)

    def region(self, task: GeochemTask) -> Int[Tensor, " n"]:
        """Which region each task is made from: an index into ``entries``.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.

        Returns:
            Shape n.
        """
        return task.grid // _each(self.bank)

    def sample(self, n: int, rng: Generator) -> GeochemTask:
        bank = self.bank
        region = torch.randint(len(bank.names), (n,), generator=rng)
        grid = region * _each(bank) + self._member(bank, n, rng)
        first, blocks = self._windows(n, rng)
        node, height = _highest_in_window(bank, grid, first, blocks)
        factor = torch.ones(n)
        if "rescaling" in self.augment:
            factor = log_uniform(1 / FACTOR, FACTOR, n, rng)
        if isinstance(self.noise, str):
            noise = bank.noise[region] * factor
        else:
            noise = sample_noise(noise_range(self.noise), n, rng)
        # From the first to the last grid point of the window's blocks.
        points = bank.grids.shape[-1]
        width = points // BLOCKS
        corner = first * width / (points - 1)
        side = (blocks * width - 1) / (points - 1)
        flip, swap = self._orientation(n, rng)
        peak = _lay((node / (points - 1) - corner) / side[:, None], flip, swap, back=True).clamp(0, 1)
        return GeochemTask(grid, corner, side, flip, swap, factor, peak, height * factor, noise)

    def _member(self, bank: Bank, n: int, rng: Generator) -> Int[Tensor, " n"]:
        """Which of a region's fields: the mean, a draw or a twin."""
        kind, which = torch.rand((2, n), generator=rng)
        draw = 1 + (which * bank.draws).long()
        twin = 1 + bank.draws + (which * bank.twins).long()
        simulated = torch.where(kind < self.draws, draw, twin)
        return torch.where(kind < self.draws + self.twins, simulated, 0)

    def _windows(self, n: int, rng: Generator) -> tuple[Int[Tensor, "n 2"], Int[Tensor, " n"]]:
        """The first block of each window along both axes, and how many blocks it has."""
        if "crops" not in self.augment:
            return torch.zeros((n, 2), dtype=torch.long), torch.full((n,), BLOCKS)
        blocks = torch.randint(HALF, BLOCKS + 1, (n,), generator=rng)
        first = (torch.rand((n, 2), generator=rng) * (BLOCKS - blocks + 1)[:, None]).long()
        return first, blocks

    def _orientation(self, n: int, rng: Generator) -> tuple[Bool[Tensor, "n 2"], Bool[Tensor, " n"]]:
        """How the square lies: a mirror image, then a number of quarter turns."""
        mirrored = torch.randint(2, (n,), generator=rng).bool() & ("flips" in self.augment)
        turns = torch.randint(4, (n,), generator=rng) * ("rotations" in self.augment)
        # A quarter turn swaps the axes and mirrors one; two mirror both.
        swap = turns % 2 == 1
        flip = torch.stack([(turns == 1) | (turns == 2), (turns == 2) | (turns == 3)], dim=1)
        flip[:, 0] ^= mirrored
        return flip, swap

    def value(self, task: GeochemTask, query: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        """The field at the query, without noise.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.
            query: Places in the unit square: n x 2.

        Returns:
            Shape n, in the units of the survey's field.
        """
        place = _lay(self.query_space.project(query), task.flip, task.swap)
        return task.factor * bilinear(self.bank.grids, task.grid, task.corner + task.side[:, None] * place)

    def observe(self, task: GeochemTask, query: Float[Tensor, "n 2"], rng: Generator) -> Float[Tensor, "n 1"]:
        noise = task.noise * torch.randn(len(query), generator=rng)
        return (self.value(task, query) + noise)[:, None]

    def target(self, task: GeochemTask) -> Float[Tensor, "n 2"]:
        return task.peak

    @property
    def has_default_loss(self) -> bool:
        return self.scored_by == "distance"

    def loss(self, task: GeochemTask, answer: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        if self.has_default_loss:
            return super().loss(task, answer)
        return (task.height - self.value(task, answer)).clamp_min(0)

    def context(self, task: GeochemTask) -> Float[Tensor, "n 1"]:
        return task.noise[:, None]

    def default_context(self) -> tuple[float, ...] | None:
        return None if isinstance(self.noise, str) else (noise_range(self.noise)[1],)

    def log_likelihood(
        self, task: GeochemTask, query: Float[Tensor, "n 2"], observation: Float[Tensor, "n 1"]
    ) -> Float[Tensor, " n"]:
        noise = task.noise.clamp_min(1e-6)  # without noise there is no density; this is an observation's last digit
        error = (observation[:, 0] - self.value(task, query)) / noise
        return -0.5 * error.square() - torch.log(noise) - 0.5 * math.log(2 * math.pi)


def bilinear(
    grids: Float[Tensor, "grid side side"], which: Int[Tensor, " n"], place: Float[Tensor, "n 2"]
) -> Float[Tensor, " n"]:
    """One value of each of the grids ``which``, at places in the unit square."""
    side = grids.shape[-1]
    at = (place * (side - 1)).clamp(0, side - 1)
    cell = at.floor().clamp_max(side - 2)
    east, north = (at - cell).unbind(dim=1)
    index = cell.long()
    corner = (which * side + index[:, 0]) * side + index[:, 1]
    flat = grids.view(-1)
    south_side = torch.lerp(flat[corner], flat[corner + side], east)
    north_side = torch.lerp(flat[corner + 1], flat[corner + side + 1], east)
    return torch.lerp(south_side, north_side, north)


def _lay(place: Float[Tensor, "n 2"], flip: Tensor, swap: Tensor, back: bool = False) -> Float[Tensor, "n 2"]:
    """From the agent's square to the window's: swap, then mirror; ``back``, the other way round."""
    if back:
        place = torch.where(flip, 1 - place, place)
    place = torch.where(swap[:, None], place.flip(1), place)
    return place if back else torch.where(flip, 1 - place, place)


def _highest_in_window(
    bank: Bank, grid: Tensor, first: Int[Tensor, "n 2"], blocks: Int[Tensor, " n"]
) -> tuple[Int[Tensor, "n 2"], Float[Tensor, " n"]]:
    """The grid point with the largest value in a window, and that value.

    A bilinear function is largest at a corner of the rectangle that it lives on, and windows begin and end at grid
    points, so no place in the window has a larger value. Four half squares, one in each corner of the window, cover it.
    """
    last = first + (blocks - HALF)[:, None]
    east, north = torch.stack([first, last], dim=2).unbind(dim=1)
    square = (grid[:, None, None] * (HALF + 1) + east[:, :, None]) * (HALF + 1) + north[:, None, :]
    height, best = bank.highest.view(-1)[square.flatten(1)].max(dim=1)
    point = bank.highest_point.view(-1)[square.flatten(1)].gather(1, best[:, None])[:, 0]
    side = bank.grids.shape[-1]
    return torch.stack([point // side, point % side], dim=1), height


def _each(bank: Bank) -> int:
    return 1 + bank.draws + bank.twins


@lru_cache(maxsize=4)
def _bank(folder: Path, entries: tuple[Entry, ...], draws: bool, twins: bool) -> Bank:
    kinds = ["draws"] * draws + ["twins"] * twins
    parts: list[Tensor] = []
    for entry in entries:
        parts += [read_tensor(folder, entry, "mean")[None], *(read_tensor(folder, entry, kind) for kind in kinds)]
    grids = torch.cat(parts)
    side = grids.shape[-1]
    if side % BLOCKS:
        raise DataError(f"the fields in {folder} have {side} grid points per side; a multiple of {BLOCKS} is needed")
    highest, highest_point = _half_squares(grids)
    simulated = len(parts[1]) if kinds else 0
    noise = torch.tensor([entry.noise for entry in entries])
    names = tuple(entry.name for entry in entries)
    return Bank(names, noise, simulated * draws, simulated * twins, grids, highest, highest_point)


def _half_squares(grids: Float[Tensor, "grid side side"]) -> tuple[Tensor, Tensor]:
    """The largest value in every half square of blocks, and the number of the grid point that has it."""
    count, side, _ = grids.shape
    width = side // BLOCKS
    number = torch.arange(side * side).view(BLOCKS, width, BLOCKS, width).transpose(1, 2).flatten(2)
    blocks = grids.view(count, BLOCKS, width, BLOCKS, width).transpose(2, 3).flatten(3)
    value, inner = blocks.max(dim=3)
    point = number.expand(count, -1, -1, -1).gather(3, inner[..., None])[..., 0]
    squares, points = (part.unfold(1, HALF, 1).unfold(2, HALF, 1).flatten(3) for part in (value, point))
    highest, inner = squares.max(dim=3)
    return highest, points.gather(3, inner[..., None])[..., 0]


def _one_of(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(field, value, f"one of {', '.join(allowed)}")
