"""Locks: one holder at a time, a wait that ends, and nothing left behind."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cicpe.files import lock_within, locked, read_file


def test_one_at_a_time(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "a.json", 0, 0
    counting = threading.Lock()

    def enter() -> None:
        nonlocal inside, most
        for _ in range(10):
            with locked(path, 30):
                with counting:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.001)
                with counting:
                    inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert list(tmp_path.iterdir()) == []


def test_a_wait_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with locked(path, 1):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"a\.json has been held by someone else for 0\.2"), locked(path, 0.2):
            raise AssertionError("two at once")
        assert 0.2 <= time.monotonic() - began < 5
    with locked(path, 1):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    code = (
        "import sys, time; from pathlib import Path; from cicpe.files import locked\n"
        "with locked(Path(sys.argv[1]), 5):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(TimeoutError), locked(path, 0.1):
            pass
        holder.kill()
    with locked(path, 5):
        pass


def test_a_wait_that_was_given_up_lets_go_when_its_turn_comes(tmp_path: Path) -> None:
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    told: list[bool] = []
    assert lock_within(tmp_path, 0.05, held_up=told.append) is None
    assert told == [True]
    os.close(holder)
    until = time.monotonic() + 10
    while told != [True, False] and time.monotonic() < until:
        time.sleep(0.01)
    assert told == [True, False]
    now = lock_within(tmp_path, 1)
    assert now is not None
    os.close(now)


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"words")
    assert read_file(tmp_path / "plain") == b"words"
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for a writer for ever
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(OSError, match="no plain file"):
            read_file(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "nothing")
