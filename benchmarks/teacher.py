"""What a network learns from particles that play for it: Ackley, d = 3, on its teacher's histories and on its own.

    python benchmarks/teacher.py      # trains what is missing under runs/, a quarter of an hour, and prints

The network is that of `benchmarks/actors.py --family ackley` with the actor ts, and half of every update is made of
histories of the teacher.
"""

import argparse
import json
from pathlib import Path

import torch

import cicpe
from cicpe.agents.records import record
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import HiddenTasks
from cicpe.training.config import TrainingConfig
from cicpe.training.teacher import lesson, make_teacher

ROOT = Path(__file__).parent.parent
CELLS = ((0.2, 0.05), (0.2, 0.1), (0.1, 0.025), (0.1, 0.05))
EPSILON = 0.2
OBSERVATIONS = (6, 8, 10, 12)


def trained(folder: Path, episodes: int, updates: int) -> cicpe.Model:
    if not (folder / "config.json").exists():
        problem = cicpe.make_problem("ackley", dim=3, noise=(0.025, 0.1))
        settings = {"horizon": 30, "adapt_horizon": False, "teacher": {"episodes": episodes}}
        asked = {"epsilon": (0.1, 0.2), "recipe": "fast", "actor": "ts", "calibration_episodes": 8192}
        cicpe.train(problem, updates=updates, out=folder, resume=True, settings=settings, **asked)  # type: ignore[arg-type]
    return cicpe.load(folder)


def on_lessons(model: cicpe.Model, episodes: int, seed: int) -> dict[str, object]:
    """How often the network is right on fresh histories of its teacher."""
    config, rng = model.description.training, torch.Generator().manual_seed(seed)
    assert isinstance(config, TrainingConfig)
    hidden = HiddenTasks.draw(model.problem, episodes, rng)
    taught = lesson(make_teacher(model.problem, config), hidden, config.epsilon[0], rng)
    network = model.core.network  # type: ignore[attr-defined]
    with torch.no_grad():
        state = network.unroll(hidden.context, taught.query, taught.observation)
        success = hidden.loss(network.believe(state).posterior.recommendation) <= EPSILON
    last = success[torch.arange(episodes), taught.length]
    after = {k: float(success[:, k][taught.length >= k].float().mean()) for k in OBSERVATIONS}
    return {
        "at_its_end": float(last.float().mean()),
        "observations": float(taught.length.float().mean()),
        "after": after,
    }


def on_its_own(model: cicpe.Model, episodes: int, seed: int) -> dict[int, float]:
    """The same on histories that it made by itself."""
    rng = torch.Generator().manual_seed(seed)
    hidden = HiddenTasks.draw(model.problem, episodes, rng)
    loss = record(model.core, hidden, (EPSILON,), model.calibration.scale, rng).loss[0]
    return {k: float((loss[:, k] <= EPSILON).float().mean()) for k in OBSERVATIONS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lessons", type=int, default=3000)
    parser.add_argument("--updates", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=9)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = trained(ROOT / "runs" / "ackley-taught", given.lessons, given.updates)
    for epsilon, noise in CELLS:
        found = evaluate_agent(model.unstopped(epsilon), model.tasks(noise), epsilon, 0.1, 2000, 30_000)
        print(
            json.dumps({"epsilon": epsilon, "noise": noise, "accuracy": found.accuracy, "queries": found.mean_queries})
        )
    print(json.dumps({"on_lessons": on_lessons(model, 256, given.seed)}), flush=True)
    print(json.dumps({"on_its_own": on_its_own(model, 1000, given.seed)}), flush=True)


if __name__ == "__main__":
    main()
