"""What the stop rule *each* costs, and whether its confidence is kept: the zoo under both rules, on fresh tasks.

    python benchmarks/each.py                              # plays everything and writes docs/results/each.md and its figure
    python benchmarks/each.py --tasks 400                  # quicker, and coarser
    python benchmarks/each.py --records DIR                # keeps what was played in DIR, and goes on from it
    python benchmarks/each.py --only gp-max-1d ackley-3d   # these models; the page keeps the others
    python benchmarks/each.py --only ackley-3d --minutes 30   # as many tasks as there is time for

The figures are kept in docs/results/each.json, and the page is written from them. Queries depend neither on epsilon nor on the stop rule, so that one episode tells what both rules do at every epsilon.
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import cicpe
from cicpe.agents.belief_agent import calibrated_confidence
from cicpe.agents.stop_rules import first_true
from cicpe.beliefs.base import Assessment
from cicpe.episodes.play import play
from cicpe.episodes.table import Assessor
from cicpe.model import Model
from cicpe.plots.style import COLOURS, GREY, dress, new_figure, styled
from cicpe.problems import TaskBatch
from cicpe.statistics import clopper_pearson
from cicpe.streams import stream

ROOT = Path(__file__).parent.parent
PAGE, FIGURE = ROOT / "docs" / "results" / "each.md", ROOT / "docs" / "images" / "each.png"
FIGURES = PAGE.with_suffix(".json")
MODELS = ("best-arm-5d", "best-arm-10d", "binary-search-6d", "binary-search-10d", "gp-max-1d", "ackley-3d")
RULES = ("average", "each")
DELTA, SEED, CHUNK = 0.1, 50_000, 100
SPARE = 0.5
"""Log-odds beyond the highest threshold to which episodes are played, so that a record outlives a small change of it."""
BINS = (0.0, 0.5, 0.8, 0.9, 0.93, 0.96, 0.99, 1.0)


class Record(NamedTuple):
    """Raw confidence and loss of episodes at every prefix, at the smallest and the largest epsilon."""

    loss: Tensor
    confidence: Tensor
    context: Tensor


def epsilons_of(model: Model) -> tuple[float, float]:
    """The smallest and the largest epsilon of a model."""
    return model.calibration.epsilons[0], model.calibration.epsilons[-1]


def thresholds(model: Model, epsilon: float, context: Tensor) -> list[Tensor]:
    """The raw confidence at which each rule stops, in every episode's context."""
    return [model.calibration.threshold(model_rule, epsilon, DELTA)(context) for model_rule in ("confidence", "each")]


def play_chunk(model: Model, number: int) -> Record:
    """Fresh tasks, each played until both rules have stopped it at both epsilons."""
    epsilons, rng = epsilons_of(model), stream(SEED, "evaluation", "each", number)
    tasks = TaskBatch.draw(model.problem, CHUNK, rng)
    highest = torch.stack([torch.stack(thresholds(model, e, tasks.context)).amax(dim=0) for e in epsilons])
    beyond = torch.sigmoid(torch.logit(highest) + SPARE)
    passed = torch.zeros(len(epsilons), CHUNK, dtype=torch.bool)

    def settled(rows: Tensor, assessment: Assessment) -> Tensor:
        passed[:, rows] |= assessment.confidence >= beyond[:, rows]
        return passed[:, rows].all(dim=0)

    shape = len(epsilons), CHUNK, model.belief.horizon + 1
    loss, confidence = torch.zeros(shape), torch.zeros(shape)
    for step in play(Assessor(model.belief, epsilons, model.calibration.query_spread), tasks, rng, ends=settled):
        for e in range(len(epsilons)):
            loss[e, step.rows, step.time :] = step.tasks.loss(step.proposal.recommendation[e])[:, None]
            confidence[e, step.rows, step.time :] = step.proposal.confidence[e][:, None]
    return Record(loss, confidence, tasks.context)


