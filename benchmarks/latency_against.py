"""How long an ask and a tell take with twenty clients, against another version of this repository, in turns.

    git worktree add /tmp/before COMMIT
    python benchmarks/latency_against.py /tmp/before --rounds 5

In every round each version serves twenty clients on SQLite and on PostgreSQL, one after the other, in an order that
alternates: whatever else the machine does meets both alike. The clients are of this version. The figures are kept for
docs/results/attack.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from kept_results import ROOT, keep

STORES = ("sqlite", "postgres")


def commit(folder: Path) -> str:
    words = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def measured(folder: Path, store: str, clients: int, each: int) -> dict[str, float]:
    """Median and 99th percentile, in milliseconds, of one version."""
    words = [sys.executable, str(ROOT / "benchmarks" / "campaigns.py"), "http", "--store", store]
    words += ["--size", str(clients), "--each", str(each)]
    own = os.environ | {"PYTHONPATH": str(folder / "src")}
    done = subprocess.run(words, capture_output=True, text=True, env=own, timeout=1800)
    if not done.stdout:
        raise RuntimeError(f"{folder}: {done.stderr[-2000:]}")
    figures = json.loads(done.stdout)
    if figures["faults"]:
        raise RuntimeError(f"{folder}: {figures['faults'][:3]}")
    return {"p50": figures["ask_tell_ms"]["median"], "p99": figures["ask_tell_ms"]["p99"]}


def compared(rounds: list[dict[str, dict[str, float]]], name: str) -> dict[str, Any]:
    """One figure of both versions over the rounds, and their ratio round by round."""
    before, after = ([one[version][name] for one in rounds] for version in ("before", "after"))
    ratios = [new / old for new, old in zip(after, before, strict=True)]
    medians = {
        "before": statistics.median(before),
        "after": statistics.median(after),
        "ratio": statistics.median(ratios),
    }
    return medians | {"ratio_range": [min(ratios), max(ratios)], "ratios": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a work tree of the other version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--each", type=int, default=10)
    given = parser.parse_args()
    versions = {"before": given.before, "after": ROOT}
    figures: dict[str, Any] = {"clients": given.clients, "each": given.each, "rounds": given.rounds, "faults": []}
    figures |= {name: commit(folder) for name, folder in versions.items()}
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {store: [] for store in STORES}
    figures["loads"] = []
    for number in range(given.rounds):
        figures["loads"].append(os.getloadavg()[0])
        for store in STORES:
            order = list(versions.items())[:: 1 if number % 2 else -1]
            rounds[store].append({name: measured(where, store, given.clients, given.each) for name, where in order})
            print(store, rounds[store][-1], file=sys.stderr, flush=True)
    figures["stores"] = {
        store: {name: compared(found, name) for name in ("p50", "p99")} for store, found in rounds.items()
    }
    keep("attack/latency", figures)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
