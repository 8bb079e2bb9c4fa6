"""Gaussian processes of a whole batch of episodes: each is what it would be alone."""

import pytest
import torch

from bowls import Bowl
from cicpe import trees
from cicpe.baselines.base import History
from cicpe.baselines.gp_model import fit_gps, to_cube
from cicpe.baselines.gp_optimisers import GPUCB, GPLogEI, GPOptimiser
from cicpe.problems import TaskBatch


def histories(n: int, steps: int) -> History:
    """Random queries of bowls, which are smallest at their centre."""
    problem, rng = Bowl(-1.0, 0.05), torch.Generator().manual_seed(0)
    tasks = TaskBatch.draw(problem, n, rng)
    history = GPUCB(problem, 20).begin(tasks.context)
    for _ in range(steps):
        query = problem.query_space.sample(n, rng)
        history = history.after(query, tasks.observe(query, rng))
    return history


def test_a_process_is_the_same_alone_and_in_a_batch() -> None:
    problem, history = Bowl(-1.0, 0.05), histories(5, 9)
    together = fit_gps(history, problem.query_space, -1)
    places = to_cube(problem.query_space, problem.query_space.sample(20, torch.Generator().manual_seed(1)))
    alone = [fit_gps(trees.select(history, torch.tensor([row])), problem.query_space, -1) for row in range(5)]
    with torch.no_grad():
        batched, own = together.posterior(places.expand(5, -1, -1)), [model.posterior(places[None]) for model in alone]
    assert torch.allclose(batched.mean, torch.cat([each.mean for each in own]), atol=0.02)
    assert torch.allclose(batched.variance.sqrt(), torch.cat([each.variance for each in own]).sqrt(), atol=0.02)
    # Negative control: another episode's is not the same.
    assert not torch.allclose(batched.mean[0], batched.mean[1], atol=0.2)


@pytest.mark.parametrize("kind", [GPUCB, GPLogEI])
def test_the_next_query_is_the_best_of_all_places(kind: type[GPOptimiser]) -> None:
    problem, history = Bowl(-1.0, 0.05), histories(4, 9)
    agent = kind(problem, 20)
    acquisition = agent.acquisition(fit_gps(history, problem.query_space, agent.sign), history)
    query = agent.propose(history, torch.Generator().manual_seed(2)).query[:, 0]
    line = torch.linspace(0, 1, 41, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)[:, None, None].expand(-1, 4, 1, 2)
    with torch.no_grad():
        best, found = acquisition(grid).amax(dim=0), acquisition(to_cube(problem.query_space, query)[None, :, None])[0]
    assert bool((found > best - 0.05).all())
