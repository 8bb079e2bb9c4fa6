"""Families of tasks: the interface, the registered families and how to name one's own."""

from cicpe.problems.base import Problem, Task, TaskBatch
from cicpe.problems.registry import FAMILIES, make_problem, problem_class
from cicpe.problems.spec import ProblemSpec, spec_of

__all__ = [
    "FAMILIES",
    "Problem",
    "ProblemSpec",
    "Task",
    "TaskBatch",
    "make_problem",
    "problem_class",
    "spec_of",
]
