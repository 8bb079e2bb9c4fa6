"""Measurements as a table: a column per setting and one per measured quantity, with a header of their names."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from cicpe.errors import InvalidInput, meant
from cicpe.files import read_file
from cicpe.sessions.session import Session
from cicpe.sessions.values import Values

MOST_ROWS, MOST_BYTES = 10_000, 10_000_000
SHOWN = 200
"""Letters of a header that are shown."""
NOTES = ("step", "source")
"""Columns that are written for the reader, and not read."""


def columns(session: Session) -> tuple[list[str], list[str]]:
    """The names of the settings, and those of what is measured."""
    units = session.units
    settings = list(units.names) or [f"x{i + 1}" for i in range(session.query_space.dim)]
    if units.readout is not None:
        return settings, [units.readout.name]
    count = session.observation_dim
    return settings, ["y"] if count == 1 else [f"y{i + 1}" for i in range(count)]


def table_of(session: Session) -> str:
    """The history of a session as CSV, in its units."""
    settings, measured = columns(session)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([NOTES[0], *settings, *measured, NOTES[1]])
    for number, step in enumerate(session.history, start=1):
        words = [session.units.observation_words([value]) for value in step.observation]
        plain = session.units.readout is None or session.units.readout.kind == "number"
        seen = [repr(value) for value in step.observation] if plain else words
        writer.writerow([number, *map(repr, step.query), *seen, step.source])
    return out.getvalue()


def read_table(file: Path, session: Session) -> Iterator[tuple[list[float], Values | str]]:
    """The rows of a CSV file as queries and observations; see ``rows_of``."""
    try:
        data = read_file(file, MOST_BYTES)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("file", str(file), f"a table in UTF-8 that can be read ({error})") from None
    if len(data) > MOST_BYTES:
        raise InvalidInput("file", str(file), f"a table of at most {MOST_BYTES:,} bytes")
    return rows_of(text, session)


def rows_of(text: str, session: Session) -> Iterator[tuple[list[float], Values | str]]:
    """The rows of a table as queries and observations.

    Args:
        text: A table with a header; commas, semicolons or tabs between.
        session: Says which columns there have to be.

    Returns:
        One query and one observation per row; a cell that is no number is refused by its column and line.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    reader = csv.DictReader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    try:
        header, rows = [name.strip() for name in reader.fieldnames or []], list(reader)
    except csv.Error as error:
        raise InvalidInput("table", first[:SHOWN], f"a table that can be read ({error})") from None
    if not 0 < len(rows) <= MOST_ROWS:
        raise InvalidInput("table", f"{len(rows)} rows", f"of 1 to {MOST_ROWS} rows below a header")
    settings, measured = columns(session)
    for name in (*settings, *measured):
        if header.count(name) != 1:
            header_words = f"{', '.join(header)[:SHOWN]}{meant(name, header)}"
            raise InvalidInput("column", name, f"in the header, once; the header is {header_words}")
    for line, row in enumerate(rows, start=2):
        if None in row:  # a comma within a number, say: the values would be those of other columns
            raise InvalidInput(f"line {line}", row[None], f"as many cells as the header has, {len(header)}")
        cells = {str(key).strip(): value for key, value in row.items() if key is not None}
        query = [_number(cells[name], name, line) for name in settings]
        if session.units.readout is not None:
            yield query, (cells[measured[0]] or "").strip()
        else:
            yield query, [_number(cells[name], name, line) for name in measured]


def _number(cell: str | None, column: str, line: int) -> float:
    try:
        return float(cell or "")
    except ValueError:
        raise InvalidInput(f"{column} in line {line}", cell, "a number") from None
