"""``cicpe demo``: the whole job in two or three minutes, from nothing to a live session."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cicpe.cli.arguments import number, seed, whole
from cicpe.cli.output import interval, note, plain_table, print_table
from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np

    from cicpe.evaluation.evaluate import Evaluation
    from cicpe.model import Model
    from cicpe.problems import HiddenTasks

DELTA = 0.1
CELLS = ((0.2, 0.05), (0.2, 0.1), (0.1, 0.025), (0.1, 0.05))
"""(epsilon, noise): the cells of the paper's table. One model serves them all."""
PAPER: Mapping[int, tuple[float, ...]] = {
    6: (10.4, 15.3, 12.0, 14.4),
    8: (11.8, 17.3, 13.0, 16.2),
    10: (12.7, 18.5, 14.0, 17.0),
    20: (16.4, 23.3, 17.6, 22.7),
}
"""Dimension -> mean queries in each cell: the best of the paper's agents with an accuracy of 0.89 or more."""
CONTROL_SHARE = 0.5
"""Training time of the control, relative to the agent's."""
TASKS = 2000
CALIBRATION = 8192


def demo(
    minutes: Annotated[
        float, typer.Option(parser=number, metavar="M", help="Training time; the control takes half as long again.")
    ] = 1.5,
    dim: Annotated[int, typer.Option(parser=whole, metavar="D", help="Dimensions of the search.")] = 6,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the models and the figure.")] = Path("runs/demo"),
    random_seed: Annotated[int, typer.Option("--seed", parser=seed, metavar="N", help="Seeds everything.")] = 0,
) -> None:
    """Train an agent from scratch, deploy it, watch a session.

    The task is binary search with lies: a hidden point, and for each query and coordinate the answer "higher" or
    "lower", which is wrong with a known probability.
    """
    import torch

    torch.set_num_threads(1)
    print(f"1. Train an agent for noisy binary search in {dim} dimensions: {minutes:g} min on one thread.", flush=True)
    agent = _trained("ts", dim, minutes, random_seed, out / "agent")
    share = CONTROL_SHARE * minutes
    print(f"2. Train the control, which queries at random but infers and stops in the same way: {share:g} min.")
    control = _trained("uniform", dim, share, random_seed, out / "uniform")
    print(
        f"3. Deploy both, frozen, on {TASKS:,} fresh tasks a row. Wanted: accuracy {1 - DELTA:g} or more (delta 0.1)."
    )
    _compare(agent, control, dim, random_seed + 1)
    print("4. One live session: the agent asks, we answer, it says when to stop.")
    _live(agent, out / "trajectory.png", random_seed + 2)
    print(f"The model is in {out / 'agent'}.  Next:  cicpe evaluate {out / 'agent'} --epsilon 0.15 --delta 0.1")


def _trained(actor: str, dim: int, minutes: float, seed: int, out: Path) -> "Model":
    import cicpe
    from cicpe.cli.progress import followed

    problem = cicpe.make_problem("binary-search", dim=dim)
    with followed() as watcher:
        return cicpe.train(
            problem,
            epsilon=(0.1, 0.2),
            minutes=minutes,
            actor=actor,
            seed=seed,
            out=out,
            calibration_episodes=CALIBRATION,
            watcher=watcher,
        )


def _compare(agent: "Model", control: "Model", dim: int, seed: int) -> None:
    papers = PAPER.get(dim)
    table = plain_table()
    for heading in ("epsilon", "noise", "agent: accuracy", "queries", "uniform: accuracy", "queries"):
        table.add_column(heading)
    if papers is not None:
        table.add_column("paper: queries")
    notes: list[str] = []
    for i, (epsilon, noise) in enumerate(CELLS):
        row = [f"{epsilon:g}", f"{noise:g}"]
        for model in (agent, control):
            row += _figures(model, epsilon, noise, seed, notes)
        table.add_row(*row, *([] if papers is None else [f"{papers[i]:.1f}"]))
    print_table(table)
    print("In brackets: 95 % intervals.", *dict.fromkeys(notes))
    if papers is not None:
        print("Paper: the best of its agents, trained for each row alone.")
    print()


