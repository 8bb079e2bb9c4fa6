"""A family as a Gymnasium environment: an agent of one's own in the place of ours.

    pip install 'cicpe[gymnasium]'
    python examples/gymnasium_loop.py      # seconds

The family is binary search with lies in two dimensions. The agent halves its step after every answer and stops when
the step is small; a lie leads it astray for good, which is why it succeeds less often than one that was trained.
"""

import gymnasium
import numpy as np

import cicpe.integrations.gymnasium  # noqa: F401 - registers the environments


def play(env, seed):
    """One campaign of the halving agent; returns whether it succeeded, and how many queries it made."""
    env.reset(seed=seed)
    estimate, step = np.zeros(2, dtype=np.float32), 0.5
    while step > 0.05:
        action = {"query": estimate, "stop": 0, "answer": estimate}
        seen, _, _, _, _ = env.step(action)
        estimate = np.clip(estimate + step * seen["observation"], -1, 1).astype(np.float32)
        step /= 2
    seen, _, terminated, _, info = env.step({"query": estimate, "stop": 1, "answer": estimate})
    assert terminated
    return info["success"], seen["made"]


def main(episodes=500):
    """Plays campaigns, and says how often the agent was right."""
    env = gymnasium.make("cicpe/binary-search-v0", dim=2, noise=0.05, epsilon=0.2)
    ended = [play(env, seed) for seed in range(episodes)]
    accuracy, queries = np.mean([success for success, _ in ended]), np.mean([made for _, made in ended])
    print(f"{accuracy:.3f} within 0.2, with {queries:.1f} queries: nobody promised anything")
    return accuracy, queries


if __name__ == "__main__":
    main()
