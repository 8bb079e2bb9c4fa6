"""Workers that are none: the last item first, from pickled copies, and some of them die. Nothing is started."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cicpe import parallel


class Died(Exception):
    """A worker is gone."""


def pretend_workers(monkeypatch: pytest.MonkeyPatch, lives: Sequence[int]) -> list[list[int]]:
    """Puts pools in place of joblib's that finish so many items each and then lose a worker.

    Args:
        monkeypatch: Undoes it.
        lives: How many items each pool finishes; the last number holds for all later pools.

    Returns:
        The positions of the items that every pool is given, as it comes.
    """
    given: list[list[int]] = []

    def results(backend: str, jobs: int | None, function: bytes, items: dict[int, Any]) -> Iterator[tuple[int, Any]]:
        life = lives[min(len(given), len(lives) - 1)]
        given.append(list(items))
        for count, (index, item) in enumerate(reversed(items.items())):
            if count == life:
                raise Died("gone")
            parallel._unpickled.cache_clear()
            yield parallel._do(function, index, item)

    monkeypatch.setattr(parallel, "_joblib_results", results)
    monkeypatch.setattr(parallel, "_deaths", lambda backend: (Died,))
    return given
