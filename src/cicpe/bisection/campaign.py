"""A bisection in a repository, from its start to its culprit: what was run, what is believed, what to run next.

Everything follows from the log in the git directory and the repository itself. A command reads the log, decides,
appends one line, and only then checks out the next commit: whatever is cut short, the next command goes on from there.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from cicpe._version import __version__
from cicpe.bisection.belief import CulpritBelief, CulpritState
from cicpe.bisection.git import CheckedOut, GitError, Repository
from cicpe.bisection.journal import Journal, JournalError, Outcome, RunEntry, in_force
from cicpe.bisection.rates import USUAL_RATES, BetaShape, RatePrior
from cicpe.bisection.rules import cheapest, expected_entropy
from cicpe.bisection.simulate import BisectionEnd, forecast
from cicpe.errors import InvalidInput

MOST_RUNS = 100_000
"""The largest cap."""


@final
@dataclass(frozen=True)
class BisectionSettings:
    """What a user may say at the start."""

    confidence: float = 0.95
    """Posterior probability of the culprit at which to stop."""
    cap: int = 1000
    """The most runs."""
    rates: RatePrior = USUAL_RATES
    nothing: float = CulpritBelief.nothing

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise InvalidInput("confidence", self.confidence, "a probability from 0.5 to below 1")
        if not 1 <= self.cap <= MOST_RUNS:
            raise InvalidInput("cap", self.cap, f"a number of runs from 1 to {MOST_RUNS}")

    def to_json(self) -> dict[str, Any]:
        """A JSON object that ``from_json`` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "BisectionSettings":
        """Reads what ``to_json`` wrote."""
        rates = data["rates"]
        prior = RatePrior(BetaShape(**rates["before"]), BetaShape(**rates["after"]), rates["ordered"])
        return cls(data["confidence"], data["cap"], prior, data["nothing"])


class Suspect(NamedTuple):
    """A commit, and the probability that it is the culprit."""

    commit: str
    position: int
    probability: float


class CulpritVerdict(NamedTuple):
    """What is believed after the runs so far."""

    suspects: list[Suspect]
    """The commits that together hold the confidence asked for, the likeliest first: the credible set."""
    answer: list[Suspect]
    """The likeliest culprit: one commit, or several that no run can tell apart as those between them were skipped."""
    probability: float
    """That the culprit is in ``answer``."""
    nothing: float
    """That no commit of the range changed the rate."""
    before: float
    """Failure rate that is expected before the culprit."""
    after: float
    """Failure rate that is expected from the culprit on."""


@final
@dataclass(frozen=True)
class Bisection:
    """A bisection as its log has it: immutable, and read anew by every command."""

    settings: BisectionSettings
    commits: tuple[str, ...]
    """From the good one to the bad one."""
    home: CheckedOut
    """What was checked out at the start."""
    entries: tuple[RunEntry, ...]

    @property
    def runs(self) -> int:
        """How often the test was run."""
        return sum(entry.outcome != "skip" for entry in self.entries)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Where each commit stands, from 0 (good)."""
        return {commit: position for position, commit in enumerate(self.commits)}

    @cached_property
    def belief(self) -> CulpritBelief:
        """The belief before the first run."""
        return CulpritBelief(len(self.commits) - 1, self.settings.rates, self.settings.nothing)

    @cached_property
    def state(self) -> CulpritState:
        """The belief after all runs."""
        state = self.belief.begin()
        for commit, outcome in self.entries:
            if outcome != "skip":
                state = self.belief.update(state, np.array([self.positions[commit]]), np.array([outcome == "fail"]))
        return state

    @cached_property
    def may_run(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Which commits have not been skipped, from good to bad."""
        skipped = {commit for commit, outcome in self.entries if outcome == "skip"}
        return np.array([commit not in skipped for commit in self.commits])

    @cached_property
    def verdict(self) -> CulpritVerdict:
        """What is believed."""
        posterior, means = self.belief.posterior(self.state), self.belief.means(self.state)
        culprit, nothing = posterior.culprit[0], float(posterior.nothing[0])
        # Culprits that differ only in commits that were skipped have the same runs on both sides: they are one block.
        block = np.cumsum(self.may_run)[: len(culprit)]
        mass = np.bincount(block, weights=culprit)
        best = np.flatnonzero(block == mass.argmax())
        order = np.argsort(-culprit, kind="stable")
        needed = int(np.searchsorted(np.cumsum(culprit[order]), self.settings.confidence)) + 1
        share = culprit / culprit.sum()
        return CulpritVerdict(
            suspects=[self._suspect(index, culprit) for index in order[:needed]],
            answer=[self._suspect(index, culprit) for index in best],
            probability=float(mass.max()),
            nothing=nothing,
            before=float(share @ means.before[0]),
            after=float(share @ means.after[0]),
        )

    def _suspect(self, index: np.intp, culprit: "np.ndarray[Any, np.dtype[np.float64]]") -> Suspect:
        position = int(index) + 1
        return Suspect(self.commits[position], position, float(culprit[index]))

    @property
    def found(self) -> bool:
        """Whether a culprit is as sure as was asked for; a prior alone, without a failure, convicts nobody."""
        failed = any(entry.outcome == "fail" for entry in self.entries)
        return failed and self.verdict.probability >= self.settings.confidence

    @property
    def nothing_changed(self) -> bool:
        """Whether it is as sure as was asked for that there is no culprit."""
        return self.verdict.nothing >= self.settings.confidence

    @property
    def stopped(self) -> bool:
        """Whether the question is answered."""
        return self.found or self.nothing_changed

    @property
    def truncated(self) -> bool:
        """Whether it ends without an answer: at the cap, or with nothing left that can be run."""
        return not self.stopped and (self.runs >= self.settings.cap or not bool(self.may_run.any()))

    @cached_property
    def next_commit(self) -> str | None:
        """The commit to run next; None where the bisection has ended."""
        if self.stopped or self.truncated:
            return None
        price = expected_entropy(self.belief, self.state)
        return self.commits[int(cheapest(price, self.may_run)[0])]

    @cached_property
    def remaining(self) -> tuple[float, float, float]:
        """Runs to expect from here (the median) and the quartiles, by simulation."""
        if self.stopped or self.truncated:
            return (0.0, 0.0, 0.0)
        stop = BisectionEnd(self.settings.confidence, self.settings.cap - self.runs)
        middle, low, high = forecast(self.belief, self.state, stop, self.may_run)
        return max(middle, 1.0), max(low, 1.0), max(high, 1.0)


