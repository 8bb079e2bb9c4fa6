"""A race between the recipes `fast` and `paper` on one cell of the paper, for the same time on one core.

    python benchmarks/race_recipes.py --minutes 2 --limit 20

Both train on binary search, d = 6, epsilon 0.2, flip probability 0.05 only: the setting of one of the
paper's own runs. After `--minutes` both are measured: accuracy on fresh tasks as a function of the mean
number of queries (by moving the stop threshold, or stopping
after so many, whichever is better), and each with its own stop rule. `paper` then goes on
until it has reached, at the same number of queries, what `fast` had; or to `--limit`, and the page says
that it did not.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch

from cicpe.agents.stop_rules import STOP_RULES, first_passages
from cicpe.calibration.thresholds import CalibrationRun
from cicpe.episodes.table import EpisodeTable, RecordSettings
from cicpe.problems import make_problem
from cicpe.training.base import AnyTrainer
from cicpe.training.config import PaperConfig
from cicpe.training.recipes import choose
from cicpe.training.run import freeze
from cicpe.training.schedule import Budget
from cicpe.training.trainers import make_trainer as trainer_of

CELL = {"dim": 6, "epsilon": 0.2, "noise": 0.05}
PAPER_QUERIES = 10.4
QUERIES = (6.0, 8.0, 10.4, 13.0, 16.0, 20.0)
EPISODES, SEED = 4000, 77


def make_trainer(recipe: str, minutes: float, seed: int) -> AnyTrainer:
    problem = make_problem("binary-search", dim=CELL["dim"], noise=CELL["noise"])
    config = choose(recipe, problem).config.model_copy(update={"epsilon": (CELL["epsilon"], CELL["epsilon"])})
    # CPU seconds of one thread: what a quiet core would need, whatever else the machine is doing.
    return trainer_of(problem, config, Budget(minutes=minutes), seed, clock=time.process_time)


def measure(trainer: AnyTrainer) -> dict[str, object]:
    """Accuracy against mean queries over all confidence thresholds, and the Bellman rule's own point."""
    training = trainer.trained_config
    costs = training.costs if isinstance(training, PaperConfig) else None
    rules = (STOP_RULES["bellman"],) if costs else ()
    settings = RecordSettings((CELL["epsilon"],), 0.0, rules, costs, trainer.config.minimum_time)
    records = CalibrationRun(freeze(trainer).belief, trainer.problem, settings).play(EPISODES, SEED)
    success = records.loss[0] <= CELL["epsilon"]
    rows = torch.arange(EPISODES)
    stops = first_passages(records.confidence[0], STOP_RULES["confidence"].thresholds(None))
    curve = sorted((float(s.float().mean()), float(success[rows, s].float().mean())) for s in stops)
    queries, accuracy = (np.array(column) for column in zip(*curve, strict=True))
    result: dict[str, object] = {
        "seconds": round(trainer.at.seconds, 1),
        "updates": trainer.at.update,
        "accuracy_at_queries": {str(q): round(_accuracy_at(q, queries, accuracy, success), 4) for q in QUERIES},
        "queries_at_0.90": _first_reaching(queries, accuracy, 0.90),
    }
    if costs:
        result["bellman"] = _bellman_point(records, success)
        result["cost"] = trainer.at.cost
    return result


def _accuracy_at(q: float, queries: np.ndarray, accuracy: np.ndarray, success: torch.Tensor) -> float:
    """The better of stopping by confidence, at a threshold that gives q queries on average, and after q queries."""
    after = np.interp(q, np.arange(success.shape[1]), success.float().mean(dim=0).numpy())
    by_confidence = np.interp(q, queries, accuracy) if queries[0] <= q <= queries[-1] else 0.0
    return float(max(after, by_confidence))


def _bellman_point(records: EpisodeTable, success: torch.Tensor) -> dict[str, float]:
    hit = records.stops["bellman"][0, 0]
    stop = torch.where(hit.any(dim=1), hit.int().argmax(dim=1), hit.shape[1] - 1)
    accuracy = success[torch.arange(len(stop)), stop].float().mean()
    return {"accuracy": round(float(accuracy), 4), "mean_queries": round(float(stop.float().mean()), 2)}


