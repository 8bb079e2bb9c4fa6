"""Best arm against analytic oracles."""

import torch

from cicpe.problems import TaskBatch
from cicpe.problems.best_arm import BestArm
from small_runs import make_rng


def test_best_arm_is_linear_in_the_query() -> None:
    problem = BestArm(dim=5, noise=0.0)
    task = problem.sample(100, make_rng())
    a, b = problem.query_space.sample(200, make_rng(1)).chunk(2)
    seen = [problem.observe(task, query, make_rng()) for query in (a, b, 2 * a - 3 * b)]
    assert torch.allclose(seen[2], 2 * seen[0] - 3 * seen[1], atol=1e-5)


def test_best_arm_shows_one_coordinate_along_an_axis_and_is_largest_at_its_target() -> None:
    problem = BestArm(dim=3, noise=0.0)
    task = problem.sample(50, make_rng())
    along = torch.tensor([0.0, 1.0, 0.0]).expand(50, 3)
    assert torch.allclose(problem.observe(task, along, make_rng())[:, 0], task.target[:, 1])
    assert torch.allclose(problem.value(task, task.target), torch.ones(50), atol=1e-6)
    assert (problem.value(task, problem.query_space.sample(50, make_rng(3))) <= 1).all()


def test_best_arm_loss_is_one_minus_the_cosine() -> None:
    problem = BestArm(dim=3)
    tasks = TaskBatch.draw(problem, 20, make_rng())
    answer = 7 * problem.answer_space.sample(20, make_rng(1))  # an answer's length does not matter
    cosine = torch.nn.functional.cosine_similarity(answer, tasks.target)
    assert torch.allclose(tasks.loss(answer), 1 - cosine, atol=1e-6)
    assert torch.allclose(tasks.loss(-tasks.target), torch.full((20,), 2.0))
