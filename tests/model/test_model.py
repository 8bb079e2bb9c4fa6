"""A saved model: round trips, and every kind of damage refused with the name of the file."""

import json
import multiprocessing
import os
import random
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Generator, Tensor

import cicpe
from cicpe import files
from cicpe.beliefs.network.critic import CriticConfig
from cicpe.beliefs.network.memories.attention import AttentionConfig
from cicpe.beliefs.network.memories.per_axis import PerAxisConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import NetworkConfig
from cicpe.calibration.table import Calibration, ThresholdCell
from cicpe.errors import CicpeError, InvalidInput, ModelError, ProblemError
from cicpe.model import Description, Model
from cicpe.problems import Problem
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.spaces import Box
from cicpe.training.config import PaperConfig, PrefixMixture, TrainingConfig

TINY = {"first_batch": 16, "batch": 16, "horizon": 6, "adapt_horizon": False}
FILES = ("config.json", "calibration.json", "weights.safetensors")


def train(seed: int = 0, **options: Any) -> Model:
    # A wide epsilon, so that thresholds exist however little was learnt.
    given = {"updates": 2, "epsilon": (0.8, 1.6), "calibration_episodes": 256, "settings": TINY} | options
    return cicpe.train(BinarySearch(dim=1), seed=seed, **given)


@pytest.fixture(scope="module")
def model() -> Model:
    return train()


@pytest.fixture(scope="module")
def another() -> Model:
    return train(seed=1)


