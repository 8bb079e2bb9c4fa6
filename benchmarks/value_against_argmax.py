"""Value against argmax: is the height of a maximum dearer than its place? The paper's separation, measured.

    python benchmarks/value_against_argmax.py                # plays what is missing, then writes the page
    python benchmarks/value_against_argmax.py --seconds 60   # plays for a minute at most; run it again to go on
    python benchmarks/value_against_argmax.py --page         # only writes the page from what was played

The same functions and the same reference agent for both questions: one is asked for the maximum within epsilon, the
other for its place within sqrt(epsilon). Many queries at one place are drawn as their average, which is the same in
law; so billions of queries can be played. Finished cells are kept in runs/value-against-argmax; remove that folder to
play them anew.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cicpe.baselines.references.gp_grid import GPGrid
from cicpe.baselines.references.gp_peak import GPPeak, batch_sizes
from cicpe.baselines.tbal import localise, plan_for
from cicpe.calibration.any_agent import choose_threshold
from cicpe.episodes.table import tabulate_agent
from cicpe.evaluation.bootstrap import bootstrap_mean
from cicpe.evaluation.evaluate import proportion_interval
from cicpe.plots.scaling import ScalingCurve, Slope, plot_scaling
from cicpe.plots.style import png
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.gp_argmax import GPArgmax
from cicpe.problems.gp_max import GPMax

ROOT = Path(__file__).parent.parent
RESULTS, IMAGES, CACHE = ROOT / "docs" / "results", ROOT / "docs" / "images", ROOT / "runs" / "value-against-argmax"
NOISE, DELTA = 1.0, 0.1
EPSILONS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
FITTED = 0.01
"""Slopes are fitted from this epsilon down."""
MOST = {"value": 3e9, "place": 3e5}
"""Queries that an episode may take."""
CHUNK, CHUNKS = 40, 5
HALVES = {"first": 500, "second": 600}
"""Which seeds the tasks of a half come from: the stop rule of a half is chosen on the other one."""
TBAL_EPSILONS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
THRESHOLDS = torch.tensor([0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9, 0.925, 0.95, 0.975, 1.0])
CHECK = {"noise": 0.1, "epsilon": 0.2, "tasks": 300, "horizon": 20}


class Record(NamedTuple):
    """For every epsilon and task: how sure and how right the agent was after every round."""

    confidence_EBT: Tensor
    success_EBT: Tensor


class Rule(NamedTuple):
    """Stop at a confidence, or give up at a round: tasks with two equal peaks are not worth any number of queries."""

    threshold: float
    cap: int

    def rounds(self, confidence_BT: Tensor) -> Tensor:
        hit = confidence_BT >= self.threshold
        hit[:, self.cap :] = True
        return hit.int().argmax(dim=1)


def tolerance(question: str, epsilon: float) -> float:
    return epsilon if question == "value" else math.sqrt(epsilon)


def asked(question: str) -> Problem:
    family = GPArgmax(NOISE)
    return family.values if question == "value" else family


def play(question: str, seed: int) -> Record:
    """One chunk of tasks, the same for both questions, through all rounds."""
    family, problem = GPArgmax(NOISE), asked(question)
    task = TaskBatch.draw(family, CHUNK, torch.Generator().manual_seed(seed)).task
    target, rng = problem.target(task)[:, 0], torch.Generator().manual_seed(seed + 1000)
    agent = GPPeak(problem, 0.1, horizon=1)
    belief = agent.begin(family.context(task))
    sizes = batch_sizes(MOST[question])
    confidence, success = [], []
    for count in [*sizes, None]:
        draws = agent.draw(belief, rng)
        limits = [tolerance(question, epsilon) for epsilon in EPSILONS]
        looks = [agent.answer(draws, limit) for limit in limits]
        confidence.append(torch.stack([sure for _, sure in looks]))
        success.append(torch.stack([(a - target).abs() <= limit for (a, _), limit in zip(looks, limits, strict=True)]))
        if count is not None:
            place = agent.best_query(belief, draws, count)
            noise = NOISE / math.sqrt(count) * torch.randn(CHUNK, generator=rng)
            value = family.value(task, agent.place_G.float()[place][:, None]) + noise
            belief = agent.average(belief, place, value, count)
    return Record(torch.stack(confidence, dim=2), torch.stack(success, dim=2))


def cells() -> list[tuple[str, str, int]]:
    return [(q, half, first + i) for q in MOST for half, first in HALVES.items() for i in range(CHUNKS)]


def file_of(question: str, seed: int) -> Path:
    return CACHE / f"{question}-{seed}.pt"


def play_missing(seconds: float) -> bool:
    """Plays cells until all are there (True) or the time is over."""
    CACHE.mkdir(parents=True, exist_ok=True)
    began = time.process_time()
    for question, half, seed in cells():
        if file_of(question, seed).exists():
            continue
        if time.process_time() - began > seconds:
            return False
        start = time.process_time()
        record = play(question, seed)
        torch.save(record._asdict() | {"seconds": time.process_time() - start}, file_of(question, seed))
        print(f"{question}, {half}, seed {seed}: {time.process_time() - began:.0f} s of CPU", flush=True)
    return True


def joined(question: str, half: str) -> Record:
    parts = [torch.load(file_of(q, seed)) for q, h, seed in cells() if (q, h) == (question, half)]
    return Record(*(torch.cat([part[name] for part in parts], dim=1) for name in Record._fields))


def totals(question: str) -> Tensor:
    """Queries made before every round, and at the end."""
    return torch.tensor([0, *np.cumsum(batch_sizes(MOST[question]))], dtype=torch.float64)


def best_rule(confidence_BT: Tensor, success_BT: Tensor, queries_T: Tensor) -> Rule:
    """The rule with the fewest queries of all that are right on 1 - delta of these tasks, and expected to be."""
    rows = torch.arange(len(confidence_BT))
    reliable: list[tuple[float, Rule]] = []
    for threshold in THRESHOLDS.tolist():
        for cap in range(len(queries_T)):
            rule = Rule(threshold, cap)
            stop = rule.rounds(confidence_BT)
            accuracies = [float(of[rows, stop].double().mean()) for of in (success_BT, confidence_BT)]
            if min(accuracies) >= 1 - DELTA:
                reliable.append((float(queries_T[stop].mean()), rule))
    return min(reliable)[1]


def measure(question: str) -> dict[str, Any]:
    first, second, queries_T = joined(question, "first"), joined(question, "second"), totals(question)
    rows, spent = [], []
    for e, epsilon in enumerate(EPSILONS):
        rules = [best_rule(half.confidence_EBT[e], half.success_EBT[e], queries_T) for half in (second, first)]
        stops = [rule.rounds(half.confidence_EBT[e]) for rule, half in zip(rules, (first, second), strict=True)]
        stop, n = torch.cat(stops), sum(map(len, stops))
        right = torch.cat([first.success_EBT[e], second.success_EBT[e]])[torch.arange(n), stop]
        spent.append(queries_T[stop].numpy())
        mean = bootstrap_mean(spent[-1][None, :, None])
        rows.append(
            {
                "epsilon": epsilon,
                "within": tolerance(question, epsilon),
                "queries": mean.value,
                "queries_ci": list(mean.interval),
                "median_queries": float(queries_T[stop].median()),
                "accuracy": float(right.double().mean()),
                "accuracy_ci": list(proportion_interval(int(right.sum()), n)),
                "thresholds": [rule.threshold for rule in rules],
                "caps": [float(queries_T[rule.cap]) for rule in rules],
            }
        )
    return {"rows": rows, "tasks": 2 * CHUNK * CHUNKS, **slopes(np.stack(spent, axis=1))}


def slopes(queries_BE: np.ndarray) -> dict[str, Any]:
    """The least-squares slope of log mean queries in log epsilon, with its bootstrap interval over tasks."""
    few = [e for e, epsilon in enumerate(EPSILONS) if epsilon <= FITTED]
    x = np.log([EPSILONS[e] for e in few])
    x = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    rows = np.random.default_rng(0).integers(len(queries_BE), size=(2000, len(queries_BE)))
    means = queries_BE[:, few][rows].mean(axis=1)
    low, high = np.quantile(np.log(means) @ x, [0.025, 0.975])
    return {"slope": float(np.log(queries_BE[:, few].mean(axis=0)) @ x), "slope_ci": [float(low), float(high)]}


def tbal() -> dict[str, Any]:
    """T-BAL's plan, and how often it is right where the grid of the functions is fine enough to say."""
    family, rows = GPArgmax(NOISE), []
    tasks = TaskBatch.draw(family, 1000, torch.Generator().manual_seed(HALVES["first"]))
    for epsilon in TBAL_EPSILONS:
        plan = plan_for(family, math.sqrt(epsilon), DELTA)
        row: dict[str, Any] = {
            "epsilon": epsilon,
            "queries": plan.queries,
            "coarse": len(plan.places) * plan.each,
            "ascent": sum(2 * count for _, count in plan.ascent),
        }
        if epsilon in (1e-4, 1e-5):
            loss = tasks.loss(localise(plan, tasks, torch.Generator().manual_seed(7)))
            right = int((loss <= plan.radius).sum())
            row |= {"accuracy": right / len(tasks), "accuracy_ci": list(proportion_interval(right, len(tasks)))}
        rows.append(row)
    last, before = rows[-1], rows[-3]
    slope = math.log(last["ascent"] / before["ascent"]) / math.log(last["epsilon"] / before["epsilon"])
    return {"rows": rows, "ascent_slope": slope, "slope_between": [before["epsilon"], last["epsilon"]]}


