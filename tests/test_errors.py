"""Refusals say which field, what it must be, and what it was."""

from typing import Annotated

import pytest
from pydantic import BaseModel, Field, ValidationError

from cicpe.errors import InvalidInput, allowed_by


def test_a_refusal_is_one_sentence() -> None:
    error = InvalidInput("epsilon", -0.1, "a positive number")
    assert str(error) == "epsilon must be a positive number; got -0.1"
    assert (error.field, error.value, error.allowed) == ("epsilon", -0.1, "a positive number")


class Settings(BaseModel, extra="forbid"):
    count: Annotated[int, Field(ge=1)]
    name: Annotated[str, Field(max_length=3)] = "a"


@pytest.mark.parametrize(
    ("values", "field", "allowed"),
    [
        ({"count": 0}, "count", "greater than or equal to 1"),
        ({"count": "x"}, "count", "a valid integer, unable to parse string as an integer"),
        ({}, "count", "given"),
        ({"count": 1, "colour": "red"}, "colour", "left out: there is no such field"),
        ({"count": 1, "name": "long"}, "name", "of at most 3 characters"),
    ],
)
def test_what_pydantic_says_follows_must_be(values: dict[str, object], field: str, allowed: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(values)
    (fault,) = caught.value.errors()
    assert fault["loc"] == (field,)
    assert allowed_by(fault["msg"]) == allowed
