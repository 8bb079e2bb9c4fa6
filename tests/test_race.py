"""Which kind of belief goes on: by held-out queries, not by appearances."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.beliefs.answers.config import AnswerBeliefConfig
from cicpe.beliefs.answers.grid import GridSearch
from cicpe.beliefs.base import FitRequest, FittedBelief
from cicpe.beliefs.budget import Budget
from cicpe.episodes.table import EpisodeTable
from cicpe.problems import Problem, make_problem
from cicpe.race import AHEAD, TABLE, Contender, Race, best_of, chosen_before
from cicpe.scoring import Score, needed
from cicpe.spaces import Box
from cicpe.training.callbacks import TrainingCallback
from cicpe.training.recipes import Choice, candidates


class Slope(Problem):
    """Query and answer are both [0, 1], and different things: the slope of a line through the middle."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    default_epsilon = (0.1, 0.2)
    horizon = 20

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 1), generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return task[:, 0] * (query[:, 0] - 0.5) + 0.05 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task


def test_what_is_made_for_the_structure_comes_first() -> None:
    assert candidates(make_problem("binary-search", dim=6))[0].recipe == "fast"
    assert [choice.recipe for choice in candidates(Slope())] == ["answers", "fast"]
    assert [choice.recipe for choice in candidates(make_problem("ackley", dim=3))] == ["particles", "answers", "fast"]
    # Twenty hidden numbers are too many for a cloud.
    assert [choice.recipe for choice in candidates(make_problem("binary-search", dim=20))] == ["fast"]


def table(success: list[list[int]], confidence: list[list[float]]) -> EpisodeTable:
    loss = 1 - torch.tensor(success, dtype=torch.float32)
    n = len(success)
    return EpisodeTable(
        loss[None], torch.zeros(n, 0), torch.tensor([confidence]), {}, torch.zeros(n, 3, 1), torch.full((n,), 2)
    )


def test_a_belief_is_honest_where_it_is_right_as_often_as_it_says() -> None:
    kept = [[0, 1, 1]] * 92 + [[0, 0, 1]] * 8
    score = Score("answers", 1.0, 1.0, 50, 100, 1.0)
    says_so = needed(table(kept, [[0.1, 0.93, 0.99]] * 100), 0.5, 50)
    assert score._replace(confidence=says_so.confidence, stopped_accuracy=says_so.stopped_accuracy).is_honest
    says_less = needed(table(kept, [[0.1, 0.6, 0.99]] * 100), 0.5, 50)
    assert not score._replace(confidence=says_less.confidence, stopped_accuracy=says_less.stopped_accuracy).is_honest
    assert not score.is_honest


def test_what_a_belief_expects_of_itself_has_no_luck_in_it() -> None:
    unlucky = [[0, 0, 1]] * 100
    expected = needed(table(unlucky, [[0.1, 0.93, 0.99]] * 100), 0.5, 50, by_confidence=True)
    assert expected.queries == pytest.approx(1.0)
    assert needed(table(unlucky, [[0.1, 0.93, 0.99]] * 100), 0.5, 50).queries == pytest.approx(2.0)


def test_a_score_is_the_queries_that_the_accuracy_takes() -> None:
    right = table([[0, 1, 1]] * 40, [[0.1, 0.95, 0.99]] * 40)
    assert needed(right, 0.5, 50)[0] == pytest.approx(1.0)
    wrong = table([[0, 0, 1]] * 20 + [[0, 0, 0]] * 20, [[0.1, 0.95, 0.99]] * 40)
    queries, accuracy, confidence, _ = needed(wrong, 0.5, 50)
    assert math.isnan(confidence)
    assert queries == pytest.approx(75.0)  # beyond the horizon, by how much is missing
    assert accuracy == pytest.approx(0.5)


@pytest.mark.slow
def test_the_better_kind_goes_on_and_the_table_says_so(tmp_path: Path) -> None:
    lines: list[str] = []
    callback = TrainingCallback(on_choice=lines.extend)
    model = cicpe.train(Slope(), minutes=0.25, out=tmp_path / "run", callback=callback)
    saved: dict[str, Any] = json.loads((tmp_path / "run" / TABLE).read_text())
    tried = [(row["belief"], row["query_rule"]) for row in saved["tried"]]
    # An honest posterior is compared with itself at other queries, another one with networks.
    assert tried[0] == ("answers", "information")
    assert len(tried) == 2
    assert tried[1] == ("answers", "agreement") or tried[1][0] == "fast"
    assert saved["chosen"] == model.description.recipe == chosen_before(tmp_path / "run")
    queries = {row["belief"]: row["queries_at_target"] for row in reversed(saved["tried"])}
    reached = {name: value / (AHEAD if name == "fast" else 1) for name, value in queries.items() if value is not None}
    # On a machine that is too slow for any of them, the one that came nearest goes on.
    assert not reached or saved["chosen"] == min(reached, key=reached.__getitem__)
    assert sum(line.startswith("tried ") for line in lines) == 2
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists() or model.description.recipe == "fast"


