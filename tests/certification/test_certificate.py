"""Certificates: what they hold, whom they speak for, the file that remembers, and the command."""

import json
import math
import shutil
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import BaseModel, ValidationError
from scipy.stats import binom

import cicpe
from cicpe import zoo
from cicpe.certification import certificate
from cicpe.certification.certificate import (
    ALPHA_LIMIT,
    Certificate,
    append_certificate,
    open_ledger,
    problem_sha256,
    read_ledger,
)
from cicpe.certification.certify import calibration_sha256, certify, certify_checkpoint, stream_seed
from cicpe.certification.martingale import back_loaded_budgets
from cicpe.cli.main import main
from cicpe.errors import InvalidInput, ModelError
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_max import GPMax
from commands import Run
from profile_agents import ProfileAgent, Revealed, constant
from stopping import constant as constant_threshold

ALPHA = 0.05
ASK = {"epsilon": 0.2, "delta": 0.1}


class Thresholds(BaseModel):
    kappa: float = 0.9


@dataclass(frozen=True)
class CoinModel:
    """A model that succeeds with probability ``p`` on every task."""

    p: float
    sha256: str = "a" * 64
    fingerprint: str = "f" * 64
    calibration: Thresholds = field(default_factory=Thresholds)
    problem = Revealed()
    description = SimpleNamespace(
        problem="revealed", problem_options={"dim": 1, "pair": (1, 2)}, problem_source=None, context_names=()
    )

    def agent(self, epsilon: float, delta: float, stop: str = "confidence") -> ProfileAgent:
        return ProfileAgent(constant(self.p))

    def tasks(self, context: dict[str, float] | None = None, problem: Problem | None = None) -> Problem:
        if context:
            raise InvalidInput("context", context, "no context")
        return problem or self.problem


def test_a_good_model_is_certified_early_and_says_so() -> None:
    found = certify(CoinModel(0.97), **ASK, seed=1)
    assert found.certified
    assert found.episodes_used < 1000
    assert found.log_martingale >= math.log(20)
    assert found.path[0] == (0, 0.0)
    assert found.path[-1] == (found.episodes_used, found.log_martingale)
    assert len(found.path) <= 201
    assert 0.9 <= found.success_lower_bound < 0.97
    assert found.mean_queries == 1
    assert found.threshold is None
    assert found.sentence.startswith("Certified")
    assert found.alpha_spent == found.alpha == ALPHA
    assert found.alternatives == pytest.approx([0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99])


def test_a_bad_model_plays_all_episodes_and_is_refused() -> None:
    found = certify(CoinModel(0.88), **ASK, episodes=5000)
    assert not found.certified
    assert found.episodes_used == found.episodes == 5000
    assert found.log_martingale < math.log(20)
    assert found.success_lower_bound < 0.9
    assert found.sentence.startswith("Not certified")


