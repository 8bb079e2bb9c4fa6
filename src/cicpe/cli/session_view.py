"""How a campaign looks in a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cicpe.cli.output import plain_table, print_table
from cicpe.display import amount
from cicpe.rounding import interval, rounded, with_unit

if TYPE_CHECKING:
    from cicpe.sessions.status import Status, StatusStep
    from cicpe.sessions.stores import CampaignRecord, StoredEvent
    from cicpe.units import Units

WIDTH = 41
"""Characters of a bar."""
TAIL = 8
"""Steps of the history that are shown."""


def point(values: Sequence[float]) -> str:
    """Coordinates, with enough digits to go there."""
    return " ".join(f"{value:.6g}" for value in values)


def show_next(record: "CampaignRecord", status: "Status") -> None:
    """What to do now: the open query, or the answer."""
    if status.query is not None:
        print(f"{record.name}: query {status.step}   (confidence {status.confidence:.3f}{_remaining(status)})")
        print(f"  measure at  {status.units.query_words(status.query)}")
        if status.in_prior in ("doubtful", "no") or status.verifying:
            print(f"  {status.reason.words}")
        return
    ended = "ended at its horizon" if status.truncated else "has stopped"
    print(f"{record.name} {ended} after {amount(status.step, 'step')}.")
    print(f"  answer      {status.units.answer_with_region(status.recommendation, status.credible_region)}")
    print(f"  {status.reason.words}")


def show_status(
    record: "CampaignRecord", status: "Status", limits: Sequence[Sequence[float]] | None, target: float
) -> None:
    """The whole campaign: how sure it is, the posterior, and the last steps."""
    context = "".join(f", {name} {value:g}" for name, value in record.context.items())
    goal = f"epsilon {record.epsilon:g}, delta {record.delta:g}{context}"
    if status.units.answers:
        goal = f"within {status.units.tolerance_words(record.epsilon)}, {1 - record.delta:g} sure{context}"
    print(f"{record.name} ({record.id[:8]}): {status.units.title or record.model}, {goal}")
    print(f"{status.reason.code}: {status.reason.words}\n")
    stops = target if status.stops_at is None else status.stops_at
    asked = f"{target:g} asked for"
    if f"{stops:.2f}" != f"{target:.2f}":
        asked = f"stops at {stops:.3f}, {asked}"
    print(f"confidence  {gauge(status.confidence, stops)}  {status.confidence:.3f}; {asked}")
    if status.query is not None:
        print(f"query {status.step:<4}  {status.units.query_words(status.query)}{_remaining(status)}")
    print()
    show_posterior(status, limits)
    show_history(status.history, status.units)


def gauge(value: float, target: float) -> str:
    """A number from 0 to 1 as a bar, with a mark at the target."""
    bar = ["#" if (i + 0.5) / WIDTH <= value else "." for i in range(WIDTH)]
    bar[min(int(target * WIDTH), WIDTH - 1)] = "|"
    return "[" + "".join(bar) + "]"


def strip(low: float, middle: float, high: float, limits: Sequence[float]) -> str:
    """An interval and its middle on a line from one limit to the other."""

    def place(value: float) -> int:
        width = limits[1] - limits[0]
        share = (value - limits[0]) / width if width > 0 else 0.5
        return min(max(round(share * (WIDTH - 1)), 0), WIDTH - 1)

    line = ["=" if place(low) <= i <= place(high) else "." for i in range(WIDTH)]
    line[place(middle)] = "o"
    return "".join(line)


def show_posterior(status: "Status", limits: Sequence[Sequence[float]] | None) -> None:
    """Every coordinate of the answer with its credible interval."""
    table = plain_table()
    for heading in ("", "answer", f"{100 * (1 - status.delta):.4g} % credible interval", "", "", ""):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "answer" else "left")
    region = status.credible_region
    edges = limits or [(min(low for low, _ in region), max(high for _, high in region))] * len(region)
    for i, (middle, (low, high), decimals, ends) in enumerate(
        zip(status.recommendation, region, status.decimals, edges, strict=True)
    ):
        drawn, figures = strip(low, middle, high, ends), (rounded(middle, decimals), interval((low, high), decimals))
        name = f"x{i + 1}"
        if status.units.answers:
            scale = status.units.answers[i]
            name, figures = scale.name, (with_unit(figures[0], scale.unit), with_unit(figures[1], scale.unit))
        table.add_row(name, *figures, f"{ends[0]:g}", drawn, f"{ends[1]:g}")
    print_table(table)


def show_history(history: "Sequence[StatusStep]", units: "Units") -> None:
    """The last steps."""
    if not history:
        return
    table = plain_table(f"history: {amount(len(history), 'step')}" + (f", the last {TAIL}" * (len(history) > TAIL)))
    for heading in ("step", "query", "observation", ""):
        table.add_column(heading)
    for number, step in list(enumerate(history, start=1))[-TAIL:]:
        notes = ["attached"] if step.source == "attached" else []
        if step.first_observation is not None:
            notes.append(f"corrected, was {units.observation_words(step.first_observation)}")
        words = units.query_words(step.query), units.observation_words(step.observation)
        table.add_row(str(number), *words, ", ".join(notes))
    print_table(table)


def show_log(log: "Sequence[StoredEvent]", units: "Units | None" = None) -> None:
    """Every event, with those that no longer count marked."""
    from cicpe.sessions.events import Undone, in_force, in_words

    counts = set(in_force(stored.event for stored in log))
    table = plain_table()
    for heading in ("entry", "at (UTC)", "what", "", "key"):
        table.add_column(heading)
    for stored in log:
        gone = stored.position not in counts and not isinstance(stored.event, Undone)
        when, note = stored.at[:19].replace("T", " "), "undone" if gone else ""
        table.add_row(str(stored.position), when, in_words(stored.event, units), note, stored.key or "")
    print_table(table)


def show_campaigns(records: "Sequence[CampaignRecord]", last: str | None) -> None:
    """One line per campaign; a star marks the one that commands mean by default."""
    table = plain_table()
    for heading in ("", "name", "id", "model", "epsilon", "delta", "events", "created (UTC)"):
        table.add_column(heading)
    for record in records:
        mark, when = "*" if record.id == last else "", record.created[:16].replace("T", " ")
        figures = f"{record.epsilon:g}", f"{record.delta:g}", str(record.version)
        table.add_row(mark, record.name, record.id[:8], record.model, *figures, when)
    print_table(table)


def _remaining(status: "Status") -> str:
    left = status.expected_remaining_queries
    return "" if left is None else f", about {max(1, round(left))} more to expect"
