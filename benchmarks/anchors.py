"""Published fixed-length tasks, scored as their papers do: what greedy information gain reaches when its posterior is exact.

    python benchmarks/anchors.py                 # writes docs/results/anchors.json and anchors.md
    python benchmarks/anchors.py --runs 2000 --contrastive 1000000

Two tasks with two unknowns each. Nothing is trained: the posterior is computed on a grid, and the next query is the one with the largest
expected information gain among candidates. Random queries stand beside it. Figures are kept per task and method, so that an interrupted run goes on.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cicpe.evaluation.information import information_bounds
from cicpe.files import write_json

RESULTS = Path(__file__).parent.parent / "docs" / "results"
SEED = 30
PART = 20
"""Runs of location finding after which figures are kept."""
SIDE, DRAWS = 64, 512
"""Grid points per axis of a posterior, and draws of it on which candidates are judged."""


# Location finding: y = log(0.1 + 1 / (1e-4 + |theta - x|^2)) + N(0, 0.5^2), theta and x in the unit square.
LOCATION_STEPS, NOISE = 30, 0.5
BIN = 0.1
SIGNAL_BINS = np.arange(-1.0, 10.0, BIN)
OBSERVED = np.arange(-3.0, 12.0, BIN)
BLUR = (
    np.exp(-0.5 * ((OBSERVED - (SIGNAL_BINS[:, None] + BIN / 2)) / NOISE) ** 2) / (NOISE * math.sqrt(2 * math.pi)) * BIN
)


def signal(query: np.ndarray, theta: np.ndarray) -> np.ndarray:
    return np.log(0.1 + 1 / (1e-4 + ((query - theta) ** 2).sum(axis=-1)))


class SourceGrid:
    """The posterior of one source on a grid of a box, which shrinks with it."""

    def __init__(self) -> None:
        self.queries: list[np.ndarray] = []
        self.values: list[float] = []
        self._lay(np.zeros(2), np.ones(2))

    def _lay(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low, self.high = low, high
        axes = [low[i] + (np.arange(SIDE) + 0.5) / SIDE * (high[i] - low[i]) for i in (0, 1)]
        self.points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        self.log_weight = np.zeros(len(self.points))
        for query, value in zip(self.queries, self.values, strict=True):
            self.log_weight -= 0.5 * ((value - signal(query, self.points)) / NOISE) ** 2

    def update(self, query: np.ndarray, value: float) -> None:
        self.queries.append(query)
        self.values.append(value)
        self.log_weight -= 0.5 * ((value - signal(query, self.points)) / NOISE) ** 2
        weight = self.weight()
        inside = self.points[weight > 1e-6 * weight.max()]
        cell = (self.high - self.low) / SIDE
        low, high = np.maximum(inside.min(axis=0) - 2 * cell, 0), np.minimum(inside.max(axis=0) + 2 * cell, 1)
        if ((high - low) < 0.7 * (self.high - self.low)).any():
            self._lay(low, high)

    def weight(self) -> np.ndarray:
        weight = np.exp(self.log_weight - self.log_weight.max())
        return weight / weight.sum()


def greedy_location(grid: SourceGrid, rng: np.random.Generator) -> np.ndarray:
    """The candidate whose observation has the largest entropy: the noise is the same everywhere, so that is the information gain."""
    weight = grid.weight()
    comb = (np.arange(DRAWS) + rng.random()) / DRAWS
    draws = grid.points[np.minimum(np.searchsorted(np.cumsum(weight), comb), len(weight) - 1)]
    middle, half = (grid.low + grid.high) / 2, grid.high - grid.low
    near = middle + half * (rng.random((120, 2)) * 2 - 1)
    candidates = np.clip(np.concatenate([near, rng.random((40, 2)), draws[:: DRAWS // 40]]), 0, 1)
    index = ((signal(candidates[:, None], draws[None]) - SIGNAL_BINS[0]) / BIN).astype(np.int64)
    flat = np.bincount(
        (index + len(SIGNAL_BINS) * np.arange(len(candidates))[:, None]).ravel(),
        minlength=len(candidates) * len(SIGNAL_BINS),
    )
    density = flat.reshape(len(candidates), -1) / DRAWS @ BLUR
    entropy = -(density * np.log(np.maximum(density, 1e-300))).sum(axis=1)
    return candidates[entropy.argmax()]


def location(
    choose: Callable[[SourceGrid, np.random.Generator], np.ndarray], run: int, contrastive: int
) -> tuple[float, float]:
    """One run: the first query is random, as in the published evaluation. Returns sPCE and sNMC."""
    rng = np.random.default_rng([SEED, run])
    theta = rng.random(2)
    grid = SourceGrid()
    for step in range(LOCATION_STEPS):
        query = rng.random(2) if step == 0 else choose(grid, rng)
        grid.update(query, float(signal(query, theta) + NOISE * rng.standard_normal()))
    others = torch.from_numpy(rng.random((contrastive, 2), dtype=np.float32))
    log_others, log_true = torch.zeros(contrastive), 0.0
    for query, value in zip(grid.queries, grid.values, strict=True):
        square = (others[:, 0] - float(query[0])).square_().add_((others[:, 1] - float(query[1])).square_()).add_(1e-4)
        residual = square.reciprocal_().add_(0.1).log_().sub_(value)
        log_others.add_(residual.square_(), alpha=-0.5 / NOISE**2)
        log_true -= 0.5 * ((value - float(signal(query, theta))) / NOISE) ** 2
    lower, upper = information_bounds(torch.tensor([log_true], dtype=torch.float64), log_others.double()[None])
    return float(lower[0]), float(upper[0])


# Hyperbolic discounting: is an immediate reward R preferred to 100 after a delay D?
DISCOUNT_STEPS, LAPSE = 20, 0.01
LOG_K = -4.25 + 1.5 * np.linspace(-4, 4, 301)
ALPHA = 1e-3 + 2 * np.array(
    [0.02, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5, 1.7, 1.9, 2.2, 2.6]
)
REWARDS = (5.0, 20.0, 50.0, 80.0, 95.0)
LOG_INDIFFERENT = -4.25 + 1.5 * np.linspace(-3.5, 3.5, 211)
"""Values of log k at which the two options of a query are worth the same."""


def prefers(reward: torch.Tensor, delay: torch.Tensor, log_k: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    value = (reward - 100 / (1 + log_k.exp() * delay)) / alpha
    return LAPSE + (1 - 2 * LAPSE) * (0.5 + 0.5 * torch.erf(value))


def designs() -> tuple[torch.Tensor, torch.Tensor]:
    reward = torch.tensor(REWARDS, dtype=torch.float64).repeat(len(LOG_INDIFFERENT))
    log_k = torch.from_numpy(LOG_INDIFFERENT).repeat_interleave(len(REWARDS))
    return reward, (100 / reward - 1) / log_k.exp()


def _prior_weights() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    log_k, alpha = torch.from_numpy(LOG_K), torch.from_numpy(ALPHA)
    width = torch.gradient(alpha)[0]
    weight_k = torch.exp(-0.5 * ((log_k + 4.25) / 1.5) ** 2)
    weight_a = torch.exp(-0.5 * ((alpha - 1e-3) / 2) ** 2) * width
    weight = (weight_k[:, None] * weight_a).ravel()
    return log_k.repeat_interleave(len(alpha)), alpha.repeat(len(log_k)), weight / weight.sum()


def _entropy(p: torch.Tensor) -> torch.Tensor:
    return -p * p.clamp_min(1e-30).log() - (1 - p) * (1 - p).clamp_min(1e-30).log()


def discounting(greedy: bool, runs: int, contrastive: int) -> tuple[list[float], list[float]]:
    """All runs together. Returns sPCE and sNMC of each."""
    rng = torch.Generator().manual_seed(SEED)
    log_k = -4.25 + 1.5 * torch.randn(runs, generator=rng, dtype=torch.float64)
    alpha = 1e-3 + (2 * torch.randn(runs, generator=rng, dtype=torch.float64)).abs()
    reward_D, delay_D = designs()
    grid_k, grid_a, prior = _prior_weights()
    if greedy:
        chance = prefers(reward_D[:, None], delay_D[:, None], grid_k, grid_a)
        chance_DG, spread_DG = chance.float(), _entropy(chance).float()
    log_weight = prior.log().expand(runs, -1).clone()
    rewards, delays, answers = [], [], []
    for _ in range(DISCOUNT_STEPS):
        if greedy:
            weight = torch.softmax(log_weight, dim=1).float()
            gain = _entropy(weight @ chance_DG.T) - weight @ spread_DG.T
            best = gain.argmax(dim=1)
            reward, delay = reward_D[best], delay_D[best]
        else:
            reward = 100 * torch.rand(runs, generator=rng, dtype=torch.float64)
            delay = torch.exp(4.25 + 1.5 * torch.randn(runs, generator=rng, dtype=torch.float64))
        answer = torch.rand(runs, generator=rng, dtype=torch.float64) < prefers(reward, delay, log_k, alpha)
        if greedy:
            told = chance_DG[best].double()
            log_weight += torch.where(answer[:, None], told, 1 - told).log()
        rewards.append(reward)
        delays.append(delay)
        answers.append(answer)
    lower, upper = [], []
    for first in range(0, runs, 50):
        part = slice(first, min(first + 50, runs))
        n = part.stop - first
        other_k = -4.25 + 1.5 * torch.randn(n, contrastive, generator=rng)
        other_a = 1e-3 + (2 * torch.randn(n, contrastive, generator=rng)).abs()
        log_others, log_true = torch.zeros(n, contrastive), torch.zeros(n, dtype=torch.float64)
        for reward, delay, answer in zip(rewards, delays, answers, strict=True):
            r, d, y = reward[part], delay[part], answer[part]
            p = prefers(r.float()[:, None], d.float()[:, None], other_k, other_a)
            log_others += torch.where(y[:, None], p, 1 - p).log()
            true = prefers(r, d, log_k[part], alpha[part])
            log_true += torch.where(y, true, 1 - true).log()
        bounds = information_bounds(log_true, log_others.double())
        lower += bounds[0].tolist()
        upper += bounds[1].tolist()
    return lower, upper


def figures(lower: list[float], upper: list[float], contrastive: int, seconds: float) -> dict[str, Any]:
    def mean(values: list[float]) -> list[float]:
        return [float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))]

    return {
        "runs": len(lower),
        "contrastive": contrastive,
        "spce": mean(lower),
        "snmc": mean(upper),
        "processor_seconds": seconds,
    }


def random_location(grid: SourceGrid, rng: np.random.Generator) -> np.ndarray:
    return rng.random(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="of location finding; of discounting too")
    parser.add_argument("--contrastive", type=int, default=100_000, help="L of location finding")
    parser.add_argument("--page", action="store_true", help="only the page, from the figures that there are")
    args = parser.parse_args()
    torch.set_num_threads(1)
    path = RESULTS / "anchors.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def keep(name: str, play: Callable[[], tuple[list[float], list[float]]], contrastive: int) -> None:
        if name in kept or args.page:
            return
        start = time.process_time()
        kept[name] = figures(*play(), contrastive, time.process_time() - start)
        print(name, kept[name], flush=True)
        write_json(path, kept)

    def keep_locations(name: str, choose: Callable[[SourceGrid, np.random.Generator], np.ndarray]) -> None:
        """In parts, so that little is lost where it is interrupted."""
        row = kept.setdefault(name, {"lower": [], "upper": [], "processor_seconds": 0.0})
        while len(row["lower"]) < args.runs and not args.page:
            start, first = time.process_time(), len(row["lower"])
            pairs = [location(choose, run, args.contrastive) for run in range(first, min(first + PART, args.runs))]
            row["lower"] += [pair[0] for pair in pairs]
            row["upper"] += [pair[1] for pair in pairs]
            seconds = row["processor_seconds"] + time.process_time() - start
            row.update(figures(row["lower"], row["upper"], args.contrastive, seconds))
            print(name, row["runs"], row["spce"], flush=True)
            write_json(path, kept)

    keep("discounting, greedy", lambda: discounting(True, args.runs, 5000), 5000)
    keep("discounting, random", lambda: discounting(False, args.runs, 5000), 5000)
    keep_locations("location, random", random_location)
    keep_locations("location, greedy", greedy_location)
    write_page(kept)


PUBLISHED = {
    "location": [
        ("random", "5.17 ± 0.05"),
        ("VPCE", "5.25 ± 0.22"),
        ("vsOED", "7.30 ± 0.06"),
        ("DAD", "7.33 ± 0.06"),
        ("RL-BOED", "7.70 ± 0.06"),
        ("ALINE", "8.91 ± 0.04"),
    ],
    "discounting": [
        ("Kirby", "1.861"),
        ("fixed", "2.518"),
        ("Frye", "3.500"),
        ("Badapted", "4.454"),
        ("DAD", "5.021 ± 0.013"),
    ],
}


def table(kept: dict[str, Any], task: str) -> str:
    lines = ["| method | sPCE | sNMC | runs | L |", "|---|---|---|---|---|"]
    lines += [f"| {name} (published) | {figure} | | | |" for name, figure in PUBLISHED[task]]
    for method in ("random", "greedy"):
        found = kept.get(f"{task}, {method}")
        if not found or "runs" not in found:
            lines.append(f"| **{method}, here** | not measured | | | |")
            continue
        spce, snmc = found["spce"], found["snmc"]
        lines.append(
            f"| **{method}, here** | {spce[0]:.2f} ± {spce[1]:.2f} | {snmc[0]:.2f} ± {snmc[1]:.2f} | {found['runs']} | {found['contrastive']:,} |"
        )
    return "\n".join(lines)


def write_page(kept: dict[str, Any]) -> None:
    (RESULTS / "anchors.md").write_text(
        TEXT.format(location=table(kept, "location"), discounting=table(kept, "discounting"))
    )


TEXT = """# Published tasks of fixed length

