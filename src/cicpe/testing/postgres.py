"""A PostgreSQL server of one's own, for the length of a test."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60.0
"""Seconds that a server may take to start."""


def postgres_is_installed() -> bool:
    """Whether the programs of a server are on the path, and someone other than root to run it."""
    programs = shutil.which("initdb") is not None and shutil.which("postgres") is not None
    return programs and (os.geteuid() != 0 or _other_user() is not None)


@contextmanager
def temporary_postgres() -> Iterator[str]:
    """The address of a fresh server, reached by a socket in a folder of its own; both are gone afterwards."""
    user = _other_user() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="cicpe-pg-"))
    server: subprocess.Popen[bytes] | None = None
    try:
        if user is not None:  # the server refuses to run as root
            os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        data, log = folder / "data", folder / "log"
        make = ["initdb", "--no-sync", "--auth=trust", "--username=cicpe", "--encoding=UTF8", f"--pgdata={data}"]
        subprocess.run(make, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
        run = ["postgres", "-D", str(data), "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
        run += ["-c", "max_connections=220", "-c", "shared_buffers=16MB"]
        with log.open("wb") as output:
            server = subprocess.Popen(run, user=user, cwd=folder, stdout=output, stderr=output)
        url = f"postgresql://cicpe@/postgres?host={folder}"
        _wait(url, server, log)
        yield url
    finally:
        if server is not None and server.poll() is None:
            server.send_signal(signal.SIGQUIT)  # at once: nobody needs the data any more
            try:
                server.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    import psycopg

    until = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}") from None
        time.sleep(0.05)


def _other_user() -> str | None:
    """A user that a server can run as where we are root."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)
