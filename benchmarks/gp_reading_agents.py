"""Our agents for the GP maximum on the reading that explains the paper's figures: length scales that are log-uniform.

    python benchmarks/gp_reading_agents.py     # minutes on one core; adds its table to docs/results/gp-reading.md

Each agent is measured on the family as the text stands, on the other reading with the thresholds that it has, and there
again with thresholds that were chosen on held-out episodes of that reading; nothing is trained. The agents are the zoo's
model and those of the paper's actors that benchmarks/actors.py has made here.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from actor_models import CELLS, DELTA, Run, agents
from gp_reading import OUT, write
from torch import Generator, Tensor

import cicpe
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem
from cicpe.problems.context import Noise
from cicpe.problems.gp_max import LENGTHSCALE, GPMax, GPMaxTask, sample_paths
from cicpe.statistics import log_uniform

ZOO = "gp-max-1d"
EPISODES, CALIBRATION_EPISODES, SEED = 2000, 8192, 30_000
TEXT, READING, ANEW = "the text", "l log-uniform", "l log-uniform, thresholds chosen there"


@final
@dataclass(frozen=True)
class LogUniformLengths(Problem):
    """``GPMax`` with a length scale that is log-uniform in its range, and not uniform."""

    noise: Noise = (0.0375, 0.1)

    context_names = GPMax.context_names
    default_epsilon = GPMax.default_epsilon
    query_space = GPMax().query_space
    answer_space = GPMax().answer_space

    @property
    def usual(self) -> GPMax:
        """The family as the text stands, with the same noise."""
        return GPMax(noise=self.noise)

    def sample(self, n: int, rng: Generator) -> GPMaxTask:
        task = self.usual.sample(n, rng)
        lengthscale = log_uniform(*LENGTHSCALE, n, rng)
        return task._replace(values=sample_paths(lengthscale, 1, rng), lengthscale=lengthscale)

    def observe(self, task: GPMaxTask, query: Tensor, rng: Generator) -> Tensor:
        return self.usual.observe(task, query, rng)

    def target(self, task: GPMaxTask) -> Tensor:
        return self.usual.target(task)

    def context(self, task: GPMaxTask) -> Tensor:
        return self.usual.context(task)

    def default_context(self) -> tuple[float, ...]:
        return self.usual.default_context()


def models() -> Iterator[tuple[str, cicpe.Model]]:
    """The models that there are, by what the page calls them."""
    yield f"`{ZOO}` (ucb)", cicpe.load(ZOO)
    for actor in ("td3", "uniform"):
        run = Run("gp-max", 1, actor, "fast")
        if run.is_there:
            yield f"{actor} of `benchmarks/actors.py`", cicpe.load(run.folder)


def measured(name: str, model: cicpe.Model, episodes: int) -> Iterator[dict[str, Any]]:
    """The figures of a model, under both readings."""
    reading = LogUniformLengths()
    anew = cicpe.recalibrate(replace(model, family=reading), episodes=CALIBRATION_EPISODES)
    for on, own, family in ((TEXT, model, GPMax()), (READING, model, reading), (ANEW, anew, reading)):
        for cell in CELLS:
            if cell["problem"] != "gp-max":
                continue
            (stop, agent), *_ = agents(own, cell["epsilon"], cell["noise"])
            tasks = family.with_context(noise=cell["noise"])
            result = evaluate_agent(agent, tasks, cell["epsilon"], episodes, SEED)
            yield {
                "agent": name,
                "on": on,
                "epsilon": cell["epsilon"],
                "noise": cell["noise"],
                "stop": stop,
                "episodes": episodes,
                "delta": DELTA,
                "accuracy": result.accuracy,
                "accuracy_ci": result.accuracy_ci,
                "mean_queries": result.mean_queries,
                "mean_queries_ci": result.mean_queries_ci,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh tasks per cell")
    episodes = parser.parse_args().episodes
    torch.set_num_threads(1)
    kept = json.loads((OUT / "gp-reading.json").read_text())
    for name, model in models():
        rows = list(measured(name, model, episodes))
        print("\n".join(json.dumps(row) for row in rows), flush=True)
        kept["agents"] = [row for row in kept.get("agents", []) if row["agent"] != name] + rows
        write(kept)


if __name__ == "__main__":
    main()
