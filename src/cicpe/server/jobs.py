"""Work in processes of its own, so that the server answers others meanwhile and outlives whatever becomes of it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
WORKER = (sys.executable, "-m", "cicpe.server.worker")
News = dict[str, Any]
"""What a process says of its work, a JSON object per line."""


@final
class Job:
    """A process that does one piece of work (``worker.py``) and says how far it is. It ends with this one.

    Args:
        asked: The work, as JSON can hold it.
        on_news: Told everything that the process says, in a thread.
        on_end: Told last of all, in the same thread, the exit code: negative where a signal ended the process.
        handles: Descriptors that the process holds open too.
    """

    def __init__(
        self,
        asked: Mapping[str, Any],
        on_news: Callable[[News], None],
        on_end: Callable[[int], None],
        handles: Sequence[int] = (),
    ) -> None:
        self._on_news, self._on_end = on_news, on_end
        self._process = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ONE_THREAD,
            pass_fds=tuple(handles),
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="cicpe-job")
        self._thread.start()

    def kill(self) -> None:
        """Ends the process at once; ``on_end`` is told as ever."""
        self._process.kill()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until ``on_end`` has been told; False where that took longer."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _follow(self) -> None:
        process = self._process
        assert process.stdout is not None
        assert process.stdin is not None
        with process.stdout, process.stdin:
            for line in process.stdout:
                try:
                    news = json.loads(line)
                except ValueError:
                    continue  # what a library prints is no news
                if isinstance(news, dict):
                    self._on_news(news)
            self._on_end(process.wait())