@final
class BisectionCampaign:
    """The bisection of a repository: reads its log, records what was run, and checks out what is to be run."""

    def __init__(self, folder: Path) -> None:
        self.repository = Repository.find(folder)
        self.journal = Journal(self.repository.git_dir)

    def start(self, good: str, bad: str, settings: BisectionSettings) -> Bisection:
        """Begins a bisection and checks out its first commit.

        Args:
            good: A commit at which the test failed less often, or never.
            bad: A later commit at which it fails more often.
            settings: What to stop at, and what is known.

        Raises:
            JournalError: One is under way already.
            GitError: The work tree has changes that a checkout could lose.
        """
        repository = self.repository
        with self.journal.held():
            if self.journal.exists():
                raise JournalError("the bisection under way must end first; `cicpe bisect reset` ends it")
            repository.refuse_unclean()
            chain = repository.chain(repository.resolve("good", good), repository.resolve("bad", bad))
            bisection = Bisection(settings, tuple(chain), repository.head(), ())
            self.journal.begin(
                {
                    "version": __version__,
                    "commits": chain,
                    "home": bisection.home._asdict(),
                    "settings": settings.to_json(),
                }
            )
            self._go_to_next(bisection)
        return bisection

    def read(self) -> Bisection:
        """The bisection as its log has it.

        Raises:
            JournalError: There is none, it is damaged, or the repository has lost commits of it.
        """
        header, events = self.journal.read()
        try:
            settings = BisectionSettings.from_json(header["settings"])
            commits, home = tuple(map(str, header["commits"])), CheckedOut(**header["home"])
            bisection = Bisection(settings, commits, home, tuple(in_force(events)))
            unknown = {entry.commit for entry in bisection.entries} - set(commits)
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(
                f"{self.journal.path} is damaged ({error}); `cicpe bisect reset --force` gives it up"
            ) from None
        missing = sorted(unknown) or self.repository.missing(list(commits))
        if missing:
            raise JournalError(
                f"the repository must still have every commit of the bisection; {missing[0][:12]} is gone "
                f"({len(missing)} in all). `cicpe bisect reset` ends it"
            )
        return bisection

    def record(self, outcome: Outcome, revision: str | None = None) -> Bisection:
        """Records what became of a run, and checks out the next commit.

        Args:
            outcome: Pass, fail, or skip where the commit cannot be tested.
            revision: The commit that was run; None for the one that is checked out.
        """
        with self.journal.held():
            bisection = self.read()
            commit = self.repository.resolve("commit", revision or "HEAD")
            if commit not in bisection.positions:
                allowed = (
                    "one of the bisection, from good to bad along first parents (`cicpe bisect status` names the next)"
                )
                raise InvalidInput("commit", commit[:12], allowed)
            return self._append(bisection, commit, outcome)

    def _append(self, bisection: Bisection, commit: str, outcome: Outcome) -> Bisection:
        self.journal.append({"event": "run", "commit": commit, "outcome": outcome})
        return self._went_on(bisection, (*bisection.entries, RunEntry(commit, outcome)))

    def _went_on(self, bisection: Bisection, entries: tuple[RunEntry, ...]) -> Bisection:
        bisection = Bisection(bisection.settings, bisection.commits, bisection.home, entries)
        self._go_to_next(bisection)
        return bisection

    def undo(self) -> tuple[Bisection, RunEntry]:
        """Takes back the last run or skip; the log keeps both."""
        with self.journal.held():
            bisection = self.read()
            if not bisection.entries:
                raise JournalError("there must be something to undo; nothing has been recorded yet")
            self.journal.append({"event": "undo"})
            return self._went_on(bisection, bisection.entries[:-1]), bisection.entries[-1]

    def prepare(self) -> Bisection:
        """The bisection, with its next commit checked out, for whoever runs the test now."""
        with self.journal.held():
            bisection = self.read()
            self._go_to_next(bisection)
        return bisection

    def reset(self, force: bool = False) -> CheckedOut | None:
        """Ends the bisection, and checks out again what was checked out at its start.

        Args:
            force: Give up a log that cannot be read, and leave the checkout as it is.

        Returns:
            What is checked out again; None where it was left as it is.
        """
        with self.journal.held():
            if not self.journal.exists():
                raise JournalError("a bisection must be under way; there is nothing to reset")
            if force:
                self.journal.end()
                return None
            header, _ = self.journal.read()
            home = CheckedOut(**header["home"])
            self.repository.restore(home)
            self.journal.end()
        return home

    def _go_to_next(self, bisection: Bisection) -> None:
        """Checks out the next commit; at an answer of one commit, that commit stays as it is."""
        if bisection.next_commit is not None and self.repository.head().commit != bisection.next_commit:
            try:
                self.repository.check_out(bisection.next_commit)
            except GitError as error:
                if not bisection.entries:
                    self.journal.end()
                    raise
                raise GitError(f"recorded; but the next commit could not be checked out: {error}") from None