def test_a_certificate_survives_json_and_refuses_nonsense() -> None:
    found = certify(CoinModel(0.97), **ASK)
    data = json.loads(found.model_dump_json())
    assert Certificate.model_validate(data) == found
    for change in ({"successes": 10**6}, {"alpha_spent": 0.001}, {"extra": 1}, {"delta": 1.0}, {"format": "other"}):
        with pytest.raises(ValidationError):
            Certificate.model_validate(data | change)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 1.5}, "delta"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 0.9}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"episodes": 0}, "episodes"),
        ({"context": {"noise": 0.1}}, "context"),
    ],
)
def test_bad_questions_are_refused(change: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        certify(CoinModel(0.97), **(ASK | change))


# --- error rates through the whole pipeline ---------------------------------------------------------


def share_certified(p: float, tries: int, episodes: int) -> float:
    agent = ProfileAgent(constant(p))
    checks = (certify_checkpoint(agent, Revealed(), 0.2, 0.1, ALPHA, episodes, stream_seed(i)) for i in range(tries))
    return sum(check.certified for check in checks) / tries


def test_false_certificates_and_power_through_the_runner() -> None:
    assert share_certified(0.9, 200, 1500) <= binom.ppf(0.999, 200, ALPHA) / 200
    assert share_certified(0.88, 100, 1500) <= 0.05
    assert share_certified(0.95, 50, 2500) >= 0.95


def test_checkpoints_of_a_run_share_a_budget() -> None:
    """A run that improves: the bad checkpoints fail, the good ones pass, each on episodes of its own."""
    rates = (0.6, 0.85, 0.97, 0.98)
    seeds = [stream_seed(0, "checkpoint", k) for k in range(4)]
    assert len(set(seeds)) == 4
    checks = [
        certify_checkpoint(ProfileAgent(constant(p)), Revealed(), 0.2, 0.1, alpha, 4000, seed)
        for p, alpha, seed in zip(rates, back_loaded_budgets(ALPHA, 4), seeds, strict=True)
    ]
    assert [check.certified for check in checks] == [False, False, True, True]


def test_the_decision_does_not_depend_on_the_chunks() -> None:
    """An accepted test ends at the crossing itself, not at the end of a chunk."""
    found = certify_checkpoint(ProfileAgent(constant(1.0)), Revealed(), 0.2, 0.1, ALPHA, 5000, 1)
    assert found.episodes_used == found.successes < 100
    short = certify_checkpoint(ProfileAgent(constant(1.0)), Revealed(), 0.2, 0.1, ALPHA, found.episodes_used, 1)
    assert short.certified
    assert not certify_checkpoint(ProfileAgent(constant(1.0)), Revealed(), 0.2, 0.1, ALPHA, 10, 1).certified


# --- seeds and hashes -------------------------------------------------------------------------------


def test_fresh_seeds_lie_where_no_others_do() -> None:
    seeds = {stream_seed(i, "x") for i in range(2000)}
    assert len(seeds) == 2000
    assert all(2**31 <= seed < 2**32 for seed in seeds)
    one, other = (torch.Generator().manual_seed(seed) for seed in (5, 5 + 2**32))
    # Why 32 bits: a generator does not see the others.
    assert torch.equal(torch.rand(4, generator=one), torch.rand(4, generator=other))


def test_the_same_test_is_repeatable_and_another_is_fresh() -> None:
    first, again = certify(CoinModel(0.95), **ASK), certify(CoinModel(0.95), **ASK)
    assert first.model_copy(update={"made": ""}) == again.model_copy(update={"made": ""})
    seeds = {
        first.stream_seed,
        certify(CoinModel(0.95), **ASK, seed=1).stream_seed,
        certify(CoinModel(0.95), **ASK, ledger=[first]).stream_seed,
        certify(CoinModel(0.95, sha256="b" * 64), **ASK).stream_seed,
    }
    assert len(seeds) == 4


def test_a_certificate_speaks_for_one_fingerprint() -> None:
    model = CoinModel(0.97)
    found = certify(model, **ASK)
    about = (model.sha256, calibration_sha256(model))
    assert found.fingerprint == model.fingerprint
    found.check(*about, model.fingerprint)
    with pytest.raises(ModelError, match="config, alarm or problem have changed since; certify it again"):
        found.check(*about, "e" * 64)
    older = Certificate.model_validate(found.model_dump(exclude={"fingerprint", "problem_source"}))
    older.check(*about, "e" * 64)  # of a version that knew of no fingerprint


def test_the_hash_of_a_problem_is_stable_and_tells_problems_apart() -> None:
    assert problem_sha256(BinarySearch(3)) == problem_sha256(BinarySearch(3))
    hashes = {problem_sha256(p) for p in (BinarySearch(3), BinarySearch(4), BinarySearch(3, noise=0.1), GPMax())}
    assert len(hashes) == 4


def test_a_certificate_speaks_for_its_own_weights_and_thresholds_only() -> None:
    model = CoinModel(0.97)
    found = certify(model, **ASK)
    found.check(model.sha256, calibration_sha256(model))
    retrained, recalibrated = replace(model, sha256="b" * 64), replace(model, calibration=Thresholds(kappa=0.8))
    for other in (retrained, recalibrated):
        with pytest.raises(ModelError, match="certify it again"):
            found.check(other.sha256, calibration_sha256(other))


# --- the file ---------------------------------------------------------------------------------------


def test_the_file_remembers_and_refuses_when_alpha_is_spent(tmp_path: Path) -> None:
    path, model = tmp_path / "certificate.json", CoinModel(0.97)
    assert read_ledger(path) == ()
    tests = round(ALPHA_LIMIT / ALPHA)
    for k in range(1, tests + 1):
        found = certify(model, **ASK, ledger=read_ledger(path))
        assert found.alpha_spent == pytest.approx(k * ALPHA)
        append_certificate(path, found)
        assert read_ledger(path)[-1] == found
    assert "3 earlier tests" in found.sentence
    with pytest.raises(InvalidInput, match=r"alpha must be at most 0.*; got 0\.05"):
        certify(model, **ASK, ledger=read_ledger(path))
    # Other weights have a budget of their own.
    assert certify(replace(model, sha256="b" * 64), **ASK, ledger=read_ledger(path)).alpha_spent == ALPHA


@pytest.mark.parametrize("damage", ["{}", "[{}]", "[", '[{"format": "cicpe-certificate-1"}]'])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(damage)
    with pytest.raises(ModelError, match=r"certificate\.json"):
        read_ledger(path)


def test_tests_at_once_spend_no_more_than_there_is(tmp_path: Path) -> None:
    path, refused = tmp_path / "certificate.json", []

    def test() -> None:
        try:
            with open_ledger(path) as ledger:
                ledger.append(certify(CoinModel(0.97), **ASK, ledger=ledger.certificates))
        except InvalidInput as error:
            refused.append(error.field)

    threads = [threading.Thread(target=test) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["alpha"] * 4
    assert [found.alpha_spent for found in read_ledger(path)] == pytest.approx([0.05, 0.1, 0.15, 0.2])
    assert len({found.stream_seed for found in read_ledger(path)}) == 4  # no two of them played the same tasks
    assert [file.name for file in tmp_path.iterdir()] == ["certificate.json"]


def test_adding_at_once_loses_nothing(tmp_path: Path) -> None:
    path, found = tmp_path / "certificate.json", certify(CoinModel(0.97), **ASK)
    each = [found.model_copy(update={"model_sha256": f"{k:064}"}) for k in range(24)]
    threads = [threading.Thread(target=append_certificate, args=(path, one)) for one in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.model_sha256 for one in read_ledger(path)} == {one.model_sha256 for one in each}


def test_more_than_there_is_cannot_be_added(tmp_path: Path) -> None:
    path, found = tmp_path / "certificate.json", certify(CoinModel(0.97), **ASK)
    for _ in range(4):
        append_certificate(path, found)
    with pytest.raises(InvalidInput, match="alpha"):
        append_certificate(path, found)
    assert len(read_ledger(path)) == 4


# --- the command ------------------------------------------------------------------------------------

KEYS = {"certified", "success_lower_bound", "episodes_used", "alpha", "log_martingale", "epsilon", "delta", "stop"}
NAME = "binary-search-6d"


@pytest.fixture
def run(run: Run) -> Run:
    """``cicpe certify``."""
    return lambda *words: run("certify", *words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "model"
    shutil.copytree(zoo.folder(NAME), out, ignore=shutil.ignore_patterns("certificate.json"))
    return out


def test_the_command_certifies_and_remembers(run: Run, folder: Path) -> None:
    asked = (folder, "--epsilon", 0.2, "--delta", 0.15)
    code, out, err = run(*asked, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found) >= KEYS
    assert found["certified"] is True
    assert found["model_sha256"] == cicpe.load(folder).sha256
    assert found["threshold"][0] <= found["threshold"][1]
    assert found["kept_in"] == str(folder / "certificate.json")
    assert len(read_ledger(folder / "certificate.json")) == 1
    code, out, _ = run(*asked)
    assert code == 0
    assert "alpha spent on these weights: 0.1" in out
    assert cicpe.load(folder).sha256 == found["model_sha256"]  # the folder is still whole
    code, out, err = run(*asked, "--alpha", 0.15)
    assert (code, out) == (2, "")
    assert "alpha must be" in err


def test_the_command_says_no_with_exit_code_one(run: Run, folder: Path) -> None:
    code, out, _ = run(folder, "--epsilon", 0.2, "--delta", 0.1, "--episodes", 20, "--json")
    assert code == 1
    found = json.loads(out)
    assert found["certified"] is False
    assert found["episodes_used"] == 20
    assert len(read_ledger(folder / "certificate.json")) == 1  # a test that failed has spent its alpha too


def test_commands_at_once_spend_no_more_than_there_is(folder: Path) -> None:
    """Four tests at 0.05 are all that there is: of six at once, two are refused and none is lost."""
    words = ["certify", str(folder), "--epsilon", "0.2", "--delta", "0.1", "--episodes", "20", "--json"]
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(main(words))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [1, 1, 1, 1, 2, 2]
    assert [found.alpha_spent for found in read_ledger(folder / "certificate.json")] == pytest.approx(
        [0.05, 0.1, 0.15, 0.2]
    )


def test_the_command_waits_for_its_turn_and_not_for_ever(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate, "PATIENCE", 0.2)
    with open_ledger(folder / "certificate.json"):
        code, out, err = run(folder, "--epsilon", 0.2, "--delta", 0.1, "--episodes", 20)
    assert (code, out) == (2, "")
    assert "is being used by another test" in err
    assert not (folder / "certificate.json").exists()


def test_models_of_the_zoo_are_left_alone(run: Run, tmp_path: Path) -> None:
    before = sorted(zoo.folder(NAME).iterdir())
    code, out, err = run(NAME, "--epsilon", 0.2, "--delta", 0.2)
    assert code == 0
    assert "Certified" in out
    assert "read-only" in err
    assert run(NAME, "--epsilon", 0.2, "--delta", 0.2, "--out", tmp_path / "c.json")[0] == 0
    assert len(read_ledger(tmp_path / "c.json")) == 1
    assert sorted(zoo.folder(NAME).iterdir()) == before


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("--epsilon 0.2 --delta 0", "delta must be"),
        ("--epsilon 9 --delta 0.1", "epsilon must be"),
        ("--epsilon 0.2 --delta 0.1 --alpha 2", "alpha must be"),
        ("--epsilon 0.2 --delta 0.1 --episodes 0", "episodes must be"),
        ("--epsilon 0.2 --delta 0.1 --noise 0.4", "noise must be"),
        ("--epsilon 0.2 --delta 0.1 --stop never", "stop must be"),
        ("--epsilon 0.2 --delta 0.1 --problem best-arm", "problem must be"),
        ("--epsilon 0.2", "delta must be given"),
    ],
)
def test_the_command_refuses(run: Run, folder: Path, options: str, word: str) -> None:
    code, out, err = run(folder, *options.split())
    assert (code, out) == (2, "")
    assert word in err.splitlines()[-1]
    assert not (folder / "certificate.json").exists()


# --- a real model with a broken stop rule -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("accuracy", "tries", "most"), [(0.88, 100, 5), (0.90, 20, int(binom.ppf(0.999, 20, ALPHA)))])
def test_a_real_model_that_stops_too_early_is_refused(accuracy: float, tries: int, most: int) -> None:
    """The threshold is lowered until the true accuracy is what is asked for."""
    model = cicpe.load(NAME)
    tasks = model.problem.with_context(noise=0.05)
    agent = model.agent(0.2, 0.1)

    def stopping_at(kappa: float) -> Any:
        return replace(agent, threshold=constant_threshold(kappa))

    low, high = 0.3, 0.95
    for _ in range(8):
        kappa = (low + high) / 2
        reached = evaluate_agent(stopping_at(kappa), tasks, 0.2, 8000, seed=1).accuracy
        low, high = (kappa, high) if reached < accuracy else (low, kappa)
    broken = stopping_at(low)
    checks = [certify_checkpoint(broken, tasks, 0.2, 0.1, ALPHA, 1500, stream_seed(i)) for i in range(tries)]
    measured = sum(check.successes for check in checks) / sum(check.episodes_used for check in checks)
    assert measured == pytest.approx(accuracy, abs=0.01)
    assert sum(check.certified for check in checks) <= most
    assert certify_checkpoint(agent, tasks, 0.2, 0.1, ALPHA, 20_000, stream_seed(0)).certified
