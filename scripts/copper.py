"""Copper: agents trained on some regions of the survey and tested on others. Writes docs/results/copper.md.

    cicpe data fit FOLDER                      # the fields, once: two to three minutes
    python scripts/copper.py train             # one agent a split and setting, under runs/copper
    python scripts/copper.py measure           # ours on held-out and on seen regions
    python scripts/copper.py curves            # what networks said of themselves while they were trained
    python scripts/copper.py baselines         # TPE, CMA-ES, GP-logEI, GP-UCB and the regret-bound stop on every region
    python scripts/copper.py variations        # what each way to vary the training tasks buys on held-out regions
    python scripts/copper.py trust             # alarm and Beta priors, for the agent of split 0
    python scripts/copper.py zoo               # that agent, with its alarm, as the zoo's geochem-2d
    python scripts/copper.py write             # the page, from the figures that there are

Five splits hold out every region once. A region's field is one deterministic task, so a method is played on it several
times with different random numbers; intervals resample seeds, then regions, then these trajectories.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import copper_page
import torch
from copper_page import BUDGETS, DELTA, EPSILONS, FIGURES, TRAJECTORIES

import cicpe
from cicpe.agents.base import Agent
from cicpe.api import fit_alarm
from cicpe.baselines.catalogue import METHODS, ComparisonSetting
from cicpe.data.splits import FOLDS
from cicpe.episodes.outcomes import run_episodes
from cicpe.episodes.table import tabulate_agent
from cicpe.evaluation.robustness import robustness
from cicpe.problems import TaskBatch
from cicpe.problems.geochem import AUGMENTATIONS, Geochem

ROOT = Path(__file__).parent.parent
RUNS, ZOO = ROOT / "runs" / "copper", ROOT / "src" / "cicpe" / "zoo" / "geochem-2d"
SEED = 40_000


class Kind(NamedTuple):
    """An agent that is trained: on which tasks, how, and on which splits."""

    options: dict[str, Any]
    training: dict[str, Any]
    splits: tuple[int, ...] = (0, 1)
    epsilons: tuple[float, float] = EPSILONS
    shares: str | None = None
    """The agent whose fit it takes over, with an actor and thresholds of its own."""


BELIEF = {"updates": 250, "calibration_episodes": 1500}
NETWORK = {
    "recipe": "fast",
    "minutes": 6,
    "calibration_episodes": 2048,
    "settings": {"network": {"memory": {"kind": "attention", "layers": 3, "width": 96}}},
}


def lattice(actor: str, updates: int, horizon: int, query_spreads: Sequence[float]) -> dict[str, Any]:
    """A network that scores every place of the square; most queries explore."""
    settings = {
        "network": {"memory": {"kind": "lattice"}, "posterior": {"kind": "lattice"}},
        "learning_rate": 5e-3,
        "horizon": horizon,
        "adapt_horizon": False,
        "first_batch": 48,
        "batch": 64,
        "updates_per_rollout": 4,
        "query_spreads": list(query_spreads),
        "random_episodes": 0.1,
        "random_queries": 0.1,
    }
    return {"recipe": "fast", "actor": actor, "updates": updates, "calibration_episodes": 8192, "settings": settings}


EVERY = tuple(range(FOLDS))
RESOLVABLE, VALUE = {"group": "resolvable"}, {"scored_by": "value"}
SHARED = {"episodes": 800, "seed": 1}
KINDS = {
    "distance": Kind({}, BELIEF, EVERY),
    "resolvable": Kind(RESOLVABLE, {"recipe": "functions", "updates": 250, "calibration_episodes": 500}, EVERY),
    "functions-ts": Kind(RESOLVABLE, {**SHARED, "actor": "ts"}, EVERY, shares="resolvable"),
    "functions-ttps": Kind(RESOLVABLE, {**SHARED, "actor": "ttps"}, shares="resolvable"),
    "functions-uniform": Kind(RESOLVABLE, {**SHARED, "actor": "uniform"}, shares="resolvable"),
    "value-gap": Kind(VALUE, BELIEF, epsilons=(0.3, 0.1)),
    "noisy": Kind({"noise": "fitted"}, BELIEF),
    "lattice": Kind(RESOLVABLE, lattice("ts", 4500, 50, (0.5, 1.0, 1.0, 1.0)), (0,)),
    "lattice-ts": Kind(RESOLVABLE, {"actor": "ts", "episodes": 4096}, (0,), shares="lattice"),
    "lattice-ttps": Kind(RESOLVABLE, {"actor": "ttps", "episodes": 4096}, (0,), shares="lattice"),
    "lattice-uniform": Kind(RESOLVABLE, {"actor": "uniform", "episodes": 4096}, (0,), shares="lattice"),
    "lattice-td3": Kind(RESOLVABLE, lattice("td3", 3000, 40, (0.5, 1.0, 1.0, 1.5)), (0,)),
    "lattice-value": Kind(RESOLVABLE | VALUE, lattice("ts", 3000, 40, (0.5, 1.0, 1.0, 1.0)), (0, 1)),
    "lattice-value-ts": Kind(RESOLVABLE | VALUE, {"actor": "ts", "episodes": 4096}, (0, 1), shares="lattice-value"),
    "lattice-value-td3": Kind(RESOLVABLE | VALUE, lattice("td3", 3000, 40, (0.5, 1.0, 1.0, 1.5)), (0, 1)),
    "ts": Kind({}, {**NETWORK, "actor": "ts"}, (0,)),
    "td3": Kind({}, {**NETWORK, "actor": "td3"}, (0,)),
}
"""Epsilon of the value gap is in standard scores. Those that are trained on resolvable regions are tested on such alone:
the paper's actors, with the posterior of one belief over functions or of one network. The last two are older networks."""
SEEDS = 2
"""Trainings of an agent on each split."""
VARIATIONS: dict[str, dict[str, Any]] = {
    "fields as fitted": {"draws": 0.0, "twins": 0.0, "augment": ()},
    "+ flips, rotations": {"draws": 0.0, "twins": 0.0, "augment": ("flips", "rotations")},
    "+ crops": {"draws": 0.0, "twins": 0.0, "augment": ("flips", "rotations", "crops")},
    "+ rescaling": {"draws": 0.0, "twins": 0.0, "augment": AUGMENTATIONS},
    "+ twins (half)": {"draws": 0.0, "twins": 0.5, "augment": AUGMENTATIONS},
    "+ draws (a quarter): the default": {},
    "draws only": {"draws": 1.0, "twins": 0.0, "augment": AUGMENTATIONS},
}


