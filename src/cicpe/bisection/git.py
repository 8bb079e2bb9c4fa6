"""The git repository that a bisection works in: its commits, its checked-out state, and where notes may be kept.

Every command is given as a list to git itself, never to a shell, and with revisions that cannot be read as options.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from cicpe.errors import CicpeError, InvalidInput

GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
"""Git without the hooks of the repository: nothing is run that was not asked for."""


class GitError(CicpeError):
    """The repository is not in a state in which this can be done."""


class CheckedOut(NamedTuple):
    """What was checked out: a branch by its full name, or nothing but a commit."""

    branch: str | None
    commit: str


@final
@dataclass(frozen=True)
class Repository:
    """A git repository, seen from one of its work trees."""

    folder: Path
    """Where commands are run: the top of the work tree, or the git directory where there is no work tree."""
    git_dir: Path
    """The git directory of this work tree."""
    has_work_tree: bool

    @classmethod
    def find(cls, folder: Path) -> "Repository":
        """The repository that a folder lies in.

        Raises:
            GitError: There is none, or no git.
        """
        try:
            words = _run(folder, "rev-parse", "--is-inside-work-tree", "--absolute-git-dir").split("\n")
        except FileNotFoundError:
            raise GitError("git must be installed and on the PATH; it was not found") from None
        except subprocess.CalledProcessError:
            raise GitError(f"{folder} must lie in a git repository; git finds none there") from None
        git_dir, has_work_tree = Path(words[1]), words[0] == "true"
        top = Path(_run(folder, "rev-parse", "--show-toplevel")) if has_work_tree else git_dir
        return cls(top, git_dir, has_work_tree)

    def resolve(self, field: str, revision: str) -> str:
        """The full name of the commit that a revision means."""
        try:
            return _run(self.folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except subprocess.CalledProcessError:
            raise InvalidInput(field, revision, "a commit of this repository: a hash, a branch or a tag") from None

    def chain(self, good: str, bad: str) -> list[str]:
        """The commits from the good one to the bad one, each the first parent of the next.

        Along first parents every commit contains all earlier ones, so that a change stays: the model holds exactly. In
        a topological order of all commits it would not, as a commit of a side branch need not contain what is listed
        before it. A merge stands for the whole branch that it brought in.
        """
        listed = _run(self.folder, "rev-list", "--first-parent", "--reverse", bad, f"^{good}", "--").split()
        if listed and self.parents(listed[0])[:1] == [good]:
            return [good, *listed]
        return self._refuse_chain(good, bad)

    def _refuse_chain(self, good: str, bad: str) -> list[str]:
        if good == bad:
            raise InvalidInput("bad", bad[:12], "another commit than good")
        if self._is_ancestor(bad, good):
            raise InvalidInput("good", good[:12], f"older than bad; {bad[:12]} is its ancestor, so swap the two")
        reachable = self._is_ancestor(good, bad)
        base = self.merge_base(good, bad)
        if base is None:
            raise InvalidInput("good", good[:12], "a commit that shares history with bad")
        why = "it came in by a merge" if reachable else "it is on another branch"
        raise InvalidInput(
            "good",
            good[:12],
            f"on the line of first parents of bad, but {why}. Try where the two part, {base[:12]}, if that is good",
        )

    def _is_ancestor(self, older: str, newer: str) -> bool:
        return _status(self.folder, "merge-base", "--is-ancestor", older, newer) == 0

    def merge_base(self, one: str, other: str) -> str | None:
        """The commit where two lines of history part; None where they share nothing."""
        try:
            return _run(self.folder, "merge-base", one, other)
        except subprocess.CalledProcessError:
            return None

    def parents(self, commit: str) -> list[str]:
        """The parents of a commit, the first one first."""
        return _run(self.folder, "rev-list", "--parents", "--max-count=1", commit, "--").split()[1:]

    def missing(self, commits: list[str]) -> list[str]:
        """Which of these commits the repository does not have."""
        told = subprocess.run(
            [*GIT, "cat-file", "--batch-check=%(objecttype)"],
            cwd=self.folder,
            input="\n".join(commits) + "\n",
            capture_output=True,
            text=True,
            check=True,
            env=_environment(),
        ).stdout.splitlines()
        return [commit for commit, line in zip(commits, told, strict=True) if line != "commit"]

    def subject(self, commit: str) -> str:
        """The first line of a commit's message."""
        return _run(self.folder, "log", "--max-count=1", "--format=%s", commit, "--")

    def head(self) -> CheckedOut:
        """What is checked out."""
        commit = self.resolve("HEAD", "HEAD")
        try:
            return CheckedOut(_run(self.folder, "symbolic-ref", "--quiet", "HEAD"), commit)
        except subprocess.CalledProcessError:
            return CheckedOut(None, commit)

    def changes(self) -> list[str]:
        """Tracked files that differ from what is checked out; untracked files are none of our business."""
        return _run(self.folder, "status", "--porcelain", "--untracked-files=no").splitlines()

    def refuse_unclean(self) -> None:
        """Refuses to go on where a checkout could lose work.

        Raises:
            GitError: There is no work tree, tracked files have changes, or git is in the middle of something.
        """
        if not self.has_work_tree:
            raise GitError("a work tree is needed to check out commits; this repository is bare (see git worktree add)")
        changed = self.changes()
        if changed:
            listed = ", ".join(line[3:] for line in changed[:3]) + (", ..." if len(changed) > 3 else "")
            raise GitError(
                f"the work tree must have no changes to tracked files (commit or stash them); changed: {listed}"
            )
        for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG"):
            if (self.git_dir / name).exists():
                raise GitError(f"git must not be in the middle of something; {self.git_dir / name} is there")

    def check_out(self, commit: str) -> None:
        """Checks out a commit, detached; refused where that could lose work."""
        self.refuse_unclean()
        self._switch("--detach", commit)

    def restore(self, head: CheckedOut) -> None:
        """Checks out what was checked out before."""
        self.refuse_unclean()
        branch = (head.branch or "").removeprefix("refs/heads/")
        if branch and _status(self.folder, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}") == 0:
            self._switch(branch)
        else:
            self._switch("--detach", head.commit)

    def _switch(self, *words: str) -> None:
        try:
            _run(self.folder, "checkout", "--quiet", *words, "--")
        except subprocess.CalledProcessError as error:
            raise GitError(f"git could not check out {words[-1]}: {error.stderr.strip()}") from None


def _environment() -> dict[str, str]:
    """Messages in English, and no question that nobody would answer."""
    return {**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def _run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [*GIT, *words], cwd=folder, capture_output=True, text=True, errors="replace", check=True, env=_environment()
    )
    return done.stdout.rstrip("\n")


def _status(folder: Path, *words: str) -> int:
    return subprocess.run([*GIT, *words], cwd=folder, capture_output=True, check=False, env=_environment()).returncode
