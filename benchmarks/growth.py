"""How cost grows: with the dimension, with the number of queries, with the horizon, and with the number of episodes.

    python benchmarks/growth.py            # measures, about three minutes of one core; writes docs/results/growth.md
    python benchmarks/growth.py --small    # the smallest sizes, in half a minute, to see that it works; writes nothing
    python benchmarks/growth.py --page     # only writes the page from docs/results/growth.json
    python benchmarks/growth.py --only queries-by-dimension    # one of the studies; the others stay as they are

Times are processor time of one thread (``time.process_time``), so that a busy machine disturbs them little: the median
of several repetitions, with their quartiles. Networks are as training begins with them; zoo models as they are.
"""

import argparse
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import growth_page
import torch

import cicpe
from cicpe.agents.base import Agent
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.agents.stop_rules import STOP_RULES
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.attention import AttentionConfig
from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import NetworkConfig
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.episodes.play import never, play
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem, TaskBatch, make_problem
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import Trainer, build_network
from cicpe.training.recipes import choose
from cicpe.training.schedule import Budget

SEED = 0
FAMILIES = ("binary-search", "best-arm")
BATCH = 256
FIXED = {"adapt_horizon": False, "horizon": 20, "first_batch": 64, "batch": 64}
"""Settings under which only the dimension differs."""


class Sizes(NamedTuple):
    """How large and how often."""

    dims: tuple[int, ...]
    steps: int
    horizons: tuple[int, ...]
    episodes: tuple[int, ...]
    repeats: int


FULL = Sizes((5, 10, 20, 50), 100, (10, 20, 40, 80), (64, 512, 4096), 3)
SMALL = Sizes((2, 4), 12, (4, 8), (16, 32), 2)
COSTLY = {"ackley-3d": 0.004}
"""Zoo models that are slow, and which share of the episodes they play."""
Point = dict[str, float]


def point(size: float, values: Sequence[float]) -> Point:
    """The median and the quartiles of some repetitions."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"size": size, "value": statistics.median(values), "low": low, "high": high}


def untrained(problem: Problem, config: TrainingConfig, horizon: int) -> Agent:
    """An agent with the network that training would begin with, and that never stops."""
    network = build_network(problem, config, torch.Generator().manual_seed(SEED)).eval()
    actor = make_actor(config.actor, problem.query_space, problem.answer_space, network)
    belief = NetworkBelief(network, actor, horizon)
    return BeliefAgent(belief, STOP_RULES["confidence"], lambda c: torch.full((len(c),), 2.0), 0.1, 0.1)


def step_milliseconds(agent: Agent, problem: Problem, batch: int, steps: int, seed: int) -> list[float]:
    """Processor time of every query of some episodes: one observation told and the next query asked for."""
    rng = torch.Generator().manual_seed(seed)
    milliseconds, before = [], None
    for _ in play(agent, TaskBatch.draw(problem, batch, rng), rng, ends=never, limit=steps):
        now = time.process_time()
        if before is not None:
            milliseconds.append(1000 * (now - before))
        before = time.process_time()
    return milliseconds


def queries_by_dimension(sizes: Sizes) -> dict[str, list[Point]]:
    """Milliseconds of one query, alone and as a share of a batch."""
    curves: dict[str, list[Point]] = {}
    for family in FAMILIES:
        for dim in sizes.dims:
            problem = make_problem(family, dim=dim)
            agent = untrained(problem, choose("fast", problem).config, 30)
            for label, batch in ((family, 1), (f"{family}, one of {BATCH}", BATCH)):
                step_milliseconds(agent, problem, batch, 3, SEED)
                times = [
                    t / batch
                    for i in range(sizes.repeats)
                    for t in step_milliseconds(agent, problem, batch, 20, SEED + i)
                ]
                curves.setdefault(label, []).append(point(dim, times))
    return curves


def queries_by_number(sizes: Sizes) -> dict[str, list[Point]]:
    """Milliseconds of the t-th query of one episode."""
    problem = make_problem("binary-search", dim=6)
    memories = {"gru": RecurrentConfig(), "delta rule": DeltaRuleConfig(), "attention": AttentionConfig()}
    agents: dict[str, tuple[Agent, Problem]] = {}
    for name, memory in memories.items():
        config = TrainingConfig(network=NetworkConfig(memory=memory))
        agents[name] = untrained(problem, config, sizes.steps), problem
    for name, family in (("per axis", "binary-search"), ("regression", "best-arm")):
        of_family = make_problem(family, dim=6)
        agents[name] = untrained(of_family, choose("fast", of_family).config, sizes.steps), of_family
    for name, kind in (("ackley-3d", "particles"), ("peak-1d", "functions")):
        model = cicpe.load(name)
        agents[f"{kind} ({name})"] = model.agent(model.calibration.epsilons[-1], 0.1), model.problem
    curves = {}
    for name, (agent, tasks) in agents.items():
        runs = [step_milliseconds(agent, tasks, 1, sizes.steps, SEED + i) for i in range(sizes.repeats)]
        curves[name] = [
            point(t, [run[i] for run in runs for i in range(t - 1, min(t + 2, len(run)))])
            for t in moments(len(runs[0]))
        ]
    return curves


def moments(steps: int) -> list[int]:
    """Numbers of queries, about twice as many each time."""
    return [t for t in (1, 5, 10, 20, 40, 80) if t <= max(1, steps - 2)]


def update_seconds(problem: Problem, changes: dict[str, Any], repeats: int) -> list[float]:
    """Processor time of an update, its share of the rollout included."""
    config = choose("fast", problem).config.model_copy(update=changes)
    trainer = Trainer(problem, config, Budget(updates=10**9))
    trainer.iterate()
    seconds = []
    for _ in range(repeats):
        began, update = time.process_time(), trainer.at.update
        trainer.iterate()
        seconds.append((time.process_time() - began) / (trainer.at.update - update))
    return seconds


def updates_by_dimension(sizes: Sizes) -> dict[str, list[Point]]:
    """Seconds of an update: with the recipe's own horizon and batch, and with the same ones everywhere."""
    curves: dict[str, list[Point]] = {}
    for family in FAMILIES:
        for dim in sizes.dims:
            problem = make_problem(family, dim=dim)
            for label, changes in ((f"{family}, as the recipe", {}), (f"{family}, T = 20, 64 episodes", FIXED)):
                curves.setdefault(label, []).append(point(dim, update_seconds(problem, changes, sizes.repeats)))
    return curves