def _first_reaching(queries: np.ndarray, accuracy: np.ndarray, level: float) -> float | None:
    reached = np.nonzero(accuracy >= level)[0]
    return round(float(queries[reached[0]]), 2) if len(reached) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--limit", type=float, default=20.0, help="minutes after which `paper` is given up")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/results/race-recipes"))
    args = parser.parse_args()
    torch.set_num_threads(1)

    fast = make_trainer("fast", args.minutes, args.seed)
    while fast.progress < 1:
        fast.iterate()
    goal = measure(fast)
    print(json.dumps({"fast": goal}), flush=True)

    paper = make_trainer("paper", args.limit, args.seed)
    looks, marks = (
        [],
        [args.minutes * factor for factor in (1, 2, 3, 5, 7.5, 10, 15, 20, 30) if args.minutes * factor < args.limit],
    )
    marks.append(args.limit)
    caught_up = None
    for mark in marks:
        paper.resume_clock()
        while paper.at.seconds < 60 * mark and paper.progress < 1:
            paper.iterate()
        looks.append(measure(paper))
        print(json.dumps({"paper": looks[-1]}), flush=True)
        at = str(PAPER_QUERIES)
        if looks[-1]["accuracy_at_queries"][at] >= goal["accuracy_at_queries"][at]:  # type: ignore[index]
            caught_up = looks[-1]["seconds"]
            break
    result = {
        "cell": CELL,
        "command": f"python benchmarks/race_recipes.py --minutes {args.minutes:g} --limit {args.limit:g} --seed {args.seed}",
        "date": time.strftime("%Y-%m-%d"),
        "hardware": f"{platform.machine()}, one thread, torch {torch.__version__}",
        "episodes": EPISODES,
        "evaluation_seed": SEED,
        "fast": goal,
        "paper": looks,
        "paper_caught_up_after_seconds": caught_up,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(page(result, args.minutes, args.limit))


def page(result: dict[str, object], minutes: float, limit: float) -> str:
    fast, looks = result["fast"], result["paper"]
    lines = [
        "# The race of the recipes",
        "",
        f"Binary search, d = 6, epsilon 0.2, flip probability 0.05; both recipes trained on this cell alone, for the same CPU time on one thread. "
        f"Made by `{result['command']}` on {result['date']} ({result['hardware']}); accuracy on {EPISODES} fresh tasks "
        f"(seed {SEED}) at equal mean numbers of queries (the confidence threshold moved to give them, or a stop after so many, whichever is better). The standard error of an "
        f"accuracy near 0.9 is 0.005.",
        "",
        "| recipe | after | updates | "
        + " | ".join(f"acc. at {q:g}" for q in QUERIES)
        + " | queries for 0.90 | own Bellman rule |",
        "|---|---|---|" + "---|" * (len(QUERIES) + 2),
    ]
    for name, assessment in [("fast", fast)] + [("paper", assessment) for assessment in looks]:  # type: ignore[attr-defined]
        bellman = assessment.get("bellman")
        own = f"{bellman['accuracy']:.3f} at {bellman['mean_queries']:.1f}" if bellman else ""
        cells = " | ".join(f"{assessment['accuracy_at_queries'][str(q)]:.3f}" for q in QUERIES)
        reached = assessment["queries_at_0.90"]
        lines.append(
            f"| {name} | {assessment['seconds'] / 60:.1f} min | {assessment['updates']} | {cells} | "
            f"{'not reached' if reached is None else f'{reached:.1f}'} | {own} |"
        )
    caught = result["paper_caught_up_after_seconds"]
    lines += [
        "",
        (
            f"`paper` reached the accuracy that `fast` has after {minutes:g} minutes (at {PAPER_QUERIES} queries) after "
            f"{caught / 60:.1f} minutes: {caught / 60 / minutes:.1f} times as long."  # type: ignore[operator]
            if caught
            else f"`paper` did not reach, within {limit:g} minutes, the accuracy that `fast` has after {minutes:g} minutes "
            f"(at {PAPER_QUERIES} queries)."
        ),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
