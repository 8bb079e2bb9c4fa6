"""The particle agent on one cell of the paper: accuracy and queries on fresh tasks, without any training.

    python benchmarks/particles.py --problem ackley --dim 3 --epsilon 0.2 --noise 0.05 --episodes 600
    python benchmarks/particles.py --table      # all of docs/results/particles.md: an hour and more on one core

Every episode is played until it is all but sure, or to the horizon. The threshold kappa is chosen on one half of
the episodes and judged on the other.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from cicpe.agents.stop_rules import STOP_RULES, first_passages
from cicpe.beliefs.particle_filter import DegenerateParticles
from cicpe.beliefs.particles.belief import ParticleBelief, ParticleConfig
from cicpe.episodes.table import CERTAIN, RecordSettings, tabulate
from cicpe.evaluation.evaluate import mean_interval, proportion_interval
from cicpe.problems import TaskBatch, make_problem

OUT = Path(__file__).parent.parent / "docs" / "results"
KEY = ("problem", "dim", "likelihood")
TABLE = [
    "--problem binary-search --dim 2 --noise 0.1 --horizon 40 --episodes 400 --chunk 100 --likelihood exact",
    "--problem binary-search --dim 2 --noise 0.1 --horizon 20 --episodes 120 --chunk 60 --likelihood learned",
    *(f"--dim {dim} --episodes 200 --chunk 100 --horizon {5 * dim + 5} --aim 0.141" for dim in (3, 4, 5)),
    *(
        f"--dim {dim} --episodes {episodes} --chunk 60 --horizon {5 * dim + 5} --aim 0.141 --likelihood learned"
        for dim, episodes in ((3, 120), (4, 100), (5, 80))
    ),
]
"""The rows of docs/results/particles.md, each as one would type it."""


KAPPAS = STOP_RULES["confidence"].thresholds(None)


def judge(loss: torch.Tensor, confidence: torch.Tensor, epsilon: float, delta: float) -> dict:
    """Chooses kappa on the even episodes, as low as accuracy 1 - delta allows, and judges it on the odd ones."""
    success = loss <= epsilon
    stops = torch.stack(first_passages(confidence, KAPPAS))  # kappa x episode
    at = success.T.gather(0, stops)  # kappa x episode
    even = torch.arange(len(loss)) % 2 == 0
    ok = at[:, even].double().mean(dim=1) >= 1 - delta
    failed = (~ok).nonzero()
    chosen = (int(failed[0, 0]) if len(failed) else len(ok)) - 1
    everything = {
        f"kappa_{k}": [round(float(at[i].double().mean()), 3), round(float(stops[i].float().mean()), 2)]
        for k in (0.7, 0.75, 0.8, 0.85, 0.9)
        for i in [int((KAPPAS - k).abs().argmin())]
    }
    if chosen < 0:
        return {"kappa": None, "final_accuracy": float(success[:, -1].double().mean()), **everything}
    queries, correct = stops[chosen, ~even], at[chosen, ~even]
    every = at.double().mean(dim=1)
    last = int((every >= 1 - delta).nonzero()[-1]) if bool((every >= 1 - delta).any()) else 0
    return {
        "kappa": round(float(KAPPAS[chosen]), 4),
        "accuracy": round(float(correct.double().mean()), 4),
        "accuracy_ci": proportion_interval(int(correct.sum()), len(correct)),
        "mean_queries": round(float(queries.float().mean()), 2),
        "mean_queries_ci": mean_interval(queries),
        "truncated": float((queries == loss.shape[1] - 1).double().mean()),
        "mean_confidence_at_stop": float(confidence[~even].gather(1, queries[:, None]).mean()),
        "all_episodes_at_target": [round(float(every[last]), 3), round(float(stops[last].float().mean()), 2)],
        **everything,
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    problem = make_problem(arguments.problem, dim=arguments.dim, noise=arguments.noise)
    config = ParticleConfig.model_validate(dict(pair.split("=") for pair in arguments.set))
    learned, fit = None, 0.0
    if arguments.likelihood == "learned":
        from cicpe.beliefs.particles.likelihood import fit_likelihood

        began = time.process_time()
        learned = fit_likelihood(problem, seconds=arguments.fit_seconds, seed=arguments.seed)
        fit = time.process_time() - began
    belief = ParticleBelief(problem, arguments.horizon, config, arguments.aim or arguments.epsilon, learned)
    rng = torch.Generator().manual_seed(arguments.seed)
    began, parts = time.process_time(), []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", DegenerateParticles)
        for begin in range(0, arguments.episodes, arguments.chunk):
            tasks = TaskBatch.draw(problem, min(arguments.chunk, arguments.episodes - begin), rng)
            parts.append(tabulate(belief, tasks, RecordSettings((arguments.epsilon,)), rng))
    seconds = time.process_time() - began
    loss, confidence = (torch.cat([part[i][0] for part in parts]) for i in (0, 2))
    began = time.process_time()
    table = tabulate(belief, TaskBatch.draw(problem, 1, rng), RecordSettings((arguments.epsilon,)), rng)
    alone = (time.process_time() - began) / queries_made(table.confidence[0])
    cell = {name: getattr(arguments, name) for name in ("problem", "dim", "epsilon", "noise", "episodes", "likelihood")}
    return {
        **cell,
        "set": arguments.set,
        "fit_seconds": round(fit, 1),
        **judge(loss, confidence, arguments.epsilon, arguments.delta),
        "degenerate_warnings": len(warned),
        "ms_per_query": round(1e3 * seconds / queries_made(confidence), 2),
        "ms_per_query_alone": round(1e3 * alone, 1),
        "cpu_seconds": round(seconds, 1),
    }


def queries_made(confidence: torch.Tensor) -> int:
    """Queries that were played: an episode ends where it is sure."""
    sure = confidence >= CERTAIN
    last = torch.where(sure.any(dim=1), sure.int().argmax(dim=1), confidence.shape[1] - 1)
    return int(last.sum())


def page(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Particles with the exact and with a learned likelihood",
        "",
        "Written by `python benchmarks/particles.py --table`. Nothing is trained but the learned likelihood, a small network "
        "fitted to simulated triples. The threshold is chosen on one half of the episodes, as low as accuracy 0.9 allows, "
        "and judged on the other; 95 % intervals. *Queries at 0.90* are those of the threshold with that accuracy on all episodes. "
        "Milliseconds are of processor time a query: in batches of sixty or a hundred, "
        "and alone.",
        "",
        "| problem | d | epsilon | noise | likelihood | minutes to fit | episodes | accuracy | queries | queries at 0.90 | ms | ms alone |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        head = f"| {row['problem']} | {row['dim']} | {row['epsilon']:g} | {row['noise']:g} | {row['likelihood']} | "
        head += f"{row['fit_seconds'] / 60:.1f} | {row['episodes']} | "
        speed = f"{row['ms_per_query']:.0f} | {row['ms_per_query_alone']:.0f} |"
        if row["kappa"] is None:
            lines.append(f"{head}{row['final_accuracy']:.3f} at the horizon | not reached | | {speed}")
            continue
        (low, high), (q_low, q_high) = row["accuracy_ci"], row["mean_queries_ci"]
        lines.append(
            f"{head}{row['accuracy']:.3f} ({low:.3f}-{high:.3f}) | "
            f"{row['mean_queries']:.2f} ({q_low:.2f}-{q_high:.2f}) | {row['all_episodes_at_target'][1]:.2f} | {speed}"
        )
    notes = OUT / "notes" / "particles.md"
    return "\n".join([*lines, ""]) + ("\n" + notes.read_text() if notes.exists() else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--table", action="store_true", help="measure what docs/results/particles.md lacks, and write it"
    )
    parser.add_argument("--problem", default="ackley")
    parser.add_argument("--dim", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=0.2)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--aim", type=float, help="the epsilon that queries are chosen for; --epsilon if left out")
    parser.add_argument("--delta", type=float, default=0.1)
    parser.add_argument("--episodes", type=int, default=600)
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=300)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--likelihood", choices=("exact", "learned"), default="exact")
    parser.add_argument("--fit-seconds", type=float, default=90.0)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of ParticleConfig")
    arguments = parser.parse_args()
    if not arguments.table:
        print(json.dumps(measure(arguments)))
        return
    file = OUT / "particles.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    for line in TABLE:
        asked = parser.parse_args(line.split())
        if not any(all(row[key] == getattr(asked, key) for key in KEY) for row in rows):
            rows.append(measure(asked))
            print(json.dumps(rows[-1]), flush=True)
            file.write_text(json.dumps(rows, indent=1) + "\n")
    rows.sort(key=lambda row: (row["problem"], row["dim"], row["likelihood"]))
    (OUT / "particles.md").write_text(page(rows))


if __name__ == "__main__":
    main()
