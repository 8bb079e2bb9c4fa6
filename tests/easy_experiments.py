"""Six kinds of experiment, made easy, so that seconds of training are enough; and whoever measures one."""

import re
from pathlib import Path
from typing import Any

import torch

from cicpe.experiments import template_path
from cicpe.problems import Problem
from cicpe.problems.base import TaskBatch
from cicpe.units import Units

SHORT: dict[str, dict[str, Any]] = {
    "answers": {"recipe": "answers", "updates": 120, "settings": {"hidden": 24, "prior_draws": 2048}},
    "functions": {"recipe": "functions", "updates": 40, "settings": {"kinds": 6, "functions": {"functions": 64}}},
    "particles": {"recipe": "particles", "updates": 1, "settings": {"particles": {"particles": 128}}},
}
"""How ``cicpe.train`` trains in seconds."""
CALIBRATION_EPISODES = 150
EASY: dict[str, tuple[str, dict[str, str]]] = {
    "peak-1d": ("functions", {"noise = [2, 5]": "noise = 1", "within = 5": "within = 20", "few": "one"}),
    "crossing": ("answers", {"noise = [4, 12]": "noise = 4", "within = 15": "within = 60"}),
    "michaelis-menten": ("answers", {"[0.05, 0.3]": "0.05", '"20 %"': '"100 %"'}),
    "psychometric-yes-no": ("answers", {"within = 5": "within = 20", "width = [5, 25]": "width = 4"}),
    "dose-toxicity": ("answers", {'"60 %"': '"200 %"', "of = 3": "of = 20", "width = [4, 60]": "width = 4"}),
    "delay-discounting": (
        "answers",
        {'"50 %"': '"400 %"', "choosiness = { range = [2, 10]": "choosiness = { range = [2, 3]"},
    ),
}
"""Template -> how it is trained in seconds, and what is changed in its file."""


def easy_text(name: str) -> str:
    """The experiment file of a template, made easy."""
    text = template_path(name).read_text(encoding="utf-8").replace("sure = 0.9", "sure = 0.7")
    text = re.sub(r"at_most = \d+", "at_most = 14", text)
    for old, new in EASY[name][1].items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def easy_file(name: str, folder: Path) -> Path:
    """The same as a file."""
    file = folder / f"{name}.toml"
    file.write_text(easy_text(name), encoding="utf-8")
    return file


class Laboratory:
    """Measures one hidden task, in the units of its experiment."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.units: Units = problem.units
        self.rng = torch.Generator().manual_seed(seed)
        self.tasks = TaskBatch.draw(problem, 1, self.rng)

    def measure(self, query: list[float]) -> str:
        """What is read at a query, as people write it."""
        place = torch.tensor([self.units.query_coordinates(query)], dtype=torch.float32)
        seen = float(self.tasks.observe(place, self.rng)[0, 0])
        readout = self.units.readout
        assert readout is not None
        return readout.words(readout.origin + readout.scale * seen)

    def is_right(self, answer: list[float], epsilon: float) -> bool:
        """Whether an answer is within epsilon of the truth."""
        place = torch.tensor([self.units.answer_coordinates(answer)], dtype=torch.float32)
        return float(self.tasks.loss(place)[0]) <= epsilon
