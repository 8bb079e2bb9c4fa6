"""Particles as a teacher: what its histories are, how they reach an update, and that they help."""

import pytest
import torch

import cicpe
from cicpe.networks.critic import CriticConfig
from cicpe.networks.network import NetworkConfig
from cicpe.networks.recurrent import RecurrentConfig
from cicpe.problems import HiddenTasks
from cicpe.problems.ackley import Ackley
from cicpe.problems.binary_search import BinarySearch
from cicpe.spaces import Box
from cicpe.training.config import TeacherConfig, TrainingConfig
from cicpe.training.loop import Trainer
from cicpe.training.replay import resized
from cicpe.training.rollout import Trajectories
from cicpe.training.schedule import Budget
from cicpe.training.teacher import LESSON, lesson, make_teacher

PARTICLES = {"particles": 128, "prior_particles": 512, "candidates": 8, "lookahead_particles": 32}
HORIZON = 12
SMALL = NetworkConfig(memory=RecurrentConfig(hidden=48), critic=CriticConfig(hidden=16, twin=False))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def config(**options: object) -> TrainingConfig:
    teacher = {"particles": PARTICLES, **options}
    return TrainingConfig(teacher=teacher, horizon=HORIZON, epsilon=(0.1, 0.2), first_batch=16, batch=16)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def taught() -> tuple[HiddenTasks, Trajectories]:
    problem = BinarySearch(dim=1, noise=0.02)
    hidden = HiddenTasks.draw(problem, 80, rng())
    return hidden, lesson(make_teacher(problem, config()), hidden, 0.1, rng(1))


def test_a_lesson_ends_where_its_teacher_is_sure(taught: tuple[HiddenTasks, Trajectories]) -> None:
    hidden, trajectories = taught
    assert trajectories.query.shape == trajectories.observation.shape == (80, HORIZON, 1)
    assert 1 <= trajectories.length.min() < trajectories.length.max() <= HORIZON
    short = trajectories.length < HORIZON
    assert short.float().mean() > 0.5
    # Where it is sure within 0.1, its last queries are close to the target; uniform ones would be 0.7 away.
    last = trajectories.query[torch.arange(80), trajectories.length - 1]
    assert (last - hidden.target).abs()[short].median() < 0.15
    assert not trajectories.own.any()


def test_a_history_is_of_its_own_task(taught: tuple[HiddenTasks, Trajectories]) -> None:
    hidden, trajectories = taught
    step = torch.arange(HORIZON) < trajectories.length[:, None]
    right = torch.sign(hidden.target[:, None] - trajectories.query) == torch.sign(trajectories.observation)
    assert right[..., 0][step].float().mean() > 0.9  # the noise turns few of them
    others = torch.sign(hidden.target.roll(1, 0)[:, None] - trajectories.query) == torch.sign(trajectories.observation)
    assert others[..., 0][step].float().mean() < 0.8


@pytest.mark.parametrize("horizon", [3, HORIZON, 20])
def test_a_resized_history_keeps_what_was_seen(taught: tuple[HiddenTasks, Trajectories], horizon: int) -> None:
    before, after = taught[1], resized(taught[1], horizon)
    both = min(horizon, HORIZON)
    assert after.query.shape[1] == after.observation.shape[1] == horizon
    assert torch.equal(after.query[:, :both], before.query[:, :both])
    assert torch.equal(after.observation[:, :both], before.observation[:, :both])
    assert torch.equal(after.length, before.length.clamp_max(horizon))
    assert after.query.isfinite().all()


def test_lessons_come_first_and_are_a_share_of_every_update() -> None:
    trainer = Trainer(BinarySearch(dim=1), config(episodes=LESSON + 6, share=0.25), Budget(updates=4))
    trainer.iterate()
    trainer.iterate()
    assert (trainer.at.update, len(trainer.lessons)) == (0, LESSON + 6)
    trainer.iterate()
    assert (trainer.at.update, len(trainer.lessons)) == (2, LESSON + 6)
    batch = trainer.replay.sample(16, rng())
    mixed = trainer._with_lessons(batch)
    assert torch.equal(mixed.query[:12], batch.query[:12])
    everything = torch.cat([stored.trajectories.query for stored in trainer.lessons])
    assert all((everything == row).all(dim=(1, 2)).any() for row in mixed.query[12:])


