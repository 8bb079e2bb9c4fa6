"""A belief over functions as a saved model: made, calibrated, written, read, and refused where it is damaged."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load, save
from scipy.stats import betabinom
from torch import Generator, Tensor

import cicpe
from cicpe.agents.alarm import DOUBTFUL
from cicpe.beliefs.functions.belief import FunctionBelief
from cicpe.errors import ModelError
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.model.folder import WEIGHTS
from cicpe.problems import Problem, ProblemSpec
from cicpe.spaces import Box, Interval
from cicpe.testing import check_agent

SIZES: dict[str, Any] = {"functions": 64, "groups": 4, "candidates": 8}
LENGTH = 10.0
"""Of the line that is searched: not the unit coordinates'."""


@dataclass(frozen=True)
class Hill(Problem):
    """A hill of a random width on a line: where is its top, or how high?"""

    noise: float | tuple[float, float] = (0.05, 0.1)
    gain: float = 1.0
    """What observations are multiplied by."""
    asks: Literal["place", "height"] = "place"
    query_space = Box([0.0], [LENGTH])
    context_names = ("noise",)
    default_epsilon = (0.3, 1.0)

    def __post_init__(self) -> None:
        space = self.query_space if self.asks == "place" else Interval(-5.0, 5.0)
        object.__setattr__(self, "answer_space", space)

    def sample(self, n: int, rng: Generator) -> Tensor:
        low, high = self.noise if isinstance(self.noise, tuple) else (self.noise, self.noise)
        top, width, height, noise = torch.rand((4, n), generator=rng)
        return torch.stack([LENGTH * top, 1 + width, 1 + height, low + (high - low) * noise], dim=1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        top, width, height, noise = task.unbind(dim=1)
        value = height * torch.exp(-((query[:, 0] - top) / width).square() / 2)
        return self.gain * (value + noise * torch.randn(len(query), generator=rng))

    def target(self, task: Tensor) -> Tensor:
        return task[:, 0] if self.asks == "place" else task[:, 2]

    def context(self, task: Tensor) -> Tensor:
        return task[:, 3:]


def make(out: Path | None = None, problem: Problem | None = None, **options: Any) -> cicpe.Model:
    settings = {"functions": SIZES, "horizon": 8, "kinds": 3, **options.pop("settings", {})}
    given: dict[str, Any] = {"recipe": "functions", "updates": 30, "calibration_episodes": 128}
    return cicpe.train(problem or Hill(), out=out, settings=settings, **{**given, **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("functions") / "model"
    make(path)
    return path


def asked(model: cicpe.Model, top: float = 6.5) -> list[list[float]]:
    """A session against one truth: its queries, and its recommendation."""
    session = model.session(1.0, 0.3, noise=0.07)
    while not session.stopped:
        (place,) = session.ask()
        assert 0 <= place <= LENGTH
        session.tell([1.5 * 2.718281828 ** (-((place - top) ** 2) / 4)])
    return [list(step.query) for step in session.history] + [list(session.recommendation)]


# Short budgets.


@pytest.mark.slow
def test_a_short_budget_cuts_queries_that_are_worth_nothing() -> None:
    """With time enough, or by updates, the horizon stays as it was asked for."""
    asked_for = {"settings": {"horizon": 60}, "calibration_episodes": 100}
    short, whole = make(updates=None, minutes=0.05, **asked_for), make(**asked_for)
    assert short.description.horizon < 60
    assert whole.description.horizon == short.description.training.horizon == 60
    found = evaluate_agent(short.unstopped(1.0), Hill(0.07), 1.0, episodes=200, seed=4)
    assert found.accuracy > 0.95


# Saving.


def test_a_saved_model_asks_and_answers_as_before(folder: Path) -> None:
    model, again = cicpe.load(folder), cicpe.load(folder)
    assert isinstance(model.belief, FunctionBelief)
    assert (model.fingerprint, model.sha256) == (again.fingerprint, again.sha256)
    steps = asked(model)
    assert steps == asked(again)
    assert 2 <= len(steps) <= 9
    assert abs(steps[-1][0] - 6.5) < 1.0
    assert (model.description.recipe, model.belief.horizon) == ("functions", 8)
    assert "64 functions of 3 kinds" in model.card()
    with pytest.raises(cicpe.InvalidInput, match="stop"):
        model.agent(1.0, 0.3, "bellman")


@pytest.mark.filterwarnings("ignore::cicpe.UnservedWarning")
def test_other_rules_for_queries_share_the_fit(folder: Path, tmp_path: Path) -> None:
    model = cicpe.load(folder)
    other = cicpe.with_actor(model, "ts", episodes=100)
    assert (model.description.training.query_rule, other.description.training.query_rule) == ("functions", "ts")
    assert other.belief.horizon == model.belief.horizon == 8
    assert all(torch.equal(model.belief.tensors()[name], tensor) for name, tensor in other.belief.tensors().items())
    other.save(tmp_path)
    assert asked(cicpe.load(tmp_path)) == asked(other) != asked(model)


@pytest.mark.filterwarnings("ignore::cicpe.UnservedWarning")
def test_a_rule_is_fitted_with_or_refused() -> None:
    assert tiny(actor="ttps").description.training.query_rule == "ttps"
    with pytest.raises(cicpe.InvalidInput, match="both spaces must be one"):
        tiny(actor="ts", problem=Hill(noise=0.07, asks="height"))


def tiny(**options: Any) -> cicpe.Model:
    """A model in a blink: of one noise level, for two queries."""
    given: dict[str, Any] = {"updates": 6, "calibration_episodes": 100, "epsilon": 1.0, "problem": Hill(noise=0.07)}
    return make(**{**given, **options, "settings": {"horizon": 2, **options.get("settings", {})}})


def test_the_hash_tells_seeds_sizes_and_families_apart() -> None:
    models = [
        tiny(),
        tiny(seed=1),
        tiny(problem=Hill(noise=0.08)),
        tiny(settings={"functions": SIZES | {"functions": 32}}),
    ]
    assert len({model.sha256 for model in models}) == len(models)


def test_updates_and_a_seed_decide_the_model_however_slow_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = tiny()
    ticks = iter(range(0, 10**9, 25))
    monkeypatch.setattr("cicpe.gp.mixture.time.perf_counter", lambda: float(next(ticks)))
    assert tiny().sha256 == usual.sha256


def test_a_session_needs_no_problem(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = asked(cicpe.load(folder))

    def fail(spec: ProblemSpec) -> Problem:
        raise AssertionError(f"{spec.name} was made")

    monkeypatch.setattr(ProblemSpec, "make", fail)
    model = cicpe.load(folder)
    assert asked(model) == expected
    with pytest.raises(AssertionError, match="was made"):
        _ = model.problem


def test_what_was_told_can_be_taken_back(folder: Path) -> None:
    session = cicpe.load(folder).session(0.3, 0.3, noise=0.07)
    first = session.ask()
    session.tell([1.2])
    second = session.ask()
    session.undo()
    assert session.ask() == first
    session.tell([1.2])
    assert session.ask() == second


def copied(folder: Path, to: Path, config: Callable[[dict[str, Any]], object] = lambda data: None) -> Path:
    """Another folder of the same files, with a changed config.json that does not know their hashes."""
    for file in folder.iterdir():
        if file.is_file():
            (to / file.name).write_bytes(file.read_bytes())
    data = json.loads((folder / "config.json").read_text())
    config(data)
    (to / "config.json").write_text(json.dumps(data | {"files": {}}))
    return to


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["training"].update(kinds=4),
        lambda data: data["training"]["functions"].update(functions=128),
        lambda data: data["training"]["functions"].update(answer="height"),
        lambda data: data.update(horizon=5),
        lambda data: data["problem_options"].update(gain=2.0),
    ],
)
def test_a_folder_whose_parts_do_not_belong_together_is_refused(folder: Path, tmp_path: Path, change: Any) -> None:
    with pytest.raises(ModelError, match=r"another belief or problem|does not hold this model's weights"):
        cicpe.load(copied(folder, tmp_path, change))


def test_a_model_that_was_saved_before_a_field_came_is_loaded(folder: Path, tmp_path: Path) -> None:
    """Neither its configuration nor the identity in its weights names the field; another value is another model."""

    path, data = copied(folder, tmp_path), (folder / WEIGHTS).read_bytes()
    said = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    identity = json.loads(said["belief"])
    assert "level" not in identity["training"]["functions"]  # as in models of before there was one
    assert cicpe.load(path).description.identity == said["belief"]
    identity["training"]["functions"]["level"] = 0.0  # its default says nothing
    (path / WEIGHTS).write_bytes(save(load(data), {"belief": json.dumps(identity, sort_keys=True)}))
    assert cicpe.load(path).description.identity == said["belief"]
    identity["training"]["functions"]["level"] = 1.0
    (path / WEIGHTS).write_bytes(save(load(data), {"belief": json.dumps(identity, sort_keys=True)}))
    with pytest.raises(ModelError, match="another belief or problem"):
        cicpe.load(path)


def test_a_folder_with_another_box_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        cicpe.load(copied(folder, tmp_path, lambda data: data["query_space"].update(high=[2 * LENGTH])))


def damaged(folder: Path, to: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    """With other weights, which say that they are this model's."""
    path, data = copied(folder, to) / WEIGHTS, (folder / WEIGHTS).read_bytes()
    tensors = load(data)
    change(tensors)
    said = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    path.write_bytes(save({key: value.contiguous() for key, value in tensors.items()}, said))
    return to


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors["level_J"].fill_(float("nan")), "not finite"),
        (lambda tensors: tensors.pop("spread"), "spread"),
        (lambda tensors: tensors.update(level_J=tensors["level_J"][:2]), "level_J"),
        (lambda tensors: tensors.update(level_J=tensors["level_J"].float()), "level_J"),
        (lambda tensors: tensors.update(other=tensors["level_J"].clone()), "other"),
    ],
)
def test_damaged_weights_are_refused(folder: Path, tmp_path: Path, change: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        cicpe.load(damaged(folder, tmp_path, change))


def test_a_torn_file_is_refused(folder: Path, tmp_path: Path) -> None:
    path = copied(folder, tmp_path) / WEIGHTS
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ModelError):
        cicpe.load(tmp_path)


