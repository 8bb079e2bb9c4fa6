"""docs/results/attack.md: what was attacked and what held, from the figures that the scripts have kept."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kept_results import ROOT, kept

PAGE = ROOT / "docs" / "results" / "attack.md"


class Row(NamedTuple):
    """One attack: what is done, at what size it counts, and how its figures read."""

    name: str
    what: str
    wanted: str
    figures: Callable[[dict[str, Any]], str]


def _codes(figures: dict[str, Any]) -> str:
    return ", ".join(f"{count:,} x {code}" for code, count in sorted(figures["codes"].items()))


def _waits(figures: dict[str, Any]) -> str:
    worst, log = figures["worst_wait_s"], figures["log_bytes"]
    return f"{figures['connections']:,} connections; worst honest wait {worst:.2f} s; {log:,} bytes of log"


def _kills(figures: dict[str, Any]) -> str:
    return f"{figures['kills']:,} kills, {figures['acknowledged']:,} steps acknowledged"


def _crowd(figures: dict[str, Any]) -> str:
    return f"{figures['clients']} writers, {figures['events']:,} entries, {figures['conflicts']:,} conflicts solved"


def _soak(figures: dict[str, Any]) -> str:
    return (
        f"{figures['minutes']:.0f} minutes, {figures['clients']} clients, {figures['server kills']} kills of the server, "
        f"{figures['database crashes']} of the database; {figures['acknowledged']:,} changes acknowledged, "
        f"{figures['sent_again']} sent again, {figures['conflicts']:,} conflicts"
    )


def _nulls(figures: dict[str, Any]) -> str:
    each = (
        f"{row['share']:.4f} at {row['null']:g} ({row['low']:.4f} to {row['high']:.4f})" for row in figures["nulls"]
    )
    return f"{figures['nulls'][0]['models']:,} models each; false: {', '.join(each)}; alpha {figures['alpha']:g}"


ROWS = (
    Row("kills", "a telling client is killed, SQLite", "600", _kills),
    Row("kills_postgres", "the same, PostgreSQL", "600", _kills),
    Row("crowd", "processes write at once, SQLite", "16 x 30", _crowd),
    Row("crowd_postgres", "the same, PostgreSQL", "16 x 30", _crowd),
    Row("crashes", "the database crashes under load", "4", _soak),
    Row("resumed", "training is killed and resumed", "bit for bit", lambda one: f"{one['kills']} kills, the same files"),
    Row("saves", "a model is saved over another and killed", "120", lambda one: f"{one['kills']} kills: {one['found']}"),
    Row("values_folders", "hostile values in a sealed model folder", "4,000", lambda one: f"{one['values']:,}: {one['found']}"),
    Row("values_bodies", "hostile values in requests", "2,000", lambda one: f"{one['values']:,}: {_codes(one)}"),
    Row("fuzz", "requests made from the schema", "4,600", lambda one: f"{one['cases']:,} cases: {_codes(one)}"),
    Row("certificates", "models at exactly 1 - delta are certified", "at most alpha", _nulls),
    Row("half_open", "requests whose headers never end", "1,100", _waits),
    Row("silent", "connections that say nothing", "1,100", _waits),
    Row("half_bodies", "requests whose bodies never end", "1,100", _waits),
    Row("garbage", "bytes that are no request", "3,000", _waits),
    Row("headers", "headers that mean nothing", "no 2xx, no 5xx", _codes),
    Row("names", "campaigns called after another's id", "no value elsewhere", lambda one: f"made: {one['made']}"),
    Row("unseen", "six people tell at one campaign", "no value elsewhere", _codes),
    Row("stranger", "the store's folder is locked by another program", "writes go on", lambda one: f"{one['writes']} writes in {one['seconds']:.1f} s"),
    Row("holes", "an entry of a log is deleted", "noticed", lambda one: f"{one['holes']} of {one['holes']} noticed"),
    Row("passwords", "addresses that hold a password fail", "not shown", lambda one: f"{one['addresses']} addresses"),
    Row("ledger", "eight certifications at once", "alpha 0.2 at most", lambda one: f"{one['kept']} kept, {one['alpha_spent']:g} of alpha spent"),
    Row("folders", "folders that name a program", "nothing runs", lambda one: f"{one['commands']} commands"),
    Row("soak-sqlite", "a soak, SQLite", "60 minutes", _soak),
    Row("soak-postgres", "a soak, PostgreSQL", "30 minutes", _soak),
)  # fmt: skip
"""What the page shows, in this order."""

HEAD = """# Attacks

What `make attack` and `make soak` did to campaigns, models and the server on one machine, and what held. Every figure is read from
the JSON in `benchmarks/results/attack` that its script wrote; a row names the commit that it ran on. *load* is the number of
processes that wanted a core at the time (the machine has two, and shares them). An attack that was not run on this code, or not
at its full size, says so: it is no evidence.

| attack | full size | what was done | result | commit | load |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The page, from all that is kept."""
    rows = []
    for row in ROWS:
        figures = kept(f"attack/{row.name}")
        if figures is None:
            rows.append(f"| {row.what} | {row.wanted} | not run at this size | | | |")
            continue
        result = "held" if not figures["faults"] else f"**broken**: {len(figures['faults'])} faults"
        said = _said(row, figures).replace("|", "/")
        rows.append(f"| {row.what} | {row.wanted} | {said} | {result} | {figures['commit']} | {figures['load']:.0f} |")
    latency = kept("attack/latency")
    return HEAD + "\n".join(rows) + "\n" + ("" if latency is None else _latency(latency))


def _said(row: Row, figures: dict[str, Any]) -> str:
    """What was done, in words; of a script that has not come to its end, that."""
    try:
        return row.figures(figures)
    except KeyError:
        return "not to its end"


def _latency(figures: dict[str, Any]) -> str:
    least, most = min(figures["loads"]), max(figures["loads"])
    lines = [
        f"\n## Twenty clients\n\nMilliseconds of one ask and one tell over HTTP, {figures['clients']} clients at once, each at "
        f"its own campaign; before ({figures['before']}) and after ({figures['after']}), in turns, {figures['rounds']} "
        "rounds (`benchmarks/latency_against.py`). The ratio is after divided by before in the same round: median, and "
        f"smallest to largest. The load of the machine was {least:.0f} to {most:.0f} meanwhile, so the milliseconds are "
        "those of a busy machine; the ratios are of versions that met the same.\n",
        "| store | | before | after | ratio |\n|---|---|---|---|---|",
    ]
    for store, by_name in figures["stores"].items():
        for name, cell in by_name.items():
            low, high = cell["ratio_range"]
            ratio = f"{cell['ratio']:.2f} ({low:.2f} to {high:.2f})"
            lines.append(f"| {store} | {name} | {cell['before']:.0f} | {cell['after']:.0f} | {ratio} |")
    return "\n".join(lines) + "\n"


def write_page() -> None:
    """Writes it."""
    PAGE.write_text(page())
