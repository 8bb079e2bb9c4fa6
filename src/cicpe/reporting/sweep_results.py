"""The results of a sweep in one SQLite file: its runs, their figures, and how every episode ended."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from cicpe.errors import InvalidInput
from cicpe.evaluation.bootstrap import Mean, bootstrap_mean, paired_difference

FORMAT = 1
SEED = "seed"
"""The setting that tells repetitions of one thing apart."""
TABLES = """
CREATE TABLE runs (
    name TEXT PRIMARY KEY,
    settings TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'finished', 'failed')),
    fault TEXT
);
CREATE TABLE figures (
    run TEXT NOT NULL REFERENCES runs (name),
    asked TEXT NOT NULL,
    model_sha256 TEXT NOT NULL,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    noise REAL,
    accuracy REAL,
    mean_queries REAL,
    refused TEXT,
    row TEXT NOT NULL,
    all_queries BLOB,
    all_losses BLOB,
    PRIMARY KEY (run, asked)
);
"""


class SweepRow(NamedTuple):
    """A run at one cell."""

    run: str
    settings: dict[str, Any]
    row: dict[str, Any]
    """The figures, as they are printed."""
    all_queries: npt.NDArray[np.int32]
    """Of every episode; none where the model has refused."""
    all_losses: npt.NDArray[np.float32]

    @property
    def cell(self) -> tuple[float, float, float | None]:
        """Epsilon, delta and noise as they were asked for."""
        return self.row["epsilon"], self.row["delta"], json.loads(self.row["asked"])["noise"]

    @property
    def trajectories(self) -> int:
        """How often each task was played; its plays follow each other."""
        return int(self.row.get("trajectories", 1))

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Which episodes succeeded."""
        return np.asarray(self.all_losses <= self.row["epsilon"])


