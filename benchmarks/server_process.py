"""A server of campaigns, or a database, in a process of its own on this machine alone: started, killed, started again."""

import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

import httpx

HERE = "127.0.0.1"
PATIENCE = 600.0
"""Seconds that a start may take, on a machine that others use as well."""


def free_port() -> int:
    with socket.create_server((HERE, 0)) as listening:
        return int(listening.getsockname()[1])


@final
class CampaignServer:
    """``cicpe serve`` at one address, however often it is killed."""

    def __init__(self, store: str, log: Path, files: int = 0, token: str | None = None) -> None:
        self.store, self.log, self.files, self.port = store, log, files, free_port()
        self.address, self.starts = f"http://{HERE}:{self.port}", 0
        self.environment = os.environ | ({} if token is None else {"CICPE_TOKEN": token})
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "CampaignServer":
        words = [sys.executable, "-m", "cicpe", "serve", "--port", str(self.port), "--store", self.store]
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (self.files, self.files))) if self.files else None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stderr=log, env=self.environment, preexec_fn=limit
            )
        self.starts += 1
        until = time.monotonic() + PATIENCE
        while True:
            with suppress(httpx.HTTPError):
                httpx.get(self.address + "/", timeout=5)
                return self
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start:\n{self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def resident_megabytes(self) -> float:
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6


@contextmanager
def campaign_server(store: str, folder: Path, files: int = 0, token: str | None = None) -> Iterator[CampaignServer]:
    server = CampaignServer(store, folder / "server.log", files, token).start()
    try:
        yield server
    finally:
        server.kill()


@final
class Database:
    """A PostgreSQL server in a folder of its own, reached by a socket there; crashed and started again at will."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, f"postgresql://cicpe@/postgres?host={folder}"
        self.user = _other_user() if os.geteuid() == 0 else None
        if self.user is not None:  # it refuses to run as root
            os.chown(folder, pwd.getpwnam(self.user).pw_uid, pwd.getpwnam(self.user).pw_gid)
        make = ["initdb", "--auth=trust", "--username=cicpe", "--encoding=UTF8", f"--pgdata={folder / 'data'}"]
        subprocess.run(make, check=True, user=self.user, cwd=folder, stdout=subprocess.DEVNULL)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Database":
        import psycopg

        run = ["postgres", "-D", str(self.folder / "data"), "-c", "listen_addresses=", "-c", "max_connections=120"]
        run += ["-c", f"unix_socket_directories={self.folder}", "-c", "shared_buffers=16MB"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(run, user=self.user, cwd=self.folder, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return self
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def crash(self) -> None:
        """Ends it at once, without a word to its disk: what follows is recovery."""
        assert self.process is not None
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def database() -> Iterator[Database]:
    folder = Path(tempfile.mkdtemp(prefix="cicpe-pg-"))
    server = Database(folder).start()
    try:
        yield server
    finally:
        server.crash()
        shutil.rmtree(folder, ignore_errors=True)


def _other_user() -> str | None:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)
