"""Learned heads on a computed belief: against values in closed form, and as part of a saved model."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.agents.core import Core, Look
from cicpe.agents.headed_core import HeadedCore, HeadsConfig
from cicpe.agents.records import record
from cicpe.errors import ModelError
from cicpe.problems import HiddenTasks
from cicpe.spaces import Box
from cicpe.training.heads import fit_heads

UNIT = Box([0.0], [1.0])
SUCCESS = (0.2, 0.5, 0.9, 0.92)
"""Of the recommendation after each number of observations, whatever is seen."""
COST = 0.05
# Going on from each prefix and stopping at the best later one, less the cost of the way.
WORTH = [max(SUCCESS[k] - COST * (k - t) for k in range(t + 1, 4)) for t in range(3)]


class Luck(cicpe.Problem):
    """An answer that says "after t observations" is right for the share ``SUCCESS[t]`` of tasks, by their luck."""

    query_space = answer_space = UNIT
    horizon = 3

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand(n, 1, generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return task

    def loss(self, task: Tensor, answer: Tensor) -> Tensor:
        # The answer says after how many observations it is given.
        allowed = torch.tensor(SUCCESS)[(answer[..., 0] * 3).round().long()]
        return torch.where(task[..., 0] <= allowed, 0.0, 1.0)


class Counts(NamedTuple):
    time: Tensor


class Counter(Core):
    """Believes in nothing but the time; ``boldness`` multiplies its log-odds of success."""

    horizon, query_space, answer_space = 3, UNIT, UNIT

    def __init__(self, boldness: float = 1.0) -> None:
        self.boldness = boldness

    def begin(self, context: Tensor) -> Counts:
        return Counts(torch.zeros(len(context), dtype=torch.long))

    def look(
        self,
        state: Counts,
        epsilons: Sequence[float],
        rng: Generator,
        scale: float = 0.0,
        costs: Sequence[Tensor] = (),
    ) -> Look:
        n = len(state.time)
        said = torch.sigmoid(self.boldness * torch.logit(torch.tensor(SUCCESS)))
        confidence = said[state.time].expand(len(epsilons), -1)
        answer = (state.time / 3)[:, None].expand(len(epsilons), -1, -1)
        none, one = torch.zeros(len(epsilons), 0, n), torch.ones(n, 1)
        return Look(state.time, 0 * one, answer, confidence, confidence, none, one)

    def observe(self, state: Counts, query: Tensor, observation: Tensor) -> Counts:
        return Counts(state.time + 1)

    def sample_answers(self, state: Counts, n: int, rng: Generator) -> Tensor:
        return torch.rand(len(state.time), n, 1, generator=rng)

    def tensors(self) -> Mapping[str, Tensor]:
        return {}


def looks(core: Core, cost: float = COST) -> list[Look]:
    """At every prefix of one episode."""
    state, rng, found = core.begin(torch.zeros(1, 0)), torch.Generator().manual_seed(0), []
    for _ in range(4):
        found.append(core.look(state, (0.5,), rng, 0.0, (torch.tensor([cost]),)))
        state = core.observe(state, torch.zeros(1, 1), torch.zeros(1, 1))
    return found


@pytest.fixture(scope="module")
def headed() -> HeadedCore:
    return fit_heads(Counter(), Luck(), (0.4, 0.6), HeadsConfig(episodes=2048), seed=1)


def test_the_value_of_going_on_is_that_of_the_best_later_stop(headed: HeadedCore) -> None:
    found = [float(look.go_value[0, 0]) for look in looks(headed)[:3]]
    assert found == pytest.approx(WORTH, abs=0.04)


def test_the_bellman_rule_stops_where_one_more_query_is_not_worth_it(headed: HeadedCore) -> None:
    hidden = HiddenTasks.draw(Luck(), 10, torch.Generator().manual_seed(3))
    stops = record(headed, hidden, (0.5,), 0.0, torch.Generator().manual_seed(4), (0.005, COST, 0.09)).bellman[0]
    # At 0.05 the third query gains 0.02: stop after two. At 0.005 that is worth its price.
    assert stops[1].int().argmax(dim=-1).tolist() == [2] * 10
    assert stops[0].any(dim=-1).logical_not().all() or (stops[0].int().argmax(dim=-1) == 3).all()


def test_a_bold_belief_is_corrected() -> None:
    bold = Counter(boldness=3.0)
    headed = fit_heads(bold, Luck(), (0.4, 0.6), HeadsConfig(episodes=2048), seed=1)
    said, raw = ([float(look.confidence[0, 0]) for look in looks(core)] for core in (headed, bold))
    assert said == pytest.approx(SUCCESS, abs=0.04)
    assert max(abs(a - b) for a, b in zip(raw, SUCCESS, strict=True)) > 0.1  # it was bold


# As part of a model.

SIZES = {"particles": 128, "prior_particles": 512, "candidates": 12, "lookahead_particles": 64}


def make(**settings: Any) -> cicpe.Model:
    settings = {"particles": SIZES, "horizon": 8, "heads": {"episodes": 128, "updates": 100}, **settings}
    problem = cicpe.make_problem("binary-search", dim=1, noise=0.05)
    asked: dict[str, Any] = {"recipe": "particles", "updates": 20, "epsilon": 0.4, "calibration_episodes": 320}
    return cicpe.train(problem, settings=settings, **asked)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[cicpe.Model, Path]:
    made = make()
    return made, made.save(tmp_path_factory.mktemp("heads") / "model")


@pytest.mark.parametrize("stop", ["confidence", "bellman"])
def test_a_model_with_heads_stops_by_either_rule_and_is_read_as_it_was_saved(
    model: tuple[cicpe.Model, Path], stop: Any
) -> None:
    made, again = model[0], cicpe.load(model[1])
    assert isinstance(again.core, HeadedCore)
    assert again.fingerprint == made.fingerprint
    assert "learned heads" in again.card()
    asked: dict[str, Any] = {"epsilon": 0.4, "delta": 0.4, "episodes": 100, "seed": 9}
    found, same = (cicpe.evaluate(m, stop=stop, **asked) for m in (made, again))
    assert (found.accuracy, found.mean_queries) == (same.accuracy, same.mean_queries)
    assert found.accuracy_ci[1] >= 0.6
    assert found.mean_queries < 8


def test_heads_are_saved_beside_a_learned_likelihood(tmp_path: Path) -> None:
    made = make(likelihood="learned", hidden=8, heads={"episodes": 16, "updates": 2})
    again = cicpe.load(made.save(tmp_path / "model"))
    assert again.sha256 == made.sha256
    ours, theirs = made.core.tensors(), again.core.tensors()
    assert any(name.startswith("heads.") for name in ours)
    assert any(not name.startswith("heads.") for name in ours)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("change", [33, 10**11])
def test_heads_of_another_size_are_refused(model: tuple[cicpe.Model, Path], tmp_path: Path, change: int) -> None:
    folder = shutil.copytree(model[1], tmp_path / "model")
    text = (folder / "config.json").read_text()
    assert text.count('"hidden": 32') == 1
    (folder / "config.json").write_text(text.replace('"hidden": 32', f'"hidden": {change}'))
    with pytest.raises(ModelError):
        cicpe.load(folder)


def test_an_alarm_looks_at_the_belief(model: tuple[cicpe.Model, Path], tmp_path: Path) -> None:
    alarmed = cicpe.fit_alarm(model[0], episodes=32, ranked=99)
    alarmed.save(tmp_path / "model")
    session = cicpe.load(tmp_path / "model").session(0.4, 0.4)
    session.tell([1.0 if session.ask()[0] < 0.3 else -1.0])
    assert session.p_value is not None
    assert 0 < session.p_value <= 1
