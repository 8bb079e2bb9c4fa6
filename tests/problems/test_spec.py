"""Problems as data: options that are kept, sources that are hashed, and programs that are not run for the asking."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.errors import InvalidInput, UnknownProblem
from cicpe.problems import ProblemSpec, make_problem, problem_class, spec_of
from cicpe.problems.base import options_of
from cicpe.problems.source import file_digest, source_of
from cicpe.problems.spec import trust_class

FAMILY = """
from pathlib import Path

import torch

import cicpe
{imports}
with Path({ran!r}).open("a") as ran:
    ran.write("ran\\n")


class Step(cicpe.Problem):
    query_space = answer_space = cicpe.Box([0.0], [1.0])

    def __init__(self, slope=50.0, *, noise=0.1):
        self.steepness, self.noise = slope, noise

    def sample(self, n, rng):
        return torch.rand(n, 1, generator=rng)

    def observe(self, task, query, rng):
        return torch.sigmoid(self.steepness * (query - task))

    def target(self, task):
        return task
"""


class OwnFile:
    """A problem file that says when it is run."""

    def __init__(self, folder: Path) -> None:
        self.file, self.ran = folder / "step.py", folder / "ran.txt"
        self.write()

    def write(self, imports: str = "", more: str = "") -> None:
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(FAMILY.format(imports=imports, ran=str(self.ran)) + more)

    @property
    def place(self) -> str:
        return f"{self.file}:Step"

    @property
    def runs(self) -> int:
        return len(self.ran.read_text().splitlines()) if self.ran.exists() else 0


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnFile:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return OwnFile(tmp_path / "own")


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process would see it: no class of a user's own is in memory."""
    monkeypatch.setattr("cicpe.problems.spec._class_at_hand", lambda spec: None)


# Options.


class Plain(cicpe.Problem):
    query_space = answer_space = cicpe.Box([0.0], [1.0])

    def __init__(self, slope: float = 50.0, *levels: float, noise: float = 0.1, **more: Any) -> None:
        self.steepness, self.noise = slope, noise

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand(n, 1, generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return torch.sigmoid(self.steepness * (query - task))

    def target(self, task: Tensor) -> Tensor:
        return task


class Below(Plain):
    def __init__(self, half: float) -> None:
        super().__init__(2 * half, noise=0.2)


def test_options_of_a_class_that_is_no_dataclass_are_kept() -> None:
    assert options_of(Plain()) == {}
    assert options_of(Plain(5.0)) == {"slope": 5.0}
    assert options_of(Plain(5.0, noise=0.3, colour="red")) == {"slope": 5.0, "noise": 0.3, "colour": "red"}
    assert options_of(Below(2.5)) == {"half": 2.5}
    again = Below(**options_of(Below(2.5)))
    assert (again.steepness, again.noise) == (5.0, 0.2)


def test_options_that_have_no_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="levels must be an option with a name"):
        options_of(Plain(5.0, 1.0, 2.0))


def test_a_context_that_was_set_is_among_the_options() -> None:
    set_to = Plain(5.0, noise=0.3).with_context(noise=0.5)
    assert (set_to.noise, options_of(set_to)) == (0.5, {"slope": 5.0, "noise": 0.5})  # type: ignore[attr-defined]
    assert options_of(Plain(5.0)) == {"slope": 5.0}


def test_a_model_is_evaluated_with_the_options_that_it_was_trained_with(own: OwnFile, tmp_path: Path) -> None:
    problem = make_problem(own.place, slope=5.0)
    asked: dict[str, Any] = {"updates": 1, "epsilon": 0.45, "calibration_episodes": 128}
    model = cicpe.train(problem, **asked, out=tmp_path / "model")
    again = cicpe.load(tmp_path / "model").problem
    assert (again.steepness, model.description.problem_options) == (5.0, {"slope": 5.0})  # type: ignore[attr-defined]


# Sources.


def test_a_name_holds_no_place_of_this_machine(own: OwnFile) -> None:
    spec = spec_of(make_problem(own.place))
    assert spec.name == "step.py:Step"
    assert spec.source is not None
    assert spec_of(make_problem("binary-search", dim=2)).source is None


def test_a_source_is_the_text_and_not_its_place(own: OwnFile, tmp_path: Path) -> None:
    first = file_digest(own.file)
    moved = tmp_path / "elsewhere.py"
    moved.write_bytes(own.file.read_bytes())
    assert file_digest(moved) == first
    own.write(more="# edited\n")
    assert file_digest(own.file) != first


def test_neighbours_are_imported_and_hashed_and_the_path_is_put_back(own: OwnFile, tmp_path: Path) -> None:
    (own.file.parent / "levels.py").write_text("from deeper import HIGH\nLEVEL = HIGH\n")
    (own.file.parent / "deeper").mkdir()
    (own.file.parent / "deeper" / "__init__.py").write_text("HIGH = 3\n")
    own.write(imports="from levels import LEVEL")
    before = list(sys.path)
    module = sys.modules[problem_class(own.place).__module__]
    assert (module.LEVEL, sys.path) == (3, before)
    first = file_digest(own.file)
    (own.file.parent / "deeper" / "__init__.py").write_text("HIGH = 4\n")
    assert file_digest(own.file) != first
    # Another file's neighbour of the same name is another module.
    other = OwnFile(tmp_path / "other")
    (other.file.parent / "levels.py").write_text("LEVEL = 5\n")
    other.write(imports="from levels import LEVEL")
    assert sys.modules[problem_class(other.place).__module__].LEVEL == 5