def family(split: int, **options: Any) -> Geochem:
    return Geochem(split=split, **options)


def folder_of(kind: str, split: int, seed: int) -> Path:
    return RUNS / (f"{kind}-{split}" + (f"-seed-{seed}" if seed else ""))


def train(kinds: Sequence[str], splits: Sequence[int] | None, seed: int) -> None:
    for name in kinds:
        kind = KINDS[name]
        for split in splits or kind.splits:
            out = folder_of(name, split, seed)
            if (out / "config.json").exists():
                continue
            began = time.process_time()
            if kind.shares is not None:
                source = folder_of(kind.shares, split, seed)
                cicpe.with_actor(cicpe.load(source), **kind.training).save(out)
                began -= 60 * json.loads((source / "minutes.json").read_text())
            else:
                epsilon = (min(kind.epsilons), max(kind.epsilons))
                problem = family(split, **kind.options)
                cicpe.train(problem, epsilon=epsilon, out=out, resume=True, seed=100 * seed + split, **kind.training)
            minutes = (time.process_time() - began) / 60
            (out / "minutes.json").write_text(json.dumps(minutes) + "\n")
            print(f"{out.name}: {minutes:.1f} minutes of processor time", flush=True)


def curves(kinds: Sequence[str]) -> None:
    """What networks say of themselves during training: no model is needed, a checkpoint's log is enough."""
    for name in kinds:
        for split in KINDS[name].splits:
            log = folder_of(name, split, 0) / "log.jsonl"
            if log.exists():
                looks = [look for line in log.read_text().splitlines() if "look" in (look := json.loads(line))]
                keep(
                    f"curve-{name}-{split}", [{k: look[k] for k in ("update", "accuracy", "queries")} for look in looks]
                )


