"""``--option`` and ``--set``: options of a problem and of its training, and other tasks than its own for a model."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cicpe
from cicpe.certification.certificate import read_ledger
from cicpe.cli.main import main
from cicpe.cli.tasks import _json_or_text, read_options, read_settings, tasks_of
from commands import Run, assert_refused

FAMILY = """
import torch

import cicpe


class Point(cicpe.Problem):
    \"\"\"A point, from one comparison a query; options say where it lies.\"\"\"

    query_space = answer_space = cicpe.Box([0.0], [1.0])
    horizon = 12

    def __init__(self, low: float = 0.0, sides: tuple[str, ...] = ("left",), note=None, rng: torch.Generator = None):
        self.low, self.options = low, {"low": low, "sides": sides}

    def sample(self, n, rng):
        return self.low + (1 - self.low) * torch.rand(n, 1, generator=rng)

    def observe(self, task, query, rng):
        return (query < task).float()

    def target(self, task):
        return task
"""
TRAIN = ["--updates", "3", "--calibration-episodes", "128"]
ASKED = ["--epsilon", "0.45", "--delta", "0.4", "--episodes", "200"]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("family") / "point.py"
    file.write_text(FAMILY)
    return f"{file}:Point"


@pytest.fixture(scope="module")
def own(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the family above, trained with options."""
    out = tmp_path_factory.mktemp("models") / "own"
    options = ["--option", "low=0.1", "--option", 'sides=["left", "right"]', "--epsilon", "0.45"]
    assert main(["train", family, *options, *TRAIN, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a family with noise, trained with --option in the place of --dim and --noise."""
    out = tmp_path_factory.mktemp("models") / "search"
    options = ["--option", "dim=1", "--option", "noise=[0.05, 0.1]", "--epsilon", "0.9"]
    assert main(["train", "binary-search", *options, *TRAIN, "--out", str(out)]) == 0
    return out


# --- reading ----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
def test_json_is_read_as_such(value: Any) -> None:
    assert _json_or_text(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["held-out", "", "NaN", "-Infinity", "[1", "a=b", "[" * 100_000, "1" * 5000])
def test_anything_else_is_text(text: str) -> None:
    assert _json_or_text(text) == text


def test_options_have_the_types_that_the_class_declares(family: str) -> None:
    pairs = ["low=0", "note=a=b", 'sides=["up"]', "rng=3"]
    options = read_options(family, pairs)
    assert options == {"low": 0.0, "note": "a=b", "sides": ("up",), "rng": 3}
    assert isinstance(options["low"], float)
    assert read_options("no such problem", None) == {}


# --- where a problem is made ------------------------------------------------------------------------


def test_options_reach_the_problem(own: Path) -> None:
    assert cicpe.load(own).description.problem_options == {"low": 0.1, "sides": ["left", "right"]}


def test_an_option_is_the_same_as_its_flag(run: Run, search: Path, tmp_path: Path) -> None:
    flags = ["--dim", 1, "--noise", 0.05, 0.1, "--epsilon", 0.9]
    assert run("train", "binary-search", *flags, *TRAIN, "--out", tmp_path / "m").code == 0
    assert cicpe.load(tmp_path / "m").fingerprint == cicpe.load(search).fingerprint


def test_compare_takes_options(run: Run) -> None:
    pytest.importorskip("optuna", reason="needs the extra baselines")
    asked = ["--noise", 0.1, "--epsilon", 0.2, "--methods", "tpe", "--budget", 4, "--episodes", 20, "--json"]
    done = run("compare", "gp-argmax", "--option", "margin=0.1", *asked)
    assert (done.code, done.json["options"]) == (0, {"margin": 0.1})
    assert_refused(
        run("compare", "gp-argmax", "--option", "margin=wide", *asked), "margin must be", "got 'wide'", "float"
    )


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--option", "colour=red"], ["colour must be", "got 'red'", "takes low, sides, note, rng"]),
        (["--option", "low"], ["option must be", "got 'low'", "KEY=VALUE"]),
        (["--option", "=1"], ["option must be", "got '=1'", "KEY=VALUE"]),
        (["--option", "low=high"], ["low must be", "got 'high'", "float"]),
        (["--option", "sides=1"], ["sides must be", "got 1", "list[str, ...]"]),
        (["--option", "low=0.1", "--option", "low=0.2"], ["option must be", "got 'low=0.2'", "one value of low"]),
    ],
)
def test_bad_options_are_refused(run: Run, family: str, tmp_path: Path, option: list[str], words: list[str]) -> None:
    assert_refused(run("train", family, *option, "--out", tmp_path / "m"), *words)
    assert not (tmp_path / "m").exists()


def test_an_option_is_given_once(run: Run, tmp_path: Path) -> None:
    twice = ["--dim", 2, "--option", "dim=3"]
    assert_refused(
        run("train", "binary-search", *twice, "--out", tmp_path / "m"),
        "dim must be",
        "got 2",
        "--option dim",
        "not both",
    )
    geochem = ["--option", "regions=5"]
    assert_refused(
        run("train", "geochem", *geochem, "--out", tmp_path / "m"), "regions must be", "got 5", "str | list[str, ...]"
    )


# --- where a model is played ------------------------------------------------------------------------


def test_a_model_plays_the_tasks_that_are_asked_for(run: Run, own: Path) -> None:
    model = cicpe.load(own)
    done = run("evaluate", own, *ASKED, "--option", "low=0.8", "--json")
    expected = cicpe.evaluate(
        model, epsilon=0.45, delta=0.4, episodes=200, problem=tasks_of(model, None, ["low=0.8"]).problem
    )
    assert (done.json["accuracy"], done.json["mean_queries"]) == (expected.accuracy, expected.mean_queries)
    assert done.json["options"] == {"low": 0.8, "sides": ["left", "right"]}
    plain = run("evaluate", own, *ASKED, "--json").json
    assert plain["options"] == {"low": 0.1, "sides": ["left", "right"]}
    assert (plain["accuracy"], plain["mean_queries"]) != (expected.accuracy, expected.mean_queries)
    assert "tasks with low = 0.8" in run("evaluate", own, *ASKED, "--option", "low=0.8").out


def test_noise_as_an_option_is_the_noise(run: Run, search: Path) -> None:
    asked = ["evaluate", search, "--epsilon", 0.9, "--delta", 0.4, "--episodes", 100, "--json"]
    flag, option = run(*asked, "--noise", 0.07).json, run(*asked, "--option", "noise=0.07").json
    for key in ("accuracy", "mean_queries", "confidence", "noise"):
        assert flag[key] == option[key]


@pytest.mark.parametrize("command", ["evaluate", "certify", "diagnose", "robustness", "alarm"])
@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--option", "colour=red"], ["colour must be", "got 'red'", "takes dim, noise"]),
        (["--option", "dim=2"], ["option must be", "got 'dim = 2'", "query_space"]),
        (["--option", "noise=0.3"], ["noise must be", "got 0.3", "trained for"]),
        (["--option", "noise=0.07", "--noise", "0.06"], ["noise must be", "got 0.06", "not both"]),
    ],
)
def test_tasks_that_the_model_cannot_play(
    run: Run, search: Path, command: str, option: list[str], words: list[str]
) -> None:
    assert_refused(run(command, search, "--epsilon", 0.9, "--delta", 0.4, *option), *words)
    assert not (search / "certificate.json").exists()


def test_a_certificate_says_on_which_tasks(run: Run, own: Path, tmp_path: Path) -> None:
    asked = ["certify", own, *ASKED, "--option", "low=0.2", "--out", tmp_path / "c.json"]
    done = run(*asked, "--json")
    assert done.code in (0, 1)
    assert "tasks had low = 0.2" in done.json["sentence"]
    assert done.json["problem_options"] == {"low": 0.2, "sides": ["left", "right"]}
    (kept,) = read_ledger(tmp_path / "c.json")
    assert kept.model_dump(mode="json").items() <= done.json.items()


def test_the_other_commands_say_what_was_played(run: Run, own: Path, search: Path, tmp_path: Path) -> None:
    found = run("diagnose", own, *ASKED, "--option", "low=0.2", "--json")
    assert found.json["options"]["low"] == 0.2
    asked = ["--epsilon", 0.9, "--delta", 0.4, "--episodes", 200, "--option", "noise=0.06", "--json"]
    assert run("robustness", search, *asked).json["options"] == {"dim": 1, "noise": 0.06}
    found = run("report", own, *ASKED, "--option", "low=0.2", "--out", tmp_path / "page", "--json")
    assert found.json["options"]["low"] == 0.2
    assert found.json["model_sha256"] == cicpe.load(own).sha256
    page = next((tmp_path / "page").glob("*.html")).read_text()
    assert "low = 0.2" in page


def test_a_report_refuses_options_that_it_cannot_take(run: Run, tmp_path: Path) -> None:
    comparison = tmp_path / "run.json"
    comparison.write_text("{}")
    assert_refused(run("report", comparison, "--option", "a=1", "--out", tmp_path / "p"), "option", "comparison")
    assert not (tmp_path / "p").exists()


def test_a_report_plays_at_the_noise_that_is_asked_for(run: Run, search: Path, tmp_path: Path) -> None:
    asked = ["--epsilon", 0.9, "--delta", 0.4, "--episodes", 100, "--json"]
    option, flag = (
        run("report", search, *asked, "--out", tmp_path / "p", *noise).json
        for noise in (["--option", "noise=0.06"], ["--noise", 0.06])
    )
    assert (option["noise"], flag["noise"]) == (0.06, 0.06)
    assert option["mean_queries"] == flag["mean_queries"]
    assert run("report", search, *asked, "--out", tmp_path / "p").json["noise"] == 0.1


def test_a_moved_family_is_named_with_its_options(run: Run, own: Path, family: str, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.py"
    moved.write_text(FAMILY)
    asked = ["evaluate", own, *ASKED, "--option", "low=0.2", "--json"]
    here, there = run(*asked), run(*asked, "--problem", f"{moved}:Point")
    assert here.json["accuracy"] == there.json["accuracy"]


# Settings of training.


def test_settings_go_into_parts() -> None:
    pairs = ["horizon=7", "network.critic.hidden=8", 'network.memory={"kind": "gru"}', "actor=ttps"]
    network = {"critic": {"hidden": 8}, "memory": {"kind": "gru"}}
    assert read_settings(pairs) == {"horizon": 7, "network": network, "actor": "ttps"}
    assert read_settings(None) == {}


def test_a_setting_changes_what_it_names_and_nothing_else(run: Run, family: str, tmp_path: Path) -> None:
    words = ["train", family, "--epsilon", "0.45", *TRAIN, "--out"]
    changes = ["--set", "network.critic.hidden=8", "--set", 'network.memory={"kind": "gru", "hidden": 12}']
    assert run(*words, str(tmp_path / "plain")).code == 0
    assert run(*words, str(tmp_path / "set"), *changes).code == 0
    plain, changed = (cicpe.load(tmp_path / name).description.training.model_dump() for name in ("plain", "set"))
    assert (changed["network"]["critic"]["hidden"], changed["network"]["memory"]["hidden"]) == (8, 12)
    assert changed["network"]["critic"]["twin"] == plain["network"]["critic"]["twin"]
    assert changed["network"]["posterior"] == plain["network"]["posterior"]
    assert changed | {"network": None} == plain | {"network": None}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (["--set", "colour=red"], ["colour must be", "got 'red'"]),
        (["--set", "network.critic.colour=red"], ["network.critic.colour must be", "got 'red'", "hidden, twin"]),
        (["--set", "network.critic.hiden=3"], ["network.critic.hiden must be", "did you mean hidden?"]),
        (["--minutes", "1"], ["updates must be left out with --minutes", "got 3"]),
        (["--set", "horizon"], ["set must be", "got 'horizon'", "FIELD=VALUE"]),
        (["--set", "network..hidden=3"], ["FIELD=VALUE"]),
        (["--set", "horizon=0"], ["horizon must be", "got 0", "greater than or equal to 1"]),
        (["--set", "horizon=3", "--set", "horizon=4"], ["one value of horizon"]),
        (["--set", "network=3", "--set", "network.critic.hidden=4"], ["network or what is inside it"]),
        (["--set", "network.critic.hidden=4", "--set", "network=3"], ["network or what is inside it"]),
    ],
)
def test_bad_settings_are_refused(run: Run, family: str, tmp_path: Path, setting: list[str], words: list[str]) -> None:
    assert_refused(run("train", family, *TRAIN, "--out", str(tmp_path / "model"), *setting), *words)