def test_a_teacher_has_a_quarter_of_the_minutes() -> None:
    ticks = iter(float(second) for second in range(1000))
    trainer = Trainer(BinarySearch(dim=1), config(episodes=10**6), Budget(minutes=1.0), clock=lambda: 5 * next(ticks))
    for _ in range(3):  # each takes five seconds of that clock
        assert trainer.iterate() is None
    assert trainer.at.update == 0
    trainer.iterate()
    assert trainer.at.update == 2
    assert len(trainer.lessons) == 3 * LESSON


def test_a_problem_without_parameters_has_no_teacher() -> None:
    with pytest.raises(cicpe.InvalidInput, match=r"teacher.*parameter_space"):
        make_teacher(cicpe.make_problem("gp-max"), config())


class Peak(cicpe.Problem):
    """A narrow peak in a plain of noise: a query that misses it says almost nothing."""

    query_space = answer_space = parameter_space = Box([-1.0, -1.0], [1.0, 1.0])
    horizon = 24
    has_likelihood = True

    def sample(self, n: int, rng: torch.Generator) -> torch.Tensor:
        return 2 * torch.rand(n, 2, generator=rng) - 1

    def target(self, task: torch.Tensor) -> torch.Tensor:
        return task

    parameters = target

    def from_parameters(self, parameters: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return parameters

    def mean(self, task: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return torch.exp(-(task - query).square().sum(dim=-1, keepdim=True) / 0.18)

    def observe(self, task: torch.Tensor, query: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        seen = self.mean(task, query)
        return seen + 0.05 * torch.randn(seen.shape, generator=rng)

    def log_likelihood(self, task: torch.Tensor, query: torch.Tensor, observation: torch.Tensor) -> torch.Tensor:
        return -0.5 * ((observation - self.mean(task, query)) / 0.05).square().sum(dim=-1)


@pytest.mark.slow
def test_a_taught_network_reads_histories_that_say_something() -> None:
    """The same updates with and without lessons, judged on histories that neither has seen."""
    hidden = HiddenTasks.draw(Peak(), 300, rng(5))
    fresh = lesson(make_teacher(Peak(), config()), hidden, 0.1, rng(6))
    success = []
    for teacher in (TeacherConfig(episodes=512, particles=PARTICLES), None):  # type: ignore[arg-type]
        settings = {"network": SMALL, "learning_rate": 3e-3, "epsilon": (0.1, 0.2), "horizon": HORIZON}
        trainer = Trainer(Peak(), TrainingConfig(teacher=teacher, **settings), Budget(updates=300))  # type: ignore[arg-type]
        while trainer.progress < 1:
            trainer.iterate()
        with torch.no_grad():
            state = trainer.average.unroll(hidden.context, fresh.query, fresh.observation)
            answer = trainer.average.believe(state).posterior.recommendation[torch.arange(300), fresh.length]
        success.append(float((hidden.loss(answer) <= 0.2).float().mean()))
    with_lessons, without = success
    assert with_lessons > without + 0.1


def test_a_model_says_how_it_was_taught() -> None:
    settings = {"teacher": {"episodes": 20, "particles": PARTICLES}, "network": SMALL.model_dump(), "horizon": 6}
    model = cicpe.train(
        Ackley(dim=2), recipe="fast", actor="ts", updates=2, calibration_episodes=100, settings=settings
    )
    kept = model.description.training
    assert isinstance(kept, TrainingConfig)
    assert kept.teacher is not None
    assert (kept.teacher.episodes, kept.teacher.particles.particles) == (20, 128)
