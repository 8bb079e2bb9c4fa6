"""Particles as a saved model: made, calibrated, written, read, and refused where the folder does not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import cicpe
from cicpe.beliefs.particles.belief import ParticleBelief
from cicpe.beliefs.particles.config import ParticleBeliefConfig
from cicpe.episodes.table import RecordSettings, tabulate
from cicpe.problems import TaskBatch
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.training.config import TrainingConfig
from cicpe.training.recipes import choose

SIZES = {"particles": 128, "prior_particles": 512, "candidates": 12, "lookahead_particles": 64}


def make(out: Path | None = None, **options: Any) -> cicpe.Model:
    settings = {"particles": SIZES, "horizon": 12, **options.pop("settings", {})}
    given: dict[str, Any] = {"recipe": "particles", "updates": 20, "epsilon": (0.2, 0.4), "calibration_episodes": 150}
    return cicpe.train(BinarySearch(dim=1, noise=(0.05, 0.1)), out=out, settings=settings, **{**given, **options})


def asked(model: cicpe.Model) -> list[list[float]]:
    """A session against one truth, and what it asked for."""
    session = model.session(0.4, 0.3, noise=0.05)
    while not session.stopped:
        session.tell([1.0 if session.ask()[0] < 0.3 else -1.0])
    return [list(step.query) for step in session.history] + [list(session.recommendation)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("particles") / "model"
    make(path)
    return path


def test_a_saved_model_asks_and_answers_as_before(folder: Path) -> None:
    model, again = cicpe.load(folder), cicpe.load(folder)
    assert model.fingerprint == again.fingerprint
    assert asked(model) == asked(again)
    assert abs(asked(model)[-1][0] - 0.3) < 0.4
    assert model.description.recipe == "particles"
    assert "particles" in model.card()
    with pytest.raises(cicpe.InvalidInput, match="stop"):
        model.agent(0.4, 0.3, "bellman")


@pytest.mark.slow
def test_a_learned_likelihood_is_saved_with_it(tmp_path: Path) -> None:
    model = make(tmp_path / "model", settings={"likelihood": "learned", "hidden": 8})
    again = cicpe.load(tmp_path / "model")
    task = model.problem.sample(50, torch.Generator().manual_seed(0))
    query, observation = torch.zeros(50, 1), torch.ones(50, 1)
    found = [m.belief.learned(task, query, observation) for m in (model, again)]  # type: ignore[attr-defined]
    torch.testing.assert_close(*found)
    # It is the likelihood of what was simulated: above a half where the target lies above the query.
    above = task.target[:, 0] > 0
    assert float(found[0][above].mean()) > float(found[0][~above].mean())


def test_the_hash_tells_sizes_and_problems_apart(folder: Path) -> None:
    model = cicpe.load(folder)
    other = make(settings={"particles": SIZES | {"particles": 136}})
    assert model.sha256 != other.sha256


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["training"]["particles"].update(particles=64),
        lambda data: data.update(horizon=5),
        lambda data: data["problem_options"].update(noise=0.3),
    ],
)
def test_a_folder_whose_parts_do_not_belong_together_is_refused(folder: Path, tmp_path: Path, change: Any) -> None:
    for file in folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    data = json.loads((folder / "config.json").read_text())
    change(data)
    (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(cicpe.CicpeError, match="another belief or problem"):
        cicpe.load(tmp_path)


def test_queries_do_not_depend_on_the_epsilons_that_are_looked_at() -> None:
    problem = BinarySearch(dim=2, noise=0.1)
    belief = ParticleBelief(problem, 6, ParticleBeliefConfig(particles=SIZES).particles, aim=0.3)
    state = belief.begin(torch.full((5, 1), 0.1))
    one, three = (belief.assess(state, e, torch.Generator().manual_seed(1)) for e in ((0.1,), (0.1, 0.2, 0.4)))
    assert torch.equal(one.query, three.query)
    assert bool((three.confidence[1:] >= three.confidence[:-1] - 1e-6).all())


def test_an_episode_that_is_sure_is_not_played_on() -> None:
    problem = BinarySearch(dim=1, noise=0.0)
    belief = ParticleBelief(problem, 30, ParticleBeliefConfig(particles=SIZES).particles, aim=0.3)
    rng = torch.Generator().manual_seed(0)
    seen = tabulate(belief, TaskBatch.draw(problem, 20, rng), RecordSettings((0.5, 1.0)), rng)
    assert seen.loss.shape == (2, 20, 31)
    # What it had last stays in its later columns.
    assert torch.equal(seen.confidence[..., -1], seen.confidence[..., -2])
    assert bool((seen.confidence[..., -1] > 0.99).all())


def test_the_recipe_is_chosen_where_a_network_would_have_to_search() -> None:
    assert isinstance(choose(None, Ackley(dim=2)).config, ParticleBeliefConfig)
    assert isinstance(choose(None, Ackley(dim=2), "ts").config, TrainingConfig)
    assert isinstance(choose(None, BinarySearch(dim=2)).config, TrainingConfig)
    assert isinstance(choose(None, BestArm(dim=3)).config, TrainingConfig)
    with pytest.raises(cicpe.InvalidInput, match="actor"):
        choose("particles", Ackley(dim=2), "ts")
    with pytest.raises(cicpe.InvalidInput, match="certify_every"):
        make(certify_every=1)
