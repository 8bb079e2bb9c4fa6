"""The run's own record: losses and snapshots as JSON lines, and TensorBoard scalars where it is installed."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from cicpe.errors import CheckpointError, InvalidInput
from cicpe.files import write_atomic
from cicpe.training.base import Losses, Snapshot


@final
class TrainingLog:
    """Appends to ``log.jsonl`` in the run's folder. Without a folder it keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / "log.jsonl"
        self.ended = time.perf_counter()
        self._pending: list[str] = []
        self._board: Any = None
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidInput("out", str(folder), f"a folder that can be written to ({error})") from None
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            with _writing(folder):
                self._board = SummaryWriter(str(folder / "tensorboard"))

    def rewind(self, update: int) -> None:
        """Drops what was written after the checkpoint that a run resumes from."""
        if self.path is None or not self.path.exists():
            return
        lines = self.path.read_text().splitlines()
        kept = [line for line in lines if _update_of(line) <= update]
        with _writing(self.path):
            write_atomic(self.path, "".join(f"{line}\n" for line in kept).encode())

    def start(self) -> None:
        """Empties the record of an earlier run."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def losses(self, update: int, losses: Losses) -> None:
        """Records the losses of an iteration."""
        self._pending.append(json.dumps({"update": update, **losses._asdict()}))
        if self._board is not None and update % 10 == 0:
            with _writing(self.path):
                for name, value in losses._asdict().items():
                    self._board.add_scalar(f"loss/{name}", value, update)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Records a snapshot of the run. Its lines are told from the others by the key ``look``."""
        self._pending.append(json.dumps({"look": True, **snapshot._asdict(), "losses": snapshot.losses._asdict()}))
        if self._board is not None:
            with _writing(self.path):
                for name in ("accuracy", "queries", "horizon", "cost"):
                    self._board.add_scalar(f"run/{name}", getattr(snapshot, name), snapshot.update)

    def flush(self) -> None:
        """Writes what is pending."""
        if self.path is not None and self._pending:
            with _writing(self.path), self.path.open("a") as file:
                file.writelines(f"{line}\n" for line in self._pending)
        self._pending.clear()
        if self._board is not None:
            with _writing(self.path):
                self._board.flush()

    def close(self) -> None:
        """Writes what is pending and ends."""
        self.flush()
        self.ended = time.perf_counter()
        if self._board is not None:
            self._board.close()


@contextmanager
def _writing(path: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # a full disk, say; TensorBoard's writer passes on what its thread met
        raise CheckpointError(f"the log {path} could not be written ({error})") from error


def _update_of(line: str) -> int:
    try:
        return int(json.loads(line)["update"])
    except (ValueError, KeyError):
        return 2**62
