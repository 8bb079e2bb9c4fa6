"""Throughput, latency and memory of the engine, on one core.

    python benchmarks/run.py            # all of it, about two minutes; writes benchmarks/results/DATE.md

Absolute times are noisy on a shared machine: read the ratios.
"""

import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from cicpe.agents.belief_agent import BeliefAgent
from cicpe.agents.stop_rules import STOP_RULES
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.attention import AttentionConfig
from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig
from cicpe.beliefs.network.memories.per_axis import PerAxisConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.memories.regression import RegressionConfig
from cicpe.beliefs.network.network import MemoryConfig, NetworkConfig
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.plates import observe_plate
from cicpe.problems import Problem, TaskBatch, make_problem
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import Trainer, build_network
from cicpe.training.recipes import choose
from cicpe.training.schedule import Budget

MEMORIES: dict[str, tuple[str, MemoryConfig]] = {
    "gru": ("binary-search", RecurrentConfig(kind="gru")),
    "lstm": ("binary-search", RecurrentConfig(kind="lstm")),
    "lstm, pooling": ("binary-search", RecurrentConfig(kind="lstm", readout="pooling")),
    "delta": ("binary-search", DeltaRuleConfig()),
    "axis": ("binary-search", PerAxisConfig()),
    "regression, linear": ("best-arm", RegressionConfig(features="linear", estimate="weights")),
    "regression, fourier": ("gp-max", RegressionConfig(estimate="maximum")),
    "attention": ("binary-search", AttentionConfig()),
}


def latency(problem: Problem, memory: MemoryConfig, upto: int = 100, repeats: int = 7) -> dict[str, float]:
    """Milliseconds of one tell and ask (observe + propose) for one episode, early and at t = 100."""
    rng = torch.Generator().manual_seed(0)
    network = build_network(problem, TrainingConfig(network=NetworkConfig(memory=memory)), rng).eval()
    same = problem.query_space == problem.answer_space
    actor = make_actor("ts" if same else "uniform", problem.query_space, problem.answer_space)
    agent = BeliefAgent(
        NetworkBelief(network, actor, upto + 20),
        STOP_RULES["confidence"],
        lambda c: torch.full((len(c),), 2.0),
        0.1,
        0.1,
    )
    early, late = [], []
    for _ in range(repeats):
        tasks = TaskBatch.draw(problem, 1, rng)
        state = agent.begin(tasks.context)
        proposal = agent.propose(state, rng)
        for t in range(1, upto + 6):
            observation = observe_plate(tasks, proposal.query, rng)
            began = time.perf_counter()
            state = agent.observe(state, proposal.query, observation)
            proposal = agent.propose(state, rng)
            took = 1000 * (time.perf_counter() - began)
            if t <= 6:
                early.append(took)
            if t >= upto:
                late.append(took)
    first, last = statistics.median(early), statistics.median(late)
    return {"ms at t=1": first, "ms at t=100": last, "ratio": last / first}


def throughput(dim: int, horizon: int, seconds: float = 4.0) -> dict[str, float]:
    """Training episodes and updates per second of the fast recipe at a fixed horizon."""
    problem = make_problem("binary-search", dim=dim)
    config = choose("fast", problem).config.model_copy(update={"adapt_horizon": False, "horizon": horizon})
    config = config.model_copy(update={"first_batch": 64, "batch": 64})
    trainer = Trainer(problem, config, Budget(updates=10**9))
    trainer.iterate()
    began, episodes, updates = time.perf_counter(), 0, trainer.at.update
    while time.perf_counter() - began < seconds:
        trainer.iterate()
        episodes += config.batch
    took = time.perf_counter() - began
    return {"episodes/s": episodes / took, "updates/s": (trainer.at.update - updates) / took}


def peak_memory(dim: int, horizon: int) -> float:
    """Peak resident megabytes of a process that trains for a second."""
    command = [sys.executable, __file__, "--memory-of", str(dim), str(horizon)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--memory-of"]:
        throughput(int(sys.argv[2]), int(sys.argv[3]), seconds=1.0)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    lines = [f"# Benchmarks, {time.strftime('%Y-%m-%d')}", ""]
    lines += [
        f"`python benchmarks/run.py`; {platform.machine()}, {platform.system()}, one thread, torch {torch.__version__}.",
        "",
    ]
    lines += [
        "## One tell and ask, for one episode",
        "",
        "| memory | ms at t = 1 | ms at t = 100 | ratio |",
        "|---|---|---|---|",
    ]
    for name, (problem, memory) in MEMORIES.items():
        result = latency(make_problem(problem), memory)
        print(name, json.dumps(result), flush=True)
        lines.append(f"| {name} | {result['ms at t=1']:.2f} | {result['ms at t=100']:.2f} | {result['ratio']:.2f} |")
    lines += ["", "## Training throughput (fast recipe, binary search, 64 episodes per update)", ""]
    lines += ["| d | T | episodes/s | updates/s | peak MB |", "|---|---|---|---|---|"]
    for dim, horizon in [(2, 20), (6, 10), (6, 20), (6, 40), (6, 80), (20, 20), (50, 20)]:
        result = throughput(dim, horizon)
        memory = peak_memory(dim, horizon)
        print(dim, horizon, json.dumps(result), memory, flush=True)
        lines.append(f"| {dim} | {horizon} | {result['episodes/s']:.0f} | {result['updates/s']:.1f} | {memory:.0f} |")
    out = Path(__file__).parent / "results" / f"{time.strftime('%Y-%m-%d')}.md"
    out.parent.mkdir(exist_ok=True)
    out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
