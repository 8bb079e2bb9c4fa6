"""``cicpe demo``: the whole job in two or three minutes, from nothing to a live session."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cicpe.cli.arguments import number, seed, whole
from cicpe.cli.output import plain_table, print_table, say
from cicpe.display import amount
from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np

    from cicpe.evaluation.evaluate import Evaluation
    from cicpe.model import Model
    from cicpe.sessions.session import Session

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
    ] = 1.0,
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
    say(f"1. Train an agent for noisy binary search in {amount(dim, 'dimension')}: {minutes:g} min on one thread.")
    agent = _trained("ts", dim, minutes, random_seed, out / "agent")
    share = CONTROL_SHARE * minutes
    say(f"2. Train the control, which queries at random but infers and stops in the same way: {share:g} min.")
    control = _trained("uniform", dim, share, random_seed, out / "uniform")
    say(f"3. Deploy both, frozen, on {TASKS:,} fresh tasks per row. Wanted: accuracy {1 - DELTA:g} or more.")
    _compare(agent, control, dim, random_seed + 1)
    say("4. One live session: the agent asks, we answer, it says when to stop.")
    _live(agent, out / "trajectory.png", random_seed + 2)
    _, delta = agent.best_offer(DELTA)
    say(f"The model is in {out / 'agent'}.")
    if delta is not None:
        say(f"Next:  cicpe evaluate {out / 'agent'} --epsilon 0.15 --delta {delta:g}")


def _trained(actor: str, dim: int, minutes: float, seed: int, out: Path) -> "Model":
    import cicpe
    from cicpe.errors import UnservedWarning
    from cicpe.progress import followed

    problem = cicpe.make_problem("binary-search", dim=dim)
    with followed(True) as callback, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnservedWarning)  # the table below shows what each can
        return cicpe.train(
            problem,
            epsilon=(0.1, 0.2),
            minutes=minutes,
            actor=actor,
            seed=seed,
            out=out,
            calibration_episodes=CALIBRATION,
            callback=callback,
        )


def _compare(agent: "Model", control: "Model", dim: int, seed: int) -> None:
    papers = PAPER.get(dim)
    table = plain_table()
    for heading in ("epsilon", "noise", "agent\naccuracy", "\nqueries", "uniform\naccuracy", "\nqueries"):
        table.add_column(heading, no_wrap=True)
    if papers is not None:
        table.add_column("paper\nqueries")
    notes: list[str] = []
    for i, (epsilon, noise) in enumerate(CELLS):
        row = [f"{epsilon:g}", f"{noise:g}"]
        for model in (agent, control):
            row += _figures(model, epsilon, noise, seed, notes)
        table.add_row(*row, *([] if papers is None else [f"{papers[i]:.1f}"]))
    print_table(table)
    say("   ± is half of a 95 % interval.")
    if papers is not None:
        say("   paper: the best of its agents in each row, with an accuracy of 0.89 or more, trained for that row.")
    for line in dict.fromkeys(notes):
        say(f"   {line}")
    say("")


def _figures(model: "Model", epsilon: float, noise: float, seed: int, notes: list[str]) -> list[str]:
    import cicpe

    try:
        result, mark = cicpe.evaluate(model, epsilon=epsilon, delta=DELTA, noise=noise, episodes=TASKS, seed=seed), ""
    except InvalidInput:
        result, mark = _at_the_horizon(model, epsilon, noise, seed), " *"
        notes.append("* not reliable enough to stop by itself at this delta: it made every query that it may make.")
    accuracy, queries = _half(result.accuracy_ci), _half(result.mean_queries_ci)
    return [f"{result.accuracy:.3f} ±{accuracy:.3f}", f"{result.mean_queries:.1f} ±{queries:.1f}{mark}"]


def _half(interval: tuple[float, float]) -> float:
    return (interval[1] - interval[0]) / 2


def _at_the_horizon(model: "Model", epsilon: float, noise: float, seed: int) -> "Evaluation":
    """What a model reaches with every query that it may make: the fallback where no threshold was safe."""
    from cicpe.evaluation.evaluate import evaluate_agent

    agent = model.unstopped(epsilon)
    return evaluate_agent(agent, model.problem.with_context(noise=noise), epsilon, TASKS, seed)


def _live(model: "Model", figure: Path, seed: int) -> None:
    """Runs one session, prints every step, and draws it."""
    import numpy as np
    import torch

    from cicpe.problems import TaskBatch
    from cicpe.streams import stream

    epsilon, noise = CELLS[0]
    rng = stream(seed, "examples")
    tasks = TaskBatch.draw(model.problem.with_context(noise=noise), 1, rng)
    try:
        session = model.session(epsilon, DELTA, seed=seed, noise=noise)
    except InvalidInput as error:
        say(f"   No session at epsilon {epsilon:g}: {error}.\n")
        return
    beliefs = [(session.recommendation, session.std, session.confidence)]
    while not session.stopped:
        query = session.ask()
        answer = tasks.observe(torch.from_numpy(query)[None], rng)[0]
        session.tell(answer.tolist())
        beliefs.append((session.recommendation, session.std, session.confidence))
        signs = " ".join("+" if value > 0 else "-" for value in answer)
        say(f"  {len(session.history):3d}  asked {_point(query)}  heard {signs}  confidence {session.confidence:.2f}")
    loss = float(tasks.loss(torch.from_numpy(session.recommendation)[None])[0])
    ended = "It ran into its horizon" if session.truncated else "It stopped"
    say(f"   {ended} after {len(session.history)} queries, with confidence {session.confidence:.2f}.")
    say(f"       answer {_point(session.recommendation)}")
    say(f"       hidden {_point(tasks.target[0].numpy())}   distance {loss:.3f} (epsilon {epsilon:g})")
    mean, std, confidence = (np.array(column) for column in zip(*beliefs, strict=True))
    title = f"One session: {len(session.history)} queries, distance {loss:.3f} (epsilon {epsilon:g})"
    _draw(session, mean, std, confidence, tasks.target[0].numpy(), title, figure)
    say(f"       figure {figure}\n")


def _point(values: "np.ndarray") -> str:
    return " ".join(f"{value:+.2f}" for value in values)


def _draw(
    session: "Session",
    mean: "np.ndarray",
    std: "np.ndarray",
    confidence: "np.ndarray",
    target: "np.ndarray",
    title: str,
    path: Path,
) -> None:
    import numpy as np

    from cicpe.plots.trajectory import plot_trajectory

    query = np.array([step.query for step in session.history]).reshape(-1, len(target))
    stop_time = None if session.truncated else len(query)
    drawn = plot_trajectory(query, mean, std, target=target, stop_time=stop_time, confidence=confidence, title=title)
    drawn.savefig(path, dpi=150)
