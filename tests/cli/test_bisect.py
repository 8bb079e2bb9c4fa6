"""``cicpe bisect``: the how-to page, command by command, the exit codes of tests, and refusals."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from commands import REPOSITORY, Run, assert_refused
from flaky_repository import Git

PAGE = (REPOSITORY / "docs" / "how-to" / "bisect.md").read_text()
COMMANDS = re.findall(r"^\$ cicpe (.*)$", PAGE, re.MULTILINE)


def test_every_command_of_the_page_runs(run: Run, git: Git, flaky: list[str]) -> None:
    assert len(COMMANDS) == 15
    done = []
    for command in COMMANDS:
        words = [sys.executable if word == "python" else word for word in shlex.split(command)]
        done.append(run(*words))
        # A `run` with --runs ends before it is sure, which is the answer no.
        assert done[-1].code == (1 if "--runs" in words else 0), (command, done[-1])
    assert f"{flaky[5][:12]} change 5" in done[1].out
    assert "main is checked out again" in done[2].out
    assert git("symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.parametrize(("code", "outcome"), [(0, "pass"), (1, "fail"), (125, "skip"), (126, "fail"), (127, "fail")])
def test_exit_codes_are_read_as_git_bisect_reads_them(run: Run, flaky: list[str], code: int, outcome: str) -> None:
    run("bisect", "start", flaky[0], "main")
    done = run("bisect", "run", "--runs", "1", "--json", "sh", "-c", f"echo noise; exit {code}")
    assert done.code == 1
    assert (done.json["runs"], done.json["skips"]) == ((0, 1) if outcome == "skip" else (1, 0))
    assert [event["outcome"] for event in run("bisect", "log", "--json").json["events"]] == [outcome]


@pytest.mark.parametrize(("test", "words"), [("exit 128", "exited with 128"), ("kill -9 $$", "ended by signal 9")])
def test_an_aborted_run_records_nothing(run: Run, flaky: list[str], test: str, words: str) -> None:
    run("bisect", "start", flaky[0], "main")
    assert_refused(run("bisect", "run", "sh", "-c", test), words, "Nothing was recorded")
    assert run("bisect", "log", "--json").json["events"] == []
    assert_refused(run("bisect", "run", "./no-such-program"), "command must be", "no-such-program")


def test_a_whole_bisection_as_json(run: Run, git: Git, flaky: list[str]) -> None:
    begun = run("bisect", "start", flaky[0], "--json").json
    assert (begun["commits"], begun["runs"], begun["culprit"], begun["good"]) == (7, 0, None, flaky[0])
    assert begun["expected_remaining"] >= 1
    found = run("bisect", "run", "--json", sys.executable, "check.py")
    assert found.code == 0
    assert (found.json["culprit"], found.json["found"], found.json["next"]) == (flaky[5], True, None)
    assert found.json["probability"] >= 0.95
    assert flaky[5] in [suspect["commit"] for suspect in found.json["credible_set"]]
    assert found.json["rate_before"] < 0.3 < found.json["rate_after"]
    again = run("bisect", "run", "--json", "false")  # it has ended: nothing more is run
    assert again.json == found.json
    assert run("bisect", "reset", "--json").json == {"reset": True, "branch": "refs/heads/main", "commit": flaky[7]}


def test_the_log_makes_the_same_bisection_again(run: Run, flaky: list[str]) -> None:
    run("bisect", "start", flaky[0], "main", "--before", "1,9", "--nothing", "0.25", "--any-order")
    for outcome in ("fail", "pass", "fail", "undo", "skip"):
        run("bisect", outcome)
    status, log = run("bisect", "status", "--json").json, run("bisect", "log").out.splitlines()
    run("bisect", "reset")
    for line in log:
        assert run(*shlex.split(line)[1:]).code == 0
    assert run("bisect", "status", "--json").json == status


def test_a_subject_cannot_speak_to_the_terminal(run: Run, git: Git, flaky: list[str]) -> None:
    """Anyone may have written it, and it may look like a table's markup."""
    for subject in ("close [/bold] tag", "\x1b]0;a title\x07 \x1b[2J"):
        git("commit", "--quiet", "--allow-empty", "--message", subject)
    run("bisect", "start", flaky[7], "main")
    done = run("bisect", "fail", "--commit", "main")
    assert done.code == 0
    assert "close [/bold] tag" in done.out
    assert "?]0;a title? ?[2J" in done.out
    assert "\x1b" not in done.out


def test_a_test_that_never_changes_blames_nobody(run: Run, flaky: list[str]) -> None:
    run("bisect", "start", flaky[0], "main", "--cap", "40")
    done = run("bisect", "run", "--json", "false")
    assert (done.code, done.json["found"], done.json["nothing_changed"]) == (1, False, True)


def test_a_merge_says_how_to_look_inside(run: Run, git: Git, flaky: list[str]) -> None:
    git("checkout", "--quiet", "-b", "side", flaky[4])
    Path("other").write_text("x")
    git("add", "--all")
    git("commit", "--quiet", "--message", "aside")
    side = git("rev-parse", "HEAD")
    git("checkout", "--quiet", "main")
    git("merge", "--quiet", "--no-ff", "--message", "bring in side", "side")
    run("bisect", "start", "HEAD~1", "HEAD")
    for _ in range(3):
        run("bisect", "fail", "--commit", "main")
        done = run("bisect", "pass", "--commit", flaky[7])
    assert f"cicpe bisect start {flaky[4][:12]} {side[:12]}" in done.out


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["start", "nonsense"], ["good", "nonsense"]),
        (["start", "HEAD~7", "--confidence", "1.5"], ["confidence", "1.5"]),
        (["start", "HEAD~7", "--before", "many"], ["before", "many", "1,9"]),
        (["start", "HEAD~7", "--before", "0,1"], ["before", "0,1", "0.05"]),
        (["start", "HEAD~7", "--nothing", "2"], ["nothing", "2"]),
        (["start", "HEAD~7", "--cap", "0"], ["cap", "0"]),
        (["pass"], ["start GOOD BAD"]),
        (["status"], ["start GOOD BAD"]),
        (["undo"], ["start GOOD BAD"]),
        (["reset"], ["nothing to reset"]),
        (["run", "--runs", "0", "true"], ["runs", "0"]),
    ],
)
def test_bad_input_is_refused_in_one_line(run: Run, flaky: list[str], words: list[str], names: list[str]) -> None:
    assert_refused(run("bisect", *words), *names)


def test_other_commits_are_not_recorded(run: Run, git: Git, flaky: list[str]) -> None:
    run("bisect", "start", flaky[2], flaky[6])
    assert_refused(run("bisect", "fail", "--commit", flaky[0]), "commit", flaky[0][:12], "from good to bad")
    assert_refused(run("bisect", "start", flaky[0]), "reset")


def test_outside_a_repository(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(run("bisect", "status"), "git repository")


def test_torch_is_not_imported(flaky: list[str]) -> None:
    code = (
        "import sys; from cicpe.cli.main import main\n"
        "codes = [main(['bisect', *words]) for words in (['start', 'HEAD~7'], ['pass'], ['fail'], ['status'])]\n"
        "assert codes == [0] * 4, codes\n"
        "assert not {'torch', 'scipy', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
