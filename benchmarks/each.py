"""What the stop rule *each* costs, and whether its confidence is kept: the zoo under both rules, on fresh tasks.

    python benchmarks/each.py             # writes docs/results/each.md
    python benchmarks/each.py --tasks 400 # quicker, and coarser

Agents that compute their posterior (Ackley) are slow and play one task in forty.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import torch

import cicpe
from cicpe.evaluation.evaluate import Evaluation
from cicpe.statistics import clopper_pearson

PAGE = Path(__file__).parent.parent / "docs" / "results" / "each.md"
MODELS = ("best-arm-5d", "best-arm-10d", "binary-search-6d", "binary-search-10d", "gp-max-1d", "ackley-3d")
SLOW = {"ackley-3d"}
DELTA, SEED = 0.1, 50_000
BINS = (0.0, 0.5, 0.8, 0.9, 0.93, 0.96, 0.99, 1.0)


def reliability(result: Evaluation, epsilon: float) -> list[tuple[str, int, float, float, float]]:
    """Of episodes that stopped, by their confidence: how many, its mean, the share right and its upper 95 % end."""
    rows = []
    outcomes = result.outcomes
    right = outcomes.loss <= epsilon
    for low, high in pairwise(BINS):
        inside = outcomes.stopped & (outcomes.confidence >= low) & (outcomes.confidence < high + (high == 1))
        n = int(inside.sum())
        if n >= 20:
            k = int(right[inside].sum())
            upper = float(clopper_pearson(k, n, 0.05)[1])
            rows.append((f"{low:g} to {high:g}", n, float(outcomes.confidence[inside].mean()), k / n, upper))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=4000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    costs, bins, broken = [], [], 0
    for name in MODELS:
        model = cicpe.load(name)
        tasks = args.tasks // 40 if name in SLOW else args.tasks
        for epsilon in (model.calibration.epsilons[0], model.calibration.epsilons[-1]):
            average, each = (
                cicpe.evaluate(model, epsilon=epsilon, delta=DELTA, stop=stop, episodes=tasks, seed=SEED)
                for stop in ("average", "each")
            )
            costs.append(
                f"| {name} | {epsilon:g} | {tasks} | {average.accuracy:.3f} | {average.mean_queries:.2f} | {each.accuracy:.3f} | "
                f"{each.mean_queries:.2f} | {each.mean_queries / average.mean_queries:.2f} | {each.truncated:.3f} | "
                f"{float((average.outcomes.confidence < 1 - DELTA).float().mean()):.2f} |"
            )
            print(costs[-1], flush=True)
            for where, n, mean, share, upper in reliability(each, epsilon):
                low = upper < mean
                broken += low
                bins.append(
                    f"| {name} | {epsilon:g} | {where} | {n} | {mean:.3f} | {share:.3f} | {'below' if low else ''} |"
                )
    PAGE.write_text(TEXT.format(costs="\n".join(costs), bins="\n".join(bins), broken=broken, all=len(bins)))


TEXT = """# The stop rules *each* and *average*

*average* (the paper's criterion; `--stop average`, also called `confidence`) promises that 1 - delta of all campaigns are right. Some
of them may stop while they are not sure, because others are surer than asked. *each* (the default of sessions, the command line's
`session`, the page and the Optuna sampler) stops a campaign only where its own calibrated confidence is at least 1 - delta.

Delta 0.1, fresh tasks drawn over all noise levels, the smallest and the largest epsilon of every model. The last column is the share of campaigns that
*average* ends below a confidence of 0.9.

| model | epsilon | tasks | accuracy, average | queries | accuracy, each | queries | ratio | ran out of queries | unsure under average |
|---|---|---|---|---|---|---|---|---|---|
{costs}

Of campaigns that stopped under *each*: what they said, and the share that was right. A bin is marked *below* where even the upper end of its
95 % interval is below the mean confidence: {broken} of {all}.

| model | epsilon | confidence | campaigns | mean confidence | right | |
|---|---|---|---|---|---|---|
{bins}

Made by `python benchmarks/each.py`.
"""

if __name__ == "__main__":
    main()
