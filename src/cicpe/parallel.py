"""Where work is done: in this process, in workers of this machine (joblib's loky), or on a Ray cluster.

A piece of work is a list of items that is fixed before anybody asks how many workers there are, and an item brings its
own seed. So the results do not depend on the workers: not on their number, nor on which of them takes which item, nor
on whether one dies and its items are done again by another.
"""

import ctypes
import functools
import importlib
import os
import secrets
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, final

from cicpe.errors import InvalidInput, WorkerError

Item = TypeVar("Item")
Result = TypeVar("Result")
Results = Generator[tuple[int, Any], None, None]
"""Of some items, each with its position."""

BACKENDS: Final = ("local", "ray")
MAX_JOBS: Final = 1024
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""The numbers of two settings of glibc, from its malloc.h."""
LARGEST_KEPT: Final = 2**25
"""Bytes of a block that is not given back at once; glibc takes no more."""
KEPT_MEMORY: Final = 2**28
"""Bytes of freed memory that a process keeps."""
DEATHS: Final = 3
"""Times in a row that workers may die before one of them has finished anything."""


@final
@dataclass(frozen=True)
class Executor:
    """Does the items of a piece of work, here or elsewhere, and gives back the same results wherever that is.

    What is sent to workers is pickled by value where workers could not import it: a problem of a notebook, of a script,
    or of a file that was named by its path.
    """

    jobs: int | None = None
    """Workers, each with one thread. One where not given: this process itself; on Ray, every processor it has."""
    backend: str = "local"
    """``local`` or ``ray``: the cluster that RAY_ADDRESS names, else one that is started on this machine."""
    on_progress: Callable[[int, int], None] = lambda done, total: None
    """Told after every item how many of how many are done."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InvalidInput("backend", self.backend, " or ".join(BACKENDS))
        if self.jobs is not None and not 1 <= self.jobs <= MAX_JOBS:
            raise InvalidInput("jobs", self.jobs, f"a whole number from 1 to {MAX_JOBS}")

    @property
    def is_here(self) -> bool:
        """Whether work is done in this process."""
        return self.backend == "local" and self.jobs in (None, 1)

    @property
    def workers(self) -> int:
        """How many items are done at once."""
        return self.jobs or (_ray_jobs(None) if self.backend == "ray" else 1)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result, None, None]:
        """The results in the order of the items; one is not waited for longer than it takes.

        Args:
            function: What is done with an item. It depends on nothing but the item and what it holds.
            items: The work.

        Yields:
            One result per item. Whoever stops reading cancels the rest.
        """
        waiting: dict[int, Result] = {}
        following = 0
        for index, result in self.completed(function, items):
            waiting[index] = result
            while following in waiting:
                yield waiting.pop(following)
                following += 1

    def completed(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Generator[tuple[int, Result], None, None]:
        """The results as they come; otherwise as ``map``.

        Args:
            function: What is done with an item. It depends on nothing but the item and what it holds.
            items: The work.

        Yields:
            The position of an item and its result.
        """
        for done, (index, result) in enumerate(self._results(function, items), start=1):
            self.on_progress(done, len(items))
            yield index, result

    def _results(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        if self.is_here or (self.backend == "local" and len(items) == 1):
            keep_freed_memory()
            for index, item in enumerate(items):
                with one_thread():
                    result = function(item)
                yield index, result
            return
        yield from self._by_workers(_pickled(function), items)

    def _by_workers(self, function: bytes, items: Sequence[Item]) -> Iterator[tuple[int, Any]]:
        """Results of workers. Where one dies, what is missing is done again by others."""
        left, deaths, death = dict(enumerate(items)), 0, _deaths(self.backend)
        while left:
            try:
                with _cancelled_quietly(_joblib_results(self.backend, self.jobs, function, dict(left))) as results:
                    for index, result in results:
                        del left[index]
                        deaths = 0
                        yield index, result
            except death as error:
                deaths += 1
                if deaths == DEATHS:
                    raise WorkerError(
                        f"workers died {DEATHS} times in a row and finished nothing in between ({error}); "
                        f"is there memory for {self.jobs or 'so many'} of them?"
                    ) from error


HERE: Final = Executor()
"""This process."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Arithmetic on one thread, as workers do it: several may round otherwise."""
    torch: Any = sys.modules.get("torch")
    if torch is None:  # what starts other processes needs no arithmetic
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@functools.cache
def keep_freed_memory() -> None:
    """Has the C library keep freed memory for the next step of episodes, as far as ``KEPT_MEMORY``.

    By itself glibc gives large blocks back to the system as soon as they are freed, and has to ask for as many pages
    again, each filled with zeros, at the next step: on states of many megabytes up to a fifth of the time. Other C
    libraries are left as they are.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, size in ((M_MMAP_THRESHOLD, LARGEST_KEPT), (M_TRIM_THRESHOLD, KEPT_MEMORY)):
            mallopt(parameter, size)


def _pickled(function: Callable[..., Any]) -> bytes:
    """A function as bytes that a process on another machine can read."""
    import cloudpickle

    own = _own_modules()
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled: bytes = cloudpickle.dumps(function)
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
    return pickled


def _own_modules() -> list[ModuleType]:
    """The user's own modules, which go by value: elsewhere they could not be imported.

    They are those that no import finds (a problem file that was named by its path, and its neighbours), and those in
    the working folder or beside the script. What is installed is taken to be installed on every machine.
    """
    installed = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib"))
    beside = tuple(f"{Path(folder).resolve()}/" for folder in (".", sys.path[0]))
    own = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        top = getattr(module, "__name__", "").partition(".")[0]
        if top in ("", "__main__", "cicpe") or not file or file.startswith(installed):
            continue
        if file.startswith(beside) or PathFinder.find_spec(top) is None:
            own.append(module)
    return own


@functools.lru_cache(maxsize=2)
def _unpickled(function: bytes) -> Callable[[Any], Any]:
    """The same again; a worker reads it once, however many items it is given."""
    import cloudpickle

    read: Callable[[Any], Any] = cloudpickle.loads(function)
    return read


def _do(function: bytes, index: int, item: Any) -> tuple[int, Any]:
    """What a worker does with an item."""
    read = _unpickled(function)
    keep_freed_memory()
    with one_thread():
        return index, read(item)


def _joblib_results(backend: str, jobs: int | None, function: bytes, items: dict[int, Any]) -> Results:
    """The results of one pool of workers, as they come."""
    import joblib

    if backend == "ray":
        name, jobs = _ray_backend(), _ray_jobs(jobs)
        settings: dict[str, Any] = {"ray_remote_args": {"num_cpus": 1, "scheduling_strategy": "SPREAD"}}
    else:
        name, settings = "loky", {"inner_max_num_threads": 1}
    with joblib.parallel_config(name, **settings):
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    results: Results = parallel(joblib.delayed(_do)(function, index, item) for index, item in items.items())
    return results


@contextmanager
def _cancelled_quietly(results: Results) -> Iterator[Results]:
    """Cancels what is left of some results; that not all of them were wanted is no accident."""
    try:
        yield results
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _deaths(backend: str) -> tuple[type[Exception], ...]:
    """What is raised where a worker has died."""
    if backend == "ray":
        lost = the_ray().exceptions
        return (lost.RayActorError, lost.WorkerCrashedError, lost.NodeDiedError, lost.ObjectLostError)
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    return (TerminatedWorkerError,)


def the_ray() -> Any:
    """Ray, connected to the cluster that RAY_ADDRESS names, or to one of its own; or an error that says how to get it.

    Ray listens on every interface of a machine, and whoever reaches it can run programs there. So a cluster that is
    started here has a secret of its own, and none is looked for that someone else may have announced on this machine.
    """
    own = {} if os.environ.get("RAY_ADDRESS") else {"address": "local", "include_dashboard": False}
    # Ray reads this once, when it is imported; whoever has imported it has decided.
    if own and "RAY_AUTH_MODE" not in os.environ and "ray" not in sys.modules:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        ray = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise InvalidInput("backend", "ray", "local, as ray is not installed here: pip install ray") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="ERROR", **own)
    return ray


def leave_ray() -> None:
    """Ends the connection to a cluster, if there is one."""
    ray: Any = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


def _ray_backend() -> str:
    """Registers joblib's Ray backend, so that it gives results as they come."""
    import joblib

    the_ray()
    base = importlib.import_module("ray.util.joblib.ray_backend").RayBackend
    # Ray's pool calls back for every result, which is all that a generator needs; joblib assumes that no pool of the
    # kind of multiprocessing's does.
    joblib.register_parallel_backend("cicpe-ray", type("RayGenerator", (base,), {"supports_return_generator": True}))
    return "cicpe-ray"


def _ray_jobs(jobs: int | None) -> int:
    """As many workers as were asked for, at most one per processor of the nodes that answer."""
    ray = the_ray()
    affinity = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    answer = ray.remote(num_cpus=0, max_retries=0)(lambda: None)
    # A node that has just died is still listed for some seconds, and a pool that counted on it would wait for it. So
    # each is waited for until it has answered or is known to be gone.
    asked = {
        answer.options(scheduling_strategy=affinity(node["NodeID"], soft=False)).remote(): node for node in _nodes(ray)
    }
    waiting, processors = list(asked), 0.0
    while waiting:
        ready, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=1.0)
        processors += sum(asked[ref]["Resources"].get("CPU", 0.0) for ref in ready if _answered(ray, ref))
        alive = {node["NodeID"] for node in _nodes(ray)}
        waiting = [ref for ref in waiting if asked[ref]["NodeID"] in alive]
    if processors < 1:
        raise WorkerError("no node of the Ray cluster has answered with a processor")
    return int(processors) if jobs is None else min(jobs, int(processors))


def _nodes(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _answered(ray: Any, ref: Any) -> bool:
    try:
        ray.get(ref)
    except ray.exceptions.RayError:
        return False
    return True


def when_parent_ends(act: Callable[[], object]) -> None:
    """Does something, in a thread, when the standard input of this process ends: whoever started it is gone.

    Args:
        act: What to do then; to end the process, say.
    """

    def wait() -> None:
        while os.read(0, 1):  # not through sys.stdin, whose lock a thread may not hold at the end
            pass
        act()

    threading.Thread(target=wait, daemon=True, name="cicpe-parent").start()
