"""What an observation can be: refusals, doubts, what a pilot finds, and how rarely it is wrong about its own family."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from cicpe.errors import Implausible, InvalidInput, ProblemError
from cicpe.problems import Problem, TaskBatch, make_problem
from cicpe.problems.observations import (
    Category,
    Count,
    Number,
    ObservationKind,
    ObservationKinds,
    YesNo,
    find_kind,
    is_mirrored,
    kind_from_json,
)
from cicpe.problems.structure import observation_kinds
from cicpe.spaces import Box


def read(kind: ObservationKind, value: object, confirm: bool = False) -> float:
    return ObservationKinds((kind,)).read("observation", [value], confirm)[0]


@pytest.mark.parametrize(
    ("kind", "value", "number"),
    [
        (YesNo(), "yes", 1.0),
        (YesNo(-1.0, 1.0), "No", -1.0),
        (YesNo(-1.0, 1.0), False, -1.0),
        (YesNo(), 1, 1.0),
        (Category(3), 2, 2.0),
        (Category((0.5, 2.5), names=("dull", "bright")), "bright", 2.5),
        (Count(), 7, 7.0),
        (Number(0.0, 1.0), 0.25, 0.25),
    ],
)
def test_a_value_is_read_as_its_kind_says(kind: ObservationKind, value: object, number: float) -> None:
    assert read(kind, value) == number


@pytest.mark.parametrize(
    ("kind", "value", "allowed"),
    [
        (YesNo(), 7, "yes or no (1 or 0)"),
        (YesNo(-1.0, 1.0), 0, "yes or no (1 or -1)"),
        (YesNo(), "perhaps", "yes or no (1 or 0)"),
        (Category(3), 3, "one of 0, 1, 2"),
        (Category((0.5, 2.5), names=("dull", "bright")), "red", "one of dull, bright"),
        (Count(), -1, "a whole number that is not negative"),
        (Count(), 1.5, "a whole number that is not negative"),
        (Number(), math.nan, "a finite number"),
        (Number(), 1e39, "a finite number"),
        (Number(), "0.5", "a finite number"),
        (Number(), None, "a finite number"),
    ],
)
def test_what_cannot_be_is_refused_by_name_whoever_confirms_it(
    kind: ObservationKind, value: object, allowed: str
) -> None:
    for confirm in (False, True):
        with pytest.raises(InvalidInput) as refused:
            read(kind, value, confirm)
        assert not isinstance(refused.value, Implausible)
        assert (refused.value.field, refused.value.allowed) == ("observation", allowed)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Number(0.5, 1.5), 545), (Number(low=0.0), -0.1), (Count(high=20), 21), (Category((1.0, 2.5), closed=False), 3)],
)
def test_what_is_not_plausible_has_to_be_confirmed(kind: ObservationKind, value: float) -> None:
    with pytest.raises(Implausible, match=r"got .*confirm"):
        read(kind, value)
    assert read(kind, value, confirm=True) == value


def test_an_entry_of_several_is_named_by_its_number() -> None:
    kinds = ObservationKinds((YesNo(), Number(0.0, 1.0)))
    with pytest.raises(InvalidInput, match=r"observation must be yes or no \(1 or 0\) in entry 1"):
        kinds.read("observation", [3, 0.5])
    with pytest.raises(Implausible, match=r"observation must be from 0 to 1, .* in entry 2"):
        kinds.read("observation", ["yes", 9])


KINDS: st.SearchStrategy[ObservationKind] = st.one_of(
    st.builds(YesNo, st.just(0.0), st.floats(1.0, 9.0)),
    st.integers(2, 9).map(Category),
    st.builds(Count, st.just(2.0), st.floats(3.0, 1e6)),
    st.builds(Number, st.floats(-9.0, 0.0), st.floats(1.0, 9.0) | st.none()),
)


@given(st.lists(KINDS, min_size=1, max_size=3))
def test_kinds_survive_json(kinds: list[ObservationKind]) -> None:
    whole = ObservationKinds(tuple(kinds))
    assert ObservationKinds.from_json(whole.to_json()) == whole


@pytest.mark.parametrize(
    "data",
    [{}, {"kind": "colour"}, {"kind": "count", "low": 3.0, "high": 2.0}, {"kind": "yes-no", "maybe": 2}],
)
def test_a_record_of_no_kind_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        kind_from_json(data)


def test_a_pilot_tells_the_kinds_apart() -> None:
    rng = torch.Generator().manual_seed(0)
    coin = (torch.rand(500, generator=rng) < 0.3).float()
    assert find_kind(2 * coin - 1) == YesNo(-1.0, 1.0)
    assert find_kind(torch.zeros(500)) == YesNo(0.0, 1.0)
    assert find_kind(torch.randint(4, (500,), generator=rng).float()) == Category((0, 1, 2, 3), closed=False)
    count = find_kind(torch.poisson(torch.full((500,), 30.0), generator=rng))
    assert isinstance(count, Count)
    assert count.low is not None
    assert count.low >= 0
    number = find_kind(torch.randn(500, generator=rng))
    assert isinstance(number, Number)
    assert number.high is not None
    assert 3 < number.high < 6


def test_values_that_a_reversed_sign_leaves_as_likely_are_noticed() -> None:
    rng = torch.Generator().manual_seed(0)
    normal = torch.randn(8192, generator=rng)
    assert is_mirrored(normal)
    assert not is_mirrored(normal + 0.2)
    assert not is_mirrored(normal.exp() - 1)
    found = observation_kinds(make_problem("best-arm"))
    assert found.mirrored
    assert ObservationKinds.from_json(found.to_json()) == found
    assert not observation_kinds(make_problem("binary-search")).mirrored


def test_a_stuck_instrument_and_a_typed_query_are_asked_about() -> None:
    kinds = observation_kinds(make_problem("best-arm"))
    assert kinds.slip([0.31], [[0.5], [0.31]]) is None
    assert "stuck" in str(kinds.slip([0.31], [[0.31], [0.31]]))
    assert kinds.slip([0.31], [], [0.2, -0.4]) is None
    assert "coordinate of the query" in str(kinds.slip([-0.4], [], [0.2, -0.4]))
    # Where values repeat by their nature, nothing is odd about it.
    assert observation_kinds(make_problem("binary-search")).slip([1.0] * 6, [[1.0] * 6] * 5, [1.0] * 6) is None


class Doses(Problem):
    """A yes or no, and what else a test declares."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand(n, 1, generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        shown = task + 0.1 * torch.randn(task.shape, generator=rng)
        return torch.cat([(query > task).float(), shown], dim=1)

    def target(self, task: Tensor) -> Tensor:
        return task


