"""Models of a user's own problem: their folders are data, and the problem runs only from where the user says."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import cicpe
from cicpe import zoo
from cicpe.errors import InvalidInput, UnknownProblem
from cicpe.model import Model
from cicpe.problems import make_problem
from commands import Run, assert_refused

FAMILY = """
from pathlib import Path

import torch

import cicpe
import scales

with Path(__file__).with_name("ran.txt").open("a") as ran:
    ran.write("ran\\n")


class Balance(cicpe.Problem):
    query_space = answer_space = cicpe.Box([0.0], [1.0])
    parameter_space = cicpe.Box([0.0], [1.0])
    default_epsilon = (0.45, 0.45)
    horizon = 6

    def __init__(self, slope=50.0):
        self.slope = slope

    def sample(self, n, rng):
        return torch.rand(n, 1, generator=rng)

    def _chance(self, task, query):
        return torch.sigmoid(scales.SIGN * self.slope * (query - task))

    def observe(self, task, query, rng):
        return (torch.rand(len(task), 1, generator=rng) < self._chance(task, query)).float()

    def log_likelihood(self, task, query, observation):
        chance = self._chance(task, query).clamp(1e-6, 1 - 1e-6)
        return (observation * chance.log() + (1 - observation) * (1 - chance).log())[..., 0]

    def target(self, task):
        return task

    def parameters(self, task):
        return task

    def from_parameters(self, parameters, context):
        return parameters
