"""A bisection in a real repository: merges, work trees, dirt, lost commits, kills in the middle of a write."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cicpe.bisection.campaign import BisectionCampaign, BisectionSettings
from cicpe.bisection.git import GitError
from cicpe.bisection.journal import NAME, JournalError
from cicpe.errors import InvalidInput
from flaky_repository import Git

USUAL = BisectionSettings()


def campaign(folder: str = ".") -> BisectionCampaign:
    return BisectionCampaign(Path(folder).resolve())


def test_a_chain_is_started_recorded_undone_and_reset(git: Git, flaky: list[str]) -> None:
    bisection = campaign().start(flaky[0], "main", USUAL)
    assert list(bisection.commits) == flaky
    assert git("rev-parse", "HEAD") == bisection.next_commit
    first = bisection.next_commit
    after = campaign().record("fail")
    assert (after.runs, after.entries[0].commit) == (1, first)
    assert git("rev-parse", "HEAD") == after.next_commit != first
    undone, entry = campaign().undo()
    assert (undone.runs, entry.outcome) == (0, "fail")
    assert git("rev-parse", "HEAD") == first
    assert campaign().read() == undone
    with pytest.raises(JournalError, match="something to undo"):
        campaign().undo()
    assert [event["event"] for event in campaign().journal.read()[1]] == ["run", "undo"]
    campaign().reset()
    assert git("symbolic-ref", "HEAD") == "refs/heads/main"
    with pytest.raises(JournalError, match="must be under way"):
        campaign().read()


def test_two_commits_have_one_suspect(git: Git, flaky: list[str]) -> None:
    bisection = campaign().start(flaky[4], flaky[5], USUAL)
    while not bisection.stopped:
        bisection = campaign().record("fail" if bisection.next_commit == flaky[5] else "pass")
    assert [suspect.commit for suspect in bisection.verdict.answer] == [flaky[5]]
    assert 1 <= bisection.runs <= 6
    assert bisection.verdict.probability >= 0.95


def test_a_merge_stands_for_its_branch(git: Git, flaky: list[str]) -> None:
    git("checkout", "--quiet", "-b", "side", flaky[2])
    for name in ("one", "two"):
        Path(name).write_text(name)
        git("add", "--all")
        git("commit", "--quiet", "--message", name)
    side = git("rev-parse", "HEAD")
    git("checkout", "--quiet", "main")
    git("merge", "--quiet", "--no-ff", "--message", "bring in side", "side")
    merge = git("rev-parse", "HEAD")
    repository = campaign().repository
    assert repository.chain(flaky[0], merge) == [*flaky, merge]
    assert repository.chain(flaky[2], side)[0] == flaky[2]
    assert len(repository.chain(flaky[2], side)) == 3
    with pytest.raises(InvalidInput, match=f"came in by a merge.*{side[:12]}"):
        repository.chain(side, merge)
    with pytest.raises(InvalidInput, match=f"on another branch.*{flaky[2][:12]}"):
        repository.chain(flaky[5], side)


@pytest.mark.parametrize(("good", "bad", "words"), [("HEAD", "HEAD", "another commit"), ("HEAD", "HEAD~2", "swap")])
def test_ends_that_cannot_be(flaky: list[str], good: str, bad: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        campaign().start(good, bad, USUAL)
    assert not campaign().journal.exists()


def test_revisions_are_never_options(flaky: list[str]) -> None:
    with pytest.raises(InvalidInput, match="good must be a commit of this repository"):
        campaign().start("--all", "HEAD", USUAL)


def test_a_skipped_commit_is_not_run_again_and_stays_a_suspect(git: Git, flaky: list[str]) -> None:
    """Around a skipped culprit the answer is a block; without the skip the same runs would not be enough."""
    bisection = campaign().start(flaky[0], flaky[7], USUAL)
    for skipped in (flaky[5],):
        bisection = campaign().record("skip", skipped)
    while not bisection.stopped:
        commit = bisection.next_commit
        assert commit is not None
        assert commit != flaky[5]
        bisection = campaign().record("fail" if flaky.index(commit) >= 5 else "pass")
    assert sorted(suspect.commit for suspect in bisection.verdict.answer) == sorted([flaky[5], flaky[6]])
    assert max(suspect.probability for suspect in bisection.verdict.answer) < 0.95


def test_with_everything_skipped_it_ends(flaky: list[str]) -> None:
    bisection = campaign().start(flaky[6], flaky[7], USUAL)
    for commit in flaky[6:]:
        bisection = campaign().record("skip", commit)
    assert (bisection.truncated, bisection.stopped, bisection.next_commit) == (True, False, None)


def test_the_cap_ends_it_unanswered(flaky: list[str]) -> None:
    bisection = campaign().start(flaky[0], flaky[7], BisectionSettings(cap=2))
    for _ in range(2):
        bisection = campaign().record("fail")
    assert (bisection.truncated, bisection.stopped, bisection.next_commit) == (True, False, None)


def test_work_in_progress_is_never_lost(git: Git, flaky: list[str]) -> None:
    Path("number").write_text("mine")
    with pytest.raises(GitError, match=r"no changes to tracked files.*number"):
        campaign().start(flaky[0], "main", USUAL)
    assert not campaign().journal.exists()
    git("checkout", "--quiet", "number")
    campaign().start(flaky[0], "main", USUAL)
    Path("number").write_text("mine")
    with pytest.raises(GitError, match=r"^recorded; but"):
        campaign().record("fail")
    with pytest.raises(GitError, match="no changes"):
        campaign().reset()
    assert Path("number").read_text() == "mine"
    git("checkout", "--quiet", "number")
    assert campaign().prepare().runs == 1  # what was said to be recorded is, and the next commit is checked out
    assert git("rev-parse", "HEAD") == campaign().read().next_commit


def test_a_rebase_or_a_git_bisect_under_way_is_left_alone(git: Git, flaky: list[str]) -> None:
    git("bisect", "start", flaky[7], flaky[0])
    with pytest.raises(GitError, match="BISECT_LOG"):
        campaign().start(flaky[0], "main", USUAL)


def test_no_hook_is_run(flaky: list[str]) -> None:
    hook = Path(".git/hooks/post-checkout")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch .git/hooked\n")
    hook.chmod(0o755)
    campaign().start(flaky[0], "main", USUAL)
    assert not Path(".git/hooked").exists()
    subprocess.run(["git", "checkout", "--quiet", "main"], check=True)
    assert Path(".git/hooked").exists()  # the control: git itself runs it


def test_every_work_tree_has_a_bisection_of_its_own(git: Git, flaky: list[str], tmp_path: Path) -> None:
    other = tmp_path / "other"
    git("worktree", "add", "--quiet", "--detach", str(other), "main")
    campaign(str(other)).start(flaky[0], "main", USUAL)
    campaign(str(other)).record("fail")
    assert git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert not campaign().journal.exists()
    home = campaign(str(other)).reset()
    assert home is not None
    assert (home.branch, home.commit) == (None, flaky[7])


def test_a_bare_repository_and_no_repository_are_refused(git: Git, flaky: list[str], tmp_path: Path) -> None:
    git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    with pytest.raises(GitError, match="work tree is needed"):
        campaign(str(tmp_path / "bare")).start(flaky[0], "main", USUAL)
    (tmp_path / "empty").mkdir()
    with pytest.raises(GitError, match="must lie in a git repository"):
        campaign(str(tmp_path / "empty"))


def test_lost_commits_are_noticed(git: Git, flaky: list[str]) -> None:
    campaign().start(flaky[0], "main", USUAL)
    git("checkout", "--quiet", "--detach", flaky[2])
    git("branch", "--quiet", "-D", "main")
    git("reflog", "expire", "--expire=now", "--all")
    git("gc", "--quiet", "--prune=now")
    with pytest.raises(JournalError, match=f"{flaky[3][:12]} is gone"):
        campaign().read()
    campaign().reset(force=True)
    assert not campaign().journal.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from cicpe.bisection import journal
from cicpe.bisection.campaign import BisectionCampaign
whole, share = journal._line, float(sys.argv[1])
journal._line = lambda value: whole(value)[: round(share * len(whole(value)))]
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
BisectionCampaign(Path.cwd()).record("fail")
"""