def test_what_a_problem_declares_goes_before_what_a_pilot_sees() -> None:
    class Declared(Doses):
        observation = (Category(2), Number(low=-5.0))

    first, second = observation_kinds(Declared()).kinds
    assert first == Category(2)
    assert isinstance(second, Number)
    assert second.low == -5.0
    assert second.high is not None
    assert 1.0 < second.high < 3.0  # what was left open comes from the pilot
    assert observation_kinds(Doses()).kinds[0] == YesNo()


def test_a_declaration_that_simulations_contradict_is_a_fault_of_the_problem() -> None:
    class Contradicted(Doses):
        observation = (YesNo(), Count())

    with pytest.raises(ProblemError, match=r"observe returned .*; Contradicted.observation says a whole number"):
        observation_kinds(Contradicted())

    class TooFew(Doses):
        observation = (YesNo(),)

    with pytest.raises(InvalidInput, match="observation must be one kind"):
        observation_kinds(TooFew())


@pytest.mark.parametrize("name", ["binary-search", "best-arm", "ackley", "gp-max"])
def test_a_fresh_observation_of_the_family_is_hardly_ever_doubted(name: str) -> None:
    """At most one in a thousand: of 8,192 the pilot's own limits would be passed by a few, without their margin."""
    problem = make_problem(name)
    kinds = observation_kinds(problem).kinds
    rng = torch.Generator().manual_seed(99)
    tasks = TaskBatch.draw(problem, 2000, rng)
    seen = tasks.observe(problem.query_space.sample(2000, rng), rng)
    doubted = [any(kind.doubt(kind.read(v)) for kind, v in zip(kinds, row, strict=True)) for row in seen.tolist()]
    assert sum(doubted) <= 2
