"""Small families over all kinds of observations, queries and answers, written as a user would write them.

No family has a ``log_likelihood``: what an agent learns comes from simulations alone. ``log_p`` is the true one, under a
name that the library does not know, for the exact references. Files go by what is observed.
"""

from collections.abc import Callable
from typing import NamedTuple

from cicpe.agents.base import Agent
from cicpe.baselines.references.conjugate import ConjugateRegression
from cicpe.problems.base import Problem
from cicpe.problems.best_arm import BestArm
from families.base import Family
from families.counts import Decay, EmissionLine, TotalYield
from families.lines import (
    Bell,
    HeavyLine,
    KnownNoise,
    NoisyEdge,
    NumpyThreshold,
    Ramp,
    Resonance,
    Saturated,
    SlowRamp,
    TwoPeaks,
    WaitingTime,
)
from families.places import Bowl, Branin, Clusters, Plane, PolarClusters, Source
from families.vectors import Enzyme, ReferenceChannel
from families.yes_no import Discounting, Dose, FaultyPart, Grade, HalfResponse, Phase, Slope, ThreeSides, Threshold2AFC

__all__ = ["Case", "Family", "cases"]


class Case(NamedTuple):
    """A problem, its two epsilons, and the twin whose likelihood the reference may use, or a reference for an epsilon."""

    problem: Problem
    epsilons: tuple[float, float]
    reference: Family | Callable[[float], Agent]
    about: str
    """Observation; whether a query is an answer; hidden numbers."""


def cases() -> dict[str, Case]:
    """Every family of the battery by name."""
    own: dict[str, tuple[Family, str]] = {
        "dose": (Dose(), "yes/no; X = A; 2"),
        "slope": (Slope(), "yes/no; X != A in equal boxes; 2"),
        "threshold-2afc": (Threshold2AFC(), "yes/no; X = A; 3"),
        "phase": (Phase(), "yes/no; periodic answer; 2"),
        "discounting": (Discounting(), "yes/no; 2-D query, 1-D answer; 2"),
        "grade": (Grade(), "five categories; X = A; 2"),
        "decay": (Decay(), "count; X != A; 1"),
        "emission-line": (EmissionLine(), "count; X = A; 4"),
        "resonance": (Resonance(), "real; unequal boxes; 3"),
        "two-peaks": (TwoPeaks(), "real; several modes; 3"),
        "noisy-edge": (NoisyEdge(), "real; noise depends on the query; 2"),
        "saturated": (Saturated(), "real that saturates; X = A; 2"),
        "heavy-line": (HeavyLine(), "heavy-tailed; X = A; 2"),
        "enzyme": (Enzyme(), "vector of two; X != A; 2"),
        "reference-channel": (ReferenceChannel(), "vector of two that share their noise; X = A; 2"),
        "source": (Source(), "real; X = A, 2-D; 3"),
        "branin": (Branin(), "real; X = A, 2-D, warped; 5"),
        "plane": (Plane(), "real; X != A in equal boxes, 3-D; 4"),
        "bowl": (Bowl(), "real; X = A, 6-D; 7"),
        "half-response": (HalfResponse(), "yes/no; the answer is a function of both; 2"),
        "total-yield": (TotalYield(), "count; the answer is a function of both; 2"),
        "bell": (Bell(), "real; 1-D query, 2-D answer; 3"),
        "waiting-time": (WaitingTime(), "positive over decades; X != A; 2"),
        "faulty-part": (FaultyPart(), "yes/no; finite answers; 2"),
        "known-noise": (KnownNoise(), "real; X = A; a known context; 2"),
        "three-sides": (ThreeSides(), "three yes/no; X = A; 3"),
    }
    battery = {name: Case(problem, problem.epsilons, problem, about) for name, (problem, about) in own.items()}
    places = Clusters()
    about = "real with strays; 2-D, no copula; 2"
    battery["clusters"] = Case(places, places.epsilons, PolarClusters(), about)
    battery["numpy-ramp"] = Case(NumpyThreshold(), (0.05, 0.1), Ramp(), "real; NumPy simulator; 2")
    battery["slow-ramp"] = Case(SlowRamp(), (0.05, 0.1), Ramp(), "real; 5 ms per call; 2")
    arms = BestArm(dim=8, noise=0.3)
    battery["best-arm-8d"] = Case(
        arms, (0.05, 0.1), lambda epsilon: ConjugateRegression(arms, epsilon, 200), "real; sphere; 8"
    )
    return battery
