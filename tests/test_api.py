"""What a person who works in Python sees: progress, choices, warnings, short reprs, frames and figures."""

import re
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import cicpe
from cicpe.errors import InvalidInput, UnservedWarning
from cicpe.evaluation.evaluate import Evaluation
from cicpe.model import Model
from cicpe.sessions.campaign import Campaign
from cicpe.sessions.session import Session
from cicpe.sessions.stores import open_store
from small_runs import TINY, Seen

RUN: dict[str, Any] = {"updates": 12, "epsilon": (0.3, 0.6), "recipe": "fast", "calibration_episodes": 200}


@pytest.fixture(scope="module")
def model() -> Model:
    return cicpe.load("binary-search-6d")


@pytest.fixture
def session(model: Model) -> Session:
    begun = model.session(epsilon=0.2, delta=0.1)
    begun.tell([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    return begun


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a kernel: IPython is imported, and its shell has one."""
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))


# Progress.


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    cicpe.train(Seen(), **RUN, settings=TINY)
    assert capsys.readouterr() == ("", "")


def test_lines_are_shown_where_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    cicpe.train(Seen(), **RUN, settings=TINY, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "chosen: " in err
    assert "100%" in err
    assert "choosing the stop thresholds" in err


class Terminal:
    """Standard error as a terminal."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("progress", "shown"), [(None, True), (False, False)])
def test_a_terminal_has_a_bar_unless_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, progress: bool | None, shown: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    cicpe.train(Seen(), **RUN, settings=TINY, progress=progress)
    assert ("chosen: " in terminal.text and "100%" in terminal.text) is shown
    assert shown or terminal.text == ""


@pytest.mark.usefixtures("notebook")
def test_a_notebook_has_the_bar_of_tqdm(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import tqdm.std

    module = types.ModuleType("tqdm.auto")
    module.tqdm = tqdm.std.tqdm  # type: ignore[attr-defined]  # the one with widgets needs a real kernel
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    cicpe.train(Seen(), **RUN, settings=TINY)
    err = capsys.readouterr().err
    assert "chosen: " in err
    assert "100%|" in err


@pytest.mark.usefixtures("notebook")
def test_a_notebook_without_tqdm_has_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    cicpe.train(Seen(), **RUN, settings=TINY)
    assert "chosen: " in capsys.readouterr().err


def test_a_callback_takes_the_place_of_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, heard = Terminal(), list[str]()
    monkeypatch.setattr(sys, "stderr", terminal)
    cicpe.train(Seen(), **RUN, settings=TINY, callback=cicpe.TrainingCallback(on_choice=heard.extend))
    assert heard
    assert terminal.text == ""


# Warnings.


def test_a_model_that_cannot_serve_what_was_asked_for_says_so() -> None:
    with pytest.warns(UnservedWarning) as caught:
        cicpe.train(Seen(), **(RUN | {"updates": 1, "epsilon": (0.01, 0.02)}), settings=TINY)
    (message,) = [str(one.message) for one in caught]
    assert "epsilon 0.01 cannot be served at delta 0.1" in message
    assert "What would help" in message
    assert caught[0].filename == __file__


def test_one_that_can_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnservedWarning)
        model = cicpe.train(Seen(), **(RUN | {"epsilon": (2.5, 3.0)}), settings=TINY)  # every answer is that close
    assert model.limits(0.1) is None


def test_the_limits_of_a_model_name_what_it_can(model: Model) -> None:
    assert model.limits(0.1) is None
    table = model.calibration
    column = table.deltas.index(0.1)
    # As if no threshold had been safe below delta 0.2 at the smallest epsilon.
    rows = tuple(((*([None] * (column + 1)), *by[0][column + 1 :]), *by[1:]) for by in table.rules["confidence"])
    fields = {name: getattr(table, name) for name in type(table).model_fields}
    worse = replace(model, calibration=type(table)(**(fields | {"rules": {"confidence": rows}})))
    words = worse.limits(0.1)
    assert words is not None
    assert "epsilon 0.1 cannot be served at delta 0.1" in words
    assert "What it can serve: epsilon 0.2 at delta 0.1" in words


# Short reprs.


def things(model: Model, session: Session, campaign: Campaign) -> Iterator[tuple[Any, tuple[str, ...]]]:
    yield model, ("Model binary-search", "epsilon 0.1 to 0.2", "25 queries")
    yield session, ("Session", "asking after 1 step", "confidence")
    yield campaign, ("Campaign bench", "binary-search-6d", "asking")
    evaluation = cicpe.evaluate(model, epsilon=0.2, delta=0.1, episodes=100)
    yield evaluation, ("Evaluation", "accuracy", "tasks 100")
    certificate = cicpe.certify(model, epsilon=0.2, delta=0.1, episodes=100)
    yield certificate, ("Certificate", "binary-search", "epsilon 0.2")


def test_a_repr_is_short_and_its_html_says_the_same(model: Model, session: Session, tmp_path: Any) -> None:
    store = open_store(tmp_path / "campaigns.db")
    try:
        campaign = Campaign.new(store, model, "binary-search-6d", name="bench", epsilon=0.2, delta=0.1)
        for thing, words in things(model, session, campaign):
            line = repr(thing)
            assert len(line) < 400, line
            assert "\n" not in line
            for word in words:
                assert word in line
            page = thing._repr_html_()
            assert page.startswith("<table>")
            # The same facts, as text.
            assert words[0] in re.sub(r"<[^>]*>", " ", page)
            assert len(page) < 3000
    finally:
        store.close()


def test_nothing_in_a_table_is_taken_for_markup() -> None:
    from cicpe.display import as_table

    assert "<script>" not in as_table("<script>", {"<script>": "<script>"})


# Frames and figures.


def test_a_history_as_a_frame(session: Session) -> None:
    session.correct(1, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    frame = session.to_frame()
    assert len(frame) == 1
    row = frame.iloc[0]
    assert [row[f"a{i}"] for i in range(1, 7)] == list(session.history[0].query)
    assert [row[f"y{i}"] for i in range(1, 7)] == [1.0] * 6
    assert row["first_observation"] == (1.0, -1.0, 1.0, -1.0, 1.0, -1.0)
    assert row["confidence"] == pytest.approx(session.confidence)
    assert row["x3"] == pytest.approx(session.recommendation[2])


def test_an_evaluation_and_a_calibration_as_frames(model: Model) -> None:
    found: Evaluation = cicpe.evaluate(model, epsilon=0.2, delta=0.1, episodes=50)
    frame = found.to_frame()
    assert (frame["loss"] <= 0.2).mean() == pytest.approx(found.accuracy)
    assert frame["queries"].mean() == pytest.approx(found.mean_queries)
    table = model.to_frame()
    cells = sum(len(row) for rules in model.calibration.rules.values() for rows in rules for row in rows)
    assert len(table) == cells
    assert set(table["stop"]) == set(model.calibration.rules)
    one = table[(table["stop"] == "confidence") & (table["epsilon"] == 0.2) & (table["delta"] == 0.1)]
    assert (one["accuracy"] >= 0.9).all()


def test_without_pandas_it_says_how_to_get_it(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInput, match=r"cicpe\[frames\]"):
        session.to_frame()


def test_a_campaign_is_drawn_with_its_interval() -> None:
    session = cicpe.load("gp-max-1d").session(epsilon=0.2, delta=0.1, noise=0.05)
    session.tell(-0.012)
    figure = session.plot()
    measured, believed, sure = figure.axes
    assert measured.get_lines()[0].get_ydata().tolist() == pytest.approx([-0.012])
    assert believed.get_lines()[0].get_ydata()[-1] == pytest.approx(session.recommendation[0])
    assert sure.get_lines()[0].get_ydata()[-1] == pytest.approx(session.confidence)
    (band,) = believed.collections
    edges = band.get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == pytest.approx(
        (
            min(session.credible_region[0][0], edges.min()),
            max(session.credible_region[0][1], edges.max()),
        )
    )
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_what_was_tried_is_kept_with_the_model() -> None:
    lines: list[str] = []
    model = cicpe.train(Seen(), minutes=0.05, epsilon=0.5, callback=cicpe.TrainingCallback(on_choice=lines.extend))
    assert [row["belief"] for row in model.tried] == [
        line.split()[1].rstrip(":") for line in lines if line.startswith("tried ")
    ]
    assert model.description.recipe in [row["belief"] for row in model.tried]
