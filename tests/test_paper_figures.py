"""``scripts/paper_figures.py`` and its parts: what is measured, kept, drawn again, and said below each figure."""

import importlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cicpe
from commands import REPOSITORY

Scripts = Callable[[str], ModuleType]
SHARED = {"weights": "best-arm-5d", "is_foreign": False, "stop": "calibrated"}


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripts:
    """Imports a script by its name; what is kept lies in a folder of the test."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    monkeypatch.setattr(importlib.import_module("paper_figures"), "KEPT", tmp_path / "kept.json")
    return importlib.import_module


def one_actor(agents: ModuleType, name: str, ours: Any) -> Iterator[Any]:
    """In the place of all actors: the zoo's model at d = 5, as if it were ts."""
    if name == "best-arm-5d":
        model = cicpe.load(name)
        tasks = model.tasks({"noise": 0.005})
        yield "ts", agents.ActorAgent(model.agent(0.02, 0.1), tasks, tasks, 0.02, SHARED)


def study(accuracy: float, **facts: Any) -> dict[str, Any]:
    """What is kept of an actor under four priors."""
    value = np.full((2, 2), accuracy)
    panels = [["accuracy", value, value - 0.05, value + 0.05], ["mean queries", 10 * value, value, value]]
    panels += [["lower bound of the accuracy", value - 0.1, None, None], ["upper bound", value, None, None]]
    listed = [[name, *(None if part is None else part.tolist() for part in parts)] for name, *parts in panels]
    grid = {"alphas": [0.5, 1.0], "betas": [0.5, 1.0], "shifted": "rank of the target", "tasks": 40}
    return grid | {"panels": listed} | SHARED | facts


