"""Recipes: training configurations with a name, chosen for a problem by its properties."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, cast, get_args

from cicpe.beliefs.answers.hidden import has_numbers
from cicpe.beliefs.base import BeliefConfig
from cicpe.beliefs.functions.belief import LATTICE_SIDES, FunctionConfig
from cicpe.beliefs.functions.config import FunctionBeliefConfig
from cicpe.beliefs.network.critic import CriticConfig
from cicpe.beliefs.network.memories.attention import AttentionConfig
from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig
from cicpe.beliefs.network.memories.per_axis import PerAxisConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.memories.regression import RegressionConfig
from cicpe.beliefs.network.network import MemoryConfig, NetworkConfig, PosteriorConfig
from cicpe.beliefs.network.policy import ActorConfig
from cicpe.beliefs.network.posteriors.gaussian import GaussianConfig
from cicpe.beliefs.network.posteriors.mixture import MixtureConfig
from cicpe.beliefs.network.query_rules import ActorName
from cicpe.beliefs.particles.config import ParticleBeliefConfig
from cicpe.beliefs.particles.parametrisation import parameter_count
from cicpe.beliefs.registry import KINDS, config_class
from cicpe.errors import InvalidInput
from cicpe.problems import Problem
from cicpe.problems.structure import Structure, structure_of
from cicpe.spaces import Box, Sphere
from cicpe.training.config import PAPER_NETWORK, PaperConfig, TrainingConfig

IMITATION = 0.1
"""Weight of the term that draws a learned actor to the posterior, where queries and answers share a space: without it
the actor follows what the young critic makes of queries that nobody has made."""
GUIDANCE = 0.1
"""Weight of the term that draws a learned actor to the posterior's upper bound, where queries are no answers."""
KEPT_UNIFORM = 4
"""Rollouts with uniform queries that a replay keeps for a critic that is to tell queries apart."""
LINEAR_ATTENTION = DeltaRuleConfig(hidden=64, heads=2, layers=2, readout="pooling")
"""The backbone of the published algorithm where a linear function explains a task: its delta rule is an online linear
regression, which an LSTM has to learn first."""
MOST_TRIED = 2
"""Computed beliefs that a race tries."""
MOST_PARAMETERS = 12
"""Above, a thousand particles are thinly spread."""
MOST_FUNCTION_QUERIES = 60
"""The horizon of a belief over functions; its work grows with the number of queries."""


class Choice(NamedTuple):
    """A configuration and, in words, why it was chosen."""

    recipe: str
    config: BeliefConfig
    reasons: tuple[str, ...]


class _Plan(NamedTuple):
    memory: MemoryConfig
    learning_rate: float
    why: str


def _memory_for(problem: Problem, facts: Structure) -> _Plan:
    """The belief that fits what a problem looks like."""
    smooth = facts.scalar and not facts.discrete
    if facts.linear and facts.same_spaces:
        memory: MemoryConfig = RegressionConfig(features="linear", estimate="weights")
        return _Plan(memory, 3e-3, "memory regression (linear): a linear function of the query explains a task")
    if smooth and not facts.same_spaces and problem.query_space.dim <= 2:
        estimate: Literal["maximum", "none"] = "maximum" if facts.target_is_best else "none"
        wide = problem.query_space.dim == 2
        memory = RegressionConfig(estimate=estimate, basis=96 if wide else 40, probes=144 if wide else 41)
        return _Plan(memory, 3e-3, "memory regression (Fourier): observations are a function of few query dimensions")
    if smooth and facts.same_spaces and facts.target_is_best and problem.query_space.dim <= 2:
        wide = problem.query_space.dim == 2
        memory = RegressionConfig(estimate="argmax", basis=96 if wide else 40, probes=144 if wide else 41)
        return _Plan(memory, 3e-3, "memory regression (Fourier): the target is a peak in few dimensions")
    if facts.per_coordinate and facts.same_spaces and not (smooth and facts.target_is_best):
        return _Plan(PerAxisConfig(), 8e-3, "memory axis: query, observation and answer have one entry per coordinate")
    if smooth and facts.same_spaces:
        why = "memory attention: scalar observations of a function that is not linear"
        return _Plan(AttentionConfig(layers=3, width=96), 1.5e-3, why)
    return _Plan(RecurrentConfig(hidden=96), 3e-3, "memory gru: nothing seen suggests more structure")


