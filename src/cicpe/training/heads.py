"""Fits the heads of a computed belief (``cicpe.agents.headed_core``) to episodes of its own."""

import math
import time
from collections.abc import Sequence

import torch

from cicpe.agents.core import Core
from cicpe.agents.headed_core import HeadedCore, Heads, HeadsConfig
from cicpe.agents.records import Records, record
from cicpe.problems import HiddenTasks, Problem
from cicpe.training.config import PrefixMixture
from cicpe.training.losses import go_head_loss, prefix_weights, stop_head_loss
from cicpe.training.returns import lambda_returns
from cicpe.training.schedule import learning_rate

EPSILONS = 5
"""At how many epsilons a belief is looked at."""
CHUNK = 64
"""Episodes that are played together."""
BATCH = 256
RATE = 5e-3
TRACE = 0.95
EVERYWHERE = PrefixMixture(uniform=1.0, near_stop=0.0, terminal=0.0)


def fit_heads(
    core: Core,
    problem: Problem,
    epsilon: tuple[float, float],
    config: HeadsConfig,
    seed: int = 0,
    seconds: float = math.inf,
) -> HeadedCore:
    """The belief with heads, learned on fresh episodes: as many as are asked for and ``seconds`` allow."""
    low, high = epsilon
    epsilons = tuple(low * (high / low) ** (i / (EPSILONS - 1)) for i in range(EPSILONS if low < high else 1))
    rng, began = torch.Generator().manual_seed(seed), time.perf_counter()
    parts: list[Records] = []
    while not parts or (len(parts) * CHUNK < config.episodes and time.perf_counter() - began < seconds):
        hidden = HiddenTasks.draw(problem, min(CHUNK, config.episodes - len(parts) * CHUNK), rng)
        parts.append(record(core, hidden, epsilons, 0.0, rng))
    return HeadedCore(core, fit_to(Records.joined(parts), epsilons, config, seed))


def fit_to(records: Records, at: Sequence[float], config: HeadsConfig, seed: int) -> Heads:
    """Heads for what was recorded of a belief, at the epsilons ``at``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # nn.Linear takes no generator; the global one is put back
        heads = Heads(config)
    epsilons, rng = torch.tensor(at), torch.Generator().manual_seed(seed)
    success = (records.loss <= epsilons[:, None, None]).float()
    episodes, prefixes = success.shape[1:]
    prefix_BP = torch.arange(prefixes).expand(BATCH, -1)
    optimiser = torch.optim.Adam(heads.parameters(), lr=RATE)
    low, high = config.cost
    for update in range(config.updates):
        e = torch.randint(len(epsilons), (BATCH,), generator=rng)
        row = torch.randint(episodes, (BATCH,), generator=rng)
        cost = low * (high / low) ** torch.rand(BATCH, generator=rng)
        reward, length = success[e, row], records.length[row]
        logits, (value,) = heads(prefix_BP, records.confidence[e, row], records.std[row], epsilons[e], (cost,))
        weights = prefix_weights(length, length.float(), prefixes, EVERYWHERE)
        with torch.no_grad():
            target = lambda_returns(torch.sigmoid(logits), value[:, :-1], cost, TRACE, length)
        loss = stop_head_loss(logits[..., None], reward, weights, "cross-entropy")
        going_on = weights[:, :-1] * (prefix_BP[:, :-1] < length[:, None])
        loss = loss + go_head_loss(value[:, :-1, None], target, going_on)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(RATE, update / config.updates)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return heads.eval().requires_grad_(False)
