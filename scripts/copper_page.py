"""The copper page: docs/results/copper.md from docs/results/copper.json. Called by scripts/copper.py."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cicpe.evaluation.bootstrap import bootstrap_mean

OUT = Path(__file__).parent.parent / "docs" / "results"
FIGURES = OUT / "copper.json"
EPSILONS, DELTA = (0.2, 0.15), 0.1
PAPER = {
    0.2: {
        "queries": 22.0,
        "td3 queries": 23.9,
        "ts": 0.913,
        "td3": 0.913,
        "tpe": 0.438,
        "cma-es": 0.484,
        "gp-logei": 0.564,
        "gp-ucb": 0.730,
    },
    0.15: {
        "queries": 38.7,
        "td3 queries": 44.4,
        "ts": 0.925,
        "td3": 0.916,
        "tpe": 0.526,
        "cma-es": 0.514,
        "gp-logei": 0.724,
        "gp-ucb": 0.720,
    },
}
"""The paper's figures, on its own regions, 16 of which are not in this data."""
BUDGETS = {0.2: 22, 0.15: 39}
TRAJECTORIES = 12
"""Of ours on a held-out region."""


def by_seed(rows: list[dict[str, Any]], values: Callable[[dict[str, Any]], list[float]]) -> list[list[list[float]]]:
    """Seeds x regions x trajectories; only seeds that have every region."""
    seeds = sorted({row["seed"] for row in rows})
    parts = [[values(row) for row in rows if row["seed"] == seed] for seed in seeds]
    return [part for part in parts if len(part) == max(map(len, parts))]


def mean(rows: list[list[list[float]]], digits: int = 3) -> str:
    """Of seeds x regions x trajectories, with its interval."""
    if not rows:
        return ""
    figures = bootstrap_mean(np.array(rows), replicates=4000)
    return f"{figures.value:.{digits}f} ({figures.low:.{digits}f}-{figures.high:.{digits}f})"


OTHERS = {
    "value-gap": (
        "The value gap",
        "The loss is how far the field at the answer is below its peak, in standard scores of the region.",
    ),
    "noisy": (
        "With the noise of the survey",
        "Every observation has the noise of the region's own fit (0.2 to 1.0, about the size of the signal).",
    ),
    "ts": (
        "An attention network with Thompson queries",
        "The paper's kind of agent: attention over the history, recipe `fast`.",
    ),
    "td3": ("An attention network with TD3", "The same with a learned actor."),
}
"""Agent -> title and words; the first one, a belief over functions for the distance loss, has the whole page."""
ACTORS = {
    "functions-ts": ("ts", "belief over functions †"),
    "functions-ttps": ("ttps", "belief over functions †"),
    "functions-uniform": ("uniform", "belief over functions †"),
    "resolvable": ("agreement (ours)", "belief over functions †"),
    "lattice-ts": ("ts", "network"),
    "lattice-ttps": ("ttps", "network"),
    "lattice-td3": ("td3", "network"),
    "lattice-uniform": ("uniform", "network"),
    "lattice-value-ts": ("ts", "network, value gap"),
    "lattice-value-td3": ("td3", "network, value gap"),
}
"""Agents that are trained on resolvable regions: the rule for their queries, and whose posterior it reads."""
GROUPS = {
    "resolvable": lambda row: row["resolvable"],
    "not resolvable": lambda row: not row["resolvable"],
    "all": lambda row: True,
}


def of_splits(rows: list[dict[str, Any]]) -> str:
    return ", ".join(str(split) for split in sorted({row["split"] for row in rows}))


def after_so_many(rows: list[dict[str, Any]], queries: int, epsilon: float) -> str:
    """Accuracy of what would be answered after so many queries."""
    return mean([[[float(line[min(queries, len(line) - 1)] <= epsilon) for line in r["losses"]] for r in rows]])


