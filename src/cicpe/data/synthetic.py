"""Surveys that nobody made: smooth fields with a known shape, sampled as a real survey samples."""

import csv
import io
from pathlib import Path

import numpy as np

from cicpe.data.survey import Numbers
from cicpe.files import write_atomic


def bumps(place: Numbers, rng: np.random.Generator, count: int = 4) -> Numbers:
    """A smooth random function on the unit square: ``count`` round bumps of width 0.2, some of them pits."""
    centre = rng.uniform(0.05, 0.95, (count, 2))
    height = rng.normal(0, 1.5, count)
    squared = ((place[:, None] - centre) ** 2).sum(axis=-1)
    field: Numbers = (height * np.exp(-squared / (2 * 0.2**2))).sum(axis=1)
    return field


def write_synthetic(path: Path, regions: int = 12, samples: int = 60, noise: float = 0.3, seed: int = 0) -> None:
    """Writes a survey of quadrangles of 1 x 2 degrees, four in a row, with columns lat, lon, cu_ppm, quad.

    In every region one place is sampled twice, and one sample is below its detection limit (a negative value).
    """
    rng = np.random.default_rng(seed)
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["lat", "lon", "cu_ppm", "quad"])
    for number in range(regions):
        south, west = 38 + number // 4, -98 + 2 * (number % 4)
        place = rng.uniform(0, 1, (samples - 1, 2))
        place = np.concatenate([place, place[:1]])
        logs = 3 + 0.5 * (bumps(place, rng) + noise * rng.normal(size=samples))
        for index, ((east, north), log) in enumerate(zip(place, logs, strict=True)):
            value = -2.0 if index == 1 else np.exp(log)
            rows.writerow([f"{south + north:.5f}", f"{west + 2 * east:.5f}", f"{value:.4f}", f"Q{number:02d}"])
    write_atomic(path, text.getvalue().encode())
