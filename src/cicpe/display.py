"""How objects look where they are printed: one line in a terminal, a small table in a notebook."""

import html
from collections.abc import Mapping


def in_a_line(name: str, facts: Mapping[str, object]) -> str:
    """An object as ``repr`` shows it.

    Args:
        name: What it is.
        facts: What to know of it, by name.

    Returns:
        Such as "<Model gp-max: epsilon 0.15 to 0.2, at most 20 queries>".
    """
    return f"<{name}: {', '.join(f'{term} {fact}' for term, fact in facts.items())}>"


def as_table(name: str, facts: Mapping[str, object]) -> str:
    """An object as a notebook shows it.

    Args:
        name: What it is.
        facts: What to know of it, by name.

    Returns:
        An HTML table; nothing in it is taken for markup.
    """
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(term)}</th>'
        f'<td style="text-align:left">{html.escape(str(fact))}</td></tr>'
        for term, fact in facts.items()
    )
    return f'<table><caption style="text-align:left">{html.escape(name)}</caption>{rows}</table>'


def amount(count: int, noun: str) -> str:
    """A count with its noun: 1 query, 2 queries, 3 dimensions."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"
