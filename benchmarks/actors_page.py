"""The page of benchmarks/actors.py: a column per model, the paper's figure beside each, and every miss."""

from collections.abc import Iterator, Sequence
from typing import Any

from actor_models import APART, CELLS, DELTA, FOREIGN, OWN, PAPER

from cicpe.baselines.published import published

CLOSED_FORM = ("regression", "Gaussian processes")
"""Memories and posteriors that rest on a closed-form regression."""
LOOKS = 10
"""Looks of a training curve that are shown."""
SEEN = "seen"
"""Regions of copper that a model was trained on: beside the others, and no cell of the paper's."""


def is_foreign(row: dict[str, Any]) -> bool:
    """Whether the weights of a row have hardly seen histories such as its actor brings about."""
    return row.get("weights", OWN) != OWN and (row["problem"], row["actor"]) in FOREIGN


def model_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What rows of one model have in common; a model that is measured again takes their place.

    Foreign weights never take the place of an actor's own: the two columns side by side show what they cost.
    """
    return (*(row[name] for name in ("problem", "dim", "actor", "recipe")), is_foreign(row))


def paper_figures(row: dict[str, Any]) -> tuple[float | None, float | None]:
    """Accuracy and queries of the paper's actor of that name in that cell."""
    if row.get("regions") == SEEN:
        return None, None
    cell = published(row["problem"], row["dim"], row["epsilon"], row["noise"])
    name = PAPER.get(row["actor"])
    return (None, None) if cell is None or name not in cell.methods else cell.methods[name]


def misses(row: dict[str, Any]) -> str | None:
    """In what a row falls short: of accuracy 0.9, or of the paper's queries."""
    short: list[str] = []
    if row.get("regions") == SEEN:
        return None
    if row["accuracy"] < 1 - DELTA:
        short.append(f"accuracy {row['accuracy']:.3f} is below {1 - DELTA:g}")
    if row["stop"] == "never":
        short.append("it does not stop by itself")
    elif row.get("delta", DELTA) > DELTA:
        short.append(f"delta {DELTA:g} is not served, and it stops for {row['delta']:g}")
    queries = paper_figures(row)[1]
    if queries is not None and row["mean_queries"] > queries:
        short.append(f"{row['mean_queries']:.1f} queries are more than the paper's {queries:g}")
    return "; ".join(short) or None


def entry(row: dict[str, Any]) -> str:
    star = " *" if row["stop"] == "never" else ""
    accuracy, queries = paper_figures(row)
    beside = "" if queries is None else f" ({accuracy:.3f} / {queries:g})"
    text = f"{row['accuracy']:.3f} / {row['mean_queries']:.1f}{star}{beside}"
    return f"{text} **miss**" if misses(row) else text


def column(row: dict[str, Any]) -> str:
    """What heads the column of a model: its actor, how it was trained, whose weights it has, and how it stops."""
    memory = row["memory"] or "learned likelihood"
    dagger = " †" if memory in CLOSED_FORM else ""
    own = ", own stop" if row["stop"] == "own" else ""
    weights = row.get("weights", OWN)
    shared = "" if weights == OWN else f", weights of `{weights}`{' ‡' if is_foreign(row) else ''}"
    loss = f", {row['loss']}" if row.get("loss") else ""
    return f"{row['actor']} ({row['recipe']}{own}, {memory}{dagger}{loss}{shared}, {row['updates']} updates)"


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The cells of one family and dimension: a column per model."""
    columns = list(dict.fromkeys(column(row) for row in rows))
    yield "| (epsilon, noise) | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for cell in dict.fromkeys(_cell(row) for row in rows):
        own = {column(row): entry(row) for row in rows if _cell(row) == cell}
        yield f"| {cell} | " + " | ".join(own.get(name, "") for name in columns) + " |"


def curves(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """How the networks of one family and dimension came to what they are, at about ten looks at themselves."""
    looks = {column(row): row["curve"] for row in rows if row.get("curve")}
    if looks:
        yield ""
        yield (
            "Over training, on episodes of the training family that the actor queried itself, stopped at an (uncalibrated) confidence of "
            "0.9 at the middle epsilon: *update: accuracy / mean queries*."
        )
        yield ""
    for name, curve in looks.items():
        n = min(LOOKS, len(curve))
        some = [curve[round(i * (len(curve) - 1) / max(1, n - 1))] for i in range(n)]
        yield f"- {name}: " + ", ".join(
            f"{update}: {accuracy:.2f} / {queries:.0f}" for update, accuracy, queries in some
        )


def _cell(row: dict[str, Any]) -> str:
    """Epsilon and noise, and which regions of copper."""
    return " ".join([f"({row['epsilon']:g}, {row['noise']:g})", *([row["regions"]] if "regions" in row else [])])


def heading(rows: Sequence[dict[str, Any]]) -> str:
    """How to read the tables, and how much of them there is."""
    wanted = sum(len(APART.get(cell["problem"], tuple(PAPER))) for cell in CELLS)
    there = {(r["problem"], r["dim"], r["epsilon"], r["noise"], r["actor"]) for r in rows if r["actor"] in PAPER}
    return (
        f"Written by `python benchmarks/actors.py`: models conditioned on epsilon and noise, one seed, fresh tasks per cell, delta {DELTA:g}. "
        "Entries are *accuracy / mean queries (the paper's)*; a star means that no threshold was safe enough, and that the model made "
        "every query that it may make; † marks what rests on a closed-form regression. A *miss* falls short of accuracy "
        f"{1 - DELTA:g} or needs more queries than the paper's actor of that name. Of the paper's {wanted} combinations of cell and actor, "
        f"{len(there)} are measured.\n\n"
        "TS, TTPS and uniform queries need a posterior and nothing that is trained for them; TD3 on a learned likelihood reads one, too, and its actor "
        "is trained while the posterior stays as it is. Where a column says *weights of* a model, of the "
        "zoo or trained here, that model was trained once for its family and dimension, the actor reads its posterior, and its "
        "thresholds are chosen anew on held-out episodes of the actor's own; the updates are those of the model. Every other column is a model that was "
        "trained with its actor. ‡ marks weights that have hardly seen histories such as uniform queries give: the figures say more about "
        "the network than about the actor, and they do not take the place of an actor's own."
    )


def page(rows: Sequence[dict[str, Any]], notes: str = "") -> str:
    """The results page, with every miss."""
    lines = ["# Actors compared", "", heading(rows)]
    for family, dim in dict.fromkeys((cell["problem"], cell["dim"]) for cell in CELLS):
        some = [row for row in rows if (row["problem"], row["dim"]) == (family, dim)]
        lines += ["", f"## {family}, d = {dim}", "", *(table(some) if some else ["Not measured yet."]), *curves(some)]
    missed = [(row, short) for row in rows if (short := misses(row)) is not None]
    lines += ["", "## Misses", ""]
    lines += [
        f"- {row['problem']} d = {row['dim']} ({row['epsilon']:g}, {row['noise']:g}), {column(row)}: {short}."
        for row, short in missed
    ] or ["None."]
    return "\n".join([*lines, ""]) + (f"\n{notes}" if notes else "")