def updates_by_horizon(sizes: Sizes) -> dict[str, list[Point]]:
    """Seconds of an update of 64 episodes."""
    curves: dict[str, list[Point]] = {}
    for name, family, dim in (
        ("binary-search, d = 6", "binary-search", 6),
        ("best-arm, d = 15", "best-arm", 15),
        ("gp-max, d = 1", "gp-max", 1),
    ):
        for horizon in sizes.horizons:
            seconds = update_seconds(make_problem(family, dim=dim), FIXED | {"horizon": horizon}, sizes.repeats)
            curves.setdefault(name, []).append(point(horizon, seconds))
    return curves


def evaluation_by_episodes(sizes: Sizes) -> dict[str, list[Point]]:
    """Seconds to play fresh tasks to their stops."""
    curves: dict[str, list[Point]] = {}
    for name in ("binary-search-6d", "best-arm-15d", "gp-max-1d", *COSTLY):
        model = cicpe.load(name)
        epsilon = model.calibration.epsilons[-1]
        agent = model.agent(epsilon, 0.1)
        for episodes in sizes.episodes:
            few = max(2, round(COSTLY.get(name, 1.0) * episodes)) if name in COSTLY else episodes
            seconds = []
            for i in range(min(3, sizes.repeats)):
                began = time.process_time()
                evaluate_agent(agent, model.problem, epsilon, few, SEED + i)
                seconds.append(time.process_time() - began)
            curves.setdefault(name, []).append(point(few, seconds))
    return {name: list({p["size"]: p for p in points}.values()) for name, points in curves.items()}


def memory_by_dimension(sizes: Sizes) -> dict[str, list[Point]]:
    """Peak megabytes of a process that trains as the recipe has it, imports included."""
    curves: dict[str, list[Point]] = {}
    for family in FAMILIES:
        for dim in sizes.dims:
            command = [sys.executable, __file__, "--memory-of", family, str(dim)]
            megabytes = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            curves.setdefault(family, []).append(point(dim, [megabytes, megabytes]))
    return curves


STUDIES: dict[str, Callable[[Sizes], dict[str, list[Point]]]] = {
    "queries-by-dimension": queries_by_dimension,
    "updates-by-dimension": updates_by_dimension,
    "queries-by-number": queries_by_number,
    "updates-by-horizon": updates_by_horizon,
    "evaluation-by-episodes": evaluation_by_episodes,
    "memory-by-dimension": memory_by_dimension,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(STUDIES))
    parser.add_argument("--memory-of", nargs=2, metavar=("FAMILY", "DIM"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.memory_of:
        update_seconds(make_problem(args.memory_of[0], dim=int(args.memory_of[1])), {}, 2)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    for name in [] if args.page else args.only or STUDIES:
        began = time.process_time()
        curves = STUDIES[name](SMALL if args.small else FULL)
        print(f"{name}: {time.process_time() - began:.0f} s of processor time", flush=True)
        if not args.small:
            machine = {"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), "torch": torch.__version__}
            growth_page.write(growth_page.read() | {name: curves, "about": machine})
    if not args.small:
        growth_page.write_page(growth_page.read())


if __name__ == "__main__":
    main()
