"""Reports: what is measured for them, the pages, and the command."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta

import cicpe
from cicpe.cli.main import main
from cicpe.episodes.table import tabulate_agent
from cicpe.errors import ModelError
from cicpe.evaluation.reliability import spread, survival
from cicpe.plots.style import Array
from cicpe.problems import Problem, TaskBatch, make_problem
from cicpe.problems.ackley import Ackley
from cicpe.reporting.measure import SIDE, default_setting, field_of, training_curves
from cicpe.reporting.model_page import model_report
from cicpe.reporting.page import Report

MODEL = "binary-search-6d"


@pytest.fixture(scope="module")
def made() -> Report:
    model = cicpe.load(MODEL)
    setting = default_setting(model, None, 0.1, None, episodes=150, seed=5)
    return model_report(model, MODEL, setting, Path("nowhere"), with_robustness=True)


@pytest.fixture(scope="module")
def folder(made: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    made.write(out)
    return out


class Links(HTMLParser):
    """Every attribute that makes a browser fetch something, and whether tags are closed in order."""

    VOID = frozenset({"meta", "br", "img", "link", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [(tag, name, value or "") for name, value in attrs if name.split(":")[-1] in ("href", "src")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [(tag, name, value or "") for name, value in attrs if name.split(":")[-1] in ("href", "src")]


def outside(page: str) -> list[str]:
    """What a page would load from elsewhere."""
    reader = Links()
    reader.feed(page)
    assert not reader.open
    links = [value for _, _, value in reader.found if not value.startswith(("#", "data:"))]
    links += [tag for tag, _, _ in reader.found if tag in ("script", "link", "iframe")]
    styled = re.findall(r"url\(([^)]*)\)|@import", page)
    return links + [value for value in styled if not value.startswith("#")] + re.findall(r"https?://\S+", page)


def test_the_page_is_self_contained(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    assert outside(page) == []
    assert "<script" not in page
    assert page.count("<svg") == page.count("<figure") >= 7


def test_a_page_that_loads_something_is_found_out() -> None:
    """The negative control."""
    for bad in ('<img src="a.png">', '<p style="background:url(x.png)"></p>', '<a href="https://example.org">x</a>'):
        assert outside(bad)


def test_the_numbers_of_the_page_are_those_of_the_json(folder: Path) -> None:
    page, numbers = (folder / "index.html").read_text(), json.loads((folder / "report.json").read_text())
    tiles = re.findall(r'<div class="tile"><b>([^<]*)</b>', page)
    assert tiles == [
        f"{numbers['accuracy']:.3f}",
        f"{numbers['mean_queries']:.2f}",
        f"{numbers['median_queries']:g}",
        f"{numbers['truncated']:.1%}",
    ]
    assert "accuracy, {:.3f} to {:.3f}".format(*numbers["accuracy_ci"]) in page
    assert f"<td>{numbers['paper_best']['queries']:g}</td>" in page
    assert f"<td>{numbers['reference_queries']:g}</td>" in page


def test_the_numbers_are_those_of_evaluate(folder: Path) -> None:
    numbers = json.loads((folder / "report.json").read_text())
    asked: dict[str, Any] = {key: numbers[key] for key in ("epsilon", "delta", "noise", "episodes", "seed")}
    assert (asked["epsilon"], asked["noise"]) == (0.2, 0.1)
    result = cicpe.evaluate(cicpe.load(MODEL), **asked)
    assert numbers["accuracy"] == result.accuracy
    assert numbers["mean_queries"] == result.mean_queries
    # The area under the survival curve is the mean.
    assert sum(numbers["survival"]["value"]) == pytest.approx(result.mean_queries, rel=1e-5)
    assert sum(numbers["reliability"]["sizes"]) == asked["episodes"]
    assert {(cell["alpha"], cell["beta"]) for cell in numbers["robustness"]} >= {(1.0, 1.0), (0.5, 3.0)}


def test_every_figure_is_a_file_too(folder: Path) -> None:
    files = {path.stem for path in folder.glob("*.png")}
    assert files >= {"accuracy", "survival", "posterior", "examples", "reliability", "robustness"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))


def test_text_is_escaped() -> None:
    assert "<b>&lt;script&gt;" not in Report("<script>", "&", [], {}).html()
    assert "&lt;script&gt;" in Report("<script>", "&", [], {}).html()


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "best-arm-5d", "--out", str(tmp_path / "out"), "--episodes", "40", "--seed", "3", "--json"]
    assert main(words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["page"] == str(tmp_path / "out" / "index.html")
    assert (printed["episodes"], printed["seed"], printed["robustness"]) == (40, 3, None)
    assert outside(Path(printed["page"]).read_text()) == []


COMPARISON = {
    "problem": "best-arm",
    "dim": 5,
    "noise": 0.01,
    "epsilon": 0.02,
    "delta": 0.1,
    "seed": 0,
    "budget": 5,
    "budget_from": "as given",
    "reference_queries": 5.0,
    "left_out": {"tpe": "needs a box & more"},
    "rows": [
        {
            "method": name,
            "tasks": 100,
            "accuracy": accuracy,
            "accuracy_ci": [accuracy - 0.05, accuracy + 0.02],
            "mean_queries": queries,
            "mean_queries_ci": [queries - 0.5, queries + 0.5],
            "seconds_per_query": 0.00123,
            "batched_seconds_per_query": 0.0001,
            "truncated": 0.0,
            "paper_accuracy": None,
            "paper_queries": 7.3,
            "versus_ours": None,
        }
        for name, accuracy, queries in (("best-arm-5d", 0.917, 4.78), ("track-and-stop", 0.96, 5.0))
    ],
}


def test_a_comparison_is_reported_without_playing(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(COMPARISON))
    assert main(["report", str(file), "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert outside(page) == []
    for text in ("<td>0.917</td>", "<td>4.78</td>", "<td>4.28 to 5.28</td>", "<td>1.23</td>", "needs a box &amp; more"):
        assert text in page
    assert json.loads((tmp_path / "out" / "report.json").read_text())["rows"] == COMPARISON["rows"]


@pytest.mark.parametrize("text", ["{", "[]", '{"rows": []}', json.dumps(COMPARISON | {"rows": []})])
def test_another_file_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.json"
    file.write_text(text)
    assert main(["report", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "cicpe compare --json" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_survival_is_the_share_that_goes_on() -> None:
    curve = survival(torch.tensor([0, 1, 1, 3]))
    np.testing.assert_allclose(curve.value, [0.75, 0.25, 0.25, 0.0])
    assert curve.low[0] == pytest.approx(beta.ppf(0.025, 3, 2))
    assert (curve.high[3], curve.low[3]) == (pytest.approx(beta.ppf(0.975, 1, 4)), 0.0)


def test_beliefs_go_on_past_the_stop() -> None:
    model = cicpe.load(MODEL)
    beliefs = tabulate_agent(model.agent(0.2, 0.1), model.tasks({"noise": 0.1}), episodes=20, steps=18, seed=0)
    assert beliefs.loss_BT.shape == (20, 19)
    assert bool(beliefs.stop_BT.any())
    curve = spread(beliefs)
    assert (curve.low <= curve.value).all()
    assert (curve.value <= curve.high).all()
    assert curve.value[-1] < curve.value[0] / 5


def test_a_training_log_is_read(tmp_path: Path) -> None:
    assert training_curves(tmp_path) is None
    lines: list[dict[str, Any]] = [{"update": i, "inference": 1 / (i + 1), "actor": 0.0} for i in range(10)]
    lines.append({"look": True, "update": 9, "seconds": 120.0, "accuracy": 0.9, "queries": 4.5})
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = training_curves(tmp_path)
    assert curves is not None
    assert (curves.minutes.tolist(), curves.accuracy.tolist(), list(curves.losses)) == ([2.0], [0.9], ["inference"])
    np.testing.assert_allclose(curves.losses["inference"], 1 / (np.arange(10) + 1))


@pytest.mark.parametrize("line", ["{", "[]", '{"update": "x"}', '{"look": true}\n{"update": 1}', "[" * 100_000, "\xff"])
def test_a_damaged_training_log_is_refused_by_its_name(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_text('{"look": true, "seconds": 1, "accuracy": 1, "queries": 1}\n' + line)
    with pytest.raises(ModelError, match=r"log\.jsonl"):
        training_curves(tmp_path)


def one(problem: Problem) -> TaskBatch:
    return TaskBatch.draw(problem, 1, torch.Generator().manual_seed(3))


def test_a_task_in_the_plane_is_a_field_without_noise() -> None:
    problem = Ackley(2, noise=0.3)
    tasks = one(problem)
    field = field_of(tasks)
    assert field is not None
    best: Array = np.stack(np.unravel_index([field.value.argmax(), field.loss.argmin()], (SIDE, SIDE)), axis=1)
    grid = np.linspace(-1, 1, SIDE)
    for first, second in best:  # the first coordinate is the first index
        np.testing.assert_allclose([grid[first], grid[second]], tasks.target[0], atol=0.02)
    place = torch.tensor([[grid[10], grid[70]]], dtype=torch.float32)
    assert field.value[10, 70] == pytest.approx(float(problem.value(tasks.task, place)), abs=1e-5)
    assert field.loss[10, 70] == pytest.approx(float(tasks.loss(place)), abs=1e-5)


class Coin(cicpe.Problem):
    """Its noise is its own affair: it cannot be left out."""

    query_space = answer_space = cicpe.Box([0.0, 0.0], [1.0, 1.0])

    def sample(self, n: int, rng: torch.Generator) -> torch.Tensor:
        return torch.rand((n, 2), generator=rng)

    def observe(self, task: torch.Tensor, query: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        return (torch.rand(len(query), generator=rng) < 0.5).float()

    def target(self, task: torch.Tensor) -> torch.Tensor:
        return task


@pytest.mark.parametrize(
    "problem",
    [
        Coin(),
        Ackley(3),
        make_problem("binary-search", dim=2),
        make_problem("gp-max", dim=2),
        make_problem("gp-argmax"),
        make_problem("best-arm", dim=2),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_what_is_no_field_is_not_drawn_as_one(problem: Problem) -> None:
    assert field_of(one(problem)) is None