# Settings.


def test_what_is_set_is_checked() -> None:
    with pytest.raises(cicpe.InvalidInput, match="kinds"):
        make(settings={"kinds": 0})
    with pytest.raises(cicpe.InvalidInput, match="memory"):
        make(settings={"memory": "gru"})
    with pytest.raises(cicpe.InvalidInput, match="certify_every"):
        make(certify_every=1)


def test_a_size_does_not_change_the_question() -> None:
    training = tiny(problem=Hill(0.07, asks="height"), settings={"functions": {"functions": 32}}).description.training
    assert training.kind == "functions"
    assert training.functions.answer == "height"


def test_more_groups_than_functions_are_refused() -> None:
    with pytest.raises(cicpe.InvalidInput, match="groups"):
        tiny(settings={"functions": {"functions": 16, "groups": 32}})


def test_a_height_is_learned_too() -> None:
    settings = {"functions": SIZES | {"answer": "height"}}
    model = make(problem=Hill(0.07, asks="height"), settings=settings, updates=40, epsilon=(0.2, 0.4))
    found = cicpe.evaluate(model, epsilon=0.4, delta=0.3, episodes=200, seed=3)
    assert found.accuracy > 0.6
    assert found.confidence == pytest.approx(found.accuracy, abs=0.15)


# Calibration, conformance, alarm.


