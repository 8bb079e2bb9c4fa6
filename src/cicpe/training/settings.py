"""Fields of a configuration that a caller overrides, checked, with errors that name what there is."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from cicpe.beliefs.base import BeliefConfig
from cicpe.errors import InvalidInput, allowed_by, meant


def configured(
    config: BeliefConfig, epsilon: tuple[float, float] | float, settings: dict[str, Any] | None
) -> BeliefConfig:
    """A configuration for a range of epsilon, with some of its fields overridden.

    Args:
        config: As a recipe has it.
        epsilon: The range that is served, or one value.
        settings: Fields to override; what is inside a part is given inside a part.

    Returns:
        The configuration, checked as a whole.

    Raises:
        InvalidInput: A field is unknown, or does not fit; the error names it and what is allowed.
    """
    low, high = epsilon if isinstance(epsilon, tuple | list) else (epsilon, epsilon)
    if not 0 < low <= high:
        raise InvalidInput("epsilon", epsilon, "a positive number, or a low and a high one with low <= high")
    changes: dict[str, Any] = {"epsilon": (float(low), float(high)), **(settings or {})}
    try:
        return type(config).model_validate(_merged(config.model_dump(), changes))
    except ValidationError as error:
        fault = error.errors()[0]
        field, value = ("settings", changes) if not fault["loc"] else (".".join(map(str, fault["loc"])), fault["input"])
        allowed = allowed_by(fault["msg"])
        if fault["type"] == "extra_forbidden":
            allowed = _settings_there(config, [str(part) for part in fault["loc"]]) or allowed
        raise InvalidInput(field, value, allowed) from None


def _settings_there(config: BeliefConfig, path: Sequence[str]) -> str | None:
    """What there is in the place of a setting that there is not, in words; None where that is not known."""
    part: Any = config
    for name in path[:-1]:
        # A part that comes in kinds is named with its kind: memory.gru.hidden.
        if name != getattr(part, "kind", None):
            part = getattr(part, name, None)
    if not isinstance(part, BaseModel):
        return None
    known = list(type(part).model_fields)
    there = f"a setting of this recipe ({', '.join(known)}), or another recipe"
    if len(path) > 1:
        there = f"a setting of {'.'.join(path[:-1])}: {', '.join(known)}"
    return there + meant(path[-1], known)


def _merged(old: Any, new: Any) -> Any:
    """``new`` in place of ``old``; where both describe a part of one kind, field by field."""
    if not (isinstance(old, dict) and isinstance(new, dict)) or new.get("kind", old.get("kind")) != old.get("kind"):
        return new
    return old | {name: _merged(old.get(name), value) for name, value in new.items()}
