"""Posterior heads: analytic oracles, shapes and spaces, bimodal toys, and learning where the mean is no answer."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from scipy.stats import kstest, norm
from torch import Generator, Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

import cicpe
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.base import Dims, Memory, MemoryFeatures
from cicpe.beliefs.network.memories.per_axis import PerAxisConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import NetworkConfig, PosteriorConfig
from cicpe.beliefs.network.posteriors.gaussian import GaussianConfig, Posterior
from cicpe.beliefs.network.posteriors.mixture import MixtureConfig, MixturePosterior
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem
from cicpe.problems.binary_search import BinarySearch
from cicpe.spaces import Box, Interval, Space, Sphere
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import Trainer
from cicpe.training.losses import inference_loss
from cicpe.training.schedule import Budget
from cicpe.trees import select
from stopping import NEVER, stopping_at

ALPHA = 1e-3
UNIT = Interval(-1.0, 1.0)
SPACES = [Box([0.0, -3.0, 2.0], [1.0, 5.0, 2.5]), Interval(-2.0, 6.0), Sphere(4)]
CONFIGS: list[PosteriorConfig] = [GaussianConfig(hidden=8), MixtureConfig(components=5, hidden=8)]
RICH = CONFIGS[1:]


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=make_rng(seed))


def head_on(config: PosteriorConfig, space: Space, axes: bool = False) -> tuple[Memory, Callable[..., Posterior]]:
    """A memory of the sizes of a space, and the head that reads it."""
    dims = Dims(space.dim, space.dim, 0, space.dim)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        memory: Memory = PerAxisConfig(hidden=8).build(dims) if axes else RecurrentConfig(hidden=8).build(dims)
        return memory, config.build(memory, space)


def mixture(weights: list[float], means: list[list[float]], stds: list[float], window: float = 0.1) -> MixturePosterior:
    mean = torch.tensor(means)
    log_std = torch.tensor(stds).log()[:, None].expand_as(mean)
    space = Box([-1.0] * mean.shape[1], [1.0] * mean.shape[1])
    return MixturePosterior(space, torch.tensor(weights).log()[None], mean[None], log_std[None], window)


# Analytic oracles.


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_mixture_agrees_with_torch(space: Space) -> None:
    logits, mean, log_std = normal(6, 2, 5, seed=1), normal(6, 2, 5, space.dim, seed=2), normal(6, 2, 5, space.dim)
    posterior = MixturePosterior(space, logits, mean, log_std, 0.1)
    oracle: Any = MixtureSameFamily(Categorical(logits=logits), Independent(Normal(mean, log_std.exp()), 1))
    target = space.sample(12, make_rng()).view(6, 2, -1)
    torch.testing.assert_close(posterior.nll(target), -oracle.log_prob(space.to_unit(target)) / space.dim)
    torch.testing.assert_close(posterior.std, oracle.variance.sqrt() * space.unit_scale)


def soft_success(posterior: MixturePosterior, answer: Tensor) -> Tensor:
    """log E exp(-|x - x*|^2 / 2 window^2), by torch: the mixture blurred by the window."""
    blurred = (torch.exp(2 * posterior.log_std_unit) + posterior.window**2).sqrt()
    parts = Independent(Normal(posterior.mean_unit, blurred), 1)
    oracle: Any = MixtureSameFamily(Categorical(logits=posterior.logits), parts)
    return torch.as_tensor(oracle.log_prob(answer))


def test_the_mixture_recommends_what_most_likely_succeeds() -> None:
    # A bimodal posterior: a mode, and never the mean between them.
    assert abs(float(mixture([0.5, 0.5], [[-0.6], [0.6]], [0.05, 0.05]).recommendation)) == pytest.approx(0.6, abs=0.01)
    # A sliver has the highest density, a broad component the largest weight: neither holds the most mass nearby.
    posterior = mixture([0.05, 0.5, 0.45], [[0.8], [-0.5], [0.4]], [0.001, 0.6, 0.05])
    assert float(posterior.recommendation) == pytest.approx(0.4, abs=0.02)
    # Components that describe one mode together: their mean.
    posterior = mixture([0.25, 0.75], [[0.10], [0.14]], [0.03, 0.03])
    assert float(posterior.recommendation) == pytest.approx(0.13, abs=0.003)
    # Whatever the mixture, no component mean does better.
    space = Box([-1.0] * 2, [1.0] * 2)
    mean = torch.tanh(normal(200, 6, 2, seed=1))
    posterior = MixturePosterior(space, normal(200, 6), mean, 0.7 * normal(200, 6, 2, seed=2) - 2, 0.1)
    found = soft_success(posterior, posterior.recommendation)
    for k in range(6):
        assert bool((found >= soft_success(posterior, mean[:, k]) - 1e-4).all())


# Samples.


def draws(posterior: Posterior, scale: float) -> Tensor:
    return posterior.sample(make_rng(3), scale).flatten().double()


def test_samples_follow_the_density() -> None:
    n = 4000
    two = mixture([0.3, 0.7], [[-0.5], [0.4]], [0.1, 0.15])
    posterior = MixturePosterior(
        UNIT, two.logits.expand(n, 2), two.mean_unit.expand(n, 2, 1), two.log_std_unit.expand(n, 2, 1), 0.1
    )

    def cdf(x: Any, scale: float = 1.0) -> Any:
        return 0.3 * norm.cdf(x, -0.5, 0.1 * scale) + 0.7 * norm.cdf(x, 0.4, 0.15 * scale)

    assert kstest(draws(posterior, 1.0), cdf).pvalue > ALPHA
    assert kstest(draws(posterior, 0.5), lambda x: cdf(x, 0.5)).pvalue > ALPHA
    assert kstest(draws(posterior, 0.5), cdf).pvalue < ALPHA


@pytest.mark.parametrize("axes", [False, True])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_heads_conform(space: Space, config: PosteriorConfig, axes: bool) -> None:
    """Shapes, finite gradients, answers in the space, greedy sampling, and the same episodes in any order."""
    memory, head = head_on(config, space, axes)
    inputs = normal(7, 3, space.dim), normal(7, 3, space.dim, seed=1)
    memory_features = memory.features(memory.unroll(torch.zeros(7, 0), *inputs))
    posterior = head(memory_features)
    target = space.sample(7, make_rng())
    nll = posterior.nll(target[:, None].expand(7, 4, -1))
    assert nll.shape == (7, 4)
    scale = torch.tensor([0.0, 0.5, 1.0, 0.0, 2.0, 0.0, 1.0])[:, None, None]
    sample = posterior.sample(make_rng(), scale)
    for answer in (posterior.recommendation, sample, posterior.sample(make_rng())):
        assert answer.shape == (7, 4, space.dim)
        torch.testing.assert_close(space.project(answer), answer)
    greedy = scale.flatten() == 0
    assert torch.equal(sample[greedy], posterior.recommendation[greedy])
    assert posterior.std.shape == (7, 4, space.dim)
    assert bool((posterior.std > 0).all())

    loss = inference_loss(posterior, target, torch.full((7, 4), 0.25), space, 5.0, 0.1, make_rng())
    gradients = torch.autograd.grad(loss, list(memory.parameters()) + list(head.parameters()), allow_unused=True)  # type: ignore[attr-defined]
    found = [gradient for gradient in gradients if gradient is not None]
    assert found
    assert all(bool(gradient.isfinite().all()) for gradient in found)
    assert any(bool(gradient.any()) for gradient in found)

    order = torch.randperm(7, generator=make_rng())
    shuffled = head(select(memory_features, order))
    torch.testing.assert_close(shuffled.recommendation, posterior.recommendation[order])
    torch.testing.assert_close(shuffled.nll(target[order, None].expand(7, 4, -1)), nll[order])


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_coordinates_are_treated_alike_where_the_memory_gives_axes(config: PosteriorConfig) -> None:
    space = Box([-1.0] * 3, [1.0] * 3)
    memory, head = head_on(config, space, axes=True)
    query, observation = normal(5, 4, 3), normal(5, 4, 3, seed=1)
    order = torch.tensor([2, 0, 1])
    plain = head(memory.features(memory.unroll(torch.zeros(5, 0), query, observation)))
    moved = head(memory.features(memory.unroll(torch.zeros(5, 0), query[..., order], observation[..., order])))
    target = torch.tanh(normal(5, 5, 3, seed=2))
    torch.testing.assert_close(moved.nll(target[..., order]), plain.nll(target))
    torch.testing.assert_close(moved.recommendation, plain.recommendation[..., order])
    torch.testing.assert_close(moved.std, plain.std[..., order])


@pytest.mark.parametrize("config", RICH, ids=lambda config: config.kind)
def test_a_memory_with_an_estimate_of_its_own_is_heard(config: PosteriorConfig) -> None:
    """Untrained, the density at the estimate is higher than without it, and elsewhere it is not zero."""
    memory, head = head_on(config, UNIT)
    summary, place = normal(1, 1, memory.width), torch.tensor([[0.7]])
    point_estimate, log_spread = place[None], torch.full((1, 1, 1), -4.0)
    with torch.no_grad():
        with_estimate, without = (
            head(MemoryFeatures(summary, None, point_estimate, log_spread)),
            head(MemoryFeatures(summary)),
        )
    assert float(with_estimate.nll(place)) < float(without.nll(place)) - 0.3
    assert float(with_estimate.nll(-place)) < 6


# Learning a density directly on the head.


def fitted(config: PosteriorConfig, targets: Tensor, steps: int) -> Posterior:
    """The posterior for a memory that knows nothing, after training on samples of the target."""
    memory, head = head_on(config, UNIT)
    memory_features = MemoryFeatures(torch.ones(1, 1, memory.width))
    optimiser = torch.optim.Adam(head.parameters(), lr=1e-2)  # type: ignore[attr-defined]
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for batch in targets.view(steps, -1, 1):
        loss = inference_loss(
            head(MemoryFeatures(memory_features.summary.expand(len(batch), 1, -1))),
            batch,
            torch.ones(len(batch), 1),
            UNIT,
            tail=5.0,
            anchor_weight=0.1,
            rng=make_rng(),
        )
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        rate.step()
    with torch.no_grad():
        posterior = head(memory_features)
    assert isinstance(posterior, Posterior)
    return posterior


def two_modes(n: int, seed: int = 0) -> Tensor:
    sign = 2 * torch.randint(2, (n,), generator=make_rng(seed)).float() - 1
    return 0.6 * sign + 0.05 * normal(n, seed=seed + 1)


@pytest.fixture(scope="module")
def bimodal() -> dict[str, Posterior]:
    configs: list[PosteriorConfig] = [GaussianConfig(), MixtureConfig()]
    return {config.kind: fitted(config, two_modes(200 * 128), 200) for config in configs}


def test_a_mixture_finds_both_modes(bimodal: dict[str, Posterior]) -> None:
    posterior = bimodal["mixture"]
    assert isinstance(posterior, MixturePosterior)
    weights, means = posterior.logits[0, 0].softmax(dim=-1), posterior.mean_unit[0, 0, :, 0]
    for sign in (-1, 1):
        side = (sign * means) > 0
        assert float(weights[side].sum()) == pytest.approx(0.5, abs=0.1)
        assert float((weights * means)[side].sum() / weights[side].sum()) == pytest.approx(0.6 * sign, abs=0.05)
    entropy = math.log(2) + math.log(0.05 * math.sqrt(2 * math.pi * math.e))
    found = float(posterior.nll(two_modes(20_000, seed=5)[:, None, None]).mean())
    assert found == pytest.approx(entropy, abs=0.05)
    assert float(posterior.std) == pytest.approx(math.hypot(0.6, 0.05), abs=0.05)


def test_its_recommendation_succeeds_half_of_the_time_and_the_mean_never(bimodal: dict[str, Posterior]) -> None:
    targets = two_modes(4000, seed=7)
    success = {
        kind: float(((posterior.recommendation.flatten() - targets).abs() <= 0.2).float().mean())
        for kind, posterior in bimodal.items()
    }
    assert success["mixture"] == pytest.approx(0.5, abs=0.03)
    assert success["gaussian"] < 0.01


# Learning to run whole episodes.


class SignLost(Problem):
    """y = x*^2 + noise, wherever one looks: the distance from zero can be learnt, the side cannot."""

    query_space = Box([-1.0], [1.0])
    answer_space = Box([-1.0], [1.0])
    horizon = 3

    def sample(self, n: int, rng: Generator) -> Tensor:
        size = 0.3 + 0.7 * torch.rand(n, 1, generator=rng)
        return size * (2 * torch.randint(2, (n, 1), generator=rng) - 1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return task.square() + 0.05 * torch.randn(task.shape, generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task


def success_at_the_horizon(config: PosteriorConfig, seed: int = 0) -> float:
    problem = SignLost()
    training = TrainingConfig(
        network=NetworkConfig(memory=RecurrentConfig(hidden=16), posterior=config),
        epsilon=(0.1, 0.2),
        first_batch=48,
        batch=96,
        horizon=3,
        adapt_horizon=False,
    )
    trainer = Trainer(problem, training, Budget(updates=100), seed=seed)
    while trainer.progress < 1:
        trainer.iterate()
    actor = make_actor("ts", problem.query_space, problem.answer_space)
    agent = stopping_at(NetworkBelief(trainer.average, actor, problem.horizon), NEVER, 0.2)
    return evaluate_agent(agent, problem, 0.2, episodes=2000, seed=0).accuracy


def test_agents_learn_where_the_mean_is_no_answer() -> None:
    assert success_at_the_horizon(GaussianConfig()) < 0.1
    assert success_at_the_horizon(MixtureConfig()) > 0.45


# Configurations.


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_configurations_survive_json(config: PosteriorConfig) -> None:
    network = NetworkConfig(posterior=config)
    assert NetworkConfig.model_validate_json(network.model_dump_json()) == network


@pytest.mark.parametrize("config", RICH, ids=lambda config: config.kind)
def test_a_saved_model_keeps_its_posterior(config: PosteriorConfig, tmp_path: Path) -> None:
    networks_config = NetworkConfig(memory=RecurrentConfig(hidden=8), posterior=config).model_dump()
    settings = {"network": networks_config, "first_batch": 8, "batch": 8, "horizon": 3}
    model = cicpe.train(BinarySearch(dim=2), updates=2, calibration_episodes=100, settings=settings)
    model.save(tmp_path / "model")
    again = cicpe.load(tmp_path / "model")
    history = normal(5, 3, 2), normal(5, 3, 2, seed=1).sign()
    context = torch.full((5, len(model.description.context_names)), 0.1)
    networks = model.belief.network, again.belief.network  # type: ignore[attr-defined]
    before, after = (network.believe(network.unroll(context, *history)).posterior for network in networks)
    assert torch.equal(after.recommendation, before.recommendation)
    assert torch.equal(after.std, before.std)


@pytest.mark.parametrize(
    "data",
    [{"kind": "flow"}, {"kind": "gaussian", "components": 3}, {"kind": "mixture", "components": 0}, {"hidden": 64}],
    ids=str,
)
def test_configurations_refuse_what_does_not_apply(data: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(PosteriorConfig).validate_python(data)
