"""The learned actor (td3) and the search by value: a known best query, gradients, formulas, files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import Independent, Normal, kl_divergence

import cicpe
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.critic import CriticConfig
from cicpe.beliefs.network.memories.per_axis import PerAxisConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.memories.regression import RegressionConfig
from cicpe.beliefs.network.network import Network, NetworkConfig
from cicpe.beliefs.network.policy import ActorConfig, Policy, imitation, moments
from cicpe.beliefs.network.query_rules import Aim, Learned, Search, Thompson, make_actor
from cicpe.calibration.thresholds import CalibrationRun
from cicpe.episodes.table import RecordSettings
from cicpe.errors import InvalidInput
from cicpe.model import Model
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_max import GPMax
from cicpe.spaces import Box, Interval
from cicpe.training.actor import actor_gradients
from cicpe.training.base import AnyTrainer
from cicpe.training.checkpoint import restore_checkpoint, save_checkpoint
from cicpe.training.config import NetworkTraining, PaperConfig, TrainingConfig
from cicpe.training.loop import Trainer, build_network
from cicpe.training.paper import PaperTrainer
from cicpe.training.recipes import choose
from cicpe.training.schedule import Budget
from cicpe.training.trainers import make_trainer

BEST = 0.7


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


class Lens(Problem):
    """The target is seen through a lens that is sharp at one setting, the same for all: y = x + sigma(a) noise."""

    query_space = Box([0.0], [1.0])
    answer_space = Interval(-1.0, 1.0)
    horizon = 6

    def sample(self, n: int, rng: Generator) -> Tensor:
        return 2 * torch.rand(n, 1, generator=rng) - 1

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return task + (0.05 + (query - BEST).abs()) * torch.randn(task.shape, generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task


def lens_config(actor: str) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {
            "network": NetworkConfig(memory=RecurrentConfig(hidden=32), critic=CriticConfig(twin=False)).model_dump(),
            "actor": actor,
            "epsilon": (0.1, 0.2),
            "first_batch": 192,
            "batch": 192,
            "horizon": 3,
            "adapt_horizon": False,
            "random_queries": 0.3,
            "actor_start": 0.4,
        }
    )


def first_queries(network: Network, actor: str, config: NetworkTraining) -> Tensor:
    context = torch.zeros(200, 0)
    chooser = make_actor(actor, network.query_space, network.answer_space, network, config.aim)  # type: ignore[arg-type]
    with torch.no_grad():
        return chooser.propose(network.believe(network.begin(context)), make_rng(), 0.0)


def accuracy(network: Network, actor: str, config: NetworkTraining, queries: int) -> float:
    chooser = make_actor(actor, network.query_space, network.answer_space, network, config.aim)  # type: ignore[arg-type]
    records = CalibrationRun(NetworkBelief(network, chooser, queries), Lens(), RecordSettings((0.1,))).play(
        4000, seed=7
    )
    return float((records.loss[0, :, queries] <= 0.1).float().mean())


@pytest.mark.slow
@pytest.mark.parametrize("actor", ["td3", "search"])
def test_the_best_query_is_found(actor: str) -> None:
    config = lens_config(actor)
    trainer = Trainer(Lens(), config, Budget(updates=900), seed=0)
    untrained = build_network(Lens(), config, make_rng(5))
    # Negative control: before training it is not where the lens is sharp (td3 begins at the centre).
    assert (first_queries(untrained, actor, config) - BEST).abs().mean() > 0.15
    while trainer.progress < 1:
        trainer.iterate()
    network = trainer.average.eval().requires_grad_(False)
    assert (first_queries(network, actor, config) - BEST).abs().max() < 0.1
    for queries in (1, 2):
        assert accuracy(network, actor, config, queries) > accuracy(network, "uniform", config, queries) + 0.25
    # What is learnt is where to look: the same network with an untrained actor sees little.
    if actor == "td3":
        assert network.actor is not None
        assert untrained.actor is not None
        with_its_actor = accuracy(network, actor, config, 1)
        network.actor.load_state_dict(untrained.actor.state_dict())
        assert accuracy(network, actor, config, 1) < with_its_actor - 0.2


def published_lens_config() -> PaperConfig:
    network = NetworkConfig(
        memory=RecurrentConfig(kind="lstm", hidden=24, readout="pooling"),
        critic=CriticConfig(hidden=32, cost_input="none"),
        actor=ActorConfig(hidden=32, relative=False, own_memory=True),
        shared_memory=False,
    )
    return PaperConfig(
        network=network,
        actor="td3",
        epsilon=(0.15, 0.15),
        batch=128,
        prefixes=3,
        replay_rollouts=16,
        horizon=3,
        random_queries=0.3,
        actor_start=0.4,
        saturation_price=0.01,
        learning_rate=5e-3,
        polyak=0.05,
        warmup=1.0,
    )


@pytest.mark.slow
def test_published_td3_finds_the_best_query() -> None:
    config = published_lens_config()
    trainer = PaperTrainer(Lens(), config, Budget(updates=640), seed=0)
    # Negative control: before training it is at the centre, not where the lens is sharp.
    assert (first_queries(trainer.network, "td3", config) - BEST).abs().mean() > 0.15
    while trainer.progress < 1:
        trainer.iterate()
    network = trainer.average.eval().requires_grad_(False)
    assert (first_queries(network, "td3", config) - BEST).abs().max() < 0.1
    for queries in (1, 2):
        assert accuracy(network, "td3", config, queries) > accuracy(network, "uniform", config, queries) + 0.2
    # The target actor has followed, and is what the critic's targets look at.
    assert (first_queries(trainer.target, "td3", config) - BEST).abs().max() < 0.12


def test_the_paper_recipe_learns_its_queries_where_they_are_not_answers() -> None:
    deterministic, gaussian = choose("paper", Lens()).config, choose("paper", BinarySearch(dim=2), "td3").config
    assert isinstance(deterministic, PaperConfig)
    assert isinstance(gaussian, PaperConfig)
    assert (deterministic.actor, deterministic.actor_kl) == ("td3", 0.0)
    assert gaussian.actor_kl > 0
    assert deterministic.network.actor == ActorConfig(hidden=128, relative=False, own_memory=True)
    assert gaussian.network.actor == ActorConfig(hidden=128, relative=False, own_memory=True, gaussian=True)
    assert deterministic.network.critic.twin
    # A deterministic actor is deployed without its noise, a Gaussian one greedily.
    assert deterministic.calibration.query_spreads == (0.0,)
    assert gaussian.calibration.query_spreads == (0.0,)
    # One that encodes histories by itself, and is to imitate a posterior, does so from the first update.
    assert (deterministic.has_guided_actor, gaussian.has_guided_actor) == (False, True)
    assert choose("paper", BinarySearch(dim=2)).config.query_rule == "ts"


def test_posterior_samples_query_until_the_published_actor_takes_over_rollout_by_rollout() -> None:
    trainer = PaperTrainer(BinarySearch(dim=2), choose("paper", BinarySearch(dim=2), "td3").config, Budget(updates=400))

    def guided(progress: float) -> float:
        rules = []
        for update in range(0, 400, trainer.config.updates_per_rollout):
            trainer.at.update = update
            rules.append(trainer._rule(progress) is trainer.guide)
        return sum(rules) / len(rules)

    assert isinstance(trainer.guide, Thompson)
    assert [guided(progress) for progress in (0.0, 0.29, 0.65, 1.0)] == [1.0, 1.0, 0.0, 0.0]
    assert abs(guided(0.475) - 0.5) < 0.05  # half way


def test_the_published_actor_begins_with_the_encoder_of_inference() -> None:
    trainer = PaperTrainer(BinarySearch(dim=2), choose("paper", BinarySearch(dim=2), "td3").config, Budget(updates=400))
    own, inference = trainer.network.actor_memory, trainer.network.memory
    assert own is not None

    def apart() -> float:
        pairs = zip(own.parameters(), inference.parameters(), strict=True)
        return max(float((one - other).detach().abs().max()) for one, other in pairs)

    trainer._begin_actor(0.14)
    assert apart() > 0.01
    trainer._begin_actor(0.15)
    assert apart() == 0
    with torch.no_grad():
        next(inference.parameters()).add_(1.0)
    trainer._begin_actor(0.16)  # once: afterwards it learns what to ask
    assert apart() == 1


def test_an_older_actor_is_written_as_it_was_read() -> None:
    """Later fields are left out where they are usual: the hash of a model that was saved before them stays."""
    older = TrainingConfig(actor="td3").model_dump(mode="json")
    assert not {"replay_uniform", "gain_candidates"} & older.keys()
    assert "own_memory" not in older["network"]["actor"]
    assert not {"gains", "cost_input"} & older["network"]["critic"].keys()
    assert TrainingConfig.model_validate(older) == TrainingConfig(actor="td3")
    assert not {"dual_waits", "dual_floor", "saturation_price"} & PaperConfig().model_dump().keys()
    changed = PaperConfig(dual_floor=0.0)
    assert PaperConfig.model_validate(changed.model_dump()) == changed


# What moves, and when.


def tiny(problem: Problem, recipe: str = "fast", **settings: Any) -> AnyTrainer:
    chosen = choose(recipe, problem).config
    small = {"batch": 8, "horizon": 4, "actor_start": 0.0, "epsilon": (0.1, 0.4), "minimum_time": 1}
    small |= {"warmup": 0.0} if recipe == "paper" else {"first_batch": 8}
    config = type(chosen).model_validate(chosen.model_dump() | small | {"actor": "td3"} | settings)
    return make_trainer(problem, config, Budget(updates=40), seed=1)  # type: ignore[arg-type]


def copied(network: Network) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.named_parameters()}


PROBLEMS = [(BinarySearch(dim=2), "fast"), (BinarySearch(dim=2), "paper"), (Lens(), "fast"), (Lens(), "paper")]
IDS = ["fast-same", "paper-same", "fast-other", "paper-other"]


@pytest.mark.parametrize(("problem", "recipe"), [*PROBLEMS, (BestArm(dim=3), "fast")], ids=[*IDS, "sphere"])
def test_the_actors_loss_moves_the_actor_alone(problem: Problem, recipe: str) -> None:
    trainer = tiny(problem, recipe)
    network = trainer.network
    batch = trainer._rollout(0.5)
    terms = trainer._losses(batch)
    assert terms.actor is not None
    (terms.inference + terms.stop + terms.continuation).backward()
    before = {name: None if p.grad is None else p.grad.clone() for name, p in network.named_parameters()}
    own = {id(p) for p in network.actor_parameters()}
    names = {name for name, p in network.named_parameters() if id(p) in own}
    assert any(name.startswith("actor_memory.") for name in names) == (recipe == "paper")
    assert all(before[name] is None for name in names)
    assert network.actor is not None
    actor_gradients(network.actor_parameters(), terms.actor, 1.0)
    for name, parameter in network.named_parameters():
        if name in names:
            assert parameter.grad is not None
        else:
            assert (parameter.grad is None) == (before[name] is None)
            assert parameter.grad is None or torch.equal(parameter.grad, before[name])  # type: ignore[arg-type]
    assert any(float(p.grad.abs().max()) > 0 for p in network.actor.parameters() if p.grad is not None)


def test_a_step_down_the_actors_loss_raises_the_value_of_its_queries() -> None:
    trainer = tiny(Lens())
    batch = trainer._rollout(0.5)
    state = trainer.rng.get_state()
    before = trainer._losses(batch).actor
    assert before is not None
    trainer.optimiser.zero_grad(set_to_none=True)
    actor_gradients(trainer.network.actor_parameters(), before, 1.0)
    trainer.optimiser.step()
    trainer.rng.set_state(state)
    after = trainer._losses(batch).actor
    assert after is not None
    assert float(after.detach()) < float(before.detach())


def test_the_actor_waits_for_its_turn() -> None:
    trainer = tiny(BinarySearch(dim=2), actor_delay=3, updates_per_rollout=1, actor_start=0.1)
    moved = []
    while trainer.at.update < 12:
        before = copied(trainer.network)
        trainer.iterate()
        now = copied(trainer.network)
        moved.append(any(not torch.equal(before[k], now[k]) for k in now if k.startswith("actor.")))
        assert any(not torch.equal(before[k], now[k]) for k in now if k.startswith("critic."))
    # A tenth of forty updates, then every third.
    assert [k for k, moves in enumerate(moved) if moves] == [6, 9]


# The Gaussian actor.


def test_the_imitation_term_is_the_divergence_of_two_gaussians() -> None:
    rng = make_rng()
    mean, log_std, other, other_log_std = (torch.randn(4, 5, 3, generator=rng) for _ in range(4))
    divergence = imitation(mean, log_std, Policy(other, other_log_std, other))
    posterior = Independent(Normal(mean, log_std.exp()), 1)
    policy = Independent(Normal(other, other_log_std.exp()), 1)
    torch.testing.assert_close(divergence, kl_divergence(posterior, policy))
    # The divergence has a direction, and the other is not it.
    assert not torch.allclose(divergence, kl_divergence(policy, posterior), rtol=0.1)


def test_imitation_draws_a_gaussian_actor_to_the_posterior() -> None:
    trainer = tiny(BinarySearch(dim=2), actor_kl=100.0, actor_delay=1, actor_rate=1.0)
    assert trainer.network.actor is not None
    with torch.no_grad():
        for parameter in trainer.network.actor.parameters():
            parameter.add_(0.05)

    def divergence() -> float:
        with torch.no_grad():
            context = torch.full((50, 1), 0.05)
            belief = trainer.network.believe(trainer.network.begin(context))
            features = trainer.network.goal_features(belief.state, belief, torch.full((50,), 0.2))
            policy = trainer.network.policy(belief, features)
            return float(imitation(*moments(belief.posterior, trainer.problem.answer_space), policy).mean())

    before = divergence()
    while trainer.progress < 1:
        trainer.iterate()
    assert divergence() < before / 5


# Proposals.


@pytest.mark.parametrize("actor", ["td3", "search"])
@pytest.mark.parametrize(
    ("problem", "memory"),
    [
        (BinarySearch(dim=3), PerAxisConfig()),
        (BinarySearch(dim=3), PerAxisConfig(view="relative")),
        (BinarySearch(dim=3), RecurrentConfig(hidden=8, readout="pooling")),
        (BestArm(dim=3), RegressionConfig(features="linear", estimate="weights")),
        (GPMax(dim=2), RegressionConfig(estimate="maximum", probes=16, basis=8)),
    ],
    ids=["axis", "axis-relative", "pooling", "sphere", "function"],
)
def test_queries_lie_in_the_space_and_are_seeded(problem: Problem, memory: Any, actor: Any) -> None:
    network_config = NetworkConfig(memory=memory, actor=ActorConfig() if actor == "td3" else None)
    config = TrainingConfig(network=network_config, actor=actor)
    network = build_network(problem, config, make_rng()).requires_grad_(False)
    tasks = TaskBatch.draw(problem, 20, make_rng())
    state = network.begin(tasks.context)
    query = problem.query_space.sample(20, make_rng())
    state = network.step(state, query, tasks.observe(query, make_rng()))
    chooser = make_actor(actor, problem.query_space, problem.answer_space, network)
    belief = network.believe(state)
    for scale in (0.0, 1.0, torch.linspace(0, 2, 20)[:, None, None]):
        one, again, other = (chooser.propose(belief, make_rng(seed), scale) for seed in (0, 0, 1))
        assert one.shape == (20, problem.query_space.dim)
        torch.testing.assert_close(problem.query_space.project(one), one)
        assert torch.equal(one, again)
        greedy = isinstance(chooser, Learned) and isinstance(scale, float) and scale == 0
        assert torch.equal(one, other) == greedy


def test_a_search_takes_its_most_valuable_candidate() -> None:
    problem = BinarySearch(dim=2)
    network = build_network(problem, TrainingConfig(actor="search"), make_rng()).requires_grad_(False)
    actor = Search(network, Aim(0.2, 0.02))
    belief = network.believe(network.begin(torch.full((30, 1), 0.05)))
    features = network.goal_features(belief.state, belief, torch.full((30,), 0.2))

    def value(query: Tensor) -> Tensor:
        values = network.continue_values(belief.state, belief, features, query[:, None], torch.full((30,), 0.02))
        return values[:, 0].amin(dim=-1)

    candidates = actor._candidates(belief, make_rng())
    assert candidates.shape == (30, 32, 2)
    best = torch.stack([value(query) for query in candidates.unbind(dim=1)]).amax(dim=0)
    torch.testing.assert_close(value(actor.propose(belief, make_rng(), 0.0)), best)
    assert (value(actor.propose(belief, make_rng(), 5.0)) < best - 1e-6).any()


# Files.


@pytest.mark.parametrize(("problem", "recipe"), PROBLEMS, ids=IDS)
def test_a_resumed_run_goes_on_exactly(problem: Problem, recipe: str, tmp_path: Path) -> None:
    one, two = tiny(problem, recipe), tiny(problem, recipe)
    for _ in range(2):
        one.iterate()
    save_checkpoint(one, tmp_path / "checkpoint.safetensors", {})
    restore_checkpoint(two, tmp_path / "checkpoint.safetensors", {})
    for _ in range(3):
        one.iterate()
        two.iterate()
        assert one.last_losses == two.last_losses
        assert one.last_losses.actor != 0
    for a, b in zip(one.average.parameters(), two.average.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("settings", [{}, {"actor_kl": 0.1}], ids=["deterministic", "gaussian"])
def test_a_model_is_saved_with_its_actor(settings: dict[str, Any], tmp_path: Path) -> None:
    small = {"first_batch": 16, "batch": 16, "horizon": 4} | settings
    problem = BinarySearch(dim=2)
    model = cicpe.train(problem, actor="td3", updates=10, calibration_episodes=200, epsilon=(1.0, 2.0), settings=small)
    loaded = Model.load(model.save(tmp_path / "model"))
    assert loaded.description.training == model.description.training
    belief = [m.belief.network.believe(m.belief.network.begin(torch.full((5, 1), 0.05))) for m in (model, loaded)]
    aim = model.description.training.aim
    ours, theirs = (
        make_actor("td3", problem.query_space, problem.answer_space, m.belief.network, aim).propose(b, make_rng(), 1.0)
        for m, b in zip((model, loaded), belief, strict=True)
    )
    assert torch.equal(ours, theirs)


# Refusals.


def test_a_gaussian_actor_needs_one_space() -> None:
    with pytest.raises(InvalidInput, match="both spaces must be one"):
        tiny(Lens(), actor_kl=0.1)


def test_what_goes_by_values_needs_a_network() -> None:
    space = Box([0.0], [1.0])
    for name in ("td3", "search"):
        with pytest.raises(InvalidInput, match="needs a trained one"):
            make_actor(name, space, space)  # type: ignore[arg-type]