def check() -> dict[str, Any]:
    """The reference of this page beside ``reference-gp``, query by query on gp-max."""
    problem = GPMax(1, CHECK["noise"])
    results: dict[str, Any] = dict(CHECK)
    for name, kind in (("gp_peak", GPPeak), ("gp_grid", GPGrid)):
        agent = kind(problem, CHECK["epsilon"], int(CHECK["horizon"]))
        played = tabulate_agent(agent, problem, int(CHECK["tasks"]), agent.horizon, 0, chunk=50)
        cell = choose_threshold(played, CHECK["epsilon"], DELTA)
        assert cell is not None
        hit = played.confidence_BT >= cell.threshold
        hit[:, -1] = True
        stop = hit.int().argmax(dim=1)
        right = (played.loss_BT.gather(1, stop[:, None]) <= CHECK["epsilon"]).double().mean()
        results[name] = {"queries": float(stop.double().mean()), "accuracy": float(right)}
    return results


def draw(results: dict[str, Any]) -> bytes:
    methods = []
    for question, name in (
        ("value", r"reference: the maximum within $\epsilon$"),
        ("place", r"reference: its place within $\sqrt{\epsilon}$"),
    ):
        rows = results[question]["rows"]
        columns = [[row[key] for row in rows] for key in ("epsilon", "queries")]
        low, high = ([row["queries_ci"][i] for row in rows] for i in (0, 1))
        methods.append(ScalingCurve(name, *(np.array(column) for column in (*columns, low, high))))
    plan = [row for row in results["t-bal"]["rows"] if row["epsilon"] >= min(EPSILONS)]
    total = np.array([row["queries"] for row in plan], dtype=float)
    epsilon = np.array([row["epsilon"] for row in plan])
    methods.append(ScalingCurve(r"T-BAL's plan: the place within $\sqrt{\epsilon}$", epsilon, total, total, total))
    at = {question: results[question]["rows"][2] for question in MOST}
    span = (at["value"]["epsilon"], EPSILONS[-1])
    guides = [
        Slope("slope -2", span, 3 * at["value"]["queries"], -2.0),
        Slope("slope -3/2", span, 3 * at["place"]["queries"], -1.5),
        Slope("slope -1", span, at["place"]["queries"] / 8, -1.0),
    ]
    return png(
        plot_scaling(methods, guides, title=f"Noise {NOISE:g}, delta {DELTA:g}, n = {results['value']['tasks']} tasks")
    )


