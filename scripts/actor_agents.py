"""The paper's actors as agents, for the figures: those that there are models of, or that take no training."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from figure_parts import HARDEST, ROOT, counted

from cicpe.agents.base import Agent
from cicpe.problems import Problem

sys.path.insert(0, str(ROOT / "benchmarks"))

from actor_models import APART, OWN, PAPER, ActorBudget, agents, knows_likelihood, model_of, run_in_figures
from actor_models import Run as Run
from actors_page import is_foreign

QUICK, SLOW = ActorBudget(), ActorBudget(minutes=6, calibration_episodes=1000)
"""Networks play an episode in a millisecond; what computes its posterior takes a good part of a second."""
STOPS = ("calibrated", "own", "never")
"""How an actor may stop, the first that it can."""


class ActorAgent(NamedTuple):
    """An actor at the hardest cell of a family and dimension."""

    agent: Agent
    problem: Problem
    family_tasks: Problem
    """Tasks as in training, also where those that it is measured on are others."""
    epsilon: float
    facts: dict[str, Any]
    """Whose weights it has, and how it stops."""


def actors_at(name: str, ours: Sequence[str] = ()) -> Iterator[tuple[str, ActorAgent]]:
    """The paper's actors, and some of ours, on a family and dimension, by the name that its model has in the zoo."""
    family, dim = name.rsplit("-", 1)
    epsilon, noise = HARDEST[name]
    for actor in (*APART.get(family, tuple(PAPER)), *ours):
        run = run_in_figures(family, int(dim[:-1]), actor)
        if run is not None:
            model = model_of(run, SLOW if is_computed(run) else QUICK)
            ways = dict(agents(model, epsilon, noise))
            stop = next(way for way in STOPS if way in ways)
            facts = {"weights": run.weights, "is_foreign": run.is_foreign, "stop": stop}
            if is_computed(run):
                facts |= {"calibration": model.calibration.episodes, "knows": knows_likelihood(run.weights)}
            family_tasks = model.tasks({"noise": noise})
            yield actor, ActorAgent(ways[stop], run.measured_on(model, noise), family_tasks, epsilon, facts)


def is_computed(run: Run) -> bool:
    """Whether the posterior of a run is computed, and nothing of it was trained to be asked by an actor."""
    return run.recipe in ("particles", "functions")


def actor_label(row: Mapping[str, Any]) -> str:
    """What a row of docs/results/actors.json is called in a figure: what tells it from others of the same actor."""
    notes = [row["recipe"]] * (row["recipe"] != "fast") + ["own stop"] * (row["stop"] == "own")
    notes += ["on foreign weights"] * is_foreign(dict(row)) + [row.get("loss", "")] * bool(row.get("loss"))
    return f"our {row['actor']}" + (f" ({', '.join(notes)})" if notes else "")


def in_paper_order(names: Iterable[str]) -> list[str]:
    """The paper's actors as it lists them, and then all other names as they come."""
    order = list(PAPER)
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def listed(names: Iterable[str]) -> str:
    """Names in a sentence: "ts, ttps and uniform"."""
    *most, last = in_paper_order(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last


Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Row -> actor -> what was measured of it, with whose weights it has and how it stops."""


def actors_with(results: Results, holds: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    """The actors for which something holds; with the rows for which it does, where those are not all."""
    names = []
    for actor in in_paper_order({actor for actors in results.values() for actor in actors}):
        rows = [row for row, actors in results.items() if actor in actors]
        such = [row for row in rows if holds(results[row][actor])]
        if such:
            names.append(actor if such == rows else f"{actor} ({', '.join(such)})")
    return names


def words_on_actors(results: Results) -> str:
    """Whose weights the actors have, and which of them do not stop, in whole sentences."""
    weights = dict.fromkeys(fact["weights"] for actors in results.values() for fact in actors.values())
    sources = listed(f"`{name}`" for name in weights if name != OWN)
    calibration = {fact.get("calibration") for actors in results.values() for fact in actors.values()} - {None}
    chosen = f" (chosen on {counted(calibration)} episodes)" if calibration else ""
    sentences: dict[str, Callable[[Mapping[str, Any]], bool]] = {
        "On the weights of " + sources + ", each with thresholds of its own" + chosen + ": {}.": lambda fact: (
            fact["weights"] != OWN and "calibration" not in fact
        ),
        "With the posterior that "
        + sources
        + " computes, each with thresholds of its own"
        + chosen
        + ": {}.": lambda fact: "calibration" in fact,
        "That posterior knows the likelihood, and not simulations alone: {}.": lambda fact: bool(fact.get("knows")),
        "That posterior knows simulations alone: {}.": lambda fact: fact.get("knows") is False,
        "On weights that were trained with the actor itself: {}.": lambda fact: fact["weights"] == OWN,
        "Weights that have hardly learned from such histories, so that the figures say more about them than about the actor: {}.": lambda fact: (
            fact["is_foreign"]
        ),
        "No threshold was safe enough, and every query was made that may be: {}.": lambda fact: fact["stop"] == "never",
        "With so few episodes that may be for want of evidence alone: {}.": lambda fact: (
            fact["stop"] == "never" and "calibration" in fact
        ),
    }
    named = {text: actors_with(results, holds) for text, holds in sentences.items()}
    return " ".join(text.format(listed(names)) for text, names in named.items() if names)
