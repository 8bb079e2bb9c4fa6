"""Nested batches: the few operations that we need on tasks and states.

A tree is a tensor, a NumPy array (of objects, perhaps), None, or a tuple, NamedTuple, list, dict
or dataclass of trees. Every leaf has the batch as its first dimension.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

Tree = TypeVar("Tree")
Leaf = Tensor | np.ndarray

PIECE_BYTES = 2**22
"""Intermediate results that are made at once: more leave a core's cache, and then workers wait for memory."""


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Applies ``function`` leaf by leaf to trees of one shape; None stays None."""
    return cast(Tree, _map(function, (tree, *others)))


def _map(function: Callable[..., Any], trees: Sequence[Any]) -> Any:
    first = trees[0]
    if first is None:
        return None
    if isinstance(first, Tensor | np.ndarray):
        return function(*trees)
    if isinstance(first, dict):
        return {key: _map(function, [tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple | list):
        parts = [_map(function, parts) for parts in zip(*trees, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if is_dataclass(first) and not isinstance(first, type):
        values = {f.name: _map(function, [getattr(tree, f.name) for tree in trees]) for f in fields(first)}
        return type(first)(**values)
    raise TypeError(
        f"a batch may hold tensors, NumPy arrays, tuples, lists, dicts and dataclasses, not {type(first).__name__}"
    )


def select(tree: Tree, index: Tensor | slice) -> Tree:
    """The rows ``index`` (integers, a mask, or a slice, which copies nothing) of every leaf."""
    in_numpy = index if isinstance(index, slice) else index.numpy()
    return map_leaves(lambda leaf: leaf[index if isinstance(leaf, Tensor) else in_numpy], tree)


def slices(n: int, size: int) -> list[slice]:
    """Pieces of at most ``size`` of ``n`` rows; one piece of none where there are none."""
    return [slice(begin, begin + size) for begin in range(0, max(1, n), size)]


def concatenate(trees: Sequence[Tree]) -> Tree:
    """Joins batches along their first dimension."""
    return map_leaves(_joined, trees[0], *trees[1:])


def _joined(*leaves: Leaf) -> Leaf:
    if isinstance(leaves[0], Tensor):
        return torch.cat(cast(tuple[Tensor, ...], leaves))
    return np.concatenate(leaves)


def by_pieces(function: Callable[[Tree], Any], tree: Tree, row_bytes: int) -> Any:
    """``function`` of a batch, whose rows it treats alike, a piece of ``PIECE_BYTES`` at a time.

    Where gradients are wanted the batch stays whole: they need all intermediate results anyway.

    Args:
        function: Takes a batch and gives one back with as many rows.
        tree: The batch.
        row_bytes: What the largest of the intermediate results takes per row.

    Returns:
        The rows of all pieces.
    """
    n, size = len(leaves(tree)[0]), max(1, PIECE_BYTES // max(1, row_bytes))
    if n <= size or torch.is_grad_enabled():
        return function(tree)
    return concatenate([function(select(tree, piece)) for piece in slices(n, size)])


def leaves(tree: object) -> list[Leaf]:
    """Every leaf, in order."""
    collected: list[Leaf] = []

    def keep(leaf: Leaf) -> Leaf:
        collected.append(leaf)
        return leaf  # the tree is rebuilt on the way, and a user's dataclass may check its own fields

    map_leaves(keep, tree)
    return collected
