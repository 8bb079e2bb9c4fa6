"""Episodes in blocks: a block has random streams of its own, so that it may be played anywhere and in any order."""

from typing import NamedTuple

BLOCK = 1024
"""Episodes that are played together, at most: large enough for arithmetic, small enough to be shared out."""


class EpisodeBlock(NamedTuple):
    """Some of the episodes of a study."""

    number: int
    """Its place among the blocks, which decides its random streams."""
    size: int
    """How many episodes it has."""


def blocks(episodes: int, most: int = BLOCK) -> list[EpisodeBlock]:
    """The blocks of a study. They depend on nothing but their arguments: on no number of workers.

    Args:
        episodes: In all blocks.
        most: How many the player takes at once; no block has more, nor more than ``BLOCK``.

    Returns:
        Full blocks, and what remains as the last.
    """
    size = min(most, BLOCK)
    return [EpisodeBlock(number, min(size, episodes - begin)) for number, begin in enumerate(range(0, episodes, size))]
