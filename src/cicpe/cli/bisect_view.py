"""What ``cicpe bisect`` prints: a bisection in words, and as JSON."""

from typing import TYPE_CHECKING, Any

from cicpe.cli.output import plain_table, print_table, say
from cicpe.sessions.texts import shown_page

if TYPE_CHECKING:
    from cicpe.bisection.campaign import Bisection, Suspect
    from cicpe.bisection.git import Repository

SHOWN = 8
"""Suspects that are listed at most."""


def to_json(repository: "Repository", bisection: "Bisection") -> dict[str, Any]:
    """All that there is to say of a bisection."""
    verdict = bisection.verdict
    remaining, low, high = bisection.remaining
    answer = [_suspect(repository, suspect) for suspect in verdict.answer]
    return {
        "stopped": bisection.stopped,
        "truncated": bisection.truncated,
        "found": bisection.found,
        "nothing_changed": bisection.nothing_changed,
        "culprit": answer[0]["commit"] if bisection.found and len(answer) == 1 else None,
        "answer": answer,
        "probability": verdict.probability,
        "confidence": bisection.settings.confidence,
        "credible_set": [_suspect(repository, suspect) for suspect in verdict.suspects],
        "probability_nothing_changed": verdict.nothing,
        "rate_before": verdict.before,
        "rate_after": verdict.after,
        "runs": bisection.runs,
        "skips": len(bisection.entries) - bisection.runs,
        "cap": bisection.settings.cap,
        "next": bisection.next_commit,
        "expected_remaining": remaining,
        "expected_remaining_quartiles": [low, high],
        "commits": len(bisection.commits) - 1,
        "good": bisection.commits[0],
        "bad": bisection.commits[-1],
    }


def show_bisection(repository: "Repository", bisection: "Bisection") -> None:
    """The same for a person."""
    verdict = bisection.verdict
    runs = f"{bisection.runs} run{'s' * (bisection.runs != 1)}"
    if bisection.found:
        say(f"Found after {runs}, with probability {verdict.probability:.3f}:")
        for suspect in verdict.answer:
            say(f"  {suspect.commit[:12]} {_subject(repository, suspect.commit)}")
        if len(verdict.answer) > 1:
            say("These cannot be told apart: commits between them were skipped.")
        say(f"The test fails about {verdict.before:.3f} of the time before, and {verdict.after:.3f} from there on.")
        _hint_at_branch(repository, verdict.answer)
        say("`cicpe bisect reset` ends the bisection.")
        return
    if bisection.nothing_changed:
        say(f"After {runs}: no commit changes how often the test fails (probability {verdict.nothing:.3f}).")
        say("Is the test as flaky at the good commit? `cicpe bisect reset`, and start from an older one.")
        return
    say(f"{runs} of at most {bisection.settings.cap} so far, {len(bisection.commits) - 1} commits.")
    _show_suspects(repository, bisection)
    rates = f"Failure rates: about {verdict.before:.3f} before, {verdict.after:.3f} after"
    say(f"{rates}; nothing changed: {verdict.nothing:.3f}.")
    if bisection.truncated:
        why = "the cap is reached" if bisection.runs >= bisection.settings.cap else "every commit was skipped"
        say(f"It ends here without an answer: {why}. The commits above hold {bisection.settings.confidence:g}.")
        return
    middle, low, high = bisection.remaining
    say(
        f"About {middle:.0f} more runs to {bisection.settings.confidence:g} (half of the time {low:.0f} to {high:.0f})."
    )
    commit = bisection.next_commit or ""
    say(f"Run the test now, at {commit[:12]} {_subject(repository, commit)}; then `cicpe bisect pass` or `fail`.")


def show_log(bisection: "Bisection", events: list[dict[str, Any]]) -> None:
    """The log as commands; what was undone is there too."""
    settings, rates = bisection.settings, bisection.settings.rates
    any_order = "" if rates.ordered else " --any-order"
    say(
        f"cicpe bisect start {bisection.commits[0]} {bisection.commits[-1]} --confidence {settings.confidence:g} "
        f"--cap {settings.cap} --before {rates.before.fails:g},{rates.before.passes:g} "
        f"--after {rates.after.fails:g},{rates.after.passes:g} --nothing {settings.nothing:g}{any_order}"
    )
    for event in events:
        undone = event["event"] == "undo"
        say("cicpe bisect undo" if undone else f"cicpe bisect {event['outcome']} --commit {event['commit']}")


def _show_suspects(repository: "Repository", bisection: "Bisection") -> None:
    suspects = bisection.verdict.suspects
    if bisection.runs == 0:
        return
    table = plain_table()
    for heading in ("probability", "commit", "subject"):
        table.add_column(heading)
    for suspect in suspects[:SHOWN]:
        table.add_row(f"{suspect.probability:.3f}", suspect.commit[:12], _subject(repository, suspect.commit))
    print_table(table)
    if len(suspects) > SHOWN:
        say(f"and {len(suspects) - SHOWN} more commits that hold {bisection.settings.confidence:g} together.")


def _suspect(repository: "Repository", suspect: "Suspect") -> dict[str, Any]:
    return {
        "commit": suspect.commit,
        "subject": _subject(repository, suspect.commit),
        "position": suspect.position,
        "probability": suspect.probability,
    }


def _subject(repository: "Repository", commit: str) -> str:
    """The first line of a commit's message. Anyone may have written it: what would speak to a terminal is replaced."""
    return shown_page(repository.subject(commit))


def _hint_at_branch(repository: "Repository", answer: "list[Suspect]") -> None:
    """A merge is the whole branch that it brought in: says how to go on inside."""
    parents = repository.parents(answer[0].commit)
    if len(answer) == 1 and len(parents) == 2:
        base = repository.merge_base(*parents) or parents[0]
        inside = f"cicpe bisect start {base[:12]} {parents[1][:12]}"
        say(f"It is a merge. To look inside its branch: `cicpe bisect reset`, then `{inside}`.")
