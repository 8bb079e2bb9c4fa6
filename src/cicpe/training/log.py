"""The run's own record: losses and looks as JSON lines, and TensorBoard scalars where it is installed."""

import json
import time
from pathlib import Path
from typing import Any, final

from cicpe.training.loop import Look, Losses


@final
class TrainingLog:
    """Appends to ``log.jsonl`` in the run's folder. Without a folder it keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / "log.jsonl"
        self.ended = time.perf_counter()
        self._pending: list[str] = []
        self._board: Any = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                from torch.utils.tensorboard import SummaryWriter

                self._board = SummaryWriter(str(folder / "tensorboard"))
            except ImportError:
                pass

    def rewind(self, update: int) -> None:
        """Drops what was written after the checkpoint that a run resumes from."""
        if self.path is None or not self.path.exists():
            return
        lines = self.path.read_text().splitlines()
        kept = [line for line in lines if _update_of(line) <= update]
        self.path.write_text("".join(f"{line}\n" for line in kept))

    def start(self) -> None:
        """Empties the record of an earlier run."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def losses(self, update: int, losses: Losses) -> None:
        """One line an iteration."""
        self._pending.append(json.dumps({"update": update, **losses._asdict()}))
        if self._board is not None and update % 10 == 0:
            for name, value in losses._asdict().items():
                self._board.add_scalar(f"loss/{name}", value, update)

    def look(self, look: Look) -> None:
        """A look at the whole run."""
        self._pending.append(json.dumps({"look": True, **look._asdict(), "losses": look.losses._asdict()}))
        if self._board is not None:
            for name in ("accuracy", "queries", "horizon", "cost"):
                self._board.add_scalar(f"run/{name}", getattr(look, name), look.update)

    def flush(self) -> None:
        """Writes what is pending."""
        if self.path is not None and self._pending:
            with self.path.open("a") as file:
                file.writelines(f"{line}\n" for line in self._pending)
        self._pending.clear()
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """Writes what is pending and ends."""
        self.flush()
        self.ended = time.perf_counter()
        if self._board is not None:
            self._board.close()


def _update_of(line: str) -> int:
    try:
        return int(json.loads(line)["update"])
    except (ValueError, KeyError):
        return 2**62
