"""Our agent beside BoTorch's GP-UCB and Optuna's TPE on the same tasks, with the same noise.

    pip install 'cicpe[baselines]'
    python examples/against_botorch.py     # some minutes: a Gaussian process is fitted anew at every query

The family is the greatest value of a smooth function. The others have no stop of their own: they get as many queries
as ours needed on average, rounded up.
"""

import cicpe
from cicpe.reporting.comparison import compare


def main(tasks=20, methods=("cicpe", "gp-ucb", "tpe")):
    """Plays every method on the same tasks and prints a row for each."""
    problem = cicpe.make_problem("gp-max", dim=1, noise=0.1)
    found = compare(problem, epsilon=0.2, delta=0.1, methods=methods, tasks=tasks, all_tasks=True, follow=print)
    for row in (row.to_json() for row in found.rows):
        low, high = row["accuracy_ci"]
        print(f"{row['method']:20s} {row['accuracy']:.2f} ({low:.2f} to {high:.2f})  {row['mean_queries']:.1f} queries")
    return found


if __name__ == "__main__":
    main()
