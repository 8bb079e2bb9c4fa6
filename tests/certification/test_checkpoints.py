"""Certificates during training: what is tested, what is kept, and what a run ends with."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import cicpe
from cicpe.agents.base import Agent, Proposal
from cicpe.certification.certificate import LEDGER, read_ledger
from cicpe.certification.certify import calibration_sha256
from cicpe.certification.checkpoints import CERTIFIED, RECORD, CertificationTarget, CheckpointCertifier
from cicpe.errors import InvalidInput, ModelError
from cicpe.problems.binary_search import BinarySearch

TINY = {"network": {"memory": {"kind": "gru", "hidden": 8}}, "first_batch": 16, "batch": 16, "horizon": 4}
EASY: dict[str, Any] = {"epsilon": (0.9, 1.5), "settings": TINY, "calibration_episodes": 2000}


def train(out: Path | None = None, **options: Any) -> tuple[cicpe.Model, list[str]]:
    said: list[str] = []
    callback = cicpe.TrainingCallback(on_certificate=said.append)
    problem = BinarySearch(dim=1, noise=0.05)
    given = {"updates": 8, "certify_every": 2, **EASY, **options}
    return cicpe.train(problem, out=out, callback=callback, **given), said


def test_a_run_ends_with_the_best_certified_checkpoint(tmp_path: Path) -> None:
    model, said = train(tmp_path / "run")
    assert len(said) == 4
    assert any("certified, " in line for line in said)
    (certificate,) = read_ledger(tmp_path / "run" / LEDGER)
    assert certificate.certified
    assert certificate.epsilon == 1.5
    assert certificate.alpha < certificate.alpha_of_run == 0.05
    certificate.check(model.sha256, calibration_sha256(model))
    kept = cicpe.load(tmp_path / "run" / CERTIFIED)
    saved = cicpe.load(tmp_path / "run")
    assert kept.fingerprint == saved.fingerprint == model.fingerprint


def test_where_nothing_passes_the_run_ends_as_any_other(tmp_path: Path) -> None:
    model, said = train(tmp_path / "run", epsilon=(0.001, 0.002))
    assert len(said) == 4
    assert not any("certified, " in line for line in said)
    assert not (tmp_path / "run" / LEDGER).exists()
    assert cicpe.load(tmp_path / "run").fingerprint == model.fingerprint


class Coin(Agent):
    """Right with a given probability, after a given number of queries."""

    def __init__(self, right: float, queries: int) -> None:
        self.right, self.queries, self.horizon = right, queries, 20

    def begin(self, context: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(context), dtype=torch.long)

    def propose(self, state: torch.Tensor, rng: torch.Generator) -> Proposal:
        n = len(state)
        answer = torch.where(torch.rand(n, generator=rng) < self.right, 0.0, 5.0)[:, None]
        return Proposal(torch.zeros(n, 1, 1), state >= self.queries, answer, torch.ones(n), torch.ones(n, 1))

    def update(self, state: torch.Tensor, query: torch.Tensor, observation: torch.Tensor) -> torch.Tensor:
        return state + 1


def test_the_fewest_queries_win_among_those_that_pass() -> None:
    model, _ = train(certify_every=None)
    stand_ins = {7: Coin(0.97, 6), 3: Coin(0.97, 3), 1: Coin(0.5, 1), 5: Coin(0.97, 5)}

    said: list[str] = []
    inspector = CheckpointCertifier(CertificationTarget(2.0, 0.1, 4), seed=3, folder=None, report=said.append)
    for i, coin in enumerate(stand_ins.values()):
        made = replace(model)
        object.__setattr__(made, "agent", lambda epsilon, delta, stop="confidence", coin=coin: coin)
        inspector.inspect((i + 1) / 4, lambda made=made: made)
    assert [("certified, " in line) for line in said] == [True, True, False, True]
    assert inspector.best is not None
    assert inspector.best[1].mean_queries == 3


def test_a_checkpoint_is_tested_once_and_budgets_add_up() -> None:
    model, _ = train(certify_every=None)
    said: list[str] = []
    inspector = CheckpointCertifier(CertificationTarget(1.5, 0.1, 4), seed=0, folder=None, report=said.append)
    for progress in (0.1, 0.26, 0.3, 0.49, 0.5):
        inspector.inspect(progress, lambda: model)
    assert len(said) == 2
    inspector.resume(0.8)
    inspector.inspect(0.9, lambda: model)
    assert len(said) == 2


# An interrupted run.


def certifier(folder: Path, lines: list[str], **changes: Any) -> CheckpointCertifier:
    target = CertificationTarget(1.5, 0.1, 4)._replace(**changes)
    return CheckpointCertifier(target, seed=0, folder=folder, report=lines.append)


def test_what_was_tested_before_the_last_saved_state_is_not_tested_again(tmp_path: Path) -> None:
    model, _ = train(certify_every=None)
    lines: list[str] = []
    first = certifier(tmp_path, lines)
    first.start()
    first.inspect(0.5, lambda: model)
    assert len(lines) == 1
    # The run was saved at 0.4, tested at 0.5 and killed: it goes on from 0.4.
    again = certifier(tmp_path, lines)
    again.resume(0.4)
    again.inspect(0.45, lambda: model)
    again.inspect(0.5, lambda: model)
    assert len(lines) == 1
    again.inspect(0.75, lambda: model)
    assert len(lines) == 2


def test_a_run_killed_during_a_test_has_spent_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = train(certify_every=None)
    lines: list[str] = []
    killed = certifier(tmp_path, lines)

    def kill(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cicpe.certification.checkpoints.certify", kill)
        with pytest.raises(KeyboardInterrupt):
            killed.inspect(0.25, lambda: model)
    again = certifier(tmp_path, lines)
    again.resume(0.2)
    again.inspect(0.3, lambda: model)
    assert lines == []


def test_a_whole_run_tests_each_checkpoint_once_however_often_it_is_interrupted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tested: list[str] = []

    def interrupt(line: str) -> None:
        tested.append(line)
        if len(tested) in (1, 2):
            raise KeyboardInterrupt

    # The run is saved at its end alone, so that every resumption begins before what was tested.
    options: dict[str, Any] = {"updates": 8, "certify_every": 2, "checkpoint_seconds": 1e9, **EASY}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            cicpe.train(
                BinarySearch(dim=1, noise=0.05),
                out=folder,
                resume=True,
                callback=cicpe.TrainingCallback(on_certificate=interrupt),
                **options,
            )
    cicpe.train(
        BinarySearch(dim=1, noise=0.05),
        out=folder,
        resume=True,
        callback=cicpe.TrainingCallback(on_certificate=interrupt),
        **options,
    )
    assert [line.split(":")[0] for line in tested] == [f"checkpoint {k} of 4" for k in (1, 2, 3, 4)]


def test_other_tests_than_the_run_began_with_are_refused(tmp_path: Path) -> None:
    model, _ = train(certify_every=None)
    certifier(tmp_path, []).inspect(0.25, lambda: model)
    with pytest.raises(InvalidInput, match="the tests that this run began with"):
        certifier(tmp_path, [], checks=8).resume(0.3)


def test_a_new_run_in_the_same_folder_begins_with_its_whole_budget(tmp_path: Path) -> None:
    model, _ = train(certify_every=None)
    certifier(tmp_path, []).inspect(1.0, lambda: model)
    assert (tmp_path / CERTIFIED / "config.json").exists()
    fresh = certifier(tmp_path, [], checks=8)
    fresh.start()
    fresh.resume(0.0)
    assert (fresh.done, fresh.best) == (0, None)


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text('{"tested": -1}')
    with pytest.raises(ModelError, match="cannot be read as a record of tests"):
        certifier(tmp_path, []).resume(0.3)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"certify_every": 0}, "certify_every"),
        ({"certify_every": 99}, "certify_every"),
        ({"certify_at": (5.0, 0.1)}, "certify_at"),
    ],
)
def test_bad_requests_are_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(cicpe.InvalidInput, match=field):
        train(**options)
