"""The National Geochemical Survey of the USGS, as its users download it. It is in the public domain."""

import hashlib
import io
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from cicpe.data.places import DataError, cache_folder
from cicpe.files import write_atomic

URL = "https://mrdata.usgs.gov/geochem/geochem.zip"
FILE = "geochem.csv"
BYTES = 63_218_842
SHA256 = "10a07bc27fc16c247cbcc218760bb311c4c37f8b6f001dbff103d619f3619fd2"
TIMEOUT = 60
"""Seconds to wait for an answer."""


def survey_path() -> Path:
    """Where the fetched survey is kept."""
    return cache_folder() / "surveys" / FILE


def fetch_survey(source: Path | None = None) -> Path:
    """Downloads the survey (or takes the archive or table that ``source`` names), checks it and keeps the table."""
    place = survey_path()
    if source is None and place.is_file() and not _fault(place.read_bytes()):
        return place
    table = _table(_download() if source is None else source.read_bytes(), source)
    fault = _fault(table)
    if fault:
        raise DataError(
            f"{source or URL} is not the survey that we know: {fault}. Nothing was kept. "
            f"If the USGS has published another version, use it by its own name: cicpe data show {source or 'FILE'}"
        )
    write_atomic(place, table)
    return place


def _download() -> bytes:
    try:
        with urllib.request.urlopen(URL, timeout=TIMEOUT) as answer:
            data: bytes = answer.read()
            return data
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise DataError(
            f"{URL} cannot be reached ({reason}). Where there is a network, download it (its page is "
            f"https://mrdata.usgs.gov/geochem/), bring the file here, and run: cicpe data fetch --from {FILE}"
        ) from None


def _table(data: bytes, source: Path | None) -> bytes:
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if Path(name).name == FILE:
                return archive.read(name)
    raise DataError(f"{source or URL} is an archive without {FILE}")


def _fault(table: bytes) -> str:
    """What is wrong with a table; nothing, where it is the one that we know."""
    if len(table) != BYTES:
        return f"it has {len(table):,} bytes, not {BYTES:,}"
    digest = hashlib.sha256(table).hexdigest()
    return "" if digest == SHA256 else f"its sha256 is {digest}, not {SHA256}"
