"""Random streams by name: what is drawn for one purpose is never drawn for another, whatever their seeds.

PyTorch's generator tells 2^32 seeds apart. The upper half is for certificates (``cicpe.certification``). The lower half
is divided into 16 equal shares: the first is for what agents draw for themselves (prior particles, drawn functions:
small seeds that are part of a frozen model), and every purpose below has one of the others. Within a purpose different
seeds have different streams as long as they are below 2^27, and so have the same seeds with different labels, but for
one chance in 2^27.

Two things lie outside, because they are fixed by what was recorded: a live campaign, whose queries are seeded by its
own seed and position, and the batches of tasks that a training run draws by numbers from its own stream.
"""

import hashlib

import torch
from torch import Generator

from cicpe.errors import InvalidInput

PURPOSES = (
    "training",
    "calibration",
    "recalibration",
    "context",
    "alarm",
    "evaluation",
    "diagnosis",
    "robustness",
    "comparison",
    "table",
    "examples",
    "time-sharing",
    "race",
    "doctor",
    "prior-predictive",
)
"""What random numbers are drawn for. New ones are added at the end: the place in the list decides the stream."""
SHARE = 2**27
"""Seeds per purpose."""
STRIDE = 0x2545F4B
"""Odd, so that different seeds stay different within a share."""


def seed_for(seed: int, purpose: str, *labels: object) -> int:
    """The seed of a generator for one purpose.

    Args:
        seed: As the user gave it.
        purpose: One of ``PURPOSES``.
        labels: What tells several streams of the purpose apart: the part of a fit, the number of a step.

    Returns:
        A number from the purpose's own share.
    """
    if purpose not in PURPOSES:
        raise InvalidInput("purpose", purpose, f"one of {', '.join(PURPOSES)}")
    beyond, within = divmod(int(seed), SHARE)
    text = " ".join(map(str, (purpose, beyond, *labels)))
    offset = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return (1 + PURPOSES.index(purpose)) * SHARE + (within * STRIDE + offset) % SHARE


def block_stream(seed: int, block: int) -> Generator:
    """A fresh generator for one block of the episodes that a seed is for.

    Blocks can be played anywhere and in any order, since none waits for the random numbers of another.

    Args:
        seed: The seed of all of them, from ``seed_for`` or of a certificate.
        block: Which block; the first has the very stream of the seed.

    Returns:
        A stream from the same share of all seeds as ``seed``.
    """
    if block == 0:
        return torch.Generator().manual_seed(seed)
    digest = hashlib.sha256(f"block {block} of {seed}".encode()).digest()
    own = seed - seed % SHARE + int.from_bytes(digest[:8], "big") % SHARE
    return torch.Generator().manual_seed(own)


def stream(seed: int, purpose: str, *labels: object) -> Generator:
    """A fresh generator for one purpose; see ``seed_for``."""
    return torch.Generator().manual_seed(seed_for(seed, purpose, *labels))