@pytest.mark.parametrize(
    ("imports", "neighbour"),
    [
        ("import deeper.levels", "deeper/levels.py"),  # a package without an __init__.py
        ("from .levels import LEVEL", "levels.py"),
        ("from . import levels", "levels.py"),
    ],
)
def test_whatever_way_a_neighbour_is_imported_it_is_hashed(own: OwnFile, imports: str, neighbour: str) -> None:
    file = own.file.parent / neighbour
    file.parent.mkdir(exist_ok=True)
    file.write_text("LEVEL = 3\n")
    own.write(imports=imports)
    first = file_digest(own.file)
    file.write_text("LEVEL = 4\n")
    assert file_digest(own.file) != first


def test_a_neighbour_takes_no_other_modules_place(own: OwnFile) -> None:
    (own.file.parent / "colorsys.py").write_text("MINE = True\n")
    own.write(imports="from colorsys import MINE")
    import colorsys

    assert sys.modules[problem_class(own.place).__module__].MINE
    assert sys.modules["colorsys"] is colorsys
    assert not hasattr(colorsys, "MINE")


# What is run, and what is not.


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("name", ["{file}:Step", "step.py:Step", "step:Step", "antigravity:Step", ":x", "..:x", "/:x"])
def test_what_a_folder_names_is_never_imported(own: OwnFile, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.file.parent)
    monkeypatch.syspath_prepend(own.file.parent)
    for source in (None, "0" * 64, source_of(problem_class(own.place))):
        runs = own.runs
        with pytest.raises(UnknownProblem, match="--problem") as caught:
            ProblemSpec(name.format(file=own.file), {}, source).make()
        assert own.runs == runs
        assert caught.value.place.startswith("PATH/")
    assert "antigravity" not in sys.modules


def test_a_class_of_this_process_is_found_by_its_source(own: OwnFile) -> None:
    spec = spec_of(make_problem(own.place, slope=4.0))
    runs = own.runs
    assert spec.make().steepness == 4.0  # type: ignore[attr-defined]
    assert own.runs == runs


@pytest.mark.usefixtures("forgotten")
def test_a_trusted_file_is_run_as_long_as_it_is_the_same(own: OwnFile, tmp_path: Path) -> None:
    problem = make_problem(own.place, slope=4.0)
    spec = spec_of(problem)
    assert trust_class(type(problem)) is None
    assert spec.make().steepness == 4.0  # type: ignore[attr-defined]
    own.write(more="# edited\n")
    runs = own.runs
    with pytest.raises(UnknownProblem, match="has been edited since"):
        spec.make()
    own.file.rename(tmp_path / "elsewhere.py")
    with pytest.raises(UnknownProblem, match="is not there any more"):
        spec.make()
    assert own.runs == runs


@pytest.mark.usefixtures("forgotten")
def test_a_trusted_module_is_imported_from_its_own_place_alone(
    own: OwnFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(own.file.parent)
    problem = make_problem("step:Step")
    spec = spec_of(problem)
    assert spec.name == "step:Step"
    assert trust_class(type(problem)) is None
    assert type(spec.make()) is type(problem)
    planted = OwnFile(tmp_path / "planted")
    monkeypatch.syspath_prepend(planted.file.parent)
    monkeypatch.delitem(sys.modules, "step")
    with pytest.raises(UnknownProblem, match="not there any more"):
        spec.make()
    assert planted.runs == 0


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("content", ["", "[]", "{", '{"SOURCE": 3}', '{"SOURCE": {}}', '{"SOURCE": {"file": 3}}'])
def test_a_damaged_list_trusts_nothing(own: OwnFile, tmp_path: Path, content: str) -> None:
    spec = spec_of(make_problem(own.place))
    listed = tmp_path / "state" / "cicpe" / "problems.json"
    listed.parent.mkdir(parents=True)
    listed.write_text(content.replace("SOURCE", str(spec.source)))
    with pytest.raises(UnknownProblem):
        spec.make()


def test_a_list_that_cannot_be_written_says_so(own: OwnFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    failure = trust_class(problem_class(own.place))
    assert failure is not None
    assert "problems.json" in failure


def test_a_changed_program_is_refused_by_its_source(own: OwnFile) -> None:
    spec = spec_of(make_problem(own.place))
    own.write(more="# edited\n")
    with pytest.raises(InvalidInput, match="--changed-problem"):
        spec.check(problem_class(own.place), own.place)
    ProblemSpec(spec.name, {}).check(problem_class(own.place), own.place)  # of a model that knows of no source


def test_one_family_is_known_by_its_source_and_else_by_its_name(own: OwnFile) -> None:
    one, two = spec_of(make_problem(own.place, slope=2)), spec_of(make_problem(own.place))
    assert one.is_of(two)
    assert one.is_of(ProblemSpec("moved.py:Step", {}, one.source))
    assert not one.is_of(ProblemSpec(one.name, {}, "0" * 64))
    assert one.is_of(ProblemSpec(one.name, {}))


def test_a_spec_is_json(own: OwnFile) -> None:
    spec = spec_of(make_problem(own.place, slope=2))
    data = json.loads(json.dumps({"name": spec.name, "options": dict(spec.options), "source": spec.source}))
    assert ProblemSpec(**data) == spec
