"""A simulator of one's own in NumPy: how long is the half-life of a sample, from readings at times of one's choice?

python examples/own_simulator.py      # about three minutes, nearly all of it training
"""

import cicpe


class HalfLife(cicpe.PerTaskProblem):
    """The half-life of a sample, between 1 and 32 hours, as its logarithm to base 2."""

    query_space = cicpe.Box(low=[0.0], high=[48.0])  # when to read the counter, in hours
    answer_space = cicpe.Box(low=[0.0], high=[5.0])
    horizon = 40

    def sample_one(self, rng):
        return {"log_half_life": rng.uniform(0, 5), "amount": rng.uniform(0.8, 1.2)}

    def observe_one(self, task, query, rng):
        left = task["amount"] * 2 ** (-query[0] / 2 ** task["log_half_life"])
        return left + 0.02 * rng.normal()

    def target_one(self, task):
        return task["log_half_life"]


def main(minutes=3.0, episodes=1000):
    """Trains on the family and measures what came of it: within 15 % (0.2) and 23 % (0.3)."""
    model = cicpe.train(HalfLife(), epsilon=(0.2, 0.3), minutes=minutes)
    results = {}
    for epsilon in (0.3, 0.2):
        results[epsilon] = cicpe.evaluate(model, epsilon=epsilon, delta=0.1, episodes=episodes)
        print(f"within {epsilon}: {results[epsilon].accuracy:.3f} right, {results[epsilon].mean_queries:.1f} readings")
    return results


if __name__ == "__main__":
    main()
