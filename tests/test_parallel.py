"""One piece of work, whoever does it: the same results with any number of workers, and though some of them die."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

import cicpe
from cicpe import parallel
from cicpe.errors import InvalidInput, WorkerError
from cicpe.parallel import HERE, Executor, the_ray
from commands import REPOSITORY
from pretended_workers import pretend_workers


def arithmetic(seed: int) -> float:
    """A sum that several threads would round otherwise."""
    rng = torch.Generator().manual_seed(seed)
    return float(torch.rand(200, 300, generator=rng).mm(torch.rand(300, 200, generator=rng)).sum())


def die_once(marker: Path, unlucky: int, item: int) -> float:
    """As ``arithmetic``, but the first process to take one of the items is killed in the middle of it."""
    if item == unlucky and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return arithmetic(item)


def refuse(item: int) -> int:
    raise InvalidInput("item", item, "another")


# --- in this process --------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_items_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    results = Executor(on_progress=lambda done, total: told.append((done, total))).map(lambda item: item**2, [3, 1, 2])
    assert list(results) == [9, 1, 4]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_work_is_done_only_as_far_as_it_is_wanted() -> None:
    done: list[int] = []
    results = HERE.map(done.append, range(100))
    next(results)
    next(results)
    assert done == [0, 1]


def test_arithmetic_is_on_one_thread_and_the_caller_keeps_his_own() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert list(HERE.map(lambda item: torch.get_num_threads(), range(2))) == [1, 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("jobs", [0, -1, 1025])
def test_a_number_of_workers_that_makes_no_sense_is_refused(jobs: int) -> None:
    with pytest.raises(InvalidInput, match=f"jobs must be a whole number from 1 to 1024; got {jobs}"):
        Executor(jobs)


def test_a_backend_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match="backend must be local or ray; got 'cloud'"):
        Executor(backend="cloud")


PRETENDED_RAY = """import os
mode, token = os.environ.get("RAY_AUTH_MODE"), os.environ.get("RAY_AUTH_TOKEN")  # as Ray does, when it is imported
how = {}
is_initialized = lambda: False
init = lambda **given: how.update(given)
"""


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Ray that was not imported yet and remembers how it was begun, and an environment that says nothing of it."""
    (tmp_path / "ray.py").write_text(PRETENDED_RAY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray")
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return tmp_path


def test_a_ray_of_ones_own_lets_nobody_else_in(ray: Path) -> None:
    """It listens on every interface: without a secret, anyone on the network could run programs here."""
    begun = the_ray()
    assert (begun.how["address"], begun.how["include_dashboard"], begun.mode) == ("local", False, "token")
    assert len(begun.token) == 64


def test_the_cluster_of_the_user_is_taken_as_it_is(ray: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    begun = the_ray()
    assert "address" not in begun.how
    assert (begun.mode, begun.token) == (None, None)


def test_without_ray_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidInput, match="pip install ray"):
        list(Executor(backend="ray").map(arithmetic, range(2)))


# --- what is sent ------------------------------------------------------------------------------------


def test_errors_of_users_survive_the_way() -> None:
    for error in (InvalidInput("epsilon", -1, "positive"), cicpe.errors.UnknownProblem("P", "named", "PATH/p.py:P")):
        read = pickle.loads(pickle.dumps(error))
        assert (type(read), str(read), vars(read)) == (type(error), str(error), vars(error))


def test_what_no_other_process_could_import_goes_by_value(tmp_path: Path) -> None:
    """A problem file that was named by its path, with a neighbour: read back where neither can be imported."""
    (tmp_path / "neighbour_of_it.py").write_text("OFFSET = 2.0\n\n\ndef shifted(x):\n    return x + OFFSET\n")
    source = (REPOSITORY / "examples" / "dose_finding.py").read_text()
    (tmp_path / "problem_of_mine.py").write_text(f"import neighbour_of_it\n{source}\n")
    problem = cicpe.make_problem(f"{tmp_path}/problem_of_mine.py:DoseFinding")
    module = sys.modules[type(problem).__module__]

    def both(item: float) -> tuple[str, float]:
        return type(problem).__name__, module.neighbour_of_it.shifted(item)

    pickled = parallel._pickled(both)
    code = (
        "import sys, cloudpickle; function = cloudpickle.loads(sys.stdin.buffer.read()); "
        "assert not any('problem_of_mine' in name for name in sys.modules); print(function(1.0))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, timeout=120)
    assert done.stdout.decode().strip() == "('DoseFinding', 3.0)", done.stderr.decode()[-500:]


# --- a pool that is no pool: what becomes of deaths ---------------------------------------------------


def test_what_a_dead_worker_leaves_is_done_again_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    given = pretend_workers(monkeypatch, [2, 0, 1, 9])
    assert list(Executor(2).map(arithmetic, range(5))) == [arithmetic(item) for item in range(5)]
    assert given == [[0, 1, 2, 3, 4], [0, 1, 2], [0, 1, 2], [0, 1]]


def test_workers_that_die_without_an_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given = pretend_workers(monkeypatch, [1, 0, 0, 9])
    results = Executor(2).completed(arithmetic, range(5))
    assert next(results) == (4, arithmetic(4))
    with pytest.raises(WorkerError, match=r"died 3 times in a row.*gone"):
        list(results)
    assert len(given) == 3


SCRIPT = """
import torch, cicpe

class Bowl(cicpe.Problem):
    query_space = answer_space = cicpe.Box([0.0], [1.0])
    horizon, default_epsilon = 3, (0.3, 0.4)
    def sample(self, n, rng):
        return torch.rand(n, 1, generator=rng)
    def observe(self, task, query, rng):
        return (query - task) ** 2 + 0.1 * torch.randn(task.shape, generator=rng)
    def target(self, task):
        return task

def main():
    from cicpe.agents.base import Agent, Proposal

    class Middle(Agent):
        horizon = 3
        def begin(self, context):
            return torch.zeros(len(context), 0)
        def propose(self, state, rng):
            n = len(state)
            here = torch.rand(n, 1, generator=rng)
            return Proposal(here[:, None], here[:, 0] < 0.2, here, here[:, 0], here)
        def update(self, state, query, observation):
            return torch.cat([state, observation], dim=1)

    from cicpe.evaluation.evaluate import evaluate_agent
    for executor in (cicpe.Executor(), cicpe.Executor(jobs=2)):
        print(evaluate_agent(Middle(), Bowl(), 0.3, 3000, 0, executor).outcomes.loss.double().sum().item())

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow  # workers import torch
def test_a_problem_and_an_agent_of_a_script_are_played_by_workers(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    here, there = done.stdout.split()
    assert here == there


# --- real workers: seconds to begin with, so all in few tests ------------------------------------------


def outcomes_of(executor: Executor, function: Callable[[int], float]) -> list[float]:
    return list(executor.map(function, range(12)))


@pytest.mark.slow  # workers import torch
def test_any_number_of_workers_gives_the_same_and_so_it_is_when_one_is_killed(tmp_path: Path) -> None:
    expected = outcomes_of(HERE, arithmetic)
    for jobs in (2, 3):
        assert outcomes_of(Executor(jobs), arithmetic) == expected
    marker = tmp_path / "died"
    assert outcomes_of(Executor(2), partial(die_once, marker, 5)) == expected
    assert marker.exists()
    # A user's mistake comes back as itself, and leaves workers that work.
    with pytest.raises(InvalidInput, match="item must be another; got"):
        list(Executor(2).map(refuse, range(4)))
    # Nobody waits for what is not wanted any more.
    results = Executor(2).map(arithmetic, range(200))
    assert next(results) == expected[0]
    results.close()
    assert outcomes_of(Executor(2), lambda item: float(torch.get_num_threads())) == [1.0] * 12


FAULTS = """
import resource, sys, torch
from cicpe.parallel import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for turn in range(40):
    if turn == 10:
        began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    states = [torch.ones(1_000_000) for _ in range(12)]
    del states
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began) / 30)
"""


@pytest.mark.skipif(not hasattr(os, "confstr") or "CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="needs glibc")
def test_freed_memory_is_kept_for_the_next_step() -> None:
    """Twelve tensors of four megabytes are 12,000 pages: whoever gives them back is given them anew at every turn."""
    kept, given_back = (
        float(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True).stdout)
        for how in ("kept", "as it is")
    )
    assert kept < 100
    if given_back < 1000:
        pytest.skip("this machine's allocator keeps freed memory by itself")
    assert given_back > 10 * kept
