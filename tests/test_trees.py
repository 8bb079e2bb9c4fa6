from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicpe import trees


class Pair(NamedTuple):
    left: Tensor
    right: Tensor | None


@dataclass(frozen=True)
class Checked:
    """A user's dataclass that looks at its own fields, as theirs may."""

    values: Tensor

    def __post_init__(self) -> None:
        if self.values.ndim != 2:
            raise ValueError("values must be a matrix")


def make_tree(n: int) -> dict[str, Any]:
    objects = np.empty(n, dtype=object)
    objects[:] = [{"row": row} for row in range(n)]
    return {
        "tensor": torch.arange(n),
        "pair": Pair(torch.arange(2.0 * n).reshape(n, 2), None),
        "list": [np.arange(n) * 10, (torch.arange(n) == 1,)],
        "checked": Checked(torch.arange(3.0 * n).reshape(n, 3)),
        "objects": objects,
        "nothing": None,
    }


def assert_same(a: object, b: object) -> None:
    left, right = trees.leaves(a), trees.leaves(b)
    assert len(left) == len(right)
    for one, two in zip(left, right, strict=True):
        assert type(one) is type(two)
        assert one.shape == two.shape
        assert np.array_equal(np.asarray(one), np.asarray(two))


def test_map_leaves_keeps_the_kinds_of_its_branches() -> None:
    tree = make_tree(3)
    mapped = trees.map_leaves(lambda leaf: leaf, tree)
    assert mapped.keys() == tree.keys()
    assert isinstance(mapped["pair"], Pair)
    assert mapped["pair"].right is None
    assert mapped["nothing"] is None
    assert isinstance(mapped["list"], list)
    assert isinstance(mapped["list"][1], tuple)
    assert isinstance(mapped["checked"], Checked)


def test_map_leaves_walks_several_trees_in_step() -> None:
    one = Pair(torch.tensor([1, 2]), None)
    two = Pair(torch.tensor([10, 20]), None)
    assert trees.map_leaves(torch.add, one, two).left.tolist() == [11, 22]


def test_map_leaves_refuses_trees_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="shorter"):
        trees.map_leaves(torch.add, [torch.zeros(1), torch.zeros(1)], [torch.zeros(1)])


def test_leaves_come_in_order_and_skip_none() -> None:
    a, b, c = torch.zeros(2), np.zeros(2), torch.ones(2)
    found = trees.leaves({"x": (a, None), "y": [b, c]})
    assert found[0] is a
    assert found[1] is b
    assert found[2] is c


def test_leaves_of_a_dataclass_that_checks_its_fields() -> None:
    values = torch.zeros(2, 3)
    assert trees.leaves(Checked(values))[0] is values


@pytest.mark.parametrize("bad", [3.0, "text", object(), {1, 2}])
def test_what_is_not_a_tree_is_refused_by_type(bad: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(bad).__name__}"):
        trees.leaves({"x": (torch.zeros(1), bad)})


@pytest.mark.parametrize("index", [torch.tensor([2, 0, 0]), torch.tensor([True, False, True, False])])
def test_select_takes_rows_of_every_leaf(index: Tensor) -> None:
    tree = make_tree(4)
    chosen = trees.select(tree, index)
    for before, after in zip(trees.leaves(tree), trees.leaves(chosen), strict=True):
        rows = index.nonzero()[:, 0] if index.dtype == torch.bool else index
        assert np.array_equal(np.asarray(after), np.asarray(before)[rows.numpy()])
    assert [entry["row"] for entry in chosen["objects"]] == [entry["row"] for entry in tree["objects"][index.numpy()]]


def test_select_nothing() -> None:
    empty = trees.select(make_tree(4), torch.zeros(4, dtype=torch.bool))
    assert {len(leaf) for leaf in trees.leaves(empty)} == {0}


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_concatenate_then_select_gives_each_part_back(sizes: list[int]) -> None:
    parts = [make_tree(size) for size in sizes]
    whole = trees.concatenate(parts)
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        assert_same(trees.select(whole, torch.arange(start, start + size)), part)
        start += size


def running_total(tree: Pair) -> Pair:
    return Pair(tree.left.cumsum(dim=1), None)


def test_a_batch_by_pieces_is_the_batch_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, sizes = Pair(torch.arange(70.0).reshape(10, 7), None), []

    def noted(tree: Pair) -> Pair:
        sizes.append(len(tree.left))
        return running_total(tree)

    monkeypatch.setattr(trees, "PIECE_BYTES", 4 * 100)
    with torch.no_grad():
        assert_same(trees.by_pieces(noted, batch, row_bytes=100), running_total(batch))
        assert sizes == [4, 4, 2]
        trees.by_pieces(noted, batch, row_bytes=10**6)  # a row that is larger than a piece is a piece of its own
        assert sizes[3:] == [1] * 10
    sizes.clear()
    trees.by_pieces(noted, batch, row_bytes=100)  # with gradients, as a whole
    assert sizes == [10]