@final
@dataclass(frozen=True)
class SweepResults:
    """A file of results. Whatever is kept is there as a whole, or not at all."""

    path: Path

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        if self.path.exists() and not is_sweep(self.path):
            raise InvalidInput("results", str(self.path), "a file that a sweep has written; remove it")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=30.0)) as connection, connection:
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {FORMAT}; COMMIT;")
            yield connection

    def begin(self, runs: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes down which runs there are, by name, with their settings; what is known of them stays."""
        with self._open() as connection:
            for name, settings in runs.items():
                connection.execute(
                    "INSERT INTO runs VALUES (?, ?, 'waiting', NULL) ON CONFLICT DO NOTHING",
                    (name, json.dumps(settings)),
                )

    def keep(self, run: str, figures: Iterable[Mapping[str, Any]], fault: str | None) -> None:
        """Keeps what came of a run: its figures, or what went wrong.

        Args:
            run: Its name.
            figures: One per cell, as a run gives them.
            fault: What went wrong, in words; None where all went well.
        """
        with self._open() as connection:
            state = "finished" if fault is None else "failed"
            connection.execute("UPDATE runs SET state = ?, fault = ? WHERE name = ?", (state, fault, run))
            for cell_figures in figures:
                row = dict(cell_figures)
                queries, losses = row.pop("all_queries", None), row.pop("all_losses", None)
                columns = ("asked", "model_sha256", "epsilon", "delta", "noise", "accuracy", "mean_queries", "refused")
                values = [row.get(name) for name in columns]
                values[4] = values[4] if isinstance(values[4], float | int) else None  # a range has no column
                blobs = _blob(queries, np.int32), _blob(losses, np.float32)
                connection.execute(
                    f"INSERT OR REPLACE INTO figures VALUES ({', '.join('?' * 12)})",
                    (run, *values, json.dumps(row, allow_nan=False), *blobs),
                )

    def rows(self) -> list[SweepRow]:
        """Everything that is known, in the order in which runs were begun."""
        with self._open() as connection:
            records = connection.execute(
                "SELECT runs.name, settings, row, all_queries, all_losses FROM figures "
                "JOIN runs ON runs.name = figures.run ORDER BY runs.rowid, figures.rowid"
            ).fetchall()
        return [
            SweepRow(name, json.loads(settings), json.loads(row), _array(queries, np.int32), _array(losses, np.float32))
            for name, settings, row, queries, losses in records
        ]

    def failures(self) -> dict[str, str]:
        """The runs that failed, and why."""
        with self._open() as connection:
            return dict(connection.execute("SELECT name, fault FROM runs WHERE state = 'failed' ORDER BY rowid"))


def is_sweep(path: Path) -> bool:
    """Whether a file is one that a sweep has written."""
    try:
        with path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                return False
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {"runs", "figures"} <= names
    except (OSError, sqlite3.Error):
        return False


def _blob(values: Sequence[float] | None, kind: type[Any]) -> bytes | None:
    return None if values is None else np.asarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()


def _array(blob: bytes | None, kind: type[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(blob or b"", dtype=np.dtype(kind).newbyteorder("<"))


class SweepGroup(NamedTuple):
    """Runs that differ in their seed alone, at one cell."""

    settings: dict[str, Any]
    cell: tuple[float, float, float | None]
    seeds: int
    episodes: int
    """Tasks of every seed."""
    trajectories: int
    """Plays of every task."""
    accuracy: Mean
    queries: Mean
    versus_best: tuple[Mean, Mean] | None
    """Accuracy and queries minus those of the group with the fewest queries, on the same tasks."""

    @property
    def name(self) -> str:
        """The settings in words."""
        return ", ".join(f"{name} {value}" for name, value in self.settings.items()) or "all runs"

    def to_json(self) -> dict[str, Any]:
        """The group as it is printed."""
        epsilon, delta, noise = self.cell
        versus = None
        if self.versus_best is not None:
            versus = {"accuracy": list(self.versus_best[0]), "queries": list(self.versus_best[1])}
        return {
            "method": self.name,
            "settings": self.settings,
            "epsilon": epsilon,
            "delta": delta,
            "noise": noise,
            "seeds": self.seeds,
            "episodes": self.episodes,
            "trajectories": self.trajectories,
            "accuracy": self.accuracy.value,
            "accuracy_ci": list(self.accuracy.interval),
            "mean_queries": self.queries.value,
            "mean_queries_ci": list(self.queries.interval),
            "versus_best": versus,
        }


def sweep_groups(rows: Sequence[SweepRow]) -> list[SweepGroup]:
    """What the runs of a sweep are worth, seeds taken together: intervals are of seeds, tasks and trajectories.

    Args:
        rows: Those of one or several cells; refused ones are passed over.

    Returns:
        A group for every cell and combination of settings, in their order.
    """
    rows_by_group: dict[tuple[Any, ...], list[SweepRow]] = {}
    for row in rows:
        if row.row["refused"] is None:
            settings = {name: value for name, value in row.settings.items() if name != SEED}
            rows_by_group.setdefault((row.cell, json.dumps(settings)), []).append(row)
    groups = []
    for cell in dict.fromkeys(key[0] for key in rows_by_group):
        own = {key: _levels(same) for key, same in rows_by_group.items() if key[0] == cell}
        best = min(own, key=lambda key: float(own[key][1].mean()))
        for key, (right, queries) in own.items():
            versus = None
            if key != best and right.shape == own[best][0].shape:
                versus = paired_difference(right, own[best][0]), paired_difference(queries, own[best][1])
            groups.append(
                SweepGroup(
                    settings=json.loads(key[1]),
                    cell=cell,
                    seeds=right.shape[0],
                    episodes=right.shape[1],
                    trajectories=right.shape[2],
                    accuracy=bootstrap_mean(right),
                    queries=bootstrap_mean(queries),
                    versus_best=versus,
                )
            )
    return groups


def _levels(rows: Sequence[SweepRow]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Success and queries, seed x task x trajectory; of all rows as many as the smallest has."""
    shapes = [(len(row.all_queries) // row.trajectories, row.trajectories) for row in rows]
    tasks, trajectories = (min(sizes) for sizes in zip(*shapes, strict=True))

    def stacked(columns: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        parts = [of.reshape(shape)[:tasks, :trajectories] for of, shape in zip(columns, shapes, strict=True)]
        return np.stack(parts).astype(np.float64)

    return stacked(row.right for row in rows), stacked(row.all_queries for row in rows)
