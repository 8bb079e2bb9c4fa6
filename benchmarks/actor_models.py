"""The models of the paper's actors: each trained on its own, or several on weights that they share.

TS, TTPS and a uniform control all read a posterior and have nothing trained for them, so one model per family and
dimension serves the three: a model of the zoo (a network, with the recipe ``fast``; ``particles`` of Ackley, which know
the likelihood), the belief over functions of resolvable copper regions (``scripts/copper.py train``), or a likelihood
that was learned from simulations with the recipe ``answers`` (of the zoo, where it has one, else the one of TS). TD3 is
trained apart, but on such a likelihood, whose posterior its actor reads. Used by actors.py and, for the figures, by
scripts/actor_agents.py.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

import cicpe
from cicpe import zoo
from cicpe.agents.base import Agent
from cicpe.problems import Problem
from cicpe.training.config import READERS

ROOT = Path(__file__).resolve().parent.parent
RUNS, COPPER = ROOT / "runs" / "actors", ROOT / "runs" / "copper"
CELLS = json.loads((ROOT / "src" / "cicpe" / "baselines" / "published.json").read_text())["cells"]
PAPER = {"ts": "C-ICPE-TS", "ttps": "C-ICPE-TTPS", "td3": "C-ICPE-TD3", "uniform": "C-ICPE-uniform"}
"""The paper's actors, and what its tables call them."""
APART = {"gp-max": ("td3", "uniform"), "geochem": ("ts", "ttps", "td3", "uniform")}
"""Families that not all of the paper's actors apply to."""
FOREIGN = {("binary-search", "uniform"), ("gp-max", "uniform")}
"""Families and actors whose histories are of another kind than those that the shared weights learned from: the queries
that they need say more about the network than about the actor."""
LEARNS = "ts"
"""The actor with which the recipe answers learns a likelihood; others take it over."""
OWN = "own"
SETTINGS: dict[str, dict[str, Any]] = {
    # Every prefix looks at all others: a horizon that grows would leave less training to those that need it most.
    "ackley": {"horizon": 30, "adapt_horizon": False}
}
DELTA = 0.1


class ActorBudget(NamedTuple):
    """What a model may take."""

    minutes: float = 30.0
    """Of training and calibration; of calibration alone, where a learned likelihood is shared."""
    updates: int | None = None
    """In place of minutes."""
    calibration_episodes: int = 8192


@dataclass(frozen=True)
class Run:
    """One model."""

    family: str
    dim: int
    actor: str
    recipe: str
    is_shared: bool = False
    """Whether its weights are those of another model."""

    @property
    def is_made_elsewhere(self) -> bool:
        """Whether scripts/copper.py makes it: of the first split, on the regions whose fields can be resolved."""
        return self.family == "geochem" and self.recipe == "functions"

    @property
    def folder(self) -> Path:
        if self.is_made_elsewhere:
            return COPPER / f"functions-{self.actor}-0"
        shared = "-shared" if self.is_shared else ""
        return RUNS / f"{self.family}-{self.dim}d-{self.actor}-{self.recipe}{shared}"

    @property
    def is_there(self) -> bool:
        return (self.folder / "config.json").exists()

    @property
    def cells(self) -> list[dict[str, Any]]:
        return [cell for cell in CELLS if (cell["problem"], cell["dim"]) == (self.family, self.dim)]

    @property
    def weights(self) -> str:
        """Whose weights they are: its own, or those of a model of the zoo or of another run."""
        if self.is_made_elsewhere:
            return "resolvable of scripts/copper.py"
        if not self.is_shared:
            return OWN
        name = zoo_name(self.family, self.dim, self.recipe)
        return name if name in zoo.names() else self.learned.folder.name

    @property
    def is_foreign(self) -> bool:
        """Whether its weights have hardly seen histories such as it brings about."""
        return self.is_shared and (self.family, self.actor) in FOREIGN

    @property
    def learned(self) -> "Run":
        """The run that learns the likelihood which this one shares."""
        return Run(self.family, self.dim, LEARNS, self.recipe)

    def problem(self) -> Problem:
        """The family that it is trained on, over all noise levels of its cells."""
        if self.family == "geochem":
            return cicpe.make_problem("geochem", regions="train")
        noise = [cell["noise"] for cell in self.cells]
        return cicpe.make_problem(self.family, dim=self.dim, noise=(min(noise), max(noise)))

    def measured_on(self, model: cicpe.Model, noise: float) -> Problem:
        """The family that it is measured on: as it is trained; of copper, the resolvable regions that it has not seen."""
        if self.family == "geochem":
            unseen = {"regions": "held-out", "group": "resolvable", "draws": 0, "twins": 0, "augment": []}
            return model.tasks({"noise": noise}, cicpe.make_problem("geochem", **unseen))
        return model.tasks({"noise": noise})


def recipe_of(actor: str, asked: str | None) -> str:
    """The recipe that trains an actor: TD3 is the published one; the others read a posterior, whoever trained it."""
    return asked or ("paper" if actor == "td3" else "fast")


