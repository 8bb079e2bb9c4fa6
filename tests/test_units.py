"""Units: what people write and what a model sees are the same thing, there and back."""

import math
from typing import Any

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cicpe.errors import InvalidInput
from cicpe.units import Readout, Scale, Units

FURNACE = Scale(name="temperature", unit="°C", low=400, high=1100, step=5)
TIME = Scale(name="time", unit="min", low=10, high=240, log=True)
DOSES = Scale(name="dose", unit="mg", low=10, high=480, log=True, values=(10, 20, 60, 480))
HARDNESS = Readout(name="hardness", unit="HV", low=0, high=900, origin=285, scale=67.5)


@st.composite
def scales(draw: st.DrawFn) -> Scale:
    log = draw(st.booleans())
    low = draw(st.floats(1e-3, 1e3) if log else st.floats(-1e3, 1e3))
    width = draw(st.floats(1e-2, 1e4))
    high = low * (1 + width) if log else low + width
    start, extent = draw(st.floats(-5, 5)), draw(st.floats(0.05, 10))
    against = draw(st.booleans())
    ends = (high, low) if against else (low, high)
    return Scale(name="x", low=ends[0], high=ends[1], log=log, start=start, extent=extent)


@settings(deadline=None)
@given(scales(), st.floats(0, 1))
def test_a_value_and_its_coordinate_go_there_and_back(scale: Scale, share: float) -> None:
    at = scale.start + share * scale.extent
    value = scale.value(at)
    assert scale.least - 1e-9 * abs(scale.least) <= value <= scale.most + 1e-9 * abs(scale.most)
    assert scale.coordinate(value) == pytest.approx(at, abs=1e-6 * (1 + abs(scale.low) / abs(scale.high - scale.low)))
    assert scale.contains(value)


@settings(deadline=None)
@given(scales(), st.floats(0, 1))
def test_what_can_be_set_is_near_and_inside(scale: Scale, share: float) -> None:
    at = scale.start + share * scale.extent
    value = scale.settable(at)
    assert scale.least <= value <= scale.most
    assert abs(scale.coordinate(value) - at) <= 0.01 * scale.extent


@settings(deadline=None)
@given(st.floats(0, 1))
def test_an_instrument_is_set_to_its_steps(share: float) -> None:
    value = FURNACE.settable(share)
    assert value in range(400, 1101, 5)
    assert abs(value - FURNACE.value(share)) <= 2.5 + 1e-9


def test_steps_do_not_leave_the_range() -> None:
    odd = Scale(name="x", low=0, high=10, step=4)
    assert [odd.settable(at / 10) for at in range(11)] == [0, 0, 0, 4, 4, 4, 8, 8, 8, 8, 8]


@settings(deadline=None)
@given(st.floats(0, 1))
def test_of_listed_values_the_nearest_is_set(share: float) -> None:
    distance = {value: abs(DOSES.coordinate(value) - share) for value in DOSES.values}
    assert DOSES.settable(share) == min(distance, key=distance.__getitem__)


def test_words_are_as_people_write_them() -> None:
    units = Units(settings=(FURNACE, TIME), readout=HARDNESS, answers=(FURNACE, TIME))
    assert units.query_words((845.0, 95.0)) == "temperature 845 °C, time 95 min"
    assert units.observation_words([312.0]) == "312 HV"
    assert units.answer_with_region((845, 95), ((820, 870), (88, 103))) == (
        "temperature 845 °C (820 to 870), time 95 min (88 to 103)"
    )
    assert units.tolerance_words(math.log(1.1) / math.log(24)) == "21 °C in temperature and 10 % in time"
    assert Units().query_words((0.76033312, 2.0)) == "0.760333 2"


@settings(deadline=None)
@given(scales(), st.floats(1e-4, 0.4), st.floats(0, 1))
def test_a_tolerance_in_words_is_what_an_epsilon_means(scale: Scale, epsilon: float, share: float) -> None:
    at = scale.start + share * scale.extent
    off = epsilon * scale.extent
    here, there = scale.value(at), scale.value(at + off)
    words = scale.tolerance(off)
    if scale.log:
        assert float(words.removesuffix(" %")) == pytest.approx(100 * (max(here / there, there / here) - 1), rel=1e-2)
    else:
        assert float(words) == pytest.approx(abs(here - there), rel=1e-2, abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "of", "given_value", "expected"),
    [
        ("number", None, "312", 312.0),
        ("number", None, " 312 HV ", 312.0),
        ("number", None, 3.5, 3.5),
        ("yes/no", None, "yes", "yes"),
        ("yes/no", None, True, True),
        ("yes/no", None, "1", 1.0),
        ("count", 20, "7/20", 7.0),
        ("count", 20, "7 of 20", 7.0),
        ("count", 20, "7", 7.0),
        ("count", None, "7", 7.0),
    ],
)
def test_a_measurement_is_read_as_it_is_written(
    kind: str, of: int | None, given_value: object, expected: object
) -> None:
    readout = Readout(name="y", unit="HV", kind=kind, of=of, low=0, high=900)  # type: ignore[arg-type]
    assert readout.parse(given_value) == expected