def _posterior_for(memory: MemoryConfig) -> PosteriorConfig:
    """Several modes where the target is a peak: there may be more than one candidate."""
    peak = isinstance(memory, RegressionConfig) and memory.estimate == "argmax"
    return MixtureConfig() if peak else GaussianConfig()


def _actor_for(facts: Structure, memory: MemoryConfig) -> tuple[ActorName, str]:
    """The rule for queries that fits the problem and its belief."""
    if isinstance(memory, RegressionConfig) and memory.features == "linear":
        return "ucb", "of a linear function, the direction that is least known says most"
    if isinstance(memory, RegressionConfig) and memory.estimate == "argmax":
        return "ucb", "the memory knows where the function may be high"
    if facts.same_spaces:
        return "ts", "queries and answers share a space, so a plausible answer is a query"
    if isinstance(memory, RegressionConfig):
        return "ucb", "queries and answers differ, and the memory knows where the function may be high"
    return "uniform", "queries and answers differ, and the memory holds no function"


def _query_spreads(actor: ActorName, memory: MemoryConfig) -> tuple[float, ...]:
    """Spreads (or, for ucb, weights of the standard deviation) to train with; calibration picks the best."""
    match actor:
        case "ucb":
            linear = isinstance(memory, RegressionConfig) and memory.features == "linear"
            return (3.0, 30.0, 1000.0) if linear else (1.0, 1.5, 2.0, 2.5)
        case "ts" | "ttps" | "td3":
            return (0.0, 0.0, 0.5, 1.0)
    return (1.0,)