def test_it_keeps_the_promises_of_an_agent(folder: Path) -> None:
    model = cicpe.load(folder)
    check_agent(model.agent(1.0, 0.3), model.problem, n=10)
    check_agent(model.unstopped(0.3), model.problem, n=6)


def test_thresholds_can_be_chosen_anew(folder: Path) -> None:
    model = cicpe.load(folder)
    again = cicpe.recalibrate(model, episodes=120, seed=5)
    assert again.belief is model.belief
    assert (again.calibration.episodes, again.calibration.seed) == (120, 5)
    assert again.fingerprint != model.fingerprint
    assert again.sha256 == model.sha256
    found = cicpe.evaluate(again, epsilon=1.0, delta=0.3, episodes=200, seed=9)
    assert found.accuracy > 0.6
    assert found.mean_queries < 8


def test_the_alarm_knows_the_prior_from_another_world(folder: Path, tmp_path: Path) -> None:
    alarmed = cicpe.fit_alarm(cicpe.load(folder), episodes=128, ranked=99)
    alarmed.save(tmp_path / "alarmed")
    again = cicpe.load(tmp_path / "alarmed")

    def p_values(model: cicpe.Model, problem: Problem) -> Tensor:
        found = evaluate_agent(model.unstopped(1.0), problem, 1.0, 120, 11).outcomes.p_value
        assert found is not None
        return found

    at_home, abroad = p_values(again, Hill()), p_values(again, Hill(gain=4.0))
    assert torch.equal(at_home, p_values(alarmed, Hill()))
    # Six are due, where 99 ranked episodes say what is odd.
    assert int((at_home <= DOUBTFUL).sum()) <= betabinom(120, 5, 95).isf(1e-3)
    assert 0.3 < float(at_home.mean()) < 0.7
    assert float((abroad <= 2 * DOUBTFUL).float().mean()) > 0.9