def ours_lines(rows: list[dict[str, Any]], epsilons: Sequence[float]) -> list[str]:
    lines = [
        "| epsilon | regions | group | delta | accuracy | queries | mean confidence at the end | ended at the horizon |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for epsilon in epsilons:
        for part in ("held-out", "train"):
            for group, wanted in GROUPS.items():
                some = [r for r in rows if r["epsilon"] == epsilon and r["part"] == part and wanted(r)]
                if not some:
                    continue
                hits = by_seed(some, lambda row, epsilon=epsilon: [float(x <= epsilon) for x in row["loss"]])
                regions = len({row["region"] for row in some})
                confidence = float(np.mean([r["confidence"] for r in some]))
                truncated = 1 - float(np.mean([r["stopped"] for r in some]))
                deltas = "/".join(sorted({"none" if r["delta"] is None else f"{r['delta']:g}" for r in some}))
                lines.append(
                    f"| {epsilon:g} | {'seen' if part == 'train' else part} | {group} ({regions}) | {deltas} | {mean(hits)} | "
                    f"{mean(by_seed(some, lambda row: row['queries']), 1)} | {confidence:.2f} | {truncated:.2f} |"
                )
    return lines


def some_of(rows: list[dict[str, Any]], epsilon: float, part: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["epsilon"] == epsilon and row["part"] == part]


def hits(rows: list[dict[str, Any]], epsilon: float) -> list[list[list[float]]]:
    return by_seed(rows, lambda row: [float(loss <= epsilon) for loss in row["loss"]])


def actor_misses(actor: str, rows: list[dict[str, Any]], epsilon: float) -> str:
    """In what an actor falls short: of accuracy 0.9, of the paper's queries, or of a threshold for delta."""
    accuracy = float(np.mean([loss <= epsilon for row in rows for loss in row["loss"]]))
    queries = float(np.mean([row["queries"] for row in rows]))
    limit = {"ts": PAPER[epsilon]["queries"], "td3": PAPER[epsilon]["td3 queries"]}.get(actor)
    short = [f"accuracy below {1 - DELTA:g}"] if accuracy < 1 - DELTA else []
    short += ["too many queries"] if limit is not None and queries > limit else []
    return "; ".join(short + ([f"delta {DELTA:g} is not served"] if any(row["delta"] != DELTA for row in rows) else []))


def actor_lines(figures: dict[str, Any]) -> list[str]:
    """A line per actor, posterior and epsilon: held-out regions beside seen ones, and the paper's figures."""
    lines = [
        "| epsilon | actor | posterior | splits (regions) | delta | held out: accuracy | queries | seen: accuracy | queries | "
        "paper | miss |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for epsilon in EPSILONS:
        for kind, (actor, posterior) in ACTORS.items():
            rows = figures.get(f"ours-{kind}", [])
            held, seen = (some_of(rows, epsilon, part) for part in ("held-out", "train"))
            if not held:
                continue
            deltas = "/".join(sorted({"none" if r["delta"] is None else f"{r['delta']:g}" for r in held}))
            regions = len({row["region"] for row in held})
            cells = [
                text
                for part in (held, seen)
                for text in (mean(hits(part, epsilon)), mean(by_seed(part, lambda row: row["queries"]), 1))
            ]
            count = PAPER[epsilon].get({"ts": "queries", "td3": "td3 queries"}.get(actor, ""))
            paper = f"{PAPER[epsilon][actor]:.3f} / {count:g}" if count else ""
            lines.append(
                f"| {epsilon:g} | {actor} | {posterior} | {of_splits(held)} ({regions}) | {deltas} | "
                + " | ".join(cells)
                + f" | {paper} | {actor_misses(actor, held, epsilon)} |"
            )
    return lines


def actor_section(figures: dict[str, Any]) -> list[str]:
    """The paper's actors, with how long they were trained."""
    spent = {
        posterior: max(row["minutes"] for kind in kinds for row in figures.get(f"ours-{kind}", []))
        for posterior in dict.fromkeys(posterior for _, posterior in ACTORS.values())
        if (kinds := [kind for kind, (_, of) in ACTORS.items() if of == posterior and figures.get(f"ours-{kind}")])
    }
    if not spent:
        return []
    times = "; ".join(f"{posterior}, {minutes:.0f}" for posterior, minutes in spent.items())
    return [
        "",
        "## The paper's actors",
        "",
        "These agents are trained and calibrated on the *resolvable* training regions of a split (their varied tasks among them), and tested on "
        "resolvable regions. TS, TTPS and uniform queries read a posterior: that of the belief over functions, fitted once per split, "
        "or that of one network (recipe `fast`, memory and posterior `lattice`, trained with Thompson queries). † marks what rests on a closed-form "
        "regression. TD3 is trained with a network of its own; on a belief over functions it is not defined, since that has no critic. "
        f"Processor minutes per agent, fit and thresholds together, at most: {times}. A *miss* is short of accuracy 0.9, or of the paper's "
        "queries for the actor of that name; the paper has no TTPS and no uniform queries here. Its appendix on this task asks for the place of the peak "
        "within epsilon; its remark on testing the inference model, its limitations and its figure of a region say that the loss is the value gap. *Value gap* "
        "marks agents that are trained and judged by the second reading: how far the field at the answer is below its peak, in standard scores.",
        "",
        *actor_lines(figures),
        *curve_lines(figures),
    ]


def curve_lines(figures: dict[str, Any]) -> list[str]:
    """How networks fared while they were trained, by their own log."""
    curves = {name: rows for name, rows in figures.items() if name.startswith("curve-") and rows}
    if not curves:
        return []
    lines = [
        "",
        "Over training, on episodes of the training family that the actor queried itself, stopped at an (uncalibrated) confidence of 0.9 at the middle "
        "epsilon, 0.17; about 200 episodes per figure. Entries are *accuracy / mean queries*.",
        "",
    ]
    for name, rows in curves.items():
        some = rows[3::4]
        lines += [
            f"| {name.removeprefix('curve-')}: after | " + " | ".join(f"{row['update']}" for row in some) + " |",
            "|---" * (len(some) + 1) + "|",
            "| | " + " | ".join(f"{row['accuracy']:.2f} / {row['queries']:.0f}" for row in some) + " |",
            "",
        ]
    return lines[:-1]


def baseline_lines(figures: dict[str, Any]) -> list[str]:
    ours = [row for row in figures["ours-distance"] if row["part"] == "held-out"]
    lines = []
    for epsilon in EPSILONS:
        mine = [row for row in ours if row["epsilon"] == epsilon]
        spent = {g: math.ceil(float(np.mean([r["queries"] for r in mine if f(r)]))) for g, f in GROUPS.items()}
        lines += [
            "",
            f"### epsilon {epsilon:g}",
            "",
            f"| method | after | resolvable | all | paper (its regions, {BUDGETS[epsilon]} queries) |",
            "|---|---|---|---|---|",
        ]
        for group in ("resolvable", "all"):
            some = [row for row in mine if GROUPS[group](row)]
            text = mean(by_seed(some, lambda row, epsilon=epsilon: [float(x <= epsilon) for x in row["loss"]]))
            cells = (text, "") if group == "resolvable" else ("", text)
            lines.append(f"| **ours** | {spent[group]} on average | {cells[0]} | {cells[1]} | {PAPER[epsilon]['ts']} |")
        for name in ("tpe", "cma-es", "gp-logei", "gp-ucb"):
            for after in sorted({BUDGETS[epsilon], spent["resolvable"], spent["all"]}):
                cells = []
                for group in ("resolvable", "all"):
                    some = [row for row in figures.get(name, []) if GROUPS[group](row)]
                    cells.append(after_so_many(some, after, epsilon))
                paper = PAPER[epsilon][name] if after == BUDGETS[epsilon] else ""
                lines.append(f"| {name} | {after} | {cells[0]} | {cells[1]} | {paper} |")
        stopped = [row for row in figures.get("regret-bounds", []) if row["epsilon"] == epsilon]
        if stopped:
            cells = []
            for group in ("resolvable", "all"):
                some = [row for row in stopped if GROUPS[group](row)]
                cells.append(mean([[[float(x <= epsilon) for x in row["loss"]] for row in some]]))
            spent_there = mean([[row["queries"] for row in stopped]], 1)
            share = float(np.mean([row["stopped"] for row in stopped]))
            lines.append(
                f"| regret bounds (stops by itself in {share:.0%}) | {spent_there} | {cells[0]} | {cells[1]} | |"
            )
    return lines


def variation_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| training tasks | after 10 | after 15 | after 22 | resolvable, after 15 |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(row["variation"] for row in rows):
        some = [row for row in rows if row["variation"] == name]
        cells = [after_so_many(some, t, 0.2) for t in (10, 15, 22)]
        cells.append(after_so_many([row for row in some if row["resolvable"]], 15, 0.2))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def region_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| region | resolvable | " + " | ".join(f"accuracy, queries at {e:g}" for e in EPSILONS) + " |",
        "|---|---|---|---|",
    ]
    held = [row for row in rows if row["part"] == "held-out"]
    for name in sorted({row["region"] for row in held}):
        cells = []
        for epsilon in EPSILONS:
            some = [row for row in held if row["region"] == name and row["epsilon"] == epsilon]
            loss, queries, confidence = (
                np.array([row[key] for row in some]) for key in ("loss", "queries", "confidence")
            )
            cells.append(f"{(loss <= epsilon).mean():.2f}, {queries.mean():.1f} (confidence {confidence.mean():.2f})")
        yes = next(r for r in held if r["region"] == name)["resolvable"]
        lines.append(f"| {name} | {'yes' if yes else 'no'} | " + " | ".join(cells) + " |")
    return lines


def trust_lines(figures: dict[str, Any]) -> list[str]:
    lines = [
        "The zoo's `geochem-2d` (split 0) at epsilon 0.2. The alarm speaks where its p-value is at most 0.05.",
        "",
        "| tasks | episodes | accuracy | queries | mean confidence | claims 0.9 or more | alarm |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in figures["groups"].items():
        hits, confidence, p = np.array(rows["loss"]) <= 0.2, np.array(rows["confidence"]), np.array(rows["p_value"])
        what = "its own prior" if name == "train" else f"held out, {name}"
        lines.append(
            f"| {what} | {len(hits)} | {hits.mean():.3f} | {np.mean(rows['queries']):.1f} | {confidence.mean():.2f} | "
            f"{(confidence >= 0.9).mean():.0%}, of which {hits[confidence >= 0.9].mean():.0%} right | {(p <= 0.05).mean():.0%} |"
        )
    lines += [
        "",
        f"Beta priors: {figures['shifted']}, {figures['cells'][0]['episodes']} episodes per cell; (1, 1) is the training prior. "
        "Accuracy / mean queries:",
        "",
    ]
    betas = sorted({cell["beta"] for cell in figures["cells"]})
    lines += ["| alpha | " + " | ".join(f"beta {beta:g}" for beta in betas) + " |", "|---" * (len(betas) + 1) + "|"]
    for alpha in sorted({cell["alpha"] for cell in figures["cells"]}):
        row = {cell["beta"]: cell for cell in figures["cells"] if cell["alpha"] == alpha}
        cells = [f"{row[beta]['accuracy']:.2f} / {row[beta]['mean_queries']:.1f}" for beta in betas]
        lines.append(f"| {alpha:g} | " + " | ".join(cells) + " |")
    return lines


def write() -> None:
    if FIGURES.exists() and "ours-distance" in json.loads(FIGURES.read_text()):
        (OUT / "copper.md").write_text(page())


def page() -> str:
    figures = json.loads(FIGURES.read_text())
    minutes = sorted({row["minutes"] for row in figures["ours-distance"]})
    lines = [
        "# Copper: every region held out once",
        "",
        "Written by `python scripts/copper.py write` from the figures of its other commands. The regions are the 35 "
        "quadrangles of the survey with at least 50 samples; a field is the posterior mean of a sparse Gaussian process "
        "fitted to a region. Agents are trained on the regions of a split and tested on others that touch none of them "
        f"(`cicpe.data.splits`): five splits hold out every region once. {TRAJECTORIES} trajectories a held-out region; "
        "intervals (95 %) resample regions, then trajectories. *Resolvable*: both fitted length scales at least a tenth "
        "of the side, which is decided by the fit alone. delta is 0.1, observations are free of noise as in the paper's table.",
        "",
        f"Training: {minutes[0]:.1f} to {minutes[-1]:.1f} minutes of processor time an agent, fit and calibration "
        "together (the paper: 70 GPU hours). The agent is a belief over functions (recipe `functions`), which is what "
        "`cicpe train geochem` chooses.",
        "",
        *ours_lines(figures["ours-distance"], EPSILONS),
        "",
        "*The paper, on its own regions: 22.0 queries at epsilon 0.2 (accuracy 0.913) and 38.7 at 0.15 (0.925).* The "
        "difference between seen and held-out regions is the gap of generalisation.",
        "",
        "## Other methods on the same held-out regions",
        "",
        "They learn nothing from other regions, so each was played on every region once and judged after every number of "
        "queries: the paper's budgets and our own means.",
        *baseline_lines(figures),
    ]
    lines += actor_section(figures)
    for name, (title, text) in OTHERS.items():
        rows = figures.get(f"ours-{name}", [])
        if rows:
            spent = f"{max(row['minutes'] for row in rows):.0f} minutes of processor time"
            lines += ["", f"## {title}", "", f"{text} Held out: split {of_splits(rows)}; at most {spent} an agent.", ""]
            lines += ours_lines(rows, sorted({row["epsilon"] for row in rows}, reverse=True))
    if figures.get("variations"):
        lines += [
            "",
            "## What varied training tasks buy",
            "",
            f"Accuracy within 0.2 on the held-out regions of split {of_splits(figures['variations'])}, after a number of queries, "
            "without a stop.",
            "",
        ]
        lines += variation_lines(figures["variations"])
    if figures.get("trust"):
        lines += ["", "## Confidence, alarm and other priors", "", *trust_lines(figures["trust"])]
    lines += ["", "## Region by region", "", *region_lines(figures["ours-distance"])]
    notes = OUT / "notes" / "copper.md"
    return "\n".join([*lines, ""]) + ("\n" + notes.read_text() if notes.exists() else "")
