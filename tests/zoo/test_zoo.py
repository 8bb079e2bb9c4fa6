"""``cicpe zoo verify``: a sound model passes, and every kind of damage and broken promise is found."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom

import cicpe
from cicpe.calibration.table import Calibration, ThresholdCell
from cicpe.certification.certificate import LEDGER, append_certificate
from cicpe.cli import zoo_verify
from cicpe.cli.main import main
from cicpe.data.places import DataError
from cicpe.model import Model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "tiny"
    options = ["--dim", "1", "--noise", "0.1", "--epsilon", "0.9", "--updates", "6"]
    assert main(["train", "binary-search", *options, "--calibration-episodes", "256", "--out", str(out)]) == 0
    return out


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    def run(*names: object, episodes: int = 200) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = main(["zoo", "verify", *map(str, names), "--episodes", str(episodes), "--json"])
        found = json.loads(capsys.readouterr().out)
        assert found["verified"] == (code == 0)
        return code, found["models"]

    return run


Verify = Callable[..., tuple[int, list[dict[str, Any]]]]


def test_sound_models_pass(verify: Verify, folder: Path) -> None:
    code, (tiny, shipped) = verify(folder, "binary-search-6d")
    assert code == 0
    assert (tiny["ok"], tiny["fault"], tiny["sha256"]) == (True, None, cicpe.load(folder).sha256)
    assert (shipped["delta"], shipped["episodes"]) == (0.1, 200)
    low, high = cicpe.load("binary-search-6d").description.training.epsilon
    assert low < shipped["epsilon"] < high
    assert shipped["p_value"] == pytest.approx(binom.cdf(round(200 * shipped["accuracy"]), 200, 0.9))


def test_the_table_names_the_failure(folder: Path, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "weights.safetensors").write_bytes(b"")
    assert main(["zoo", "verify", str(folder), str(copy), "--episodes", "50"]) == 1
    out = capsys.readouterr().out
    assert "ok" in out
    assert "FAILED" in out


def reckless(model: Model) -> Model:
    """It stops at once, whatever its confidence, and says that this is reliable at delta 0.1."""
    table = ((((ThresholdCell(0.0, 0.95, 0.0)),),),)
    calibration = Calibration(
        episodes=1, seed=0, alpha=0.05, query_spread=0.0, epsilons=(0.5,), deltas=(0.1,), context_knots=((0.1,),),
        rules={"confidence": table, "bellman": table},
    )  # fmt: skip
    return dataclasses.replace(model, calibration=calibration)


def test_a_broken_promise_is_found(verify: Verify, copy: Path) -> None:
    reckless(cicpe.load(copy)).save(copy)
    code, (found,) = verify(copy)
    assert code == 1
    assert "significantly below 0.9" in found["fault"]
    # The middle half of [-1, 1] is within 0.5 of an answer in its middle.
    assert found["accuracy"] == pytest.approx(0.5, abs=0.15)
    assert found["mean_queries"] == 0
    assert found["p_value"] < 1e-3


def test_a_model_that_promises_nothing_fails(verify: Verify, copy: Path) -> None:
    model = reckless(cicpe.load(copy))
    nothing = model.calibration.model_copy(update={"rules": {"confidence": (((None,),),)}})
    dataclasses.replace(model, calibration=nothing).save(copy)
    code, (found,) = verify(copy)
    assert code == 1
    assert "promises nothing" in found["fault"]


def drop_hashes(path: Path) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"files": {}}))


def flip_a_bit(path: Path) -> None:
    data = bytearray((path / "weights.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "weights.safetensors").write_bytes(data)


def name_another_hash(path: Path) -> None:
    with (path / "card.md").open("a") as card:
        card.write(f"Weights: {hashlib.sha256(b'other').hexdigest()}.\n")


def certify_other_weights(path: Path) -> None:
    other = cicpe.load("binary-search-6d")
    certificate = cicpe.certify(other, epsilon=0.2, delta=0.1, episodes=50)
    append_certificate(path / LEDGER, certificate)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop_hashes, "lists no SHA-256 of weights.safetensors"),
        (flip_a_bit, "weights.safetensors is not the file"),
        (name_another_hash, "card.md names the SHA-256"),
        (certify_other_weights, "certif"),
        (lambda path: (path / "card.md").unlink(), "card.md"),
        (lambda path: (path / "card.md").write_bytes(b"\xff"), "utf-8"),
        (lambda path: (path / "calibration.json").write_text("{"), "calibration.json"),
        (lambda path: (path / "config.json").unlink(), "config.json"),
        (lambda path: (path / LEDGER).write_text("{"), LEDGER),
    ],
)
def test_damage_is_found(verify: Verify, copy: Path, damage: Callable[[Path], object], words: str) -> None:
    damage(copy)
    code, (found,) = verify(copy)
    assert code == 1
    assert words in found["fault"]
    assert found["accuracy"] is None


def test_a_card_may_name_the_weights(verify: Verify, copy: Path) -> None:
    with (copy / "card.md").open("a") as card:
        card.write(f"Weights: {cicpe.load(copy).sha256}.\n")
    assert verify(copy)[0] == 0


def test_missing_data_are_not_the_models_fault(verify: Verify, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object) -> None:
        raise DataError("no fields here")

    monkeypatch.setattr(zoo_verify, "evaluate_agent", missing)
    code, (found,) = verify(folder)
    assert code == 0
    assert (found["fault"], found["accuracy"]) == (None, None)
    assert found["not_played"] == "not played: no fields here"


def test_bad_input_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "verify", "nothing-9d"]) == 2
    assert "model must be" in capsys.readouterr().err
    assert main(["zoo", "verify", "--episodes", "0"]) == 2
    assert "episodes must be" in capsys.readouterr().err
