"""The alarm: no false alarms beyond their share, blatant shifts noticed, and the same after saving."""

import json
import warnings
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

import cicpe
from cicpe.agents.alarm import DOUBTFUL, NO, TAILS, in_prior, log_tail
from cicpe.beliefs.particles.belief import ParticleBelief, ParticleConfig
from cicpe.beliefs.predictors import Prediction
from cicpe.calibration import alarm_fit
from cicpe.cli.main import main
from cicpe.errors import InvalidInput, ModelError
from cicpe.evaluation.alarm_study import PRIOR, alarm_study
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.model import Model
from cicpe.model.folder import ALARM, ALARM_WEIGHTS
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.shifted import (
    Drift,
    HeavyTails,
    Moving,
    Noisier,
    Outside,
    Shifted,
    ShiftedTask,
    SignFlips,
    named_shifts,
    shift_ranges,
)


@pytest.fixture(scope="module")
def model() -> Model:
    """A model of the zoo with an alarm that was fitted in a second or two."""
    return cicpe.fit_alarm(cicpe.load("best-arm-5d"), sizes=alarm_fit.AlarmSizes(512, 120, 768, 60, 1024, 499))


def p_values(model: Model, problem: Problem, episodes: int = 500, seed: int = 11) -> Tensor:
    """At the horizon, whatever the agent would have stopped at."""
    found = evaluate_agent(model.unstopped(0.01), problem, 0.01, episodes, seed).outcomes.p_value
    assert found is not None
    return found


# What it is made of.


def test_words() -> None:
    assert [in_prior(p) for p in (1.0, 0.051, 0.05, 0.011, 0.01, 0.0)] == [
        "yes",
        "yes",
        "doubtful",
        "doubtful",
        "no",
        "no",
    ]
    assert in_prior(None) == "unknown"


def test_tails_of_an_exponential_are_exact() -> None:
    """Their logarithm is linear, so that interpolation and extrapolation are the truth."""
    quantiles = -torch.tensor(TAILS).log()
    value = torch.tensor([0.1, 0.7, 2.0, 5.0, 12.0])
    assert torch.allclose(log_tail(quantiles.expand(5, -1), value), -value, atol=1e-4)


def test_tails_of_a_constant_do_not_alarm() -> None:
    assert float(log_tail(torch.zeros(1, len(TAILS)), torch.zeros(1)).exp()) >= 0.5