Two tasks on which trained policies for experimental design are compared: a fixed number of queries, scored by the information about what is hidden, in nats (sPCE, a lower bound
that cannot exceed log(L + 1), and sNMC, an upper bound; means ± standard errors). Nothing is trained here: both have two unknowns, so the posterior can be computed on a grid, and
*greedy* asks the query with the largest expected information gain of one step. That is a reference which the published tables leave out. It is not what this library trains, which stops by itself.

## Location finding, one source

y = log(0.1 + 1 / (1e-4 + |theta - x|^2)) + N(0, 0.5^2); theta uniform in the unit square, queries in it; 30 queries, of which the first is random, as in the published
evaluation. Published: L = 1,000,000 and 2,000 runs, from the table of ALINE's paper (Huang et al. 2025). The task is the one with a single source and a uniform prior.
With a smaller L than theirs sPCE is a looser lower bound, so ours is not flattered by it.
ALINE picks each query among 200 random candidates (its repository's configuration); greedy here makes candidates of its own near the posterior, which is an advantage.

{location}

## Hyperbolic discounting

log k ~ N(-4.25, 1.5^2), alpha = 1e-3 + |N(0, 2^2)|; is R now preferred to 100 after D: P = 0.01 + 0.98 (0.5 + 0.5 erf((R - 100 / (1 + k D)) / alpha)), as in the code of DAD
(Foster et al. 2021); 20 queries. Published: L = 5,000 and 10,000 runs, second-hand. *random* draws R uniformly and log D ~ N(4.25, 1.5^2).

{discounting}

Made by `python benchmarks/anchors.py --runs N` (seed 30), in parts that are kept; the tables say how many runs and which L there were, which is what was affordable on a shared core.
`--runs 2000 --contrastive 1000000` is the published size of location finding.
"""

if __name__ == "__main__":
    main()
