"""The base of every configuration, and checks that several of them share."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Base of every configuration: immutable, with unknown fields and numbers that JSON cannot say refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


def check_range(name: str, values: tuple[float, float]) -> None:
    """Refuses a range that is not one of positive numbers, the smaller first."""
    if not 0 < values[0] <= values[1]:
        raise ValueError(f"{name} must be two numbers with 0 < low <= high; got {values}")