def run_for(family: str, dim: int, actor: str, recipe: str, shares: bool = True) -> Run:
    """The run of an actor: on shared weights where it may share, and there are any."""
    return Run(family, dim, actor, recipe, shares and _can_share(family, dim, actor, recipe))


def zoo_name(family: str, dim: int, recipe: str) -> str:
    """What the zoo calls the model whose weights a recipe's actors share, if it has one."""
    return f"{family}-{dim}d" + ("-simulator" if recipe == "answers" else "")


def _can_share(family: str, dim: int, actor: str, recipe: str) -> bool:
    name = zoo_name(family, dim, recipe)
    # An actor that learns on a computed posterior leaves its weights as they are.
    readers = (*READERS, "td3") if recipe == "answers" else tuple(READERS)
    if recipe == zoo_recipe(name):
        return actor in readers or actor == _training_of(name)["actor"]
    learns = recipe == "answers" and LEARNS in APART.get(family, tuple(PAPER))
    return learns and actor in readers and actor != LEARNS


def _training_of(name: str) -> dict[str, Any]:
    """The configuration of a model of the zoo."""
    training: dict[str, Any] = json.loads((zoo.folder(name) / "config.json").read_text())["training"]
    return training


def zoo_recipe(name: str) -> str | None:
    """The recipe of a model of the zoo; None where there is no such model."""
    if name not in zoo.names():
        return None
    kind: str = _training_of(name).get("kind", "networks")
    return "fast" if kind == "networks" else kind


def knows_likelihood(name: str) -> bool:
    """Whether a model of the zoo was given its family's likelihood."""
    return name in zoo.names() and _training_of(name).get("likelihood") == "exact"


def run_in_figures(family: str, dim: int, actor: str) -> Run | None:
    """The run that stands for an actor in a figure: one that is there, or that takes no training.

    Shared weights come first, as on the page of results, but for those that know histories of another kind alone.
    """
    zoos = zoo_recipe(f"{family}-{dim}d") or "fast"
    recipes = ["paper"] if actor == "td3" else list(dict.fromkeys(["answers", "fast", zoos]))
    runs = [run_for(family, dim, actor, recipe) for recipe in recipes]
    at_hand_or_quick = [run for run in runs if run.is_there or (run.recipe == zoos and not run.is_made_elsewhere)]
    shared = [run for run in at_hand_or_quick if run.is_shared]
    own = [run for recipe in recipes if (run := Run(family, dim, actor, recipe)).is_there]
    at_hand = own + shared if any(run.is_foreign for run in shared) else shared + own
    return at_hand[0] if at_hand else None


def model_of(run: Run, budget: ActorBudget) -> cicpe.Model:
    """The model of a run, made now if it is not there yet."""
    if run.is_there:
        return cicpe.load(run.folder)
    if run.is_made_elsewhere:
        raise SystemExit(
            f"no {run.folder.name}: scripts/copper.py train --kinds resolvable functions-{run.actor} makes it"
        )
    if run.is_shared and run.weights in zoo.names() and run.actor == _rule_of(cicpe.load(run.weights)):
        return cicpe.load(run.weights)
    make = _share if run.is_shared else _train
    make(run, budget)
    print(f"made {run.folder.name}", flush=True)
    return cicpe.load(run.folder)


def _rule_of(model: cicpe.Model) -> str:
    return model.description.training.query_rule


def _train(run: Run, budget: ActorBudget) -> None:
    epsilon = [cell["epsilon"] for cell in run.cells]
    cicpe.train(
        run.problem(),
        epsilon=(min(epsilon), max(epsilon)),
        minutes=None if budget.updates else budget.minutes,
        updates=budget.updates,
        settings=SETTINGS.get(run.family) if run.recipe == "fast" else None,
        recipe=run.recipe,
        actor=run.actor,
        out=run.folder,
        resume=True,
        calibration_episodes=budget.calibration_episodes,
    )


def _share(run: Run, budget: ActorBudget) -> None:
    """Other queries on the weights of the source. A network plays its episodes in seconds, and is given no limit."""
    is_network = run.recipe == "fast"
    source = cicpe.load(run.weights) if run.weights in zoo.names() else model_of(run.learned, budget)
    minutes = None if is_network or budget.updates else budget.minutes
    cicpe.with_actor(source, run.actor, episodes=budget.calibration_episodes, minutes=minutes).save(run.folder)


def agents(model: cicpe.Model, epsilon: float, noise: float) -> Iterator[tuple[str, Agent]]:
    """How a model stops: calibrated (or not at all, where no threshold was safe enough) and, where it has one, its own."""
    try:
        agent = model.agent(epsilon, DELTA)
        agent.begin(torch.full((1, len(model.description.context_names)), noise))
        yield "calibrated", agent
    except cicpe.InvalidInput:
        yield "never", model.unstopped(epsilon)
    if model.description.training.own_stop is not None:
        yield "own", model.agent(epsilon, DELTA, "own")
