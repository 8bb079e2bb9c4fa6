"""A real Ray cluster on this machine, loopback only: every node has folders of its own and can be killed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

HOSTS = "127.0.0.{}"
"""Addresses of the loopback interface; the first of them Ray would replace by one that others can reach."""
BUSY = {
    "RAY_worker_niceness": "0",
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_worker_register_timeout_seconds": "600",
}
"""Settings of Ray for a machine that has other things to do: a slow node is not a dead one."""
PATIENCE = 600.0
"""Seconds that a node may take to be there: machines that run tests are busy."""


@final
@dataclass(frozen=True)
class Node:
    """What `ray start` has started, and all that it starts."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    """Its home, its working folder, and where its temporary files lie."""

    def processes(self) -> dict[int, str]:
        """Every process of the node that lives, with its command."""
        return descendants(self.process.pid) if self.process.poll() is None else {}

    def kill(self) -> None:
        """As if the machine had lost its power."""
        for process in [self.process.pid, *self.processes()]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()


@final
@dataclass(frozen=True)
class Cluster:
    """Nodes of one processor each."""

    address: str
    nodes: list[Node]


def descendants(process: int) -> dict[int, str]:
    """The processes below one, with their commands."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, waiting = {}, children.get(process, [])
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        with suppress(OSError):
            found[one] = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


@contextmanager
def ray_cluster(nodes: int = 2) -> Iterator[Cluster]:
    """Starts a cluster and takes it down."""
    with socket.socket() as free:
        free.bind((HOSTS.format(2), 0))
        address = f"{HOSTS.format(2)}:{free.getsockname()[1]}"
    started: list[Node] = []
    try:
        for number in range(nodes):
            started.append(_start(address, number))
            _wait_for_nodes(address, number + 1)
        yield Cluster(address, started)
    finally:
        for node in started:
            node.kill()
            shutil.rmtree(node.folder, ignore_errors=True)


def _start(address: str, number: int) -> Node:
    folder, head = Path(tempfile.mkdtemp(prefix="ray-")), number == 0  # short: a socket's path may have 107 letters
    place = ["--head", f"--port={address.partition(':')[2]}"] if head else [f"--address={address}"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *place, "--block", "--num-cpus=1"]
    command += [
        f"--node-ip-address={HOSTS.format(2 + number)}",
        f"--temp-dir={folder / 'ray'}",
        "--object-store-memory=100000000",
    ]
    command += ["--disable-usage-stats", *(["--include-dashboard=false"] if head else [])]
    own = {"HOME": str(folder), "TMPDIR": str(folder), "XDG_STATE_HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=os.environ | BUSY | own)
    return Node(process, folder)


def _wait_for_nodes(address: str, count: int) -> None:
    code = (
        f"import ray; ray.init('{address}', logging_level='ERROR', log_to_driver=False); "
        f"print(sum(node['Alive'] for node in ray.nodes()))"
    )
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        if seen.stdout.strip() == str(count):
            return
        time.sleep(1)
    raise TimeoutError(f"no {count} nodes after {PATIENCE:g} seconds: {seen.stderr[-500:]}")