def fast(problem: Problem, actor: ActorName | None = None) -> Choice:
    """The default: every prefix in one pass, calibrated stop head, lambda-returns, shared memory."""
    facts = structure_of(problem)
    plan = _memory_for(problem, facts)
    chosen, why = _actor_for(facts, plan.memory)
    reasons = (plan.why, f"actor {chosen}: {why}" if actor is None else f"actor {actor}: as asked")
    axes = problem.answer_space.dim if isinstance(plan.memory, PerAxisConfig) else 1
    memory, random_queries, actor_kl = plan.memory, 0.02, 0.0
    if (actor or chosen) in ("td3", "search", "acquisition"):
        # An actor that follows the critic needs a critic that has seen queries of all kinds, relative to the belief.
        random_queries = 0.2
        memory = PerAxisConfig(view="relative") if isinstance(memory, PerAxisConfig) else memory
    if (actor or chosen) == "td3" and facts.same_spaces:
        actor_kl = IMITATION
    # Where X != A no answer is a query: the actor scores the places at which the memory has its function.
    scores = (actor or chosen) == "td3" and not facts.same_spaces and isinstance(memory, RegressionConfig)
    critic = CriticConfig(twin=False, gains=scores)
    config = TrainingConfig(
        network=NetworkConfig(
            memory=memory,
            posterior=_posterior_for(memory),
            critic=critic,
            actor=ActorConfig(scores=True) if scores else None,
        ),
        random_queries=random_queries,
        actor=actor or chosen,
        actor_kl=actor_kl,
        actor_guide=GUIDANCE if scores else 0.0,
        # A small network that is fitted to a known value at every probe, rather than along a gradient of it.
        actor_rate=1.0 if scores else 0.25,
        actor_delay=1 if scores else 2,
        replay_uniform=KEPT_UNIFORM if scores or actor == "acquisition" else 0,
        query_spreads=_query_spreads(actor or chosen, plan.memory),
        learning_rate=plan.learning_rate,
        # A few hundred sequences per update at first, whether they are episodes or their coordinates.
        first_batch=max(32, min(128, 400 // axes)),
        batch=max(64, min(256, 1600 // axes)),
        horizon=max(20, min(problem.horizon, round(1.5 * problem.answer_space.dim))),
    )
    return Choice("fast", config, reasons)


def paper(problem: Problem, actor: ActorName | None = None) -> Choice:
    """The published algorithm, with a memory of its own for the critic.

    What its text leaves open is chosen for minutes on one core (``docs/decisions/0011``).
    """
    same = problem.query_space == problem.answer_space
    chosen: ActorName = actor or ("ts" if same else "td3")
    # A greedy query on a sphere is nearly the one before, and is not made; elsewhere it halves what is left.
    sphere = isinstance(problem.query_space, Sphere)
    spreads = (1.0, 1.0, 2.0, 4.0) if sphere else (0.0, 0.0, 0.5, 1.0)
    imitates = chosen == "td3" and same
    samples = chosen in ("ts", "ttps") or imitates
    first_horizon = max(20, round(1.5 * problem.answer_space.dim))
    network = PAPER_NETWORK
    if structure_of(problem).linear:
        network = network.model_copy(update={"memory": LINEAR_ATTENTION})
    config = PaperConfig(
        network=network,
        actor=chosen,
        # Where X = A the learned actor is Gaussian, and drawn to the posterior.
        actor_kl=IMITATION if imitates else 0.0,
        actor_rate=1.0 if imitates else 0.25,
        query_spreads=spreads if samples else (1.0,),
        deployed_spread=spreads[0] if samples else None,
        random_episodes=0.0,
        random_queries=0.05,
        horizon=min(problem.horizon, first_horizon),
        grow_horizon=True,
        batch=64,
        prefixes=8,
        learning_rate=2e-3,
        polyak=0.03,
        stop_slope=0.05,
        dual_rate=5e-3,
    )
    return Choice("paper", config, ("recipe paper: the published algorithm, for comparison",))


def particles(problem: Problem, actor: ActorName | None = None) -> Choice:
    """No networks: a posterior over the task's parameters by sequential Monte Carlo."""
    if actor is not None:
        raise InvalidInput("actor", actor, "left out with the recipe particles: they choose their own queries")
    likelihood: Literal["exact", "learned"] = "exact" if problem.has_likelihood else "learned"
    config = ParticleBeliefConfig(likelihood=likelihood, horizon=min(problem.horizon, 40))
    return Choice("particles", config, (f"recipe particles: the task has parameters; its likelihood is {likelihood}",))


def functions(problem: Problem, actor: ActorName | None = None) -> Choice:
    """No networks: a belief over functions of few query dimensions, by Gaussian processes."""
    facts = structure_of(problem)
    if not (_is_a_peak(problem, facts) or _is_a_crossing(problem, facts)):
        raise InvalidInput(
            "recipe",
            "functions",
            f"another one: functions needs one real number per observation, at most {max(LATTICE_SIDES)} query "
            "dimensions, and a target that is the place of the largest value, that value, or where a level is crossed",
        )
    loss: Literal["distance", "gap"] = "distance" if problem.has_distance_loss else "gap"
    if facts.crossed_level is not None:
        asked, what = FunctionConfig(answer="crossing", level=facts.crossed_level), "where a level is crossed"
    elif facts.same_spaces:
        asked, what = FunctionConfig(answer="place", loss=loss), "the place of the peak"
    else:
        asked, what = FunctionConfig(answer="height", loss=loss), "the height of the peak"
    config = FunctionBeliefConfig(functions=asked, horizon=min(problem.horizon, MOST_FUNCTION_QUERIES))
    why = (
        f"recipe functions: few query dimensions, and the target is {what}; functions are drawn from Gaussian processes"
    )
    return Choice("functions", config if actor is None else config.with_actor(actor), (why,))


RECIPES: Mapping[str, Callable[[Problem, ActorName | None], Choice]] = {
    "fast": fast,
    "paper": paper,
    "particles": particles,
    "functions": functions,
}


def _is_a_peak(problem: Problem, facts: Structure) -> bool:
    """Whether a belief over functions knows the target, and the loss of every answer."""
    if facts.discrete or problem.query_space.dim not in LATTICE_SIDES or not isinstance(problem.query_space, Box):
        return False
    if facts.same_spaces:
        return facts.target_is_best and (problem.has_distance_loss or facts.loss_is_gap)
    return facts.target_is_height and problem.has_distance_loss


def _is_a_crossing(problem: Problem, facts: Structure) -> bool:
    """Whether a belief over functions knows where the level is crossed."""
    is_line = isinstance(problem.query_space, Box) and problem.query_space.dim == 1
    return facts.crossed_level is not None and is_line and problem.has_distance_loss


def _recipe_for(problem: Problem) -> str:
    """A computed belief where a network would have to search: over parameters, or over functions."""
    facts = structure_of(problem)
    memory = _memory_for(problem, facts).memory
    searches = isinstance(memory, AttentionConfig) or (
        isinstance(memory, RegressionConfig) and memory.estimate in ("argmax", "maximum")
    )
    if not searches:
        return "fast"
    space = problem.parameter_space
    if facts.same_spaces and space is not None and space.dim <= MOST_PARAMETERS and problem.has_likelihood:
        return "particles"
    # A height over one dimension is learned in minutes, and a network is asked in a tenth of the time.
    easy = not facts.same_spaces and problem.query_space.dim == 1
    return "functions" if _is_a_peak(problem, facts) and not easy else "fast"


def candidates(problem: Problem) -> list[Choice]:
    """The kinds of belief that may suit a problem, in the order in which they are tried.

    Args:
        problem: The family.

    Returns:
        The likeliest first.
    """
    facts = structure_of(problem)
    tried = ["answers"] if has_numbers(problem) else []
    if problem.has_likelihood and parameter_count(problem) <= MOST_PARAMETERS:
        tried.insert(0, "particles")
    if len(tried) < MOST_TRIED and (_is_a_peak(problem, facts) or _is_a_crossing(problem, facts)):
        tried.append("functions")
    if not tried and problem.answer_space.dim == 1:
        tried.append("answers")
    # A memory that is made for what is seen comes first; else networks, which learn slowly, come last.
    memory = _memory_for(problem, facts).memory
    fits = isinstance(memory, PerAxisConfig) or (isinstance(memory, RegressionConfig) and memory.features == "linear")
    network_first = fits and problem.answer_space.dim > 1
    return [choose(recipe, problem) for recipe in (["fast", *tried] if network_first else [*tried, "fast"])]


def choose(recipe: str | None, problem: Problem, actor: str | None = None) -> Choice:
    """The configuration to train with, by the name of a recipe or by what suits the problem.

    Args:
        recipe: Its name; None for the one that fits the problem.
        problem: The family to train on.
        actor: How queries are chosen, by name; None leaves that to the recipe.

    Returns:
        The configuration, with the reasons for it in words.
    """
    if actor is not None and actor not in get_args(ActorName):
        raise InvalidInput("actor", actor, f"one of {', '.join(get_args(ActorName))}")
    if recipe is None:
        recipe = "fast" if actor is not None else _recipe_for(problem)
    if recipe not in RECIPES and recipe in KINDS:
        config = config_class(recipe).default_for(problem)
        config = config if actor is None else config.with_actor(actor)
        return Choice(recipe, config, (f"recipe {recipe}: {config.describe()}",))
    if recipe not in RECIPES:
        raise InvalidInput("recipe", recipe, f"one of {', '.join({**RECIPES, **KINDS})}")
    return RECIPES[recipe](problem, cast(ActorName | None, actor))


__all__ = ["RECIPES", "Choice", "candidates", "choose", "fast", "functions", "paper", "particles"]