def test_actors_are_measured_kept_and_drawn_again(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figures, stopping, agents = (scripts(name) for name in ("paper_figures", "stopping_figures", "actor_agents"))
    monkeypatch.setattr(stopping, "actors_at", partial(one_actor, agents))
    drawn = figures.draw_study("actors-best-arm", figures.studies(None, 8)["actors-best-arm"], redraw=False)
    assert "n = 8 tasks per curve, seed 30000" in drawn.caption
    assert "On the weights of `best-arm-5d`, each with thresholds of its own: ts." in drawn.caption
    kept = json.loads((tmp_path / "kept.json").read_text())["actors-best-arm"]
    assert list(kept) == ["d = 5"]  # there are no models of the others
    assert len(kept["d = 5"]["ts"]["survival"]) == 3
    monkeypatch.setattr(stopping, "actors_at", lambda *args: pytest.fail("played again"))
    again = figures.draw_study("actors-best-arm", figures.studies(None)["actors-best-arm"], redraw=True)
    assert again.caption == drawn.caption


def test_what_cannot_be_measured_here_stays(scripts: Scripts, tmp_path: Path) -> None:
    """A model of td3 lies on the machine that trained it."""
    figures = scripts("paper_figures")
    (tmp_path / "kept.json").write_text(json.dumps({"a": {"d = 5": {"td3": 1, "ts": 1}, "d = 9": {"ts": 1}}}))
    shown: list[Any] = []
    by_actor = figures.Study(lambda: {"d = 5": {"ts": 2}}, shown.append, is_by_actor=True)
    figures.draw_study("a", by_actor, redraw=False)
    assert shown == [{"d = 5": {"td3": 1, "ts": 2}, "d = 9": {"ts": 1}}]
    assert json.loads((tmp_path / "kept.json").read_text()) == {"a": shown[0]}
    nothing = figures.Study(dict, shown.append, is_by_actor=True)
    assert figures.draw_study("b", nothing, redraw=False) is None
    assert "b" not in json.loads((tmp_path / "kept.json").read_text())


def test_missing_fields_leave_a_figure_as_it_is(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CICPE_CACHE", str(tmp_path))
    figures = scripts("paper_figures")
    name = "robustness-geochem-2d"
    assert figures.draw_study(name, figures.studies(None, 2)[name], redraw=False) is None
    assert "no fitted fields named 'copper'" in capsys.readouterr().out
    (tmp_path / "kept.json").write_text(json.dumps({name: study(0.9)}))
    assert "n = 40 tasks per cell" in figures.draw_study(name, figures.studies(None, 2)[name], redraw=False).caption


def test_heat_maps_have_a_row_per_actor_with_common_colours(scripts: Scripts) -> None:
    foreign = {"is_foreign": True, "stop": "never", "tasks": 20}
    kept = {"binary-search-20d": {"uniform": study(0.2, **foreign), "ts": study(0.9)}}
    figure, caption = scripts("prior_figures").draw_actor_priors("binary-search-20d", kept)
    panels = [panel for panel in figure.axes if panel.get_title(loc="left")]
    assert [panel.get_title(loc="left") for panel in panels] == [
        "ts: accuracy",
        "ts: lower bound of the accuracy",
        "uniform: accuracy",
        "uniform: lower bound of the accuracy",
    ]
    assert [panel.collections[0].get_clim() for panel in panels] == [(0.2, 1.0), (0.0, 1.0)] * 2
    assert "n = 20 to 40 tasks per cell, seed 30000" in caption
    assert "(n = 80 to 160 tasks, each played twice)" in caption
    assert "ts: 9.0 to 9.0 mean queries." in caption
    assert "say more about them than about the actor: uniform." in caption
    assert "every query was made that may be: uniform." in caption


def test_captions_say_whose_weights_they_are(scripts: Scripts) -> None:
    words = scripts("actor_agents").words_on_actors
    apart = SHARED | {"weights": "own"}
    assert words({"d = 5": {"td3": apart, "uniform": SHARED, "ts": SHARED, "ttps": SHARED}}) == (
        "On the weights of `best-arm-5d`, each with thresholds of its own: ts, ttps and uniform. "
        "On weights that were trained with the actor itself: td3."
    )
    computed = SHARED | {"weights": "ackley-3d", "calibration": 400, "knows": True}
    assert words({"d = 3": {"ts": computed}}) == (
        "With the posterior that `ackley-3d` computes, each with thresholds of its own (chosen on 400 episodes): ts. "
        "That posterior knows the likelihood, and not simulations alone: ts."
    )
    # Where an actor has its own weights in one row and others in another, the rows are named.
    mixed = words({"d = 5": {"ts": apart}, "d = 9": {"ts": SHARED | {"stop": "never"}}})
    assert "each with thresholds of its own: ts (d = 9)." in mixed
    assert "with the actor itself: ts (d = 5)." in mixed
    assert mixed.endswith("every query was made that may be: ts (d = 9).")


def test_the_number_of_tasks_can_be_asked_for(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    priors, figures = scripts("prior_figures"), scripts("paper_figures")
    asked = []

    def refuse(agent: Any, problem: Any, epsilon: float, delta: float, episodes: int, *others: Any) -> None:
        asked.append(episodes)
        raise InterruptedError

    monkeypatch.setattr(priors, "played", lambda name: ("agent", "problem", 0.1))
    monkeypatch.setattr(priors, "robustness", refuse)
    for tasks in (7, None):
        with pytest.raises(InterruptedError):
            figures.studies(None, tasks)["robustness-ackley-5d"].measure()
    assert asked == [7, priors.PRIORS["ackley-5d"][1]]


def test_the_main_figure_has_the_paper_beside_the_same_rule(scripts: Scripts) -> None:
    methods, _ = scripts("main_figure").synthetic(("binary-search", 20, 0.1, 0.05))
    ours = next(method for method in methods if method.name == "binary-search-20d")
    assert ours.paper_queries == 22.7  # the zoo's model is a ts agent
    assert "C-ICPE-TS" not in [method.name for method in methods]
    label = scripts("actor_agents").actor_label
    row = {"problem": "gp-max", "actor": "uniform", "recipe": "fast", "stop": "calibrated"}
    assert label(row) == "our uniform"
    assert label(row | {"weights": "gp-max-1d"}) == "our uniform (on foreign weights)"
    assert label(row | {"actor": "td3", "recipe": "paper", "stop": "own"}) == "our td3 (paper, own stop)"
