"""The tests run under the shape checker, and it finds what is wrong: in functions, dataclasses and named tuples."""

import sys

import pytest
import torch
from jaxtyping import Float, TypeCheckError, jaxtyped
from torch import Tensor

from cicpe.agents.base import Proposal
from cicpe.beliefs.network.posteriors.gaussian import GaussianPosterior
from cicpe.gp.exact import noisy_root
from cicpe.plates import only_query
from cicpe.problems.ackley import Ackley
from cicpe.spaces import Box
from shape_checker import check, is_named_tuple, shape_hints

pytestmark = pytest.mark.conformance


@pytest.fixture(autouse=True)
def _under_the_checker(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--jaxtyping-packages"):
        pytest.skip("make test-arithmetic and make test-shapes check shapes")


def proposal(batch: int = 4, queries: tuple[int, ...] = (4, 1, 2)) -> Proposal:
    answer = torch.zeros(batch, 2)
    return Proposal(torch.zeros(queries), torch.zeros(4, dtype=torch.bool), answer, torch.zeros(4), answer)


def test_what_is_right_passes() -> None:
    assert only_query(torch.zeros(3, 1, 2)).shape == (3, 2)
    assert proposal().query.shape == (4, 1, 2)


def test_an_argument_with_another_number_of_axes_is_found() -> None:
    with pytest.raises(TypeCheckError, match="plate"):
        only_query(torch.zeros(3, 1))


def test_sizes_that_do_not_agree_are_found() -> None:
    """Of one argument, and of two."""
    with pytest.raises(TypeCheckError, match="covariance"):
        noisy_root(torch.ones(3, 4), 0.1)
    with pytest.raises(TypeCheckError, match="context"):
        Ackley(dim=2).from_parameters(torch.zeros(5, 4), torch.zeros(3, 1))


def test_a_wrong_kind_of_number_is_found() -> None:
    with pytest.raises(TypeCheckError, match="plate"):
        only_query(torch.zeros(3, 1, 2, dtype=torch.long))


@pytest.mark.parametrize("wrong", [{"batch": 3}, {"queries": (4, 2)}], ids=["another batch", "no axis of the plate"])
def test_a_named_tuple_whose_fields_do_not_agree_is_found(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeCheckError, match="Proposal"):
        proposal(**wrong)  # type: ignore[arg-type]


def test_a_dataclass_whose_fields_do_not_agree_is_found() -> None:
    with pytest.raises(TypeCheckError, match="log_std_unit"):
        GaussianPosterior(Box([0.0, 0.0], [1.0, 1.0]), torch.zeros(4, 1, 2), torch.zeros(4, 1, 3))


def test_a_wrong_result_is_found() -> None:
    @jaxtyped(typechecker=check)
    def transposed(matrix: Float[Tensor, "row column"]) -> Float[Tensor, "column row"]:
        return matrix

    assert transposed(torch.zeros(2, 2)).shape == (2, 2)
    with pytest.raises(TypeCheckError, match="return value"):
        transposed(torch.zeros(2, 3))


def test_every_named_tuple_with_shapes_is_checked() -> None:
    made = [
        thing
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "cicpe"
        for thing in vars(module).values()
        if is_named_tuple(thing)
    ]
    shaped = {thing for thing in made if shape_hints(thing)}
    assert len(shaped) > 10
    assert all(hasattr(thing.__new__, "__wrapped__") for thing in shaped)