def region(problem: Geochem, name: str) -> Geochem:
    return problem.as_surveyed([name])


def measure(kinds: Sequence[str]) -> None:
    """Each region, in the split that holds it out and in those that have seen it."""
    for name in kinds:
        rows = []
        for split, seed in ((split, seed) for split in range(FOLDS) for seed in range(SEEDS)):
            folder = folder_of(name, split, seed)
            if not (folder / "minutes.json").exists():
                continue
            model = cicpe.load(folder)
            minutes = json.loads((folder / "minutes.json").read_text())
            problem = family(split, **KINDS[name].options)
            for part in ("held-out", "train"):
                many = TRAJECTORIES if part == "held-out" else TRAJECTORIES // 3
                for entry in problem.as_surveyed(part, problem.group).entries:
                    about = {"split": split, "seed": seed, "part": part, "region": entry.name}
                    about |= {"resolvable": entry.resolvable, "minutes": minutes}
                    about |= {"updates": model.description.updates, "horizon": model.description.horizon}
                    for epsilon in KINDS[name].epsilons:
                        row = played(model, region(problem, entry.name), epsilon, many, SEED + split)
                        rows.append({**about, "epsilon": epsilon, **row})
            print(f"measured {folder.name}", flush=True)
        keep(f"ours-{name}", rows)


def played(model: cicpe.Model, problem: Geochem, epsilon: float, many: int, seed: int) -> dict[str, Any]:
    """Loss, queries and confidence of every trajectory; where delta is not served, of the next that is."""
    agent, delta = best_agent(model, epsilon)
    rng = torch.Generator().manual_seed(seed)
    outcome = run_episodes(agent, TaskBatch.draw(problem, many, rng), rng)
    return {
        "delta": delta,
        "loss": [round(x, 4) for x in outcome.loss.tolist()],
        "queries": outcome.queries.tolist(),
        "confidence": [round(x, 4) for x in outcome.confidence.tolist()],
        "stopped": outcome.stopped.tolist(),
        "p_value": None if outcome.p_value is None else [round(x, 4) for x in outcome.p_value.tolist()],
    }


def best_agent(model: cicpe.Model, epsilon: float) -> tuple[Agent, float | None]:
    for delta in (d for d in model.calibration.deltas if d >= DELTA):
        try:
            agent = model.agent(epsilon, delta)
            agent.begin(torch.tensor([model.description.context_low]))
        except cicpe.InvalidInput:
            continue
        return agent, delta
    return model.unstopped(epsilon), None


def baselines(names: Sequence[str], trajectories: int) -> None:
    """What every method that cannot stop would answer after each number of queries, on every region."""
    everything = family(0).as_surveyed("all")
    for name in names:
        rows = []
        for entry in everything.entries:
            problem = region(everything, entry.name)
            began = time.process_time()
            for epsilon in EPSILONS if name == "regret-bounds" else (None,):
                setting = ComparisonSetting(everything, epsilon or 0.2, DELTA, max(BUDGETS.values()))
                agent = METHODS[name].make(setting)
                row: dict[str, Any] = {"region": entry.name, "resolvable": entry.resolvable, "epsilon": epsilon}
                if epsilon is None:
                    beliefs = tabulate_agent(agent, problem, trajectories, max(BUDGETS.values()), SEED)
                    row["losses"] = [[round(x, 4) for x in line] for line in beliefs.loss_BT.tolist()]
                else:
                    rng = torch.Generator().manual_seed(SEED)
                    result = run_episodes(agent, TaskBatch.draw(problem, trajectories, rng), rng)
                    row |= {"loss": result.loss.tolist(), "queries": result.queries.tolist()}
                    row["stopped"] = result.stopped.tolist()
                rows.append(row | {"seconds": time.process_time() - began})
            print(f"{name}: {entry.name} {time.process_time() - began:.1f} s", flush=True)
        keep(name, rows)


