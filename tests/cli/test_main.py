"""The command line: what it prints where, its exit codes, and every kind of bad input."""

import dataclasses
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cicpe
from cicpe.calibration.table import Calibration, ThresholdCell
from cicpe.cli import demo
from cicpe.cli.arguments import one_or_two, spread_ranges
from cicpe.cli.main import main
from cicpe.errors import InvalidInput
from cicpe.model import Model
from commands import REPOSITORY, Done, Run, assert_refused

TRAIN = ["train", "binary-search", "--dim", "1", "--noise", "0.05", "0.1", "--epsilon", "0.5", "0.9", "--updates", "6"]
TRAIN += ["--calibration-episodes", "256"]
EVALUATE_KEYS = [
    *("problem", "dim", "noise", "epsilon", "delta", "actor", "stop", "episodes", "accuracy", "accuracy_ci"),
    *("mean_queries", "mean_queries_ci", "median_queries", "truncated", "seconds"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has hardly been trained, for epsilons so large that it is reliable all the same."""
    out = tmp_path_factory.mktemp("models") / "tiny"
    assert main([*TRAIN, "--out", str(out)]) == 0
    return out


# --- starting ---------------------------------------------------------------------------------------


def test_help_is_quick_and_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "from cicpe.cli.main import main\n"
        "assert main(['--help']) == 0\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Of the processor, not of the clock: other tests run at the same time.
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
    assert "evaluate" in done.stdout
    assert min(times) < 0.5


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "problems",
        "train",
        "evaluate",
        "certify",
        "calibrate",
        "diagnose",
        "robustness",
        "alarm",
        "compare",
        "report",
        "session",
        "sweep",
        "zoo",
    ],
)
def test_every_command_has_help(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert done.code == 0
    assert f"cicpe {command}" in done.out


def test_version(run: Run) -> None:
    assert run("--version") == Done(0, f"cicpe {cicpe.__version__}\n", "")


@pytest.mark.parametrize("program", [["-m", "cicpe"], [str(Path(sys.executable).with_name("cicpe"))]])
def test_the_module_and_the_script_pass_the_exit_code_on(program: list[str]) -> None:
    for arguments, code in ((["--version"], 0), (["nothing"], 2)):
        done = subprocess.run([sys.executable, *program, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done


# --- arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("train p --noise 0.05 0.1 --out x", "train p --noise 0.05 --noise 0.1 --out x"),
        ("train p --noise 0.05 --out 3", "train p --noise 0.05 --out 3"),
        ("train --epsilon=0.1 0.2 p", "train --epsilon=0.1 --epsilon 0.2 p"),
        ("train --epsilon -1 -2 -3 p", "train --epsilon -1 --epsilon -2 --epsilon -3 p"),
        ("train --noise --epsilon 1 2", "train --noise --epsilon 1 --epsilon 2"),
        ("evaluate m --epsilon 0.1 0.2", "evaluate m --epsilon 0.1 0.2"),
        ("", ""),
    ],
)
def test_ranges_become_repeated_options(given: str, expected: str) -> None:
    assert spread_ranges(given.split()) == expected.split()


def test_one_value_or_two() -> None:
    assert one_or_two("noise", None) is None
    assert one_or_two("noise", [0.1]) == 0.1
    assert one_or_two("noise", [0.1, 0.2]) == (0.1, 0.2)
    for bad in ([0.1, 0.2, 0.3], [0.2, 0.1], [float("nan")], [0.1, float("inf")]):
        with pytest.raises(InvalidInput, match="noise must be "):
            one_or_two("noise", bad)


# --- problems and zoo -------------------------------------------------------------------------------


def test_problems_are_listed(run: Run) -> None:
    done = run("problems", "--json")
    assert (done.code, done.err) == (0, "")
    rows = {row["name"]: row for row in json.loads(done.out)["problems"]}
    assert {"binary-search", "best-arm", "ackley", "gp-max"} <= set(rows)
    search = rows["binary-search"]
    assert search["options"] == {"dim": 6, "noise": [0.025, 0.1]}
    assert (search["query_dim"], search["answer_dim"], search["context"]) == (6, 6, ["noise"])
    assert search["query_space"] == {"kind": "box", "low": [-1.0] * 6, "high": [1.0] * 6, "dim": 6}
    assert search["about"].startswith("Locate a point")
    for name in rows:
        assert name in run("problems").out


def test_the_zoo_is_listed(run: Run) -> None:
    done = run("zoo", "list", "--json")
    assert done.code == 0
    assert isinstance(json.loads(done.out)["models"], list)
    assert run("zoo", "list").code == 0


def test_a_model_shows_its_card(run: Run, folder: Path) -> None:
    done = run("zoo", "show", folder)
    assert done.code == 0
    assert done.out == (folder / "card.md").read_text()
    assert_refused(run("zoo", "show", "nothing-9d"), "model must be", "got 'nothing-9d'")


def test_a_card_cannot_speak_to_the_terminal(run: Run, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / "card.md").write_bytes(b"# \x1b]0;a title\x07 \xff\n")
    assert run("zoo", "show", tmp_path / "m").out == "# ?]0;a title? \N{REPLACEMENT CHARACTER}\n"


# --- train and evaluate -----------------------------------------------------------------------------


def test_train_says_what_was_made(run: Run, tmp_path: Path) -> None:
    done = run(*TRAIN, "--out", tmp_path / "m", "--seed", 3, "--json")
    assert done.code == 0
    summary = json.loads(done.out)
    assert summary["out"] == str(tmp_path / "m")
    assert (summary["problem"], summary["updates"], summary["seed"]) == ("binary-search", 6, 3)
    assert summary["options"] == {"dim": 1, "noise": [0.05, 0.1]}
    assert summary["epsilon"] == [0.5, 0.9]
    assert summary["sha256"] == cicpe.load(tmp_path / "m").sha256
    assert {row["delta"] for row in summary["calibrated"]} == {0.1}
    assert "chosen: memory" in done.err


def test_train_names_the_next_command(run: Run, tmp_path: Path) -> None:
    done = run(*TRAIN, "--out", tmp_path / "m")
    assert done.code == 0
    assert f"The model is in {tmp_path / 'm'}" in done.out
    following = re.search(r"Next: +cicpe (.*)", done.out)
    assert following is not None
    assert run(*following[1].split(), "--episodes", 64).code == 0


def test_evaluate_json_has_the_agreed_keys(run: Run, folder: Path) -> None:
    done = run("evaluate", folder, "--epsilon", 0.9, "--delta", 0.4, "--episodes", 200, "--json")
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    assert set(EVALUATE_KEYS) <= set(result)
    assert (result["problem"], result["dim"], result["noise"]) == ("binary-search", 1, [0.05, 0.1])
    assert (result["epsilon"], result["delta"], result["episodes"]) == (0.9, 0.4, 200)
    assert (result["actor"], result["stop"]) == ("ts", "confidence")
    assert result["accuracy_ci"][0] <= result["accuracy"] <= result["accuracy_ci"][1]
    assert result["reached"] == (result["accuracy"] >= 0.6)


def test_evaluate_at_one_noise_and_the_same_seed(run: Run, folder: Path) -> None:
    command = ("evaluate", folder, "--epsilon", 0.7, "--delta", 0.4, "--noise", 0.07, "--episodes", 100, "--json")
    first, second = (json.loads(run(*command).out) for _ in range(2))
    first.pop("seconds"), second.pop("seconds")
    assert first == second
    assert first["noise"] == 0.07


def test_evaluate_for_people(run: Run, folder: Path) -> None:
    done = run("evaluate", folder, "--epsilon", 0.9, "--delta", 0.4, "--episodes", 100)
    assert (done.code, done.err) == (0, "")
    for words in ("binary-search, 1 dimension, noise 0.05 to 0.1", "accuracy", "queries", "95 % interval"):
        assert words in done.out


# --- folders that are taken, and runs that go on ----------------------------------------------------


def test_a_finished_model_is_not_trained_over(run: Run, folder: Path) -> None:
    before = (folder / "weights.safetensors").read_bytes()
    assert_refused(run(*TRAIN, "--out", folder), "out must be ", str(folder), "--resume", "--overwrite")
    assert (folder / "weights.safetensors").read_bytes() == before


def test_overwrite_replaces_and_resume_goes_on(run: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(folder, out)
    before = cicpe.load(out).sha256
    assert run(*TRAIN, "--out", out, "--resume").code == 0
    assert cicpe.load(out).sha256 == before  # the run was over: nothing changes
    assert_refused(run(*TRAIN, "--out", out, "--resume", "--seed", 5), "seed was 0, is 5")
    assert run(*TRAIN, "--out", out, "--overwrite", "--seed", 5).code == 0
    assert cicpe.load(out).sha256 != before
    assert_refused(run(*TRAIN, "--out", out, "--overwrite", "--resume"), "overwrite must be left out with --resume")


def test_resume_needs_a_checkpoint_where_a_model_could_be_lost(run: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(folder, out)
    (out / "checkpoint.safetensors").unlink()
    assert_refused(run(*TRAIN, "--out", out, "--resume"), "resume must be ", "a finished model")


def test_a_file_is_no_folder(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert_refused(run(*TRAIN, "--out", file), "out must be ", "this is a file")
    assert_refused(run(*TRAIN, "--out", file / "below"), str(file))
    assert file.read_text() == "mine"


def test_an_interruption_says_how_to_go_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cicpe.api.train", interrupted)
    done = run(*TRAIN, "--out", tmp_path / "m")
    assert (done.code, done.out) == (130, "")
    assert "nothing is kept" in done.err
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "checkpoint.safetensors").write_bytes(b"")
    done = run(*TRAIN, "--out", tmp_path / "m", "--resume")
    assert done.code == 130
    assert "--resume goes on" in done.err


def test_a_fault_of_ours_shows_its_traceback(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **more: Any) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("cicpe.api.train", broken)
    done = run(*TRAIN, "--out", tmp_path / "m")
    assert done.code == 70
    assert "ZeroDivisionError: ours" in done.err
    assert "Traceback" in done.err


# --- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "options", "words"),
    [
        ("nothing", [], ["problem must be", "got 'nothing'", "binary-search"]),
        ("nothing:Thing", [], ["problem must be", "got 'nothing'", "imported"]),
        ("nothing.py:Thing", [], ["problem must be", "got 'nothing.py'", "exists"]),
        ("binary-search", ["--dim", "0"], ["dim must be", "got 0", "at least 1"]),
        ("binary-search", ["--dim", "two"], ["--dim", "'two'", "whole number"]),
        ("binary-search", ["--noise", "0.7"], ["noise must be", "got 0.7", "below 0.5"]),
        ("binary-search", ["--noise", "0.1", "0.05"], ["noise must be", "got '0.1 0.05'", "lower"]),
        ("binary-search", ["--noise", "1", "2", "3"], ["noise must be", "got '1 2 3'", "one number"]),
        ("binary-search", ["--noise"], ["--noise"]),
        ("binary-search", ["--epsilon", "-0.1"], ["epsilon must be", "got -0.1", "positive"]),
        ("binary-search", ["--epsilon", "0.2", "0.1"], ["epsilon must be", "got '0.2 0.1'", "lower"]),
        ("binary-search", ["--epsilon", "small"], ["--epsilon", "'small'", "number"]),
        ("binary-search", ["--actor", "td4"], ["actor must be", "got 'td4'", "ts"]),
        ("gp-max", ["--actor", "ts"], ["actor must be", "got 'ts'", "uniform"]),
        ("binary-search", ["--recipe", "slow"], ["recipe must be", "got 'slow'", "fast"]),
        ("binary-search", ["--minutes", "-1"], ["minutes must be", "got -1", "positive"]),
        ("binary-search", ["--minutes", "nan"], ["minutes must be", "got nan", "positive"]),
        ("binary-search", ["--updates", "0"], ["updates must be", "got 0", "at least 1"]),
        ("binary-search", ["--seed", "-1"], ["--seed", "'-1'", "from 0"]),
        ("binary-search", ["--threads", "0"], ["--threads", "'0'", "from 1"]),
        ("binary-search", ["--colour", "red"], ["--colour"]),
        ("binary-search", ["extra"], ["extra"]),
    ],
)
def test_train_refuses(run: Run, tmp_path: Path, problem: str, options: list[str], words: list[str]) -> None:
    assert_refused(run("train", problem, *options, "--out", tmp_path / "m"), *words)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--epsilon 0.9 --delta 1.5", ["delta must be", "got 1.5", "between 0 and 1"]),
        ("--epsilon 0.9 --delta 0", ["delta must be", "got 0", "between 0 and 1"]),
        ("--epsilon 0.9 --delta 0.001", ["delta must be", "got 0.001", "at least"]),
        ("--epsilon 0.01 --delta 0.4", ["epsilon must be", "got 0.01", "0.5 to 0.9"]),
        ("--epsilon nan --delta 0.4", ["epsilon must be", "got nan", "0.5 to 0.9"]),
        ("--epsilon much --delta 0.4", ["--epsilon", "'much'"]),
        ("--epsilon 0.9 --delta 0.4 --noise 0.3", ["noise must be", "got 0.3", "trained for"]),
        ("--epsilon 0.9 --delta 0.4 --noise -1", ["noise must be", "got -1"]),
        ("--epsilon 0.9 --delta 0.4 --stop never", ["stop must be", "got 'never'", "confidence, each, bellman"]),
        ("--epsilon 0.9 --delta 0.4 --episodes 0", ["episodes must be", "got 0", "at least 1"]),
        ("--epsilon 0.9 --delta 0.4 --problem nothing", ["problem must be", "got 'nothing'"]),
        ("--epsilon 0.9 --delta 0.4 --problem gp-max", ["problem must be", "got 'gp-max'", "query_space"]),
        ("--epsilon 0.9", ["delta must be given"]),
        ("--epsilon 0.9 1.0 --delta 0.4", ["1.0"]),
    ],
)
def test_evaluate_refuses(run: Run, folder: Path, options: str, words: list[str]) -> None:
    assert_refused(run("evaluate", folder, *options.split()), *words)


def test_evaluate_refuses_what_is_no_model(run: Run, tmp_path: Path) -> None:
    asked = ("--epsilon", 0.9, "--delta", 0.4)
    assert_refused(run("evaluate", "nothing-9d", *asked), "model must be", "got 'nothing-9d'")
    assert_refused(run("evaluate", tmp_path, *asked), "config.json", "not a saved model")


@pytest.mark.parametrize("file", ["config.json", "calibration.json", "weights.safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "garbage", "missing"])
def test_a_damaged_model_is_refused(run: Run, folder: Path, tmp_path: Path, file: str, damage: str) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    path = broken / file
    match damage:
        case "truncated":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        case "garbage":
            path.write_bytes(b"\xff\x00 not a model" * 9)
        case "missing":
            path.unlink()
    assert_refused(run("evaluate", broken, "--epsilon", 0.9, "--delta", 0.4), file)


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["train", "binary-serch", "--out", "x"], "did you mean binary-search?"),
        (["evaluate", "binary-search-6", "--epsilon", 0.2, "--delta", 0.1], "did you mean binary-search-6d"),
        (["zoo", "show", "best-arm5d"], "did you mean best-arm-5d"),
    ],
)
def test_what_was_probably_meant_is_said(run: Run, words: list[object], suggested: str) -> None:
    assert_refused(run(*words), suggested)


def test_a_model_is_shown_as_json(run: Run) -> None:
    shown = run("zoo", "show", "binary-search-6d", "--json").json
    assert (shown["name"], shown["problem"], shown["options"]["dim"]) == ("binary-search-6d", "binary-search", 6)
    assert shown["card"].startswith("# binary-search")


def test_as_many_updates_are_made_as_were_asked_for(run: Run, tmp_path: Path) -> None:
    for recipe in ("fast", "paper"):
        asked = ["--dim", 1, "--epsilon", 0.9, "--updates", 5, "--calibration-episodes", 128, "--set", "horizon=8"]
        asked += ["--recipe", recipe]
        assert run("train", "binary-search", *asked, "--out", tmp_path / recipe, "--json").json["updates"] == 5


def test_a_training_that_ends_with_nothing_reliable_exits_with_1(run: Run, tmp_path: Path) -> None:
    asked = ["--dim", 6, "--epsilon", 0.01, "--updates", 1, "--calibration-episodes", 128, "--out", tmp_path / "m"]
    done = run("train", "binary-search", *asked)
    assert (done.code, "not reliable at any" in done.out) == (1, True)
    done = run("train", "binary-search", *asked, "--overwrite", "--json")
    assert (done.code, done.json["reliable"]) == (1, False)
    assert cicpe.load(tmp_path / "m").description.updates == 1


def test_a_shell_completes_commands_and_models() -> None:
    asked = {"_CICPE_COMPLETE": "complete_bash", "COMP_CWORD": "2", "COMP_WORDS": "cicpe evaluate best"}
    command = [sys.executable, "-c", "import sys; from cicpe.cli.main import main; sys.exit(main())"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["best-arm-10d", "best-arm-15d", "best-arm-5d"]


# --- a family of one's own --------------------------------------------------------------------------


@pytest.fixture
def own_family(tmp_path: Path) -> Path:
    """The family that the docs show, as a file."""
    page = (REPOSITORY / "docs" / "how-to" / "own-family.md").read_text()
    block = next(text for text in re.findall(r"```python\n(.*?)```", page, re.S) if "class DoseFinding" in text)
    file = tmp_path / "dose.py"
    file.write_text(block.partition("\nmodel = ")[0])
    return file


def test_the_family_of_the_docs_is_trained_and_moved(run: Run, own_family: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    options = ["--epsilon", 0.3, 0.6, "--updates", 4, "--calibration-episodes", 256, "--out", out]
    assert run("train", f"{own_family}:DoseFinding", *options).code == 0
    asked = ["evaluate", out, "--epsilon", 0.6, "--delta", 0.4, "--episodes", 64]
    assert run(*asked).code == 0
    moved = own_family.rename(tmp_path / "elsewhere.py")
    assert_refused(run(*asked), "dose.py", "--problem")
    asked += ["--problem", f"{moved}:DoseFinding"]
    assert run(*asked, "--json").code == 0
    assert_refused(run(*asked, "--noise", 0.1), "noise must be", "got 0.1", "no noise")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("class Mine(cicpe.Problem):\n    query_space = answer_space = cicpe.Box([0], [1])", ["abstract", "observe"]),
        ("class Mine: pass", ["cicpe.Problem", "defines no Mine"]),
        ("1 / 0", ["ZeroDivisionError"]),
        ("def broken(", ["SyntaxError"]),
    ],
)
def test_a_broken_family_is_refused(run: Run, tmp_path: Path, code: str, words: list[str]) -> None:
    (tmp_path / "mine.py").write_text(f"import cicpe\n{code}\n")
    assert_refused(run("train", f"{tmp_path / 'mine.py'}:Mine", "--out", tmp_path / "m"), *words)


# --- the demo ---------------------------------------------------------------------------------------


def stopping_at(model: Model, kappa: float) -> Model:
    """The model with one threshold for everything, chosen by hand."""
    deltas, epsilons = (0.1, 0.4), (0.1, 0.2)
    table = ((tuple(ThresholdCell(kappa, 0.9, 5.0) for _ in deltas),) * len(epsilons),)
    by_hand = Calibration(
        episodes=1, seed=0, alpha=0.05, query_spread=0.0, epsilons=epsilons, deltas=deltas, context_knots=((0.1,),),
        rules={"confidence": table, "bellman": table},
    )  # fmt: skip
    return dataclasses.replace(model, calibration=by_hand)


def test_the_demo_runs_to_its_end(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TASKS", 32)
    monkeypatch.setattr(demo, "CALIBRATION", 128)
    done = run("demo", "--minutes", 0.01, "--dim", 6, "--out", tmp_path)
    assert done.code == 0
    for words in ("1. ", "2. ", "3. ", "4. ", "paper", "15.3", "*", "not reliable enough", "No session"):
        assert words in done.out


@pytest.mark.parametrize(("kappa", "ended"), [(0.0, "ran into its horizon"), (1.0, "ran into its horizon")])
def test_the_demo_shows_a_session(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kappa: float, ended: str
) -> None:
    demo._live(stopping_at(cicpe.load(folder), kappa), tmp_path / "trajectory.png", seed=1)
    out = capsys.readouterr().out
    assert ended in out
    # A threshold that is low enough on average is not for a campaign of its own: it is not sure of anything.
    assert out.count("asked") == cicpe.load(folder).description.horizon
    assert "distance" in out
    assert (tmp_path / "trajectory.png").read_bytes().startswith(b"\x89PNG")
