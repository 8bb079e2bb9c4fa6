"""Where commands play: how far they are is told, and standard output is kept for results."""

import pytest

from cicpe.cli import playing
from cicpe.cli.playing import on_a_cluster


def test_what_a_cluster_says_is_kept_off_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    for backend in ("ray", "local"):
        with on_a_cluster(backend):
            print(f"a node of {backend}")
    captured = capsys.readouterr()
    assert captured.out == "a node of local\n"
    assert captured.err == "a node of ray\n"


def test_progress_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "SILENCE", 0.0)
    with playing.playing(None, "local") as executor:
        assert list(executor.map(abs, [-1, -2])) == [1, 2]
    assert capsys.readouterr().err == " 50%  of the episodes played\n100%  of the episodes played\n"
    monkeypatch.setattr(playing, "SILENCE", 60.0)
    with playing.playing(None, "local") as executor:
        assert list(executor.map(abs, [-1, -2])) == [1, 2]
    assert capsys.readouterr().err == ""
