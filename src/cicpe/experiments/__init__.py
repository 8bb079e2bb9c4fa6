"""Experiments in the user's own words: a file that says what is chosen, read, known and asked."""

from cicpe.experiments.experiment import Experiment, read_experiment, template_names, template_path
from cicpe.experiments.faults import ExperimentError, FileFault
from cicpe.experiments.shapes import shape_difference

__all__ = [
    "Experiment",
    "ExperimentError",
    "FileFault",
    "read_experiment",
    "shape_difference",
    "template_names",
    "template_path",
]