def test_a_problem_with_one_unknown_is_served() -> None:
    """It was refused: equal boxes looked as if a query were an answer."""
    model = cicpe.train(Slope(), recipe="answers", updates=150, calibration_episodes=400, seed=1)
    assert isinstance(model.description.training, AnswerBeliefConfig)
    result = cicpe.evaluate(model, epsilon=0.2, delta=0.1, episodes=400, seed=3)
    assert result.accuracy_ci[1] >= 0.9
    assert result.mean_queries < 6  # exact Bayes queries an end of the line


def test_what_is_asked_for_is_not_raced() -> None:
    lines: list[str] = []
    model = cicpe.train(Slope(), minutes=0.1, recipe="answers", callback=TrainingCallback(on_choice=lines.extend))
    assert model.description.recipe == "answers"
    assert not any(line.startswith("tried ") for line in lines)


def test_a_kind_that_does_not_apply_says_why() -> None:
    line = Score("answers", float("inf"), 0.0, 0, 0, 1.0, fault="tasks hold more than numbers").line
    assert line == "tried answers: tasks hold more than numbers"


NUMBERS_FAIL = torch.linalg.LinAlgError("not positive-definite")  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [NUMBERS_FAIL, OverflowError("too large")])
def test_a_kind_whose_numbers_fail_leaves_the_race_to_others(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(config: AnswerBeliefConfig, request: FitRequest) -> FittedBelief:
        raise error

    monkeypatch.setattr(AnswerBeliefConfig, "fit", fit)
    problem = Slope()
    request = FitRequest(problem, Budget(minutes=0.05), 0, TrainingCallback())
    race = Race(problem, request, lambda config: config, TrainingCallback(), time.perf_counter(), seed=0)
    score, fitted = race._tried(Choice("answers", AnswerBeliefConfig(), ()))
    assert fitted is None
    assert str(error) in score.line


def contender(recipe: str, queries: float, accuracy: float, episodes: int = 512) -> Contender:
    """Somebody with a horizon of 100 who was scored like this."""
    choice = Choice(recipe, candidates(make_problem("binary-search", dim=2))[0].config, ())
    score = Score(recipe, queries, accuracy, 100, episodes, 50.0)
    fitted = FittedBelief(None, choice.config, 0, 50.0)  # type: ignore[arg-type]
    return Contender(choice, score, fitted)


@pytest.mark.parametrize(
    ("tried", "winner"),
    [
        pytest.param([("fast", 30.0, 0.95), ("answers", 20.0, 0.97)], "answers", id="the fewest queries"),
        pytest.param([("fast", 147.0, 0.53), ("answers", 20.0, 0.97)], "answers", id="one reaches the accuracy"),
        pytest.param([("fast", 147.0, 0.53), ("answers", 138.0, 0.62)], "fast", id="none does, and the order decides"),
        pytest.param([("fast", 195.0, 0.05), ("answers", 138.0, 0.62)], "answers", id="none does, and one is far off"),
        pytest.param(
            [("answers", 150.0, 0.5), ("answers", 145.0, 0.55), ("fast", 140.0, 0.6)],
            "answers",
            id="none does, of three",
        ),
    ],
)
def test_the_order_decides_only_where_nobody_reaches_the_accuracy(
    tried: list[tuple[str, float, float]], winner: str
) -> None:
    best = best_of([contender(*scored) for scored in tried])
    assert best.choice.recipe == winner
    assert best.score.queries == min(queries for recipe, queries, _ in tried if recipe == winner)


def test_a_kind_that_is_too_slow_to_be_calibrated_gives_way() -> None:
    slow, faster = contender("answers", 5.0, 1.0, 8), contender("answers", 4.0, 1.0, 16)
    reached, not_yet, hopeless = (contender("fast", 250 - 200 * share, share) for share in (0.95, 0.5, 0.1))
    assert best_of([slow, reached]) is reached
    assert best_of([slow, not_yet]) is not_yet
    assert best_of([slow, hopeless]) is slow
    assert best_of([slow, faster]) is faster
    honest = slow._replace(score=slow.score._replace(confidence=0.95, stopped_accuracy=0.95))
    assert honest.score.is_honest
    assert not honest.ends_the_race


def test_no_table_no_choice(tmp_path: Path) -> None:
    assert chosen_before(None) is None
    assert chosen_before(tmp_path) is None
    (tmp_path / TABLE).write_text("not JSON")
    assert chosen_before(tmp_path) is None


@pytest.mark.slow
def test_an_interrupted_race_keeps_the_best_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("cicpe.scoring.HONEST", -1.0)  # so that something else is tried

    def interrupt(stage: str, share: float) -> None:
        if stage == "trying fast":
            raise KeyboardInterrupt

    callback = TrainingCallback(on_choice=lines.extend, on_stage=interrupt)
    began = time.perf_counter()
    model = cicpe.train(Slope(), minutes=1.0, out=tmp_path / "run", callback=callback)
    assert model.description.recipe == "answers"
    assert any("interrupted" in line for line in lines)
    assert (tmp_path / "run" / "config.json").exists()
    assert time.perf_counter() - began < 45, "what was left of the minute was not waited for"


def test_an_interrupt_before_anything_is_fitted_leaves() -> None:
    def interrupt(stage: str, share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cicpe.train(Slope(), minutes=0.1, callback=TrainingCallback(on_stage=interrupt))


def test_a_budget_that_is_used_up_still_ends_with_a_fit() -> None:
    """On a busy machine a race of seconds may begin when its time is over."""
    problem, quiet = make_problem("binary-search", dim=1), TrainingCallback()
    request = FitRequest(problem, Budget(minutes=0.02), 0, quiet)
    late = Race(problem, request, lambda config: config, quiet, began=time.perf_counter() - 60, seed=0)
    _, fitted = late.run(candidates(problem)[:1])
    assert late.left < 0
    assert fitted.belief.horizon > 0


class Vertex(Slope):
    """Where a parabola has its vertex: a function of two hidden numbers, neither of which is it."""

    horizon = 10

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 2), generator=rng) * torch.tensor([1.0, 1.0]) + torch.tensor([0.5, 1.0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        x = query[:, 0]
        return task[:, 0] * x - task[:, 1] * x.square() + 0.05 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[:, :1] / (2 * task[:, 1:])


@pytest.mark.parametrize("is_honest", [True, False])
def test_another_search_follows_where_the_first_is_not_right_as_often_as_it_says(
    is_honest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cicpe.scoring.HONEST", 1.0 if is_honest else -1.0)
    problem, quiet = Vertex(), TrainingCallback()
    request = FitRequest(problem, Budget(minutes=0.3), 0, quiet)
    race = Race(problem, request, lambda config: config, quiet, began=time.perf_counter(), seed=0)
    # However busy the machine is, there is time to see what tasks are made of, and to try another search.
    monkeypatch.setattr("cicpe.beliefs.answers.config.LOOK_SHARE", 4.0)
    monkeypatch.setattr(Race, "_has_time", property(lambda self: True))
    searches: list[bool] = []
    scored = race._scored

    def remembered(recipe: str, fitted: FittedBelief, began: float, epsilons: tuple[float, ...]) -> Score:
        searches.append(fitted.config.on_grid)  # type: ignore[attr-defined]
        score = scored(recipe, fitted, began, epsilons)
        return score._replace(confidence=0.92, stopped_accuracy=0.92) if is_honest else score

    monkeypatch.setattr(race, "_scored", remembered)
    race.run([choice for choice in candidates(problem) if choice.recipe == "answers"])
    # Even points first; where they are honest, what follows is another query rule on the same points, else a cloud.
    assert searches == ([True, True] if is_honest else [True, False])


def test_points_that_are_too_far_apart_at_the_smallest_epsilon_alone_are_compared_with_a_cloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is seen of them there counts, not what they say; the cloud is judged at the same epsilons."""
    problem, quiet = Vertex(), TrainingCallback()
    request = FitRequest(problem, Budget(minutes=0.3), 0, quiet)
    race = Race(problem, request, lambda config: config, quiet, began=time.perf_counter(), seed=0)
    monkeypatch.setattr("cicpe.beliefs.answers.config.LOOK_SHARE", 4.0)
    monkeypatch.setattr(Race, "_has_time", property(lambda self: True))
    monkeypatch.setattr(race, "_longer", lambda fitted: fitted)
    played_at: list[tuple[float, ...]] = []

    def play(belief: Any, problem: Problem, epsilons: tuple[float, ...], seconds: float, seed: int) -> EpisodeTable:
        """Sure after one query at the smallest epsilon, where points are right after two alone."""
        played_at.append(epsilons)
        on_points = isinstance(belief.search, GridSearch)
        steps, n = torch.arange(3), 100
        confidence = torch.where(steps > 0, 0.93, 0.1).expand(2, n, 3).contiguous()
        loss = torch.zeros(2, n, 3)
        loss[:, :7] = 2 * epsilons[0]
        if on_points:
            loss[1, :, :2] = 2 * epsilons[0]
        return EpisodeTable(loss, torch.zeros(n, 0), confidence, {}, torch.zeros(n, 3, 1), torch.full((n,), 2))

    monkeypatch.setattr("cicpe.race.played", play)
    chosen = race.run([choice for choice in candidates(problem) if choice.recipe == "answers"])[1]
    low, high = chosen.config.epsilon
    assert set(played_at) == {((low * high) ** 0.5, low)}
    points, _, cloud = race.scores
    assert (points.search, cloud.search) == ("grid", "particles")
    assert (points.is_honest, points.is_honest_at_smallest) == (True, False)
    assert "not right as often as it says" in points.line
    assert points.expected > cloud.expected
    assert chosen.config.search == "particles"


@pytest.mark.parametrize("minutes", [5.0, 0.001])
def test_a_network_is_not_tried_where_it_could_see_too_few_observations(minutes: float) -> None:
    problem, quiet = Slope(), TrainingCallback()
    request = FitRequest(problem, Budget(minutes=minutes), 0, quiet)
    race = Race(problem, request, lambda config: config, quiet, began=time.perf_counter(), seed=0)
    why = race._starved()
    assert (why is None) == (minutes == 5.0)
    assert why is None or why.startswith("skipped, since only ")