def variations(splits: Sequence[int]) -> None:
    """Accuracy after so many queries, without a stop: what the kinds of function that were fitted are worth."""
    rows = []
    for split in splits:
        for name, options in VARIATIONS.items():
            problem = family(split, **options)
            belief = cicpe.train(
                problem, updates=250, recipe="functions", calibration_episodes=100, settings={"horizon": 24}, seed=split
            ).belief
            model = replace(cicpe.load(folder_of("distance", split, 0)), belief=replace(belief, horizon=24))
            for entry in problem.as_surveyed("held-out").entries:
                beliefs = tabulate_agent(model.unstopped(0.2), region(problem, entry.name), 6, 22, SEED)
                losses = [[round(x, 4) for x in line] for line in beliefs.loss_BT.tolist()]
                about = {"split": split, "variation": name, "region": entry.name, "resolvable": entry.resolvable}
                rows.append({**about, "losses": losses})
            print(f"varied: {name}, split {split}", flush=True)
    keep("variations", rows)


def trust() -> None:
    """How often the alarm speaks and what is claimed, on each group; accuracy and queries under Beta priors."""
    model = cicpe.load(ZOO)
    problem = family(0)
    groups = {}
    for name in ("train", "resolvable", "not resolvable"):
        tasks = problem if name == "train" else problem.as_surveyed("held-out")
        if name != "train":
            wanted = [entry.name for entry in tasks.entries if entry.resolvable == (name == "resolvable")]
            tasks = tasks.as_surveyed(wanted)
        result = played(model, tasks, 0.2, 240, SEED + 7)
        groups[name] = {key: result[key] for key in ("loss", "queries", "confidence", "stopped", "p_value")}
    grid = robustness(model.agent(0.2, DELTA), problem, 0.2, DELTA, episodes=100, seed=SEED, grid=(0.5, 1.0, 5.0))
    cells = [{k: v for k, v in cell._asdict().items() if not k.endswith("bounds")} for cell in grid.cells]
    keep("trust", {"groups": groups, "shifted": grid.shifted, "cells": cells})


def save_to_zoo() -> None:
    """The agent of split 0, with an alarm."""
    fit_alarm(cicpe.load(folder_of("distance", 0, 0))).save(ZOO)


def keep(name: str, rows: object) -> None:
    """Replaces one part of the figures."""
    result = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    FIGURES.write_text(json.dumps({**result, name: rows}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "action", choices=["train", "measure", "curves", "baselines", "variations", "zoo", "trust", "write"]
    )
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS), help="agents")
    parser.add_argument("--splits", type=int, nargs="*")
    parser.add_argument("--seed", type=int, choices=range(SEEDS), default=0, help="of the training")
    parser.add_argument("--methods", nargs="*", default=["tpe", "cma-es", "gp-logei", "gp-ucb", "regret-bounds"])
    parser.add_argument("--trajectories", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    match arguments.action:
        case "train":
            train(arguments.kinds, arguments.splits, arguments.seed)
        case "measure":
            measure(arguments.kinds)
        case "curves":
            curves(arguments.kinds)
        case "baselines":
            baselines(arguments.methods, arguments.trajectories)
        case "variations":
            variations(arguments.splits or (0, 1))
        case "zoo":
            save_to_zoo()
        case "trust":
            trust()
    copper_page.write()


if __name__ == "__main__":
    main()
