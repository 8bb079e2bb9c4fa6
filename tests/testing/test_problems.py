"""The conformance suite of problems finds the one thing that is broken."""

import re

import pytest

from broken_problems import (
    ConstantLikelihood,
    ConstantSample,
    FlatContext,
    FloatInSample,
    GlobalObserve,
    GlobalSample,
    Line,
    LongDefaultContext,
    MixingLoss,
    NameForNames,
    NanContext,
    NanLikelihood,
    NanLoss,
    NanObserve,
    NanTarget,
    NarrowTarget,
    NegativeLoss,
    NoReturnObserve,
    NoSpace,
    OffsetLoss,
    OutsideTarget,
    QueryChangingObserve,
    RaisingObserve,
    ScalarObserve,
    ShortSample,
    TaskChangingObserve,
    UnnamedContext,
    UnsummedLikelihood,
    UpsideDownLikelihood,
    WideLoss,
    WideningObserve,
    ZeroHorizon,
)
from cicpe.errors import InvalidInput, ProblemError
from cicpe.problems import Problem
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.observations import Count
from cicpe.testing import check_problem

BROKEN: list[tuple[type[Problem], str]] = [
    (NoSpace, "query_space: found None; expected a cicpe space"),
    (NameForNames, "context_names: found 'scale'; expected a tuple of names"),
    (ZeroHorizon, "horizon: found 0; expected a whole number of at least 1"),
    (ShortSample, "sample(64, rng): found first dimensions [1, 64]; expected first dimension 64 everywhere"),
    (FloatInSample, "dicts and dataclasses, not float; expected a batch of tasks"),
    (GlobalSample, "sample: found other tasks from the same seed; expected the same tasks"),
    (ConstantSample, "sample: found the same tasks from two seeds; expected different tasks"),
    (GlobalObserve, "observe: found other observations from the same seed; expected the same observations"),
    (TaskChangingObserve, "observe: found that it changed the task; expected a task that stays as it was"),
    (QueryChangingObserve, "observe: found that it changed the query; expected a query that stays as it was"),
    (NanObserve, "at query [0.0]; expected finite numbers on the whole query space"),
    (ScalarObserve, "observe: found shape (); expected shape (64,) or (64, observation)"),
    (NoReturnObserve, "observe: found None; expected a tensor of numbers. Is a return missing?"),
    (RaisingObserve, "observe: found KeyError: 'dose'; expected no exception"),
    (WideningObserve, "observe: found shape (64, 2); expected shape (64, 1)"),
    (NarrowTarget, "target: found shape (64, 1); expected shape (64, 2)"),
    (OutsideTarget, "expected a point of Box(low=(0.0, 0.0), high=(1.0, 0.5)). Widen the answer space"),
    (NanTarget, "target: found [nan, nan] for task 0; expected a point of Box"),
    (OffsetLoss, "expected 0 (at most 0.0001). loss and target must agree"),
    (NegativeLoss, "expected a finite number of at least 0"),
    (NanLoss, "loss: found nan for answer"),
    (WideLoss, "loss: found shape (64, 2); expected shape (64,)"),
    (MixingLoss, "loss: found another loss when every task is repeated"),
    (UnnamedContext, "context: found shape (64, 1); expected shape (64, 0)"),
    (FlatContext, "context: found shape (64,); expected shape (64, 1)"),
    (NanContext, "context: found [nan] for task"),
    (LongDefaultContext, "default_context: found (1.0, 2.0); expected None or 1 numbers"),
    (UnsummedLikelihood, "log_likelihood: found shape (1024, 1); expected shape (1024,)"),
    (NanLikelihood, "log_likelihood: found nan or infinity"),
    (UpsideDownLikelihood, "expected more for the true tasks. Check the sign"),
    (ConstantLikelihood, "expected more for the true tasks. Check the sign"),
]


def test_the_suite_passes_what_the_broken_problems_break() -> None:
    check_problem(Line())


@pytest.mark.parametrize(("broken", "message"), BROKEN, ids=[cls.__name__ for cls, _ in BROKEN])
def test_the_suite_finds_the_one_thing_that_is_broken(broken: type[Problem], message: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(message)) as caught:
        check_problem(broken())
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{broken.__name__} failed 1 check:"
    assert lines[1].startswith(f"- {broken.__name__}.")


def test_the_suite_lists_everything_that_is_broken() -> None:
    class Worse(OffsetLoss, NanObserve, FlatContext, NarrowTarget):
        pass

    class Worst(NanObserve, FlatContext, OffsetLoss, UpsideDownLikelihood):
        pass

    for cls, count in ((Worse, 3), (Worst, 4)):
        with pytest.raises(ProblemError) as caught:
            check_problem(cls())
        assert len(str(caught.value).splitlines()) == 1 + count


def test_the_suite_keeps_the_traceback_of_the_users_own_exception() -> None:
    with pytest.raises(ProblemError) as caught:
        check_problem(RaisingObserve())
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_suite_needs_two_tasks() -> None:
    with pytest.raises(InvalidInput, match=r"n must be .*; got 1"):
        check_problem(Line(), n=1)


def test_a_declared_kind_has_to_be_what_is_observed() -> None:
    class Counted(BinarySearch):
        observation = Count()

    with pytest.raises(ProblemError, match=r"observe returned -1; Counted.observation says a whole number"):
        check_problem(Counted(dim=2))
    check_problem(BinarySearch(dim=2))