def _figures(model: "Model", epsilon: float, noise: float, seed: int, notes: list[str]) -> list[str]:
    import cicpe

    try:
        result, mark = cicpe.evaluate(model, epsilon=epsilon, delta=DELTA, noise=noise, episodes=TASKS, seed=seed), ""
    except InvalidInput:
        result, mark = _at_the_horizon(model, epsilon, noise, seed), " *"
        notes.append("* not reliable enough to stop by itself at this delta: run to its horizon.")
    accuracy, queries = interval(result.accuracy_ci, 2), interval(result.mean_queries_ci, 1)
    return [f"{result.accuracy:.3f} ({accuracy}){mark}", f"{result.mean_queries:.1f} ({queries}){mark}"]


def _at_the_horizon(model: "Model", epsilon: float, noise: float, seed: int) -> "Evaluation":
    """What a model reaches with every query that it may make: the fallback where no threshold was safe."""
    import torch

    from cicpe.agents.actors import make_actor
    from cicpe.agents.network_agent import NetworkAgent
    from cicpe.agents.stopping import ConfidenceStop
    from cicpe.evaluation.evaluate import evaluate_agent

    network, about = model.network, model.description
    never = ConfidenceStop(lambda context: torch.full((len(context),), 2.0))
    actor = make_actor(about.training.actor, network.query_space, network.answer_space)
    agent = NetworkAgent(network, actor, never, epsilon, about.horizon, model.calibration.scale)
    return evaluate_agent(agent, model.problem.with_noise(noise), epsilon, DELTA, TASKS, seed)


def _live(model: "Model", figure: Path, seed: int) -> None:
    import torch

    from cicpe.problems import HiddenTasks

    epsilon, noise = CELLS[0]
    rng = torch.Generator().manual_seed(seed)
    hidden = HiddenTasks.draw(model.problem.with_noise(noise), 1, rng)
    try:
        session = model.session(epsilon, DELTA, seed=seed, noise=noise)
    except InvalidInput as error:
        print(f"   No session at this (epsilon, delta): {error}.\n")
        return
    while not session.stopped:
        query = session.ask()
        answer = hidden.observe(torch.from_numpy(query)[None], rng)[0]
        session.tell(answer.tolist())
        signs = " ".join("+" if value > 0 else "-" for value in answer)
        t = len(session.history)
        print(f"   {t:2d}  asked {_point(query)}   heard {signs}   confidence {session.confidence:.2f}")
    why = "the horizon" if session.truncated else "its own choice"
    loss = float(hidden.loss(torch.from_numpy(session.recommendation)[None])[0])
    print(f"   It stopped by {why}, with confidence {session.confidence:.2f}.")
    print(f"       answer {_point(session.recommendation)}")
    print(f"       hidden {_point(hidden.target[0].numpy())}   distance {loss:.3f} (epsilon {epsilon:g})\n")
    _draw(model, hidden, epsilon, figure, seed)


def _point(values: "np.ndarray") -> str:
    return " ".join(f"{value:+.2f}" for value in values)


def _draw(model: "Model", hidden: "HiddenTasks", epsilon: float, path: Path, seed: int) -> None:
    import torch

    from cicpe.evaluation.trajectory import trace_episode
    from cicpe.plots.trajectory import plot_trajectory

    rng = torch.Generator().manual_seed(seed)
    trace = trace_episode(model.agent(epsilon, DELTA), hidden, rng, extra=4)
    title = f"One episode: {trace.stop_time} queries, distance {trace.loss:.3f} (epsilon {epsilon:g})"
    figure = plot_trajectory(
        trace.query,
        trace.mean,
        trace.std,
        target=trace.target,
        stop_time=trace.stop_time,
        confidence=trace.confidence,
        title=title,
    )
    figure.savefig(path, dpi=150)
    note(f"figure: {path}")
