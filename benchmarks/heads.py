"""What learned heads buy a computed belief: queries at accuracy 0.9 by its own confidence, a learned one, the Bellman rule.

    python benchmarks/heads.py ackley-3d --episodes 1024

Episodes of the model are played once without stopping; the heads learn on one half of them, and each rule is judged on
the other, at the threshold (or cost) that needs the fewest queries there. So all three are judged alike, and all three a
little too well.
"""

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import cicpe
from cicpe.agents.headed_core import Heads, HeadsConfig
from cicpe.agents.records import Records
from cicpe.certification.thresholds import Study, confidence_stops
from cicpe.training.heads import CHUNK, fit_to

ACCURACY, COSTS = 0.9, torch.logspace(-3, -1, 40)


def fewest(success: Tensor, stops: list[Tensor]) -> float | None:
    """Mean queries of the quickest rule that is right often enough."""
    rows = torch.arange(len(success))
    found = [float(s.float().mean()) for s in stops if success[rows, s].double().mean() >= ACCURACY]
    return round(min(found), 2) if found else None


def judged(heads: Heads, records: Records, e: int, epsilon: float) -> dict[str, Any]:
    success, n = records.loss[e] <= epsilon, records.loss.shape[1]
    prefix = torch.arange(success.shape[1]).expand(n, -1)
    costs = [torch.full((n,), float(cost)) for cost in COSTS]
    with torch.no_grad():
        logits, values = heads(prefix, records.confidence[e], records.std, torch.full((n,), epsilon), costs)
    learned, last = torch.sigmoid(logits), success.shape[1] - 1
    by_value = [torch.where(learned >= v, prefix, last).amin(dim=1) for v in values]
    raw = records.confidence[e]

    def surprise(said: Tensor) -> float:
        return round(float(torch.nn.functional.binary_cross_entropy(said.clamp(1e-6, 1 - 1e-6), success.float())), 4)

    return {
        "epsilon": round(epsilon, 3),
        "episodes": n,
        "own_confidence": fewest(success, confidence_stops(raw)),
        "learned_confidence": fewest(success, confidence_stops(learned)),
        "bellman": fewest(success, by_value),
        "cross_entropy": [surprise(raw), surprise(learned)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="ackley-3d")
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = cicpe.load(given.model)
    low, high = model.description.training.epsilon
    epsilons = tuple(low * (high / low) ** (i / 4) for i in range(5))
    began = time.process_time()
    core = replace(model.core, horizon=min(given.horizon, model.core.horizon))  # type: ignore[type-var]
    records = Study(core, model.problem, epsilons, chunk=CHUNK).play(given.episodes, given.seed, 0.0)
    seconds, half = time.process_time() - began, len(records.length) // 2
    config = HeadsConfig()
    heads = fit_to(records.select(torch.arange(half)), epsilons, config, given.seed)
    fresh = records.select(torch.arange(half, len(records.length)))
    for e in (0, 2, 4):
        print(json.dumps({"model": given.model, **judged(heads, fresh, e, epsilons[e])}), flush=True)
    print(
        json.dumps({"seconds_of_play": round(seconds), "seconds_of_fit": round(time.process_time() - began - seconds)})
    )


if __name__ == "__main__":
    main()
