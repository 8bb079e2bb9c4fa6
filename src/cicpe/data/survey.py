"""Reading a survey: any table of latitude, longitude, measured value and region.

What counts as a measurement:

- A positive number is one.
- A negative number, or one with ``<`` before it, means "below this detection limit", as in the files of the USGS.
  It is read as half of the limit, the usual substitute. A limit above half of the survey's measured values tells
  next to nothing (and in many files -9999 means "missing"): such a row is left out.
- Nothing, ``NA`` and the like, and zero (which has no logarithm) are missing: the row is left out.

Rows without a place or a region are left out too. How many were is kept, and ``cicpe data show`` says it.
"""

import csv
import io
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from cicpe.data.places import DataError
from cicpe.errors import InvalidInput

Numbers = npt.NDArray[np.float64]
MISSING = {"", "-", "na", "n/a", "nan", "null", "none"}


class Columns(NamedTuple):
    """The names of the columns that matter; upper and lower case are the same."""

    latitude: str
    longitude: str
    value: str
    region: str


KNOWN = (
    Columns("LATITUDE", "LONGITUDE", "CU_ICP40", "QD250NAME"),
    Columns("lat", "lon", "cu_ppm", "quad"),
    Columns("latitude", "longitude", "value", "region"),
)
"""Columns that are found without being named: those of the USGS survey (copper), and two plain sets."""


@final
@dataclass(frozen=True)
class Survey:
    """Measurements, one per entry; values are positive."""

    region: tuple[str, ...]
    latitude: Numbers
    longitude: Numbers
    value: Numbers
    below_limit: npt.NDArray[np.bool_]
    """Which values are half of a detection limit."""
    left_out: int
    """Rows without a usable value, place or region."""

    def __len__(self) -> int:
        return len(self.region)


def read_surveys(paths: Sequence[Path], columns: Columns | None = None) -> Survey:
    """Several files as one survey; a folder stands for every CSV in it."""
    files = [file for path in paths for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path])]
    if not files:
        raise InvalidInput("file", ", ".join(map(str, paths)), "a CSV file, or a folder that holds some")
    parts = [read_survey(file, columns) for file in files]
    return Survey(
        tuple(name for part in parts for name in part.region),
        np.concatenate([part.latitude for part in parts]),
        np.concatenate([part.longitude for part in parts]),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.below_limit for part in parts]),
        sum(part.left_out for part in parts),
    )


def read_survey(path: Path, columns: Columns | None = None) -> Survey:
    """Reads a CSV file (UTF-8 or Latin-1), or the only CSV in a zip archive."""
    text = _text(path)
    lines = csv.reader(io.StringIO(text, newline=""))
    header = [name.strip().lower() for name in next(lines, [])]
    names = _columns(path, header, columns)
    order = [header.index(name.lower()) for name in names]
    rows: list[tuple[str, float, float, float]] = []
    left_out = 0
    for number, line in enumerate(lines, start=2):
        if len(line) <= max(order):
            left_out += bool(line)
            continue
        cells = dict(zip(Columns._fields, (line[place].strip() for place in order), strict=True))
        latitude, longitude, value = (_number(path, number, cells, key) for key in ("latitude", "longitude", "value"))
        if not cells["region"] or latitude is None or longitude is None or not value:
            left_out += 1
            continue
        if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
            raise DataError(f"{path}, line {number}: ({latitude:g}, {longitude:g}) is no latitude and longitude")
        rows.append((cells["region"], latitude, longitude, value))
    return _survey(path, rows, left_out)


def _survey(path: Path, rows: list[tuple[str, float, float, float]], left_out: int) -> Survey:
    if not any(row[3] > 0 for row in rows):
        raise DataError(f"{path} holds no measurement: no row with a place, a region and a positive value")
    value = np.array([row[3] for row in rows])
    keep = -value <= np.median(value[value > 0])
    kept = [row for row, stays in zip(rows, keep.tolist(), strict=True) if stays]
    value = value[keep]
    return Survey(
        tuple(row[0] for row in kept),
        np.array([row[1] for row in kept]),
        np.array([row[2] for row in kept]),
        np.where(value < 0, -value / 2, value),
        value < 0,
        left_out + len(rows) - len(kept),
    )


def _text(path: Path) -> str:
    data = path.read_bytes()
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            tables = [name for name in archive.namelist() if name.lower().endswith(".csv")]
            if len(tables) != 1:
                raise DataError(f"{path} holds {len(tables)} CSV files; unpack it and name one")
            data = archive.read(tables[0])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _columns(path: Path, header: list[str], asked: Columns | None) -> Columns:
    for columns in KNOWN if asked is None else (asked,):
        if all(name.lower() in header for name in columns):
            return columns
    wanted = "latitude, longitude, value and region" if asked is None else ", ".join(asked)
    present = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
    raise DataError(f"{path} has no columns {wanted}; it has {present or 'none'}. Name them with --columns")


def _number(path: Path, line: int, cells: dict[str, str], key: str) -> float | None:
    text = cells[key]
    if text.lower() in MISSING:
        return None
    below = key == "value" and text.startswith("<")
    try:
        number = float(text[1:] if below else text)
    except ValueError:
        raise DataError(f"{path}, line {line}: the {key} {text!r} is not a number") from None
    if not math.isfinite(number):
        return None
    return -abs(number) if below else number
