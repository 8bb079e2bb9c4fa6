"""cicpe: what to measure next, when to stop, and what the answer is.

>>> import cicpe
>>> model = cicpe.load("binary-search-6d")
>>> session = model.session(epsilon=0.1, delta=0.1)

Everything here is imported when it is first used, so that ``import cicpe`` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cicpe._version import __version__

if TYPE_CHECKING:
    from cicpe.api import adapt, evaluate, fit_alarm, recalibrate, train, with_actor
    from cicpe.certification.certificate import Certificate
    from cicpe.certification.certify import certify
    from cicpe.errors import CicpeError, InvalidInput, UnservedWarning
    from cicpe.experiments import Experiment
    from cicpe.model import Model, load
    from cicpe.parallel import Executor
    from cicpe.problems import Problem, make_problem
    from cicpe.problems.observations import Category, Count, Number, YesNo
    from cicpe.problems.per_task import PerTaskProblem
    from cicpe.spaces import Box, Interval, Sphere
    from cicpe.training.callbacks import TrainingCallback

_PLACES = {
    "Box": "cicpe.spaces",
    "Category": "cicpe.problems.observations",
    "Certificate": "cicpe.certification.certificate",
    "CicpeError": "cicpe.errors",
    "Count": "cicpe.problems.observations",
    "Executor": "cicpe.parallel",
    "Experiment": "cicpe.experiments",
    "Interval": "cicpe.spaces",
    "InvalidInput": "cicpe.errors",
    "Model": "cicpe.model",
    "Number": "cicpe.problems.observations",
    "PerTaskProblem": "cicpe.problems.per_task",
    "Problem": "cicpe.problems",
    "Sphere": "cicpe.spaces",
    "TrainingCallback": "cicpe.training.callbacks",
    "UnservedWarning": "cicpe.errors",
    "YesNo": "cicpe.problems.observations",
    "adapt": "cicpe.api",
    "certify": "cicpe.certification.certify",
    "evaluate": "cicpe.api",
    "fit_alarm": "cicpe.api",
    "load": "cicpe.model",
    "make_problem": "cicpe.problems",
    "recalibrate": "cicpe.api",
    "train": "cicpe.api",
    "with_actor": "cicpe.api",
}

__all__ = [
    "Box",
    "Category",
    "Certificate",
    "CicpeError",
    "Count",
    "Executor",
    "Experiment",
    "Interval",
    "InvalidInput",
    "Model",
    "Number",
    "PerTaskProblem",
    "Problem",
    "Sphere",
    "TrainingCallback",
    "UnservedWarning",
    "YesNo",
    "__version__",
    "adapt",
    "certify",
    "evaluate",
    "fit_alarm",
    "load",
    "make_problem",
    "recalibrate",
    "train",
    "with_actor",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'cicpe' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