def records_of(name: str, tasks: int, folder: Path | None, seconds: float) -> Record:
    """The episodes of a model, as many as are asked for or as fit in the time; kept in ``folder`` and read from there."""
    model, parts, began = cicpe.load(name), [], time.perf_counter()
    for number in range(tasks // CHUNK):
        file = None if folder is None else folder / f"{name}-{number:03d}.npz"
        if file is not None and file.exists():
            with np.load(file) as held:
                parts.append(Record(*(torch.from_numpy(held[field]) for field in Record._fields)))
            continue
        if time.perf_counter() - began > seconds:
            break
        parts.append(play_chunk(model, number))
        if file is not None:
            np.savez(file, **{field: value.numpy() for field, value in parts[-1]._asdict().items()})
        print(f"{name}: {CHUNK * len(parts)} tasks, {time.perf_counter() - began:.0f} s", flush=True)
    return Record(*(torch.cat(column, dim=min(1, column[0].ndim - 2)) for column in zip(*parts, strict=True)))


class Ends(NamedTuple):
    """How the episodes of a record end under one rule."""

    queries: Tensor
    stopped: Tensor
    right: Tensor
    confidence: Tensor
    """As it is shown."""


def ends(model: Model, record: Record, e: int, rule: int) -> Ends:
    """Stops every recorded episode where a rule would."""
    epsilon = epsilons_of(model)[e]
    threshold = thresholds(model, epsilon, record.context)[rule]
    hit = record.confidence[e] >= threshold[:, None]
    at, rows = first_true(hit), torch.arange(len(threshold))
    shown = calibrated_confidence(record.confidence[e][rows, at], model.calibration.platt_at(epsilon)(record.context))
    return Ends(at, hit.any(dim=1), record.loss[e][rows, at] <= epsilon, shown)


Bin = tuple[str, int, float, float, float, float]


def reliability(found: Ends) -> list[Bin]:
    """Of episodes that stopped, by their confidence: how many, its mean, the share right and its 95 % interval."""
    rows = []
    for low, high in pairwise(BINS):
        inside = found.stopped & (found.confidence >= low) & (found.confidence < high + (high == 1))
        n = int(inside.sum())
        if n >= 20:
            k = int(found.right[inside].sum())
            lower, upper = (float(value) for value in clopper_pearson(k, n, 0.025))
            rows.append((f"{low:g} to {high:g}", n, float(found.confidence[inside].mean()), k / n, lower, upper))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--only", choices=MODELS, nargs="+", default=MODELS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of playing, for each model")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.records is not None:
        args.records.mkdir(parents=True, exist_ok=True)
    kept: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in args.only:
        model, record = cicpe.load(name), records_of(name, args.tasks, args.records, 60 * args.minutes)
        costs, bins = [], []
        for e, epsilon in enumerate(epsilons_of(model)):
            average, each = (ends(model, record, e, rule) for rule in range(len(RULES)))
            costs.append(cost_row(name, epsilon, average, each))
            print(costs[-1], flush=True)
            bins += [(name, epsilon, found) for found in reliability(each)]
        kept[name] = {"costs": costs, "bins": bins, "date": time.strftime("%Y-%m-%d")}
        FIGURES.write_text(json.dumps(kept, indent=1) + "\n")
    measured = [kept[name] for name in MODELS if name in kept]
    all_bins = [(name, epsilon, found) for part in measured for name, epsilon, found in part["bins"]]
    draw(all_bins).savefig(FIGURE)
    PAGE.write_text(page([row for part in measured for row in part["costs"]], all_bins))


@styled
def draw(bins: list[tuple[str, float, Bin]]) -> Figure:
    """The share that was right against what was said, a colour per model."""
    figure = new_figure(4.2, width=5.6, title="At the stop, under the rule each, 95 % intervals")
    panel = figure.subplots()
    panel.plot([0.9, 1], [0.9, 1], color=GREY, linewidth=1, linestyle=(0, (4, 2)), label="as said")
    for colour, name in zip(COLOURS, MODELS, strict=False):
        points = np.array([found[2:] for model, _, found in bins if model == name])
        mean, share, low, high = points.T
        bars = [share - low, high - share]
        panel.errorbar(mean, share, yerr=bars, color=colour, marker="o", markersize=4, linestyle="none", label=name)
    panel.set_xlabel("confidence, mean of its bin")
    panel.set_ylabel("right answers")
    panel.legend(loc="lower right")
    dress(panel)
    return figure


def cost_row(name: str, epsilon: float, average: Ends, each: Ends) -> str:
    """Accuracy and queries of both rules."""
    mean = [float(end.queries.float().mean()) for end in (average, each)]
    right = [float(end.right.float().mean()) for end in (average, each)]
    return (
        f"| {name} | {epsilon:g} | {len(each.right)} | {right[0]:.3f} | {mean[0]:.2f} | {right[1]:.3f} | {mean[1]:.2f} | "
        f"{mean[1] / mean[0]:.2f} | {float((~each.stopped).float().mean()):.3f} | "
        f"{float((average.confidence < 1 - DELTA).float().mean()):.2f} |"
    )


def page(costs: list[str], bins: list[tuple[str, float, Bin]]) -> str:
    """The page; a bin is marked where its interval, wide enough for all bins together, lies below what was said."""
    rows, below, strictly = [], 0, 0
    for name, epsilon, (where, n, mean, share, low, high) in bins:
        strict = float(clopper_pearson(round(share * n), n, 0.025 / len(bins))[1]) < mean
        below, strictly = below + (high < mean), strictly + strict
        mark = "**below**" if strict else "below" if high < mean else ""
        rows.append(
            f"| {name} | {epsilon:g} | {where} | {n} | {mean:.3f} | {share:.3f} ({low:.3f} to {high:.3f}) | {mark} |"
        )
    return TEXT.format(
        costs="\n".join(costs),
        bins="\n".join(rows),
        below=below,
        strictly=strictly,
        all=len(bins),
        chance=0.025 * len(bins),
    )


TEXT = """# The stop rules *each* and *average*

*average* (the paper's criterion; `--stop average`, also called `confidence`) promises that 1 - delta of all campaigns are right. Some
of them may stop while they are not sure, because others are surer than asked. *each* (the default of sessions, the command line's
`session`, the page and the Optuna sampler) stops a campaign only where its own calibrated confidence is at least 1 - delta.

Delta 0.1, fresh tasks drawn over all noise levels, the smallest and the largest epsilon of every model; both rules and both epsilons on
the same episodes. The last column is the share of campaigns that *average* ends below a confidence of 0.9.

| model | epsilon | tasks | accuracy, average | queries | accuracy, each | queries | ratio | ran out of queries | unsure under average |
|---|---|---|---|---|---|---|---|---|---|
{costs}

Of campaigns that stopped under *each*: what they said, and the share that was right, with its 95 % interval. A bin is marked *below* where
its interval lies below the mean confidence: {below} of {all}, where {chance:.1f} are expected by chance; and in bold where even an interval
for all bins together does: {strictly}.

![what was said and the share that was right](../images/each.png)

| model | epsilon | confidence | campaigns | mean confidence | right | |
|---|---|---|---|---|---|---|
{bins}

Made by `python benchmarks/each.py` (seed 50000).
"""

if __name__ == "__main__":
    main()