@pytest.mark.parametrize("binary", [True, False])
def test_surprises_are_standardised(binary: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    n, logit, mean, log_std = 200_000, torch.tensor([1.2]), torch.tensor([0.7]), torch.tensor([-1.0])
    upper = (torch.rand(n, 1, generator=rng) < torch.sigmoid(logit)).float()
    value = upper if binary else mean + log_std.exp() * torch.randn(n, 1, generator=rng)
    foresight = Prediction(torch.tensor([binary]), torch.tensor([0.5]), logit, mean, log_std)
    found = foresight.surprise(value)
    assert abs(float(found.residual.mean())) < 0.01
    assert abs(float(found.residual.var()) - 1) < 0.02
    assert abs(float(found.excess.mean())) < 0.01
    assert abs(float(found.excess.var() / found.variance.mean()) - 1) < 0.03
    assert abs(float(found.closeness.mean()) - 1) < 0.01  # and one for two values
    # The excess is the log-loss less its mean.
    loss = foresight.log_loss(value)
    assert torch.allclose(found.excess - loss, (found.excess - loss)[:1].expand(n, 1), atol=1e-4)


# Worlds that are off.


def observed(problem: Problem, n: int = 40_000) -> tuple[TaskBatch, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    tasks = TaskBatch.draw(problem, n, rng)
    query = problem.query_space.sample(n, rng)
    return tasks, query, tasks.observe(query, rng)


def noise_of(problem: Problem, family: BestArm) -> Tensor:
    tasks, query, value = observed(problem)
    return (value[:, 0] - family.value(tasks.task.task, query)) / tasks.context[:, 0]


def test_noise_and_tails() -> None:
    family = BestArm(dim=3, noise=0.01)
    assert abs(float(noise_of(Noisier(family, 2.0), family).std()) - 2) < 0.03
    heavy, normal = noise_of(HeavyTails(family, 1 / 2.5), family), noise_of(Noisier(family, 1.0), family)
    # P(|t| > 4) is 0.0404 with 2.5 degrees of freedom; a Gaussian has 0.00006.
    assert abs(float((heavy.abs() > 4).float().mean()) - 0.0404) < 0.004
    assert float((normal.abs() > 4).float().mean()) < 0.001
    flips = BinarySearch(dim=2, noise=0.05)
    tasks, query, value = observed(Noisier(flips, 2.0))
    assert abs(float(((tasks.target >= query) != (value > 0)).float().mean()) - 0.1) < 0.005
    assert torch.equal(tasks.context, torch.full((40_000, 1), 0.05))


def test_flips_and_offsets() -> None:
    family = BinarySearch(dim=2, noise=0.0)
    tasks, query, value = observed(SignFlips(family, 0.1))
    assert abs(float(((tasks.target >= query) != (value > 0)).float().mean()) - 0.1) < 0.005
    arm = BestArm(dim=3, noise=0.0)
    problem, rng = Drift(arm, 0.5), torch.Generator().manual_seed(0)
    tasks = TaskBatch.draw(problem, 100, rng)
    query = problem.query_space.sample(100, rng)
    off = [(tasks.observe(query, rng)[:, 0] - arm.value(tasks.task.task, query)).abs() for _ in range(3)]
    assert torch.allclose(off[1], 2 * off[0], atol=1e-5)
    assert torch.allclose(off[2], 3 * off[0], atol=1e-5)
    # Episodes that end take their clocks with them.
    assert tasks.select(torch.arange(5)).task.clock.tolist() == [3] * 5
    moving = TaskBatch.draw(Moving(family, 0.01), 1000, rng)
    still = moving.target - 0.05
    first = (moving.observe(still, rng) > 0).float().mean()
    for _ in range(20):
        last = (moving.observe(still, rng) > 0).float().mean()
    assert first > 0.95
    assert last < 0.75


def test_outside_lies_outside() -> None:
    tasks, _, _ = observed(Outside(BinarySearch(dim=2), 1.5))
    assert 0.3 < float((tasks.target.abs() > 1).float().mean()) < 0.37


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidInput):
        HeavyTails(BinarySearch(dim=2), 0.4)
    assert "heavy tails" not in named_shifts(BinarySearch(dim=2))
    assert len(named_shifts(BestArm(dim=3))) == 7
    assert len(shift_ranges(BestArm(dim=3))) == 6


# The alarm itself.


def test_p_values_are_uniform_under_the_prior(model: Model) -> None:
    assert model.alarm is not None
    for knot in model.alarm.config.context_knots[0][::2]:
        found = p_values(model, model.problem.with_context(noise=knot))
        # 499 ranks and 500 episodes: the two-sample test's distance at alpha 1e-3.
        assert kstest(found.numpy(), "uniform").statistic < 1.95 * (1 / 499 + 1 / 500) ** 0.5
    between = p_values(model, model.problem, episodes=1000)
    assert float((between <= DOUBTFUL).float().mean()) < 0.05 + 0.03
    assert float((between <= NO).float().mean()) < 0.01 + 0.015


def test_stopping_early_does_not_raise_alarms(model: Model) -> None:
    found = cicpe.evaluate(model, epsilon=0.01, delta=0.1, episodes=1000, seed=5).outcomes.p_value
    assert found is not None
    assert float((found <= DOUBTFUL).float().mean()) < 0.05 + 0.03


def test_p_values_only_fall(model: Model) -> None:
    agent, rng = model.unstopped(0.01), torch.Generator().manual_seed(0)
    tasks = TaskBatch.draw(model.problem, 64, rng)
    state, last = agent.begin(tasks.context), torch.ones(64)
    assert torch.equal(agent.p_value(state), last)
    for _ in range(agent.horizon):
        query = agent.propose(state, rng).query[:, 0]
        state = agent.update(state, query, tasks.observe(query, rng))
        now = agent.p_value(state)
        assert bool((now <= last).all())
        last = now


def test_blatant_shifts_are_noticed(model: Model) -> None:
    problem = model.problem.with_context(noise=0.01)
    for world in (Noisier(problem, 10.0), Outside(problem, 2.0), Drift(problem, 0.3)):
        assert float((p_values(model, world, 200) <= NO).float().mean()) > 0.9, world
    # The negative controls: no shift at all, and one that the prior cannot tell from itself.
    for world in (Noisier(problem, 1.0), SignFlips(problem, 1.0)):
        assert float((p_values(model, world, 400) <= NO).float().mean()) < 0.03, world


def test_study(model: Model) -> None:
    problem = model.problem.with_context(noise=0.01)
    rows = alarm_study(model.agent(0.01, 0.1), model.unstopped(0.01), problem, 0.01, 0.1, 200, 0)
    assert [row.world for row in rows] == [PRIOR, *named_shifts(problem)]
    assert not rows[0].misleads
    assert {row.world for row in rows if row.misleads} >= {"outside", "all signs flipped"}
    bare = replace(model, alarm=None)
    with pytest.raises(InvalidInput):
        alarm_study(bare.agent(0.01, 0.1), bare.unstopped(0.01), problem, 0.01, 0.1, 10, 0)


def test_fitting_is_reproducible_and_leaves_the_network_alone() -> None:
    bare, sizes = cicpe.load("best-arm-5d"), alarm_fit.AlarmSizes(256, 5, 256, 5, 128, 99)
    first, again = (cicpe.fit_alarm(bare, sizes=sizes) for _ in range(2))
    assert first.sha256 == bare.sha256
    assert first.alarm is not None
    assert again.alarm is not None
    for one, other in zip(
        first.alarm.tables.state_dict().values(), again.alarm.tables.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)
    with pytest.raises(InvalidInput):
        cicpe.fit_alarm(bare, ranked=50)


def test_round_trip(model: Model, tmp_path: Path) -> None:
    loaded = Model.load(model.save(tmp_path / "model"))
    problem = model.problem
    assert torch.equal(p_values(model, problem, 50), p_values(loaded, problem, 50))
    assert loaded.alarm is not None
    assert model.alarm is not None
    assert loaded.alarm.config == model.alarm.config


def test_a_folder_without_an_alarm(model: Model, tmp_path: Path) -> None:
    folder = replace(model, alarm=None).save(tmp_path / "model")
    assert not (folder / ALARM).exists()
    loaded = Model.load(folder)
    assert loaded.alarm is None
    assert cicpe.evaluate(loaded, epsilon=0.01, delta=0.1, episodes=20).outcomes.p_value is None


def test_damaged_alarms_are_refused(model: Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    good = (folder / ALARM_WEIGHTS).read_bytes()
    (folder / ALARM_WEIGHTS).write_bytes(good[:-1] + b"x")
    with pytest.raises(ModelError, match="not the file"):
        Model.load(folder)
    (folder / ALARM_WEIGHTS).unlink()
    with pytest.raises(ModelError, match="does not exist"):
        Model.load(folder)
    (folder / ALARM_WEIGHTS).write_bytes(good)
    about = json.loads((folder / "config.json").read_text())
    del about["files"][ALARM]
    (folder / "config.json").write_text(json.dumps(about))
    with pytest.raises(ModelError, match="needs both"):
        Model.load(folder)


def test_an_alarm_of_other_sizes_is_refused(model: Model) -> None:
    assert model.alarm is not None
    good = model.alarm.config.model_dump()
    for change in ({"context_knots": ((0.1, 0.01),)}, {"inputs": 3}, {"entries": 2}, {"hidden": -1}):
        with pytest.raises(ValueError, match=r"must be|not what|greater"):
            type(model.alarm.config).model_validate(good | change)


@pytest.mark.parametrize("field", ["hidden", "ranked"])
@pytest.mark.parametrize("size", [2**31, 2**63, 10**60])
def test_absurd_sizes_of_an_alarm_are_refused(model: Model, tmp_path: Path, field: str, size: int) -> None:
    folder = model.save(tmp_path / "model")
    (folder / ALARM).write_text(json.dumps(json.loads((folder / ALARM).read_text()) | {field: size}))
    about = json.loads((folder / "config.json").read_text())
    about["files"][ALARM] = sha256((folder / ALARM).read_bytes()).hexdigest()
    del about["files"]["config.json"]
    (folder / "config.json").write_text(json.dumps(about))
    with pytest.raises(ModelError, match=r"alarm\.(json|safetensors)"):
        Model.load(folder)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["alarm", "best-arm-5d", "--epsilon", "0.01", "--delta", "0.1", "--episodes", "20"]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["worlds"][0]["world"] == PRIOR
    assert main(words) == 0
    assert "noise x 2" in capsys.readouterr().out
    assert main([*words, "--save"]) == 2


def test_readings_in_a_smaller_unit_are_noticed(model: Model) -> None:
    """They are closer to what was foreseen than noise allows: no residual is large, and none is one-sided."""

    class Smaller(Shifted):
        def seen(self, task: ShiftedTask, query: Tensor, rng: torch.Generator) -> Tensor:
            return 0.01 * self._inner(task.task, query, rng)

    flagged = p_values(model, Smaller(model.problem, 1.0), 200) <= NO
    assert float(flagged.float().mean()) > 0.3  # with 499 ranked episodes; of the prior it is 0.01


@pytest.mark.slow
def test_particles_foresee_by_themselves() -> None:
    problem = BinarySearch(dim=2, noise=0.05)
    config = ParticleConfig(particles=64, prior_particles=512, moves=1, candidates=8, lookahead_particles=32)
    belief = ParticleBelief(problem, 12, config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = alarm_fit.AlarmSizes(episodes=128, ranked=199, knots=1)
        alarm = alarm_fit.fit_alarm(belief, problem, query_spread=0.0, epsilon=0.2, sizes=sizes)
        share = {}
        for name, world in {"prior": problem, "flipped": SignFlips(problem, 1.0)}.items():
            fit = alarm_fit.Fit(belief, world, 0.0, 0.2, 17)
            *_, alarm_state = alarm_fit._alarm_states(fit, alarm, world, 100, fit.rng(0))
            # With 199 ranked episodes of so small a sampler, the least p-value there can be is about DOUBTFUL.
            share[name] = float((alarm.p_value(alarm_state) <= 2 * DOUBTFUL).float().mean())
    assert share["prior"] < 0.25
    assert share["flipped"] > 0.75


def test_a_p_value_is_a_rank_among_the_episodes_of_the_least_alarming_point_nearby(model: Model) -> None:
    agent, rng = model.agent(0.01, 0.1), torch.Generator().manual_seed(4)
    alarm = model.alarm
    assert alarm is not None
    state = agent.begin(0.02 * torch.rand((50, 1), generator=rng))
    alarm_state = state.alarm._replace(
        lowest=alarm.tables.lowest_KR.flatten()[torch.randint(0, 900, (50,), generator=rng)]
    )
    points = alarm.config.grid.corners(alarm_state.context).point
    expected = []
    for lowest, near in zip(alarm_state.lowest, points, strict=True):
        ranked = [alarm.tables.lowest_KR[point] for point in near]
        expected.append(max((1 + int((episodes <= lowest).sum())) / (1 + len(episodes)) for episodes in ranked))
    assert torch.allclose(alarm.p_value(alarm_state), torch.tensor(expected))
    assert float(alarm.p_value(alarm_state).std()) > 0.01