def page(results: dict[str, Any]) -> str:
    value, place, plan, same = results["value"], results["place"], results["t-bal"], results["check"]
    lines = [
        "# Value against argmax",
        "",
        "What is dearer, the height of a maximum or its place? The paper's separation theorem says: the height. On "
        "Gaussian-process functions, the maximum within epsilon takes at least of the order of epsilon^-2 queries; its "
        "place within sqrt(epsilon), near which the function is within about epsilon of the maximum, takes at most of "
        "the order of epsilon^-3/2 log log(1 / epsilon). Here both are measured, with one reference agent that knows "
        "the likelihood, on the same functions.",
        "",
        "![Queries against epsilon](../images/value-against-argmax.png)",
        "",
        f"Made by `python benchmarks/value_against_argmax.py` on {results['date']} in {results['minutes']:.1f} minutes of "
        f"CPU. Noise {NOISE:g}, delta {DELTA:g}; {value['tasks']} functions from `gp-argmax` (hidden length scale, "
        "maximum at least 0.05 inside), in two halves: the stop rule of each is chosen on the other. Intervals are 95 %: "
        "bootstrap over tasks for queries and slopes, exact for accuracies.",
        "",
        "| epsilon | queries: maximum within epsilon | accuracy | queries: place within sqrt(epsilon) | accuracy | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for v, p in zip(value["rows"], place["rows"], strict=True):
        lines.append(
            f"| {v['epsilon']:g} | {counts(v)} | {accuracy(v)} | {counts(p)} | {accuracy(p)} | "
            f"{v['queries'] / p['queries']:,.1f} |"
        )
    slope = "{:.2f} ({:.2f} to {:.2f})"
    lines += [
        "",
        f"| | measured slope, epsilon {FITTED:g} to {EPSILONS[-1]:g} | theorem |",
        "|---|---|---|",
        f"| maximum within epsilon | {slope.format(value['slope'], *value['slope_ci'])} | -2 or steeper |",
        f"| place within sqrt(epsilon) | {slope.format(place['slope'], *place['slope_ci'])} | -3/2 or flatter |",
        f"| T-BAL's second stage, epsilon {plan['slope_between'][0]:g} to {plan['slope_between'][1]:g} | "
        f"{plan['ascent_slope']:.2f} | -3/2 |",
        "",
        "## T-BAL",
        "",
        "The algorithm behind the upper bound pays for the flattest and the most ambiguous of nearly all functions. Its "
        "plan is fixed beforehand; the first stage, which finds the right peak, does not depend on epsilon, and at these "
        "epsilons it is nearly everything. Counts from `plan_for`; accuracies on 1,000 functions where the grid is fine "
        "enough to judge them.",
        "",
        "| epsilon | planned queries | first stage | second stage | accuracy |",
        "|---|---|---|---|---|",
    ]
    for row in plan["rows"]:
        right = accuracy(row) if "accuracy" in row else ""
        lines.append(
            f"| {row['epsilon']:g} | {row['queries']:.3g} | {row['coarse']:.3g} | {row['ascent']:.3g} | {right} |"
        )
    lines += [
        "",
        "## How it was measured",
        "",
        "The reference (`baselines/references/gp_peak.py`) holds the exact posterior over 12 length scales and asks, for "
        "either question, the place whose value explains most of what is open about the answer. It stops at a "
        "confidence, or gives up at a number of queries; of all such pairs, the one with the fewest queries at an "
        "accuracy of 1 - delta on the other half. Without giving up, functions with two nearly equal peaks "
        "would take any number of queries to say which is higher, which a failure rate of delta need not pay for. A "
        "round puts a quarter of all queries so far at one place, so counts are coarse by up to a quarter.",
        "",
        f"As a check, query by query on `gp-max` at noise {same['noise']:g} and epsilon {same['epsilon']:g}: "
        f"{same['gp_peak']['queries']:.2f} queries at accuracy {same['gp_peak']['accuracy']:.3f}, where `reference-gp` "
        f"takes {same['gp_grid']['queries']:.2f} at {same['gp_grid']['accuracy']:.3f} ({same['tasks']} tasks, the same for "
        "both, thresholds chosen on them). Where few queries are enough, its rule is not the best one; it is used here "
        "because it treats both questions alike.",
        "",
        "The theorem's constants say nothing at these length scales (its lower bound has a factor below exp(-400)): what "
        "is compared is the slope. Over a finite range it also sees the queries that find the right peak, which do not "
        "depend on epsilon and make both curves flatter, and the intervals do not see how coarse the rounds are. The place is measured on the functions' grid of 512 points, which is a fifth of the "
        "smallest radius here.",
        "",
    ]
    return "\n".join(lines)


def counts(row: dict[str, Any]) -> str:
    low, high = row["queries_ci"]
    return (
        f"{row['queries']:.3g} ({low:.3g} to {high:.3g})"
        if row["queries"] < 1e4
        else (f"{row['queries']:.2e} ({low:.2e} to {high:.2e})")
    )


def accuracy(row: dict[str, Any]) -> str:
    return "{:.3f} ({:.3f} to {:.3f})".format(row["accuracy"], *row["accuracy_ci"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=math.inf, help="CPU time to play for, at most")
    parser.add_argument("--page", action="store_true", help="only write the page, from the JSON file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    RESULTS.mkdir(parents=True, exist_ok=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    file = RESULTS / "value-against-argmax.json"
    if args.page:
        results = json.loads(file.read_text())
    else:
        if not play_missing(args.seconds):
            print("not finished: run it again")
            return
        began = time.process_time()
        results = {question: measure(question) for question in MOST}
        results |= {
            "t-bal": tbal(),
            "check": check(),
            "noise": NOISE,
            "delta": DELTA,
            "date": time.strftime("%Y-%m-%d"),
        }
        playing = sum(torch.load(file_of(question, seed))["seconds"] for question, _, seed in cells())
        results["minutes"] = (playing + time.process_time() - began) / 60
        file.write_text(json.dumps(results, indent=1) + "\n")
    (IMAGES / "value-against-argmax.png").write_bytes(draw(results))
    (RESULTS / "value-against-argmax.md").write_text(page(results))


if __name__ == "__main__":
    main()