@pytest.mark.parametrize(
    ("kind", "of", "given_value"),
    [
        ("number", None, "yes"),
        ("number", None, "3,5"),
        ("number", None, "312 kg"),
        ("number", None, True),
        ("count", 20, "7/21"),
        ("count", 20, 21),
        ("count", 20, "yes"),
        ("count", 20, -1),
        ("count", None, "7/20"),
    ],
)
def test_another_kind_is_refused_by_name(kind: str, of: int | None, given_value: object) -> None:
    readout = Readout(name="hardness", unit="HV", kind=kind, of=of, low=0, high=900)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="hardness must be"):
        readout.parse(given_value)


def test_settings_are_taken_by_name() -> None:
    units = Units(settings=(FURNACE, TIME))
    assert units.read_query({"time": 95, "temperature": 845}) == [845, 95]
    with pytest.raises(InvalidInput, match="did you mean temperature"):
        units.read_query({"temperatur": 845, "time": 95})
    with pytest.raises(InvalidInput, match="time must be given"):
        units.read_query({"temperature": 845})
    with pytest.raises(InvalidInput, match="temperature must be from 400 °C to 1100 °C"):
        units.read_query({"temperature": 1200, "time": 95})


@settings(deadline=None)
@given(scales())
def test_units_survive_json(scale: Scale) -> None:
    assume(scale.low != scale.high)
    units = Units(title="t", settings=(scale, TIME), readout=HARDNESS, answers=(scale,), epsilon=0.1, delta=0.2)
    assert Units.model_validate_json(units.model_dump_json()) == units


@pytest.mark.parametrize(
    "change",
    [
        {"high": 10.0}, {"low": -10.0}, {"low": 0.0}, {"low": 1e-320}, {"high": 1e31}, {"high": 10.0 + 1e-13},
        {"step": 0.0},
        {"step": -1.0}, {"step": 1e-320}, {"extent": 0.0}, {"extent": 1e-320}, {"start": 1e300}, {"values": (1.0, 0.0)},
    ],
    ids=str,
)  # fmt: skip
def test_a_scale_on_which_nothing_can_be_computed_is_refused(change: dict[str, Any]) -> None:
    fields = {"name": "time", "low": 10.0, "high": 240.0, "log": True, "step": 1.0}
    Scale(**fields)
    with pytest.raises(ValidationError):
        Scale(**(fields | change))


@given(
    low=st.floats(-1e30, 1e30), high=st.floats(-1e30, 1e30), log=st.booleans(), step=st.none() | st.floats(1e-30, 1e30),
    start=st.floats(-1e30, 1e30), extent=st.floats(-1e30, 1e30), at=st.floats(-1e30, 1e30),
)  # fmt: skip
def test_whatever_scale_there_is_gives_numbers(at: float, **fields: Any) -> None:
    """At any coordinate that a model's space may have, in words too."""
    try:
        scale = Scale(name="time", **fields)
    except ValidationError:
        reject()
    assert all(map(math.isfinite, (scale.value(at), scale.settable(at), scale.slope(at))))
    assert all(isinstance(text, str) for text in (scale.words(scale.value(at)), scale.tolerance(abs(at))))


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "", " =1", "\t=1"])
def test_the_name_of_a_column_is_no_program(name: str) -> None:
    """A table that is exported may be opened in a spreadsheet."""
    with pytest.raises(ValidationError, match="names must begin with"):
        Units(settings=(TIME.model_copy(update={"name": name}),))
    with pytest.raises(ValidationError, match="names must begin with"):
        Units(readout=HARDNESS.model_copy(update={"name": name}))


@pytest.mark.parametrize("scale", [0.0, 1e-40, -1e-40])
def test_a_scale_that_nothing_can_be_divided_by_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="scale must be at least"):
        Readout(name="depth", low=0, high=1, scale=scale)
    assert Readout(name="depth", low=0, high=1, scale=-25.0).scale == -25.0
