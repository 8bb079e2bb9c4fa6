"""Which regions an agent learns from, and which are kept to test it on.

Neighbouring regions share geology, rivers and sampling teams, so a random split would test on what was half seen. The
regions are instead cut into ``FOLDS`` compact patches of about equal number: the map is cut in two along its longer
side, and each part again, until there are as many parts as folds. Split k holds out patch k. Training leaves out, in
addition, every region that touches a held-out one, side or corner. So every region is held out once, and no split has
a held-out region beside a training region. Nothing is random: the same regions give the same splits.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cicpe.errors import InvalidInput

FOLDS = 5
"""How many splits there are."""
TOUCHING = 0.25
"""Degrees between the samples of two regions below which the regions touch."""
Boxes = Mapping[str, tuple[float, float, float, float]]
"""Region -> west, south, east, north in degrees."""


class Split(NamedTuple):
    """Names of regions: disjoint, each sorted."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    buffer: tuple[str, ...]
    """Neither: these touch a held-out region."""


def split(boxes: Boxes, number: int) -> Split:
    """Split ``number``, from 0 to ``FOLDS`` - 1."""
    if number not in range(FOLDS):
        raise InvalidInput("split", number, f"a whole number from 0 to {FOLDS - 1}")
    if len(boxes) < FOLDS:
        raise InvalidInput(
            "split", number, f"left out with fewer than {FOLDS} regions, as here ({len(boxes)}): name regions instead"
        )
    held_out = _patches(boxes, sorted(boxes), FOLDS)[number]
    near = {name for name in boxes if any(touch(boxes[name], boxes[other]) for other in held_out)}
    train = tuple(sorted(set(boxes) - near))
    if not train:
        raise InvalidInput("split", number, "left out where all regions touch each other: name regions instead")
    return Split(train, tuple(sorted(held_out)), tuple(sorted(near - set(held_out))))


def touch(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether two boxes lie side by side, or corner to corner."""
    return all(max(a[axis], b[axis]) - min(a[axis + 2], b[axis + 2]) < TOUCHING for axis in (0, 1))


def _patches(boxes: Boxes, names: Sequence[str], parts: int) -> list[list[str]]:
    if parts == 1:
        return [list(names)]
    middle = {name: _middle(boxes[name]) for name in names}
    spans = [max(middle[name][axis] for name in names) - min(middle[name][axis] for name in names) for axis in (0, 1)]
    axis = 0 if spans[0] >= spans[1] else 1
    ordered = sorted(names, key=lambda name: (middle[name][axis], middle[name][1 - axis], name))
    few = parts // 2
    cut = round(len(ordered) * few / parts)
    return _patches(boxes, ordered[:cut], few) + _patches(boxes, ordered[cut:], parts - few)


def _middle(box: Sequence[float]) -> tuple[float, float]:
    """The middle of a box, with degrees of longitude made as long as those of latitude."""
    west, south, east, north = box
    return (west + east) / 2 * math.cos(math.radians((south + north) / 2)), (south + north) / 2
