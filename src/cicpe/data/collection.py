"""Fitted fields on disk: one pair of files per region, and a list of regions under a name.

A region's files are named by a hash of its samples and of the settings, so a fit that was interrupted goes on where it
ended, and the same region in two collections is fitted once. A collection's digest is a hash of those names: data and
settings decide it, rounding does not.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from cicpe.data.fields import FitSettings, fit_field
from cicpe.data.places import DataError, cache_folder
from cicpe.data.regions import Region
from cicpe.data.sampling import grid_draws, grid_mean, grid_twins
from cicpe.errors import InvalidInput
from cicpe.files import write_atomic, write_json

FORMAT = 1
"""Part of every key: raised whenever a fit means something else."""
RESOLVABLE = 0.1
"""Both length scales of a resolvable region are at least this long."""


class Entry(NamedTuple):
    """What is known of a fitted region without reading its grids."""

    name: str
    key: str
    samples: int
    places: int
    below_limit: int
    box: tuple[float, float, float, float]
    lengthscale: tuple[float, float]
    """East and north, on the unit square."""
    signal: float
    noise: float
    """Standard deviations, in standard scores."""
    elbo: float
    """The bound after the last step, per place."""
    seconds: float
    """Processor time of the fit."""

    @property
    def resolvable(self) -> bool:
        """Whether both length scales are long enough for a peak to be found in a few dozen queries."""
        return min(self.lengthscale) >= RESOLVABLE


@final
@dataclass(frozen=True)
class Collection:
    """Fitted regions under a name."""

    name: str
    folder: Path
    entries: tuple[Entry, ...]

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits that the data and the settings decide."""
        return hashlib.sha256(json.dumps([(e.name, e.key) for e in self.entries]).encode()).hexdigest()[:12]

    @property
    def boxes(self) -> dict[str, tuple[float, float, float, float]]:
        """Region -> west, south, east, north: what splits are made from."""
        return {entry.name: entry.box for entry in self.entries}


def fields_folder() -> Path:
    """Where collections are kept."""
    return cache_folder() / "fields"


def check_collection_name(name: str) -> None:
    """Refuses what cannot be a collection's name; a path could lead to any file."""
    if not name or len(name) >= 64 or not name.replace("-", "").replace("_", "").isalnum():
        raise InvalidInput("name", name, "letters, digits, - and _, fewer than 64")


def open_collection(name: str, digest: str = "") -> Collection:
    """A collection by name; with a digest, only if it is still the one that was meant."""
    check_collection_name(name)
    path = fields_folder() / f"{name}.json"
    try:
        keys = json.loads(path.read_text(encoding="utf-8"))["keys"]
        collection = Collection(name, path.parent, tuple(_read_entry(path.parent, key) for key in keys))
    except FileNotFoundError as error:
        there = ", ".join(collection_names()) or "none"
        raise DataError(
            f"no fitted fields named {name!r} ({error.filename} is missing; there are: {there}). "
            f"Make them from a survey: cicpe data fit FILE --name {name}"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); run cicpe data fit again") from None
    if digest and collection.digest != digest:
        raise DataError(
            f"the fitted fields {name!r} are {collection.digest}, and {digest} is asked for: they were made from other "
            f"data or settings. Make the other ones again, or leave the digest out"
        )
    return collection


def read_tensor(folder: Path, entry: Entry, name: str) -> Tensor:
    """``mean`` (side x side), ``draws``, ``twins`` (count x side x side), ``elbo`` (steps), or a part of the field."""
    path = folder / f"{entry.key}.safetensors"
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor
    except (OSError, safetensors.SafetensorError) as error:
        raise DataError(f"{path} cannot be read ({error}); delete its .json too and run cicpe data fit again") from None


def collection_names() -> list[str]:
    """The collections that are there."""
    return sorted(path.stem for path in fields_folder().glob("*.json") if len(path.stem) != 64)


def fit_regions(
    regions: Sequence[Region],
    name: str,
    settings: FitSettings | None = None,
    jobs: int = 1,
    on_region: Callable[[Entry], None] | None = None,
) -> Collection:
    """Fits what is not fitted yet, on ``jobs`` processes, and writes the collection.

    Args:
        regions: The regions, each once.
        name: The collection's name; an older one of that name is replaced.
        settings: How to fit; the paper's, where left out.
        jobs: How many processes. With one, it is this one.
        on_region: Called with every region when it is ready.
    """
    check_collection_name(name)
    if len({region.name for region in regions}) != len(regions):
        raise InvalidInput("regions", [region.name for region in regions], "regions with different names")
    folder, settings = fields_folder(), settings or FitSettings()
    work = [(region, settings, folder) for region in regions]
    entries: list[Entry] = []

    def take(ready: Iterable[Entry]) -> None:
        for entry in ready:
            entries.append(entry)
            if on_region is not None:
                on_region(entry)

    if jobs == 1:
        take(map(_fit_one, work))
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
            take(pool.map(_fit_one, work))
    write_json(folder / f"{name}.json", {"format": FORMAT, "keys": [entry.key for entry in entries]})
    return open_collection(name)


def _fit_one(work: tuple[Region, FitSettings, Path]) -> Entry:
    """One region: from the cache, or fitted and put there. The JSON is written last: with it, the pair is complete."""
    region, settings, folder = work
    key = _key(region, settings)
    if (folder / f"{key}.json").is_file():
        return _read_entry(folder, key)
    start = time.process_time()
    field = fit_field(region, settings)
    rng = torch.Generator().manual_seed(settings.seed)
    tensors = {
        "mean": grid_mean(field, settings.grid),
        "draws": grid_draws(field, settings.grid, settings.draws, rng),
        "twins": grid_twins(field, torch.from_numpy(region.place), settings.grid, settings.draws, rng),
        "inducing": field.inducing,
        "posterior_mean": field.mean,
        "posterior_root": field.root,
        "elbo": field.elbo,
    }
    east, north = field.kernel.lengthscale.tolist()
    entry = Entry(
        name=region.name,
        key=key,
        samples=region.samples,
        places=len(region.value),
        below_limit=region.below_limit,
        box=region.box,
        lengthscale=(east, north),
        signal=float(field.kernel.amplitude),
        noise=float(field.noise),
        elbo=float(field.elbo[-1]),
        seconds=time.process_time() - start,
    )
    write_atomic(folder / f"{key}.safetensors", save(tensors))
    about = {"origin": region.origin, "size": region.size, "log_mean": region.log_mean, "log_std": region.log_std}
    write_json(folder / f"{key}.json", {"entry": entry._asdict(), "region": about, "settings": asdict(settings)})
    return entry


def _read_entry(folder: Path, key: str) -> Entry:
    data: dict[str, Any] = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))["entry"]
    data["box"], data["lengthscale"] = tuple(data["box"]), tuple(data["lengthscale"])
    return Entry(**data)


def _key(region: Region, settings: FitSettings) -> str:
    """A hash of all that a fit depends on, rounded: another processor's last digit does not make another region."""
    numbers = (*region.box, *region.origin, *region.size, region.log_mean, region.log_std)
    plain = [FORMAT, asdict(settings), region.name, region.samples, region.below_limit, [f"{x:.6g}" for x in numbers]]
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for array in (region.place, region.value):
        digest.update((np.round(array, 8) + 0.0).tobytes())  # + 0.0, so that there is one zero only
    return digest.hexdigest()
