"""The paper's actors as agents, for the figures: those that there are models of, or that take no training."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from figure_parts import HARDEST, ROOT

from cicpe.agents.base import Agent
from cicpe.problems import Problem

sys.path.insert(0, str(ROOT / "benchmarks"))

from actor_models import APART, OWN, PAPER, ActorBudget, agents, model_of, run_in_figures
from actors_page import is_foreign

STOPS = ("calibrated", "own", "never")
"""How an actor may stop, the first that it can."""


class ActorAgent(NamedTuple):
    """An actor at the hardest cell of a family and dimension."""

    agent: Agent
    problem: Problem
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
            model = model_of(run, ActorBudget())
            ways = dict(agents(model, epsilon, noise))
            stop = next(way for way in STOPS if way in ways)
            facts = {"weights": run.weights, "is_foreign": run.is_foreign, "stop": stop}
            yield actor, ActorAgent(ways[stop], run.measured_on(model, noise), epsilon, facts)


def actor_label(row: Mapping[str, Any]) -> str:
    """What a row of docs/results/actors.json is called in a figure: what tells it from others of the same actor."""
    notes = [row["recipe"]] * (row["recipe"] != "fast") + ["own stop"] * (row["stop"] == "own")
    notes += ["on foreign weights"] * is_foreign(dict(row))
    return f"our {row['actor']}" + (f" ({', '.join(notes)})" if notes else "")


def in_paper_order(names: Iterable[str]) -> list[str]:
    """The paper's actors as it lists them, and then all other names as they come."""
    order = list(PAPER)
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def listed(names: Iterable[str]) -> str:
    """Names in a sentence: "ts, ttps and uniform"."""
    *most, last = in_paper_order(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def words_on_actors(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Whose weights the actors of some rows have, and which of them do not stop, in whole sentences."""
    facts = [(row, actor, fact) for row, actors in results.items() for actor, fact in actors.items()]
    shared = {actor for _, actor, fact in facts if fact["weights"] != OWN}
    own = {actor for _, actor, _ in facts} - shared
    foreign = {actor for _, actor, fact in facts if fact["is_foreign"]}
    sources = dict.fromkeys(f"`{fact['weights']}`" for _, _, fact in facts if fact["weights"] != OWN)
    unstopped: dict[str, list[str]] = {}
    for row, actor, fact in facts:
        if fact["stop"] == "never":
            unstopped.setdefault(actor, []).append(row)
    sentences = {
        "On the weights of " + listed(sources) + ", each with thresholds of its own: {}.": shared,
        "Trained apart: {}.": own,
        "Those weights have hardly learned from histories of {} queries, whose figures say more about them than about the actor.": foreign,
        "No threshold was safe enough for {}, and every query was made that may be.": [
            f"{actor} ({', '.join(rows)})" for actor, rows in unstopped.items()
        ],
    }
    return " ".join(text.format(listed(names)) for text, names in sentences.items() if names)
