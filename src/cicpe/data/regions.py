"""A region of a survey as a task: places in the unit square, values as standard scores.

Places are projected to UTM (the zone of the region's middle, on the WGS84 ellipsoid) and stretched, each axis by
itself, so that the samples just fill the unit square. The datum of the coordinates does not matter: NAD27 and WGS84
differ by a shift that is nearly the same all over a region, and the stretching takes it away.

Values are logarithms. Samples at one place (equal to five decimals of a degree, about a metre) count as one: the mean
of their logarithms. The places' values are then shifted and scaled to mean 0 and standard deviation 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cicpe.data.places import DataError, geo
from cicpe.data.survey import Numbers, Survey
from cicpe.errors import InvalidInput

LEAST_SAMPLES = 50
"""Regions with fewer samples are left out."""
WIDEST = 6.0
"""Degrees of longitude that a region may span: those of a UTM zone."""


@final
@dataclass(frozen=True)
class Region:
    """One region: places in the unit square (east, north), values with mean 0 and standard deviation 1."""

    name: str
    place: Numbers
    """places x 2, in [0, 1]."""
    value: Numbers
    samples: int
    """How many samples the places stand for."""
    below_limit: int
    """How many of the samples were below the detection limit."""
    box: tuple[float, float, float, float]
    """West, south, east and north, in degrees."""
    origin: tuple[float, float]
    """UTM easting and northing of the corner (0, 0), in metres."""
    size: tuple[float, float]
    """The sides of the unit square, in metres."""
    log_mean: float
    log_std: float
    """What takes a standard score back to a logarithm: log_mean + log_std * score."""

    def to_geographic(self, place: Numbers) -> Numbers:
        """Latitude and longitude of places in the unit square."""
        metres = np.asarray(self.origin) + np.asarray(place) * np.asarray(self.size)
        longitude, latitude = _projection(self.box)(metres[:, 0], metres[:, 1], inverse=True)
        return np.stack([latitude, longitude], axis=1)


def regions_of(survey: Survey, least: int = LEAST_SAMPLES, only: Sequence[str] = ()) -> list[Region]:
    """The regions of a survey with at least ``least`` samples, by name; ``only`` some of them, where named."""
    if least < 3:
        raise InvalidInput("least", least, "a whole number of at least 3")
    names = np.array(survey.region)
    present, counts = np.unique(names, return_counts=True)
    missing = sorted(set(only) - set(present.tolist()))
    if missing:
        raise InvalidInput("regions", ", ".join(missing), "names of the survey's regions: cicpe data show lists them")
    wanted = [
        str(name) for name, count in zip(present, counts, strict=True) if (name in only if only else count >= least)
    ]
    if not wanted:
        raise DataError(f"no region has {least} samples or more; the largest has {counts.max()}")
    return [_region(survey, name, names == name) for name in wanted]


def _region(survey: Survey, name: str, mask: Any) -> Region:
    latitude, longitude = survey.latitude[mask], survey.longitude[mask]
    box = float(longitude.min()), float(latitude.min()), float(longitude.max()), float(latitude.max())
    if box[2] - box[0] > WIDEST:
        raise DataError(
            f"region {name} spans {box[2] - box[0]:.1f} degrees of longitude; at most {WIDEST:g} are allowed"
        )
    # Sorted by place, so that a region does not depend on the order of the file.
    spots, spot_of = np.unique(np.round(np.stack([longitude, latitude], axis=1), 5), axis=0, return_inverse=True)
    if np.ptp(spots, axis=0).min() == 0:
        raise DataError(f"region {name} has all its samples on one line: it has no area")
    logs = np.bincount(spot_of.ravel(), np.log(survey.value[mask])) / np.bincount(spot_of.ravel())
    if np.ptp(logs) == 0:
        raise DataError(f"region {name} has the same value everywhere: there is nothing to find")
    metres = np.stack(_projection(box)(spots[:, 0], spots[:, 1]), axis=1)
    origin, size = metres.min(axis=0), np.ptp(metres, axis=0)
    return Region(
        name=name,
        place=(metres - origin) / size,
        value=(logs - logs.mean()) / logs.std(),
        samples=int(mask.sum()),
        below_limit=int(survey.below_limit[mask].sum()),
        box=box,
        origin=(float(origin[0]), float(origin[1])),
        size=(float(size[0]), float(size[1])),
        log_mean=float(logs.mean()),
        log_std=float(logs.std()),
    )


def utm_zone(box: tuple[float, float, float, float]) -> tuple[int, bool]:
    """The UTM zone of a box's middle, and whether it is in the south."""
    west, south, east, north = box
    return min(int(((west + east) / 2 + 180) // 6) + 1, 60), south + north < 0


def _projection(box: tuple[float, float, float, float]) -> Any:
    zone, south = utm_zone(box)
    return geo("pyproj").Proj(proj="utm", zone=zone, south=south, ellps="WGS84")
