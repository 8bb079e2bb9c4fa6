"""The base of every configuration, and checks that several of them share."""

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from cicpe.errors import InvalidInput


class Config(BaseModel):
    """Base of every configuration: immutable, with unknown fields and numbers that JSON cannot say refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class GrownConfig(Config):
    """A configuration of saved models that has got fields since the first of them was saved.

    These are written only where they are not what they are by default: a model of an older version is then written as
    it was read, and its hash stays. (It is read whether they are written or not: ``Description.has_identity``.)
    """

    LATER: ClassVar[frozenset[str]] = frozenset()
    """The fields that older versions did not have."""

    @model_serializer(mode="wrap")
    def _without_what_is_usual(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = write(self)
        fields = type(self).model_fields
        usual = {name for name in self.LATER if getattr(self, name) == fields[name].default}
        return {name: value for name, value in data.items() if name not in usual}


def check_range(name: str, values: tuple[float, float]) -> None:
    """Refuses a range that is not one of positive numbers, the smaller first."""
    if not 0 < values[0] <= values[1]:
        raise ValueError(f"{name} must be two numbers with 0 < low <= high; got {values}")


ConfigT = TypeVar("ConfigT", bound=Config)


def class_of_kind(kinds: Mapping[str, str | type[ConfigT]], kind: str) -> type[ConfigT]:
    """The configuration of a kind, from a registry.

    Args:
        kinds: Kind -> its configuration, or where that is: ``module:Class``.
        kind: One of them.

    Returns:
        The class, imported if it was not yet.
    """
    place = kinds.get(kind)
    if place is None:
        raise InvalidInput("kind", kind, f"one of {', '.join(kinds)}")
    if isinstance(place, str):
        module, _, name = place.partition(":")
        loaded: type[ConfigT] = getattr(importlib.import_module(module), name)
        return loaded
    return place