"""
TRAIN = ["--updates", 2, "--calibration-episodes", 128, "--option", "slope=40"]
ASKED = ["--epsilon", 0.45, "--delta", 0.4]
SMALL = ["particles.particles=64", "particles.prior_particles=64", "horizon=2"]


class Bench:
    """A user's folder with a problem file and models of it, trained by the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "work" / "balance.py"
        self.file.parent.mkdir()
        (self.file.parent / "scales.py").write_text("SIGN = 1.0\n")
        self.file.write_text(FAMILY)

    @property
    def place(self) -> str:
        return f"{self.file}:Balance"

    @property
    def runs(self) -> int:
        ran = self.file.with_name("ran.txt")
        return len(ran.read_text().splitlines()) if ran.exists() else 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bench, two models of it and a user's state, to be copied: nothing in it may know where it is."""
    from cicpe.cli.main import main

    bench = Bench(tmp_path_factory.mktemp("bench"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(bench.folder / "state"))
        words = [str(word) for word in ("train", bench.place, *TRAIN)]
        assert main([*words, "--recipe", "fast", "--out", str(bench.folder / "network")]) == 0
        small = [word for setting in SMALL for word in ("--set", setting)]
        assert main([*words, "--recipe", "particles", *small, "--out", str(bench.folder / "particles")]) == 0
    return bench.folder


@pytest.fixture
def bench(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The same user on the same machine, in another process: no class of theirs is in memory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(trained / "state"))
    monkeypatch.setattr("cicpe.problems.spec._class_at_hand", lambda spec: None)
    found = Bench.__new__(Bench)
    found.folder, found.file = trained, trained / "work" / "balance.py"
    yield found
    found.file.parent.mkdir(exist_ok=True)
    found.file.write_text(FAMILY)


@pytest.fixture
def stranger(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same models on the machine of someone else, in a folder with the problem file beside them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CICPE_STORE", str(tmp_path / "campaigns.db"))
    for name in ("network", "particles"):
        shutil.copytree(bench.folder / name, tmp_path / name)
    for name in ("balance.py", "scales.py"):
        shutil.copy(bench.file.with_name(name), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


# A folder from elsewhere.


@pytest.mark.parametrize("name", ["balance.py:Balance", "{here}/balance.py:Balance", "balance:Balance", "this:Balance"])
def test_a_downloaded_folder_runs_nothing(stranger: Path, name: str) -> None:
    for folder in ("network", "particles"):
        path = stranger / folder / "config.json"
        config = json.loads(path.read_text())
        config["problem"] = name.format(here=stranger)
        path.write_text(json.dumps(config))
        weights = stranger / folder / "weights.safetensors"
        rename_in_weights(weights, config)
    session = cicpe.load("./network").session(epsilon=0.45, delta=0.4)
    session.attach([0.5], [1.0])
    with pytest.raises(UnknownProblem):
        _ = cicpe.load("./network").problem
    with pytest.raises(UnknownProblem):
        cicpe.load("./particles")
    assert not (stranger / "ran.txt").exists()


def rename_in_weights(path: Path, config: dict[str, object]) -> None:
    """Makes the weights agree with a config that was changed, as an attacker would."""
    from safetensors.torch import load, save

    from cicpe.model import Description

    identity = Description.model_validate(config | {"files": {}}).identity
    path.write_bytes(save(load(path.read_bytes()), {"belief": identity}))
    config["files"] = {}
    path.with_name("config.json").write_text(json.dumps(config))


def test_every_command_says_what_to_type_and_runs_nothing(run: Run, stranger: Path) -> None:
    for command in ("evaluate", "certify", "diagnose", "robustness", "alarm"):
        done = run(command, "./network", *ASKED)
        assert_refused(done, "never run", f"cicpe {command} ./network", "--problem PATH/balance.py:Balance")
    assert_refused(run("session", "new", "./particles", *ASKED), "cicpe session new ./particles", "--problem PATH/")
    assert not (stranger / "ran.txt").exists()


def test_a_session_of_a_network_runs_from_the_folder_alone(run: Run, stranger: Path) -> None:
    assert run("session", "new", "./network", *ASKED, "--name", "weighing").code == 0
    assert run("session", "attach", "0.5", "1").code == 0
    assert run("session", "status").code == 0
    assert not (stranger / "ran.txt").exists()


def test_a_problem_that_is_named_is_run_and_remembered(run: Run, stranger: Path) -> None:
    named = ["--problem", "./balance.py:Balance"]
    assert run("session", "new", "./particles", *ASKED, *named).code == 0
    assert run("session", "attach", "0.5", "1").code == 0
    assert run("evaluate", "./network", *ASKED, "--episodes", 50).code == 0
    assert (stranger / "ran.txt").exists()


def test_in_python_a_problem_is_given_as_itself_its_class_or_its_name(stranger: Path) -> None:
    by_name = cicpe.load("./particles", problem="balance.py:Balance")
    given = by_name.problem
    assert given.slope == 40  # type: ignore[attr-defined]
    for problem in (given, type(given)):
        session = cicpe.load("./particles", problem=problem).session(epsilon=0.45, delta=0.4)
        assert session.recommendation.shape == (1,)
    with pytest.raises(InvalidInput, match="problem must be the one that this model was trained on"):
        cicpe.load("./network", problem="binary-search")
    with pytest.raises(InvalidInput, match="problem must be one with the model's query_space"):
        cicpe.load("./network", problem=make_problem("binary-search", dim=3), changed_problem=True)


def test_a_folder_can_be_mailed(bench: Bench) -> None:
    for name in ("network", "particles"):
        for path in (bench.folder / name).rglob("*"):
            if path.is_file():
                assert str(bench.folder).encode() not in path.read_bytes(), path
    assert Model.load(bench.folder / "network").description.problem == "balance.py:Balance"


# Who trained it, on the same machine.


def test_what_was_trained_here_is_evaluated_without_naming_it(run: Run, bench: Bench) -> None:
    done = run("evaluate", bench.folder / "network", *ASKED, "--episodes", 50, "--json")
    assert (done.code, done.json["options"]) == (0, {"slope": 40})
    assert run("certify", bench.folder / "particles", *ASKED, "--episodes", 50).code in (0, 1)


def test_a_file_that_was_edited_or_moved_is_said_to_be(run: Run, bench: Bench, tmp_path: Path) -> None:
    asked = ["evaluate", bench.folder / "network", *ASKED, "--episodes", 50]
    bench.file.write_text(FAMILY + "# edited\n")
    runs = bench.runs
    assert_refused(run(*asked), "has been edited since", "--problem")
    assert bench.runs == runs
    assert_refused(run(*asked, "--problem", bench.place), "problem must be", "--changed-problem")
    bench.file.unlink()
    assert_refused(run(*asked), "not there any more", "--problem")


def test_a_changed_problem_is_taken_when_the_user_says_so(run: Run, bench: Bench) -> None:
    asked = ["evaluate", bench.folder / "network", *ASKED, "--episodes", 50]
    bench.file.write_text(FAMILY.replace("SIGN *", "SIGN * 0.5 *"))
    assert run(*asked, "--problem", bench.place, "--changed-problem").code == 0
    again = run(*asked)  # remembered as it is now
    assert (again.code, "another source, which you said to take" in again.err) == (0, True)
    bench.file.write_text(FAMILY)
    assert_refused(run(*asked), "has been edited since")
    assert run(*asked, "--problem", bench.place).code == 0


def test_an_edited_neighbour_is_another_program(run: Run, bench: Bench) -> None:
    scales = bench.file.with_name("scales.py")
    scales.write_text("SIGN = -1.0\n")
    try:
        assert_refused(run("evaluate", bench.folder / "network", *ASKED), "has been edited since")
    finally:
        scales.write_text("SIGN = 1.0\n")


def test_a_campaign_says_that_its_problem_is_gone_and_goes_on_where_it_can(
    run: Run, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CICPE_STORE", str(tmp_path / "campaigns.db"))
    for name in ("network", "particles"):
        assert run("session", "new", bench.folder / name, *ASKED, "--name", name).code == 0
    moved = tmp_path / "work"
    shutil.move(bench.file.parent, moved)
    try:
        done = run("session", "attach", "0.5", "1", "-c", "network")
        assert done.code == 0
        assert "not there any more" in done.err
        refused = run("session", "attach", "0.5", "1", "-c", "particles")
        assert_refused(
            refused, "not there any more", "cicpe session ask -c particles --problem PATH/balance.py:Balance"
        )
        assert (
            run("session", "ask", "-c", "particles", "--problem", moved / "balance.py:Balance").code == 1
        )  # it has stopped
        assert run("session", "attach", "0.5", "1", "-c", "particles").code == 0
    finally:
        shutil.move(moved, bench.file.parent)
        assert run("evaluate", bench.folder / "network", *ASKED, "--episodes", 50, "--problem", bench.place).code == 0


# Names.


def test_a_name_in_the_zoo_means_the_zoo(stranger: Path) -> None:
    name = "binary-search-6d"
    shutil.copytree(stranger / "network", stranger / name)
    assert cicpe.load(name).description.problem == "binary-search"
    assert cicpe.load(f"./{name}").description.problem == "balance.py:Balance"
    assert cicpe.load(Path(name).resolve()).description.problem == "balance.py:Balance"
    assert name in zoo.names()
