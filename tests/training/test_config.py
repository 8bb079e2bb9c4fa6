"""Configurations: what is refused, what td3 brings along, and how older descriptions are read."""

import ast
import inspect
import json
from typing import Any

import pytest
from pydantic import ValidationError

from cicpe import zoo
from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig
from cicpe.beliefs.network.network import NetworkConfig
from cicpe.beliefs.network.policy import ActorConfig
from cicpe.config import Config
from cicpe.model.model import Description
from cicpe.training.config import (
    PAPER_ACTOR,
    PAPER_NETWORK,
    NetworkTraining,
    PaperConfig,
    TrainingConfig,
    migrate_training,
)

KINDS = [TrainingConfig, PaperConfig]


def test_the_rule_brings_its_network_and_no_other_rule_has_one() -> None:
    assert TrainingConfig(actor="td3").network.actor == ActorConfig()
    assert TrainingConfig(actor="td3", actor_kl=0.1).network.actor == ActorConfig(gaussian=True)
    own = ActorConfig(hidden=7)
    assert TrainingConfig(actor="td3", network=NetworkConfig(actor=own)).network.actor == own
    assert TrainingConfig(actor="ts").network.actor is None
    with pytest.raises(ValueError, match=r"network.actor is given, but actor = 'ts' has no network"):
        TrainingConfig(actor="ts", network=NetworkConfig(actor=own))
    with pytest.raises(ValueError, match=r"actor_kl = 0.1: needs actor td3"):
        TrainingConfig(actor="ts", actor_kl=0.1)
    with pytest.raises(ValueError, match="a Gaussian actor needs it above 0"):
        TrainingConfig(actor="td3", network=NetworkConfig(actor=ActorConfig(gaussian=True)))
    deterministic = TrainingConfig(actor="td3").model_dump()
    network = TrainingConfig.model_validate(deterministic | {"actor_kl": 0.1}).network
    assert network.actor == ActorConfig(gaussian=True)


