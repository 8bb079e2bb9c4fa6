"""Measures the belief (and its reference) on families of the battery: run.py [--seconds S] [--reference] names..."""

import argparse
import time

from battery import cases
from fit import Choice, FitConfig
from learn import learn
from measure import queries_at, record
from reference import PriorDraws


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--choice", type=str, default="")
    parser.add_argument("--given", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=8000)
    parser.add_argument("--note", default="")
    parser.add_argument("--goal", default="information")
    args = parser.parse_args()
    for name in args.names:
        case = cases()[name]
        steps = args.steps or case.problem.horizon
        began = time.process_time()
        if args.reference:
            assert case.reference is not None
            belief = PriorDraws(case.reference, min(case.epsilons), goal=args.goal, draws=args.draws)
            problem = case.reference
        else:
            choice = Choice(*[int(v) for v in args.choice.split(",")]) if args.choice else None
            belief = learn(
                case.problem, case.epsilons, args.seconds, FitConfig(seed=args.seed), choice, args.given, args.rounds
            )
            problem = case.problem
        fitted = time.process_time() - began
        played = record(belief, problem, case.epsilons, args.episodes, steps, seed=99)
        taken = played.confidence_ETB.shape[1] - 1
        speed = 1000 * played.seconds / max(1, played.queries)
        rows = queries_at(played)
        text = "  ".join(
            f"@{eps}: {row['queries']:.1f}q acc {row['accuracy']:.3f} thr {row['threshold']:.3f} trunc {row['truncated']:.2f} final {row['final']:.3f}"
            for eps, row in zip(case.epsilons, rows, strict=False)
        )
        kind = "REF" if args.reference else "OUR"
        line = f"{kind} {args.note} {name} | {text} | fit {fitted:.0f}s play {played.seconds:.0f}s {taken} steps {speed:.2f} ms/q batched"
        print(line, flush=True)
        with open("results.log", "a") as out:
            out.write(line + "\n")


if __name__ == "__main__":
    main()