@pytest.fixture(scope="module")
def saved(model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of every file of a saved model."""
    folder = model.save(tmp_path_factory.mktemp("model"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(saved: dict[str, bytes], tmp_path: Path) -> Path:
    for name, data in saved.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def proposals(model: Model) -> list[Tensor]:
    """All that an agent says in a short batch of episodes."""
    agent = model.agent(epsilon=1.2, delta=0.4)
    rng = torch.Generator().manual_seed(0)
    state = agent.begin(torch.linspace(0.03, 0.09, 5)[:, None])
    said: list[Tensor] = []
    for t in range(4):
        proposal = agent.propose(state, rng)
        said += [part for part in proposal if part is not None]
        state = agent.update(state, proposal.query[:, 0], torch.full((5, 1), 1.0 if t % 2 else -1.0))
    return said


# Round trips.


def test_a_model_is_loaded_as_it_was_saved(model: Model, folder: Path) -> None:
    again = Model.load(folder)
    assert again.calibration == model.calibration
    assert again.description.model_copy(update={"files": {}}) == model.description
    assert again.sha256 == model.sha256
    assert all(torch.equal(a, b) for a, b in zip(proposals(model), proposals(again), strict=True))
    assert again.problem == model.problem


def test_what_a_loaded_model_says_does_not_depend_on_where_a_file_is_read_to(folder: Path) -> None:
    """Sums are taken in another order where a tensor begins elsewhere; torch begins its own at every 64 bytes."""
    for _ in range(3):
        places = {name: weights.data_ptr() % 64 for name, weights in cicpe.load(folder).belief.tensors().items()}
        assert set(places.values()) == {0}


def test_saving_what_was_loaded_changes_nothing(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Model.load(folder).save(tmp_path_factory.mktemp("other"))
    for path in folder.iterdir():
        assert (other / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "network",
    [
        NetworkConfig(memory=AttentionConfig(width=8, heads=2)),
        NetworkConfig(memory=RecurrentConfig(kind="lstm", hidden=8, readout="pooling"), shared_memory=False),
        NetworkConfig(memory=PerAxisConfig(hidden=8), critic=CriticConfig(hidden=8, twin=True)),
    ],
    ids=["attention", "own-lstms", "axis"],
)
def test_every_network_survives(network: NetworkConfig, tmp_path: Path) -> None:
    model = train(settings={**TINY, "network": network.model_dump()}, epsilon=(1.0, 2.0))
    again = Model.load(model.save(tmp_path))
    assert all(torch.equal(a, b) for a, b in zip(proposals(model), proposals(again), strict=True))


def test_loading_leaves_the_global_generator_alone(folder: Path) -> None:
    before = torch.get_rng_state()
    Model.load(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loaded_model_is_frozen(folder: Path) -> None:
    network = Model.load(folder).belief.network
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_load_by_folder_or_not_at_all(folder: Path) -> None:
    assert cicpe.load(folder).sha256 == Model.load(folder).sha256
    with pytest.raises(InvalidInput, match=r"model must be a folder, or one of the zoo.*; got 'no-such-model'"):
        cicpe.load("no-such-model")


def test_files_have_the_permissions_of_any_new_file(model: Model, tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        folder = model.save(tmp_path / "new")
    finally:
        os.umask(mask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


def test_the_card_says_what_the_model_is(folder: Path) -> None:
    card = (folder / "card.md").read_text()
    assert "binary-search" in card
    assert "epsilon from 0.8 to 1.6" in card


# Damage. Each must be a ModelError with the file's name.


def refused(folder: Path, name: str, message: str | None = None) -> str:
    with pytest.raises(ModelError, match=message) as caught:
        Model.load(folder)
    assert name in str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, name, "does not exist: .* is not a saved model")


@pytest.mark.parametrize("name", FILES)
def test_an_empty_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    refused(folder, name)


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_the_place_of_a_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    refused(folder, name, "cannot be read")


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_the_place_of_a_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, name, "no plain file")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_truncated_file_is_refused(folder: Path, name: str, share: float) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(share * len(data))])
    refused(folder, name)


@pytest.mark.parametrize("name", ["calibration.json", "weights.safetensors"])
def test_every_flipped_byte_is_refused(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    places = torch.randint(len(data), (60,), generator=torch.Generator().manual_seed(0)).tolist()
    for place in [0, 8, len(data) - 1, *places]:
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        (folder / name).write_bytes(damaged)
        refused(folder, name)


def test_every_flipped_bit_in_the_description_is_refused_or_means_the_same(folder: Path) -> None:
    name, data = "config.json", (folder / "config.json").read_bytes()
    drawn = torch.Generator().manual_seed(0)
    places = torch.randint(len(data), (300,), generator=drawn).tolist()
    bits = torch.randint(8, (300,), generator=drawn).tolist()
    for place, bit in zip(places, bits, strict=True):
        damaged = bytearray(data)
        damaged[place] ^= 1 << bit
        (folder / name).write_bytes(damaged)
        if _same_json(damaged, data):  # a blank became another blank
            continue
        refused(folder, str(folder))


def _same_json(one: bytes, two: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(two))
    except ValueError:
        return False


def test_a_changed_config_is_refused_until_its_hash_is_taken_out(folder: Path) -> None:
    edit(folder / "config.json", put("context_high", value=[0.2]))
    assert "take config.json out of its list of files" in refused(folder, "config.json", "not what was saved")
    edit(folder / "config.json", take("files", "config.json"))
    assert Model.load(folder).description.context_high == (0.2,)


# One fingerprint over everything that decides.


def test_whatever_decides_is_in_the_fingerprint(model: Model, another: Model) -> None:
    about = model.description
    changed = [
        replace(model, description=about.model_copy(update={"context_high": (0.2,)})),
        replace(model, description=about.model_copy(update={"query_space": {"kind": "sphere", "dim": 1}})),
        replace(model, description=about.model_copy(update={"problem_source": "0" * 64})),
        replace(model, description=about.model_copy(update={"problem_options": {"dim": 2}})),
        replace(model, description=about.model_copy(update={"horizon": 7})),
        replace(model, calibration=model.calibration.model_copy(update={"query_spread": 0.5})),
        replace(model, belief=another.belief),
        cicpe.fit_alarm(model, episodes=64, ranked=99),
    ]
    assert len({one.fingerprint for one in [model, *changed]}) == 1 + len(changed)
    same = replace(model, description=about.model_copy(update={"minutes": 9.0, "threads": 7}))
    assert same.fingerprint == model.fingerprint


def test_a_fingerprint_survives_the_folder_and_notices_what_comes_after(model: Model, folder: Path) -> None:
    again = Model.load(folder)
    assert again.fingerprint == model.fingerprint
    other = replace(again, calibration=again.calibration.model_copy(update={"query_spread": 0.5}))
    assert other.fingerprint != again.fingerprint


def test_a_fingerprint_is_of_the_files_and_not_of_what_this_version_makes_of_them(folder: Path) -> None:
    # A field that a later version adds, with its default: read again, the model is the one that it was.
    before = Model.load(folder).fingerprint
    edit(folder / "config.json", lambda data: (data["training"].pop("shaped"), data["files"].pop("config.json")))
    older = Model.load(folder)
    assert older.description.training == Model.load(folder).description.training
    assert older.fingerprint != before
    assert older.fingerprint == Model.load(folder).fingerprint
    assert older.parts.fingerprint() == before


def test_weights_of_another_model_are_refused(folder: Path, another: Model) -> None:
    (folder / "weights.safetensors").write_bytes(another.weights())
    refused(folder, "weights.safetensors", "is not the file that config.json describes")


def unlisted(folder: Path) -> dict[str, Tensor]:
    """Takes the hashes out of the description, as one who edits a model by hand would; gives the weights."""
    edit(folder / "config.json", lambda data: data.pop("files"))
    return load_tensors((folder / "weights.safetensors").read_bytes())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(folder: Path, value: float) -> None:
    tensors = unlisted(folder)
    name = next(key for key in tensors if "memory" in key)
    tensors[name].view(-1)[0] = value
    (folder / "weights.safetensors").write_bytes(save_tensors(tensors))
    assert name in refused(folder, "weights.safetensors", "not finite")


@pytest.mark.parametrize("change", ["missing", "extra", "shape", "dtype"])
def test_weights_that_do_not_fit_are_refused(folder: Path, change: str) -> None:
    tensors = unlisted(folder)
    name = next(key for key in tensors if "memory" in key)
    match change:
        case "missing":
            del tensors[name]
        case "extra":
            tensors["more"] = torch.zeros(3)
        case "shape":
            tensors[name] = tensors[name].flatten()[:-1].clone()
        case "dtype":
            tensors[name] = tensors[name].double()
    (folder / "weights.safetensors").write_bytes(save_tensors(tensors))
    text = refused(folder, "weights.safetensors", "does not hold this model's weights")
    assert ("more" if change == "extra" else name) in text


# Hostile JSON.


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def put(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


def take(*keys: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        del data[keys[-1]]

    return change


MEMORY = ("training", "network", "memory")


@pytest.mark.parametrize("name", ["config.json", "calibration.json"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "17",
        '"model"',
        "{",
        "{}",
        '{"format": "cicpe-model-1"',
        "[" * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        '{"seed": ' + "9" * 10_000 + "}",
        '{"seed": NaN}',
        "\ufeff{}",
    ],
    ids=lambda text: text[:12] or "empty",
)
def test_what_is_not_a_description_is_refused(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    unlist(folder, name)
    refused(folder, name)


def unlist(folder: Path, name: str) -> None:
    """Lets a changed calibration reach its own checks, behind that of its hash."""
    if name == "calibration.json":
        edit(folder / "config.json", lambda data: data["files"].pop("calibration.json"))


def test_bytes_that_are_not_text_are_refused(folder: Path) -> None:
    (folder / "config.json").write_bytes(b'{"format": "\xff\xfe"}')
    refused(folder, "config.json")


def test_another_format_is_refused(folder: Path) -> None:
    edit(folder / "config.json", put("format", value="cicpe-model-99"))
    with pytest.raises(
        ModelError, match="has format 'cicpe-model-99'; this version reads cicpe-model-1, cicpe-model-2"
    ):
        Model.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("observation_dim", value="one"), "observation_dim"),
        (put("observation_dim", value=0), "observation_dim"),
        (put("observation_dim", value=-1), "observation_dim"),
        (put("observation_dim", value=2**70), "observation_dim"),
        (put("observation_dim", value=10**4), "one kind for each"),
        (put("observation_dim", value=2), "one kind for each"),
        (put("horizon", value=10**30), "horizon"),
        (put("horizon", value=0), "horizon"),
        (put("horizon", value=2.5), "horizon"),
        (put("minutes", value=float("nan")), "minutes"),
        (put("minutes", value=float("inf")), "minutes"),
        (put("context_low", value=[]), "context_low"),
        (put("context_high", value=[1.0, 2.0]), "context_high"),
        (put("default_context", value=[0.1, 0.2]), "default_context"),
        (put("context_names", value="noise"), "context_names"),
        (put("problem_options", value=[1, 2]), "problem_options"),
        (put("query_space", value={}), "cannot be made"),
        (put("query_space", value={"kind": "torus"}), "cannot be made"),
        (put("query_space", value={"kind": "box", "low": [0.0], "high": ["x"]}), "cannot be made"),
        (put("answer_space", value={"kind": "box", "low": [1.0], "high": [0.0]}), "cannot be made"),
        (put("answer_space", value={"kind": "sphere", "dim": 10**12}), "cannot be made"),
        (put("answer_space", value={"kind": "sphere", "dim": "3"}), "cannot be made"),
        (put(*MEMORY, "kind", value="magic"), "training.network.memory"),
        (put(*MEMORY, "hidden", value=10**15), None),
        (put(*MEMORY, "hidden", value=200_000), None),
        (put(*MEMORY, "hidden", value=-3), "cannot be made"),
        (put(*MEMORY, value={"kind": "attention", "layers": 10**9}), "layers"),
        (put(*MEMORY, value={"kind": "regression", "probes": 10**12}), "probes"),
        (put(*MEMORY, value={"kind": "regression", "estimate": "argmax", "features": "linear"}), None),
        (put("training", "learning_rate", value=-1.0), "learning_rate"),
        (put("training", "epsilon", value=[0.2, 0.1]), "training"),
        (put("training", "surprise", value=1), "training.surprise"),
        (put("surprise", value=1), "surprise"),
        (put("recipe", value="\x1b]0;a title\x07"), "control characters"),
        (put("problem_options", value={"\x1b[2J": 1}), "control characters"),
        (put("files", value=["weights.safetensors"]), "files"),
        (put("units", value={"settings": [{"name": "time", "low": 1, "high": 1}]}), "high must be another number"),
        (put("units", value={"settings": [{"name": "=1+1", "low": 0, "high": 1}]}), "names must begin with"),
        (put("units", value={"settings": [{"name": "time", "low": 0, "high": 1}] * 2}), "one scale for each of 1"),
        (put("units", value={"answers": [{"name": "time", "low": 0, "high": 1}] * 3}), "one scale for each of 1"),
        (take("training"), "training"),
        (take("problem"), "problem"),
        (take("horizon"), "horizon"),
    ],
)
def test_a_hostile_description_is_refused(folder: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    edit(folder / "config.json", change)
    with pytest.raises(ModelError, match=message) as caught:
        Model.load(folder)
    assert str(folder) in str(caught.value)


def test_a_problem_of_an_absurd_size_is_compared_without_drawing_a_task() -> None:
    misfit = cicpe.load("best-arm-5d").misfit(BestArm(dim=2**63))
    assert misfit is not None
    assert "query_space" in misfit


def test_a_problem_that_is_not_of_the_models_shape_is_refused_before_it_is_played(folder: Path) -> None:
    edit(folder / "config.json", put("problem_options", "dim", value=3))
    weights = unlisted(folder)  # whoever edits one file can edit the others
    (folder / "weights.safetensors").write_bytes(save_tensors(weights))
    model = Model.load(folder)
    assert model.session(1.2, 0.4).recommendation.shape == (1,)  # a network needs no problem
    with pytest.raises(InvalidInput, match="problem must be one with the model's query_space"):
        cicpe.evaluate(model, epsilon=1.2, delta=0.4, episodes=5)
    edit(folder / "config.json", put("problem_options", "dim", value=2**63))
    with pytest.raises(ProblemError, match="cannot be made"):
        cicpe.evaluate(Model.load(folder), epsilon=1.2, delta=0.4, episodes=5)


def test_a_folder_has_no_file_read_that_it_names(folder: Path, tmp_path: Path) -> None:
    """A pipe would be waited for without an end, and what is wrong in a file would be shown."""
    os.mkfifo(tmp_path / "pipe.toml")
    edit(folder / "config.json", put("problem", value="smooth"))
    edit(folder / "config.json", put("problem_options", value={"experiment": str(tmp_path / "pipe.toml")}))
    (folder / "weights.safetensors").write_bytes(save_tensors(unlisted(folder)))
    with pytest.raises(InvalidInput, match="experiment must be an experiment as data"):
        cicpe.evaluate(Model.load(folder), epsilon=1.2, delta=0.4, episodes=5)


def test_a_calibration_for_a_context_that_the_model_does_not_know_is_refused(folder: Path) -> None:
    for name in ("context_names", "context_low", "context_high", "default_context"):
        edit(folder / "config.json", put(name, value=[]))
    refused(folder, "calibration.json", "thresholds for a context, which this model does not know")


def test_a_file_outside_the_model_is_refused(folder: Path) -> None:
    edit(folder / "config.json", put("files", "../secret", value="0" * 64))
    refused(folder, "secret")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("epsilons", value=[]), "epsilons"),
        (put("episodes", value=10**59), "episodes"),
        (put("epsilons", value=[0.1]), "table"),
        (put("epsilons", 0, value="small"), "epsilons.0"),
        (put("deltas", value=[0.1, 0.2]), "table"),
        (put("deltas", 0, value=1e-320), "deltas must be"),
        (put("platt", 0, 0, 0, value=0), "platt must have slopes"),
        (put("platt", 0, 0, 0, value=-1), "platt must have slopes"),
        (put("context_knots", value=[[]]), "context_knots"),
        (put("context_knots", value=[[0.1]]), "table"),
        (put("rules", "confidence", value={}), "confidence"),
        (put("rules", "confidence", 0, 0, 0, value=[0.9]), "confidence.0.0.0"),
        (put("rules", "confidence", 0, 0, 0, value=[float("nan"), 0.9, 3.0]), "confidence.0.0.0"),
        (put("rules", "bellman", value=[[]]), "bellman"),
        (put("query_spread", value=float("inf")), "query_spread"),
        (put("query_spread", value=-1), "query_spread"),
        (put("surprise", value=1), "surprise"),
        (take("alpha"), "alpha"),
    ],
)
def test_a_hostile_calibration_is_refused(folder: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    edit(folder / "calibration.json", change)
    refused(folder, "calibration.json", "is not the file that config.json describes")
    unlist(folder, "calibration.json")
    refused(folder, "calibration.json", message)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_other_value_in_the_description_gives_a_model_or_a_model_error(
    data: st.DataObject, saved: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    for name, content in saved.items():
        (folder / name).write_bytes(content)
    description = json.loads(saved["config.json"])
    inner: Any = description
    while True:
        key = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        if not isinstance(inner[key], dict | list) or not inner[key] or data.draw(st.booleans()):
            break
        inner = inner[key]
    numbers = st.integers(-(2**80), 2**80) | st.floats()
    inner[key] = data.draw(
        st.recursive(
            st.none() | st.booleans() | numbers | st.text(max_size=5),
            lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3),
            max_leaves=5,
        )
    )
    (folder / "config.json").write_text(json.dumps(description))
    try:
        Model.load(folder)
    except ModelError as error:
        assert str(folder) in str(error)  # noqa: PT017


# Saving over a model that is there.


class Killed(BaseException):
    """Nothing runs after a kill, so nothing may depend on catching this."""


@pytest.mark.parametrize("name", [*FILES, "card.md"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_saving_leaves_the_old_the_new_or_a_clear_error(
    folder: Path, another: Model, monkeypatch: pytest.MonkeyPatch, name: str, moment: str
) -> None:
    old, new = Model.load(folder), another
    rename = os.replace

    def killed(source: str, destination: Path) -> None:
        if Path(destination).name == name and moment == "before":
            raise Killed
        rename(source, destination)
        if Path(destination).name == name:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", killed)
        with pytest.raises(Killed):
            new.save(folder)
    found = Model.load(folder)
    assert found.sha256 in (old.sha256, new.sha256)
    assert (found.calibration == new.calibration) == (found.sha256 == new.sha256)
    new.save(folder)
    assert Model.load(folder).sha256 == new.sha256
    assert not list(folder.glob(".*")), "leftovers are taken away"


def test_a_kill_at_any_moment_leaves_a_whole_model(folder: Path, another: Model) -> None:
    """A child saves one model over the other until it is killed; every time, the folder is one of the two."""
    models = (Model.load(folder), another)
    known = {model.fingerprint: model for model in models}
    context, rng, found = multiprocessing.get_context("fork"), random.Random(0), set()
    until = time.monotonic() + 15
    for _ in range(60):
        child = context.Process(target=_save_for_ever, args=(models, folder))
        child.start()
        time.sleep(rng.uniform(0.005, 0.25))
        child.kill()
        child.join()
        read = Model.load(folder)
        assert read.calibration == known[read.fingerprint].calibration
        found.add(read.fingerprint)
        if time.monotonic() > until:
            break
    assert found == set(known)
    another.save(folder)
    assert not list(folder.glob(".*"))


def _save_for_ever(models: tuple[Model, Model], folder: Path) -> None:
    while True:
        for model in models:
            model.save(folder)


def test_whoever_reads_while_another_saves_finds_a_whole_model(folder: Path, another: Model) -> None:
    models = (Model.load(folder), another)
    known = {model.fingerprint for model in models}
    child = multiprocessing.get_context("fork").Process(target=_save_for_ever, args=(models, folder))
    child.start()
    try:
        assert {Model.load(folder).fingerprint for _ in range(100)} <= known
    finally:
        child.kill()
        child.join()


def test_saving_without_an_alarm_takes_the_old_one_away(model: Model, folder: Path) -> None:
    cicpe.fit_alarm(model, episodes=64, ranked=99).save(folder)
    assert (folder / "alarm.json").exists()
    replace(model, alarm=None).save(folder)
    assert not (folder / "alarm.json").exists()
    assert not (folder / "alarm.safetensors").exists()


def test_what_else_lies_in_the_folder_stays(model: Model, folder: Path) -> None:
    (folder / "certificate.json").write_text("[]")
    model.save(folder)
    assert (folder / "certificate.json").read_text() == "[]"


def test_a_full_disk_is_a_model_error_and_leaves_the_old_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Model.load(folder)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(ModelError, match=r"could not be written .*No space left on device"):
            old.save(folder)
    assert Model.load(folder).sha256 == old.sha256
    assert not list(folder.glob("*.tmp")) + list(folder.glob(".*.tmp"))


def test_a_folder_that_cannot_be_made_is_a_model_error(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="could not be written"):
        model.save(tmp_path / "file" / "model")


# What a model refuses to be asked.


def test_sessions_and_agents_are_refused_outside_what_was_trained(model: Model) -> None:
    for asked, field in [
        ({"epsilon": 0.1, "delta": 0.4}, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": 1.0, "delta": 0.4, "noise": 0.4}, "noise"),
        ({"epsilon": 1.0, "delta": 0.4, "noise": float("nan")}, "noise"),
        ({"epsilon": 1.0, "delta": 0.4, "noise": "much"}, "noise"),
        ({"epsilon": 1.0, "delta": 0.4, "noise": None}, "noise"),
        ({"epsilon": 1.0, "delta": 0.4, "temperature": 3.0}, "temperature"),
    ]:
        with pytest.raises(InvalidInput) as caught:
            model.session(**asked)  # type: ignore[arg-type]
        assert caught.value.field == field


@dataclass(frozen=True)
class WithOptions(Problem):
    """Takes an option that JSON cannot say."""

    level: Any = float("inf")
    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand(n, 1, generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return task

    def target(self, task: Tensor) -> Tensor:
        return task


@pytest.mark.parametrize("level", [float("inf"), {1, 2}])
def test_options_that_cannot_be_saved_are_refused_before_training(level: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="to be saved as JSON") as caught:
        cicpe.train(WithOptions(level), updates=2, out=tmp_path)
    assert caught.value.field == "level"


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("calibration_episodes", {"calibration_episodes": 3}),
        ("actor", {"actor": "magic"}),
        ("recipe", {"recipe": "magic"}),
        ("updates", {"updates": 0}),
        ("minutes", {"minutes": -1.0}),
        ("epsilon", {"epsilon": (0.2, 0.1)}),
        ("epsilon", {"epsilon": 0.0}),
        ("surprise", {"settings": {"surprise": 1}}),
        ("network.memory.hidden", {"settings": {"network": {"memory": {"kind": "gru", "hidden": "many"}}}}),
        ("memory", {"settings": {"network": {"memory": {"kind": "regression"}}}, "dim": 2}),
        ("returns", {"settings": {"returns": "one-step"}}),
        ("settings", {"settings": {"shaped": True, "actor": "search"}}),
    ],
)
def test_training_refuses_by_name(field: str, options: dict[str, Any]) -> None:
    given = {"updates": 2} | options
    with pytest.raises(CicpeError) as caught:
        cicpe.train(BinarySearch(dim=given.pop("dim", 1)), **given)
    assert isinstance(caught.value, InvalidInput)
    assert caught.value.field == field


def test_an_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="a folder that can be written to"):
        cicpe.train(BinarySearch(dim=1), updates=2, out=tmp_path / "file")


# JSON round trips of what a folder holds, whatever it says.

FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(1e-6, 1e6)
CELL = st.none() | st.builds(
    ThresholdCell, FINITE, st.floats(0, 1), st.floats(0, 1e4), st.none() | FINITE, st.floats(0, 1)
)


@st.composite
def calibrations(draw: st.DrawFn) -> Calibration:
    knots, epsilons, deltas = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    row = st.tuples(*[CELL] * deltas)
    table = st.tuples(*[st.tuples(*[row] * epsilons)] * knots)
    return Calibration(
        episodes=draw(st.integers(1, 10**6)),
        seed=draw(st.integers(-(2**62), 2**62)),
        alpha=draw(st.floats(1e-6, 0.5)),
        query_spread=draw(st.floats(0, 10)),
        epsilons=tuple(sorted(draw(st.lists(POSITIVE, min_size=epsilons, max_size=epsilons)))),
        deltas=tuple(sorted(draw(st.lists(st.floats(1e-6, 0.99), min_size=deltas, max_size=deltas)))),
        context_knots=(tuple(sorted(draw(st.lists(FINITE, min_size=knots, max_size=knots)))),),
        rules={"confidence": draw(table), "bellman": draw(table)},
    )


RANGES = st.tuples(POSITIVE, POSITIVE).map(lambda pair: (min(pair), max(pair)))
NETWORKS = st.builds(
    NetworkConfig,
    memory=st.builds(RecurrentConfig, kind=st.sampled_from(["lstm", "gru"]), hidden=st.integers(1, 512))
    | st.builds(PerAxisConfig, hidden=st.integers(1, 64)),
    critic=st.builds(CriticConfig, hidden=st.integers(1, 64), twin=st.booleans()),
    shared_memory=st.booleans(),
)
TRAINING = st.builds(
    TrainingConfig,
    network=NETWORKS,
    actor=st.sampled_from(["ts", "ttps", "uniform"]),
    epsilon=RANGES,
    cost=RANGES,
    batch=st.integers(1, 10**6),
    learning_rate=POSITIVE,
    query_spreads=st.lists(st.floats(0, 2), min_size=1, max_size=4).map(tuple),
    mixture=st.builds(PrefixMixture, uniform=st.floats(0.1, 1), near_stop=st.floats(0, 1), terminal=st.floats(0, 1)),
) | st.builds(
    PaperConfig,
    network=NETWORKS,
    epsilon=RANGES,
    polyak=st.floats(0.001, 1),
    bootstrap_clip=st.none() | st.tuples(st.floats(0, 0.5), st.floats(0.5, 1)),
    trained_cost=st.none() | st.floats(1e-6, 1),
)
DESCRIPTIONS = st.integers(0, 3).flatmap(
    lambda contexts: st.builds(
        Description,
        problem=st.text(),
        problem_options=st.dictionaries(st.text(), FINITE | st.text() | st.lists(FINITE)),
        query_space=st.just({"kind": "sphere", "dim": 3}),
        answer_space=st.just({"kind": "interval", "low": 0.0, "high": 1.0}),
        observation_dim=st.integers(1, 100),
        context_names=st.tuples(*[st.text()] * contexts),
        default_context=st.none() | st.tuples(*[FINITE] * contexts),
        context_low=st.tuples(*[FINITE] * contexts),
        context_high=st.tuples(*[FINITE] * contexts),
        recipe=st.text(),
        training=TRAINING,
        horizon=st.integers(1, 10**6),
        seed=st.integers(-(2**62), 2**62),
        minutes=st.floats(0, 1e6),
        updates=st.integers(0, 10**9),
        threads=st.integers(1, 256),
    )
)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(value=calibrations() | TRAINING | DESCRIPTIONS)
def test_what_a_folder_holds_survives_json(value: Calibration | TrainingConfig | PaperConfig | Description) -> None:
    kind = type(value)
    assert kind.model_validate_json(value.model_dump_json()) == value
    assert kind.model_validate(json.loads(json.dumps(value.model_dump(mode="json"), allow_nan=False))) == value


@pytest.mark.parametrize("kind", [Calibration, TrainingConfig, NetworkConfig, PrefixMixture, Description, CriticConfig])
def test_unknown_fields_are_refused(kind: Any) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        kind.model_validate({"surprise": 1})


@pytest.mark.parametrize(
    "change",
    [
        {"query_spreads": ()},
        {"query_spreads": (-1.0,)},
        {"mixture": {"uniform": 0.0, "near_stop": 0.0, "terminal": 0.0}},
        {"mixture": {"uniform": 1.0, "terminal": -0.5}},
        {"epsilon": (0.0, 0.1)},
        {"cost": (0.2, 0.1)},
        {"prefixes": "sampled"},
        {"returns": "one-step"},
        {"reward": "sampled"},
        {"batch": 0},
        {"horizon": 0},
    ],
    ids=str,
)
def test_a_configuration_that_cannot_work_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TrainingConfig.model_validate(change)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_cannot_say_are_refused(value: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        TrainingConfig(gradient_clip=value)


def test_configurations_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TrainingConfig().batch = 3  # type: ignore[misc]
