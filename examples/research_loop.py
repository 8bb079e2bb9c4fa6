"""A research loop: the published training recipe over seeds, each measured on fresh tasks, with an interval over all.

    python examples/research_loop.py       # about five minutes per seed

The recipe ``paper`` is the published C-ICPE algorithm, with settings for minutes on one core; it is measured by its own
stop, as published and without a calibration (``stop="own"``).
"""

import cicpe
from cicpe.evaluation.bootstrap import bootstrap_mean


def main(seeds=(0, 1), dim=2, settings=None, episodes=2000, **budget):
    """Trains once per seed; returns the successes of every episode, seed by seed."""
    successes = []
    for seed in seeds:
        problem = cicpe.make_problem("binary-search", dim=dim, noise=0.05)
        budget = budget or {"minutes": 5.0}
        model = cicpe.train(problem, recipe="paper", epsilon=(0.2, 0.2), seed=seed, settings=settings, **budget)
        try:
            result = cicpe.evaluate(model, epsilon=0.2, delta=0.1, stop="own", episodes=episodes, seed=seed)
        except cicpe.InvalidInput as refusal:
            print(f"seed {seed}: refused, {refusal}")
            continue
        print(f"seed {seed}: {result.accuracy:.3f} within 0.2, {result.mean_queries:.1f} queries")
        successes.append((result.outcomes.loss <= 0.2).double().tolist())
    if successes:
        mean = bootstrap_mean([[[success] for success in one] for one in successes])
        print(f"over {len(successes)} seeds: {mean.value:.3f}, 95 % from {mean.low:.3f} to {mean.high:.3f}")
    return successes


if __name__ == "__main__":
    main()