@pytest.mark.parametrize(("share", "runs"), [(0.0, 1), (0.5, 1), (1.0, 2)])
def test_a_kill_in_the_middle_of_a_write(flaky: list[str], share: float, runs: int) -> None:
    """What was written whole is kept, what was cut short is not, and the next command goes on in either case."""
    campaign().start(flaky[0], "main", USUAL)
    campaign().record("pass")
    done = subprocess.run([sys.executable, "-c", KILLED, str(share)], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert campaign().read().runs == runs
    assert campaign().record("fail", flaky[7]).runs == runs + 1
    assert campaign().read().runs == runs + 1


def test_a_log_that_was_cut_anywhere_is_read_up_to_there(flaky: list[str]) -> None:
    campaign().start(flaky[0], "main", USUAL)
    for outcome in ("pass", "fail", "skip"):
        campaign().record(outcome)
    campaign().undo()
    file = Path(".git") / NAME
    data = file.read_bytes()
    header = data.index(b"\n") + 1
    for end in range(header, len(data), 23):
        file.write_bytes(data[:end])
        assert len(campaign().journal.read()[1]) == data[header:end].count(b"\n")


def test_a_damaged_log_is_refused_by_its_line(flaky: list[str]) -> None:
    campaign().start(flaky[0], "main", USUAL)
    file = Path(".git") / NAME
    header = file.read_text()
    for line, words in [
        ("{", "damaged in line 2"),
        (json.dumps({"event": "undo"}), "damaged in line 2"),
        (json.dumps({"event": "run", "commit": "0" * 40, "outcome": "fail"}), "000000000000 is gone"),
    ]:
        file.write_text(header + line + "\n")
        with pytest.raises(JournalError, match=words):
            campaign().read()
    file.write_text(header.replace('"format": 1', '"format": 99'))
    with pytest.raises(JournalError, match="not of a format"):
        campaign().read()


def test_settings_come_back_as_they_were() -> None:
    settings = BisectionSettings(confidence=0.8, cap=7, nothing=0.2)
    assert BisectionSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


@pytest.mark.parametrize("fault", [{"confidence": 1.0}, {"confidence": 0.2}, {"cap": 0}])
def test_settings_that_cannot_be(fault: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=rf"^{next(iter(fault))} must be"):
        BisectionSettings(**fault)  # type: ignore[arg-type]