def test_td3_keeps_the_networks_of_the_published_algorithm() -> None:
    network = PaperConfig(actor="td3").network
    assert network == PAPER_NETWORK.model_copy(update={"actor": PAPER_ACTOR})


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_says_what_it_is(kind: type[NetworkTraining]) -> None:
    silent = set()
    for base in [base for base in kind.__mro__ if issubclass(base, Config)]:
        (body,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, [*body.body[1:], None], strict=True):
            described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            is_field = isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation)
            if isinstance(field, ast.AnnAssign) and is_field and not described:
                silent.add(ast.unparse(field.target))
    assert silent <= {"kind"}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (TrainingConfig, {"polyak": 0.01}),
        (TrainingConfig, {"warmup": 0.2}),
        (TrainingConfig, {"kind": "paper"}),
        (TrainingConfig, {"shaped": True, "actor": "search"}),
        (PaperConfig, {"trace": 0.9}),
        (PaperConfig, {"first_batch": 8}),
        (PaperConfig, {"cost": (0.1, 0.2)}),
        (PaperConfig, {"polyak": None}),
        (PaperConfig, {"trained_cost": 0.0}),
    ],
    ids=str,
)
def test_what_an_algorithm_does_not_have_is_refused(kind: type[NetworkTraining], change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        kind.model_validate(change)


def test_the_costs_that_a_critic_knows() -> None:
    assert TrainingConfig(cost=(0.01, 0.02)).costs == (0.01, 0.02)
    assert PaperConfig().costs is None
    assert PaperConfig(trained_cost=0.03).costs == (0.03, 0.03)


# Descriptions of older versions, which had one configuration for both algorithms.

OLD: dict[str, Any] = {
    "kind": "networks",
    "network": {"memory": {"kind": "gru", "hidden": 8, "readout": "last"}, "shared_memory": True},
    "actor": "ts",
    "epsilon": [0.1, 0.4],
    "cost": [0.001, 0.1],
    "first_batch": 24,
    "batch": 32,
    "updates_per_rollout": 2,
    "replay_rollouts": 3,
    "horizon": 6,
    "adapt_horizon": True,
    "learning_rate": 0.003,
    "gradient_clip": 1.0,
    "weight_average": 0.995,
    "random_episodes": 0.05,
    "random_queries": 0.02,
    "query_scales": [0.0, 0.5],
    "prefixes": "all",
    "mixture": {"uniform": 0.6, "near_stop": 0.3, "terminal": 0.1},
    "robust_tail": 5.0,
    "anchor_weight": 0.1,
    "stop_loss": "cross-entropy",
    "reward": "deployed",
    "reward_samples": 16,
    "returns": "lambda",
    "shaped": False,
    "trace": 0.95,
    "discount": 1.0,
    "stop_weight": 1.0,
    "polyak": None,
    "bootstrap_clip": None,
    "target_noise": 0.02,
    "target_clip": 2.5,
    "actor_delay": 2,
    "actor_start": 0.3,
    "actor_rate": 0.25,
    "actor_kl": 0.0,
    "run_past_stop": True,
    "warmup": 0.1,
    "minimum_time": 2,
    "dual_cost": False,
    "dual_delta": 0.1,
    "dual_rate": 0.002,
    "dual_start": 0.01,
    "dual_softness": 0.1,
}
PUBLISHED: dict[str, Any] = {
    "prefixes": "sampled",
    "stop_loss": "squared",
    "reward": "sampled",
    "reward_samples": 7,
    "returns": "one-step",
    "polyak": 0.03,
    "bootstrap_clip": [0.1, 0.9],
    "run_past_stop": False,
    "warmup": 0.2,
    "dual_cost": True,
    "dual_rate": 0.004,
}


def test_our_older_descriptions_keep_what_they_said() -> None:
    config = TrainingConfig.model_validate(migrate_training(OLD))
    assert config.query_spreads == (0.0, 0.5)
    for name in TrainingConfig.model_fields.keys() & OLD.keys() - {"network", "mixture"}:
        value = OLD[name]
        assert getattr(config, name) == (tuple(value) if isinstance(value, list) else value)


def test_older_descriptions_of_the_published_algorithm_become_its_own_kind() -> None:
    config = PaperConfig.model_validate(migrate_training(OLD | PUBLISHED))
    assert (config.reward_samples, config.polyak, config.bootstrap_clip) == (7, 0.03, (0.1, 0.9))
    assert (config.warmup, config.minimum_time, config.dual_rate) == (0.2, 2, 0.004)
    # Older versions did not save the cost; without it the Bellman rule cannot be calibrated.
    assert config.costs is None


@pytest.mark.parametrize("name", ["prefixes", "stop_loss", "reward", "run_past_stop", "dual_cost"])
def test_a_mixture_of_the_two_algorithms_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be .*; got .*mix the two algorithms"):
        migrate_training(OLD | {name: PUBLISHED[name]})
    with pytest.raises(ValueError, match=rf"{name} must be"):
        migrate_training(OLD | PUBLISHED | {name: OLD[name]})


def test_the_present_shape_and_other_kinds_are_left_alone() -> None:
    for data in (
        TrainingConfig().model_dump(mode="json"),
        PaperConfig().model_dump(mode="json"),
        {"kind": "particles", "horizon": 3},
        {"kind": "networks", "surprise": 1},
    ):
        before = json.dumps(data)
        assert migrate_training(data) == data
        assert json.dumps(data) == before


def test_what_was_never_a_field_is_still_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        TrainingConfig.model_validate(migrate_training(OLD | {"surprise": 1}))


def assert_agrees(described: dict[str, Any], saved: dict[str, Any]) -> None:
    """Fields of both are the same, at every depth; others came or went since."""
    for field in described.keys() & saved.keys():
        if isinstance(described[field], dict) and isinstance(saved[field], dict):
            assert_agrees(described[field], saved[field])
        else:
            assert described[field] == saved[field], field


@pytest.mark.parametrize("name", zoo.names())
def test_every_model_of_the_zoo_is_described_as_before(name: str) -> None:
    data = json.loads((zoo.folder(name) / "config.json").read_text())
    training, saved = Description.model_validate(data).training, data["training"]
    described = training.model_dump(mode="json")
    assert described["kind"] == saved["kind"]
    assert_agrees(described, saved)
    if isinstance(training, TrainingConfig) and "query_scales" in saved:
        assert list(training.query_spreads) == saved["query_scales"]
    assert type(training).model_validate(described) == training


def test_the_published_algorithm_takes_the_delta_rule() -> None:
    memory = DeltaRuleConfig(hidden=16, readout="pooling")
    config = PaperConfig(network=NetworkConfig(memory=memory, shared_memory=False))
    assert PaperConfig.model_validate_json(config.model_dump_json()) == config
