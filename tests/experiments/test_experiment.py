"""Experiment files: read, refused with every fault, written and read again."""

import copy
import json
import os
import random
import string
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cicpe
from cicpe.errors import CicpeError, InvalidInput
from cicpe.experiments import Experiment, ExperimentError, template_names, template_path
from cicpe.experiments.words import in_words
from cicpe.problems import make_problem

STEEL = template_path("peak-2d").read_text(encoding="utf-8")


def faults_of(text: str) -> list[str]:
    """The faults of a file, as they are printed."""
    with pytest.raises(ExperimentError) as refused:
        Experiment.from_toml(text).problem()
    return [str(fault) for fault in refused.value.faults]


def test_the_file_of_the_issue_is_understood() -> None:
    words = " ".join(in_words(Experiment.from_toml(STEEL)))
    for part in ("400 to 1100 °C in steps of 5", "10 to 240 min", "3 to 8 HV", "70 °C of temperature", "35 % of time"):
        assert part in words
    assert "90 % sure, after at most 60 measurements" in words


@pytest.mark.parametrize("name", template_names())
def test_every_template_survives_the_round_trip(name: str) -> None:
    experiment = Experiment.read(name)
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert Experiment.from_document(json.loads(json.dumps(experiment.document))) == experiment
    assert experiment.title
    assert template_path(name).read_text(encoding="utf-8").startswith("# "), "says in its first line what it is for"


def test_the_same_as_an_object() -> None:
    made = cicpe.Experiment(**tomllib.loads(STEEL))
    assert made == Experiment.from_toml(STEEL) == Experiment.read("peak-2d")


FAULTY = """title = "Everything is wrong"
colour = "red"

[[setting]]
name = "time"
range = [240, 10]
scale = "log"

[[setting]]
name = "2nd"
range = ["cold", 1100]
steps = 5

[measurement]
name = "hardness"
kind = "numbr"
noise = -3

[model]
kind = "formula"
formula = "a * (time"
parameters = { a = [3, 1] }

[goal]
find = "b"
within = "ten per cent"
sure = 1.5
at_most = 0
"""


def test_all_faults_are_named_at_once_with_their_lines() -> None:
    found = faults_of(FAULTY)
    for line, field in [
        (2, "colour"),
        (6, "setting 1 range"),
        (10, "setting 2 name"),
        (11, "setting 2 range 1"),
        (12, "setting 2 steps"),
        (16, "measurement kind"),
        (21, "model formula"),
        (22, "model parameters a"),
        (27, "goal sure"),
        (28, "goal at_most"),
    ]:
        assert any(fault.startswith(f"line {line}: {field} must be ") for fault in found), (line, field, found)
    assert [int(fault.split()[1][:-1]) for fault in found] == sorted(int(fault.split()[1][:-1]) for fault in found)


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} has to be there once"
    return text.replace(old, new)


MENTEN = template_path("michaelis-menten").read_text(encoding="utf-8")
HEARING = template_path("psychometric-yes-no").read_text(encoding="utf-8")
MELT = template_path("crossing").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        (STEEL, "range = [400, 1100]", "", "setting 1 range must be given, or else values"),
        (STEEL, "range = [10, 240]", "range = [0, 240]", "above 0 on a log scale"),
        (STEEL, "step = 5 ", "step = 5000 ", "at most the width of the range, 700"),
        (STEEL, 'name = "time"', 'name = "temperature"', "a name of its own"),
        (STEEL, "typical = [150, 420]", "", "measurement typical must be given with model kind smooth"),
        (STEEL, "noise = [3, 8]", "noise = [8, 3]", "the lower one first"),
        (STEEL, "noise = [3, 8]", "noise = nan", "measurement noise"),
        (STEEL, 'kind = "number"', 'kind = "count"', "measurement typical must be left out"),
        (STEEL, 'bumps = "one"', 'bumps = "some"', "'one', 'few' or 'many'"),
        (STEEL, 'bumps = "one"', "lengths = { temperature = 100 }", "model lengths time must be given"),
        (STEEL, 'find = "peak"', 'find = "peek"', "did you mean peak?"),
        (STEEL, 'time = "35 %"', "time = 5", "is on a log scale"),
        (STEEL, "temperature = 70", 'temperature = "10 %"', "per cent of temperature needs a log scale"),
        (STEEL, "temperature = 70", "temprature = 70", "did you mean temperature?"),
        (STEEL, "temperature = 70", "temperature = 600", "from 0.07 to 350"),
        (STEEL, "sure = 0.9", "level = 3", "goal level must be left out"),
        (MENTEN, "vmax * substrate", "vmax * sustrate", "did you mean substrate?"),
        (MENTEN, "vmax * substrate / (km + substrate)", "vmax * substrate", "a name that the formula uses"),
        (MENTEN, "(km + substrate)", "sqrt(km - substrate)", "finite for all settings"),
        (MENTEN, 'find = "km"', 'find = "substrate"', "an expression of parameters"),
        (MENTEN, "km + substrate", "km + pi.real", "'.' at letter"),
        (MENTEN, 'within = "20 %"', 'within = "2000 %"', "such as"),
        (HEARING, "width = [5, 25]", "width = [0.0001, 25]", "from 0.4 to 240"),
        (HEARING, "level = 0.5", "level = 0.99", "inside the curve's rise"),
        (HEARING, 'kind = "yes/no"', 'kind = "number"', "with model kind threshold"),
        (HEARING, "guess = [0.005, 0.1]", "guess = 1.5", "a probability from 0 to 0.9"),
        (MELT, "level = 100", "level = 500", "within typical, 0 to 200"),
        (MELT, "level = 100", "", "goal level must be given"),
    ],
)
def test_every_fault_says_what_is_allowed(text: str, old: str, new: str, words: str) -> None:
    found = faults_of(changed(text, old, new))
    assert any(words in fault for fault in found), found


def test_a_probability_beyond_one_is_found_before_training() -> None:
    text = changed(MENTEN, 'kind = "number"\nnoise = [0.05, 0.3]', 'kind = "yes/no"')
    (fault,) = faults_of(text)
    assert "model formula must be a probability, from 0 to 1; it is " in fault
    assert "substrate = " in fault


def test_an_expression_of_parameters_can_be_sought() -> None:
    text = changed(changed(MENTEN, 'find = "km"', 'find = "vmax / km"'), 'within = "20 %"', 'within = "25 %"')
    problem = Experiment.from_toml(text).problem()
    (scale,) = problem.units.answers
    assert scale.name == "vmax / km"
    assert scale.log
    assert scale.low == pytest.approx(2 / 5, rel=0.01)
    assert scale.high == pytest.approx(10 / 0.1, rel=0.01)


def test_syntax_errors_name_their_line() -> None:
    assert faults_of('title = "a"\nsetting = [\n')[0].startswith("line ")
    (fault,) = faults_of('title = "a"\n[goal\n')
    assert fault.startswith("line 2: the file must be TOML: ")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"x" * 200_000, b"a." * 45_000 + b"a = 1"], ids=["not UTF-8", "large", "names in names"]
)
def test_unreadable_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(ExperimentError, match="the file must be"):
        Experiment.read(file)


def test_what_would_never_end_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "endless.toml").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(ExperimentError, match="no plain file"):
            Experiment.read(tmp_path / f"{name}.toml")
    with pytest.raises(ExperimentError, match="a file, not a folder"):
        Experiment.read(tmp_path)


@pytest.mark.parametrize("family", ["smooth", "parametric"])
def test_a_problem_is_made_from_data_and_reads_no_file(family: str, tmp_path: Path) -> None:
    """What a problem is made from may stand in a model's folder that someone else has made."""
    (tmp_path / "mine.toml").write_text(STEEL, encoding="utf-8")
    with pytest.raises(InvalidInput, match="experiment must be an experiment as data"):
        make_problem(family, experiment=str(tmp_path / "mine.toml"))
    with pytest.raises(ExperimentError):
        make_problem(family, experiment={})


def test_a_missing_file_says_what_there_is() -> None:
    with pytest.raises(ExperimentError, match="did you mean peak-2d"):
        Experiment.read("peak-2.toml")


# Fuzzing: whatever a file holds, there is a clear answer, soon, and nothing is run.

JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    10**400,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    1e-320,
    "",
    "x" * 1000,
    "__import__('os').system('touch hacked')",
    "9**9**9",
    "a.__class__",
    "\u202e\u0000",
    "🦊",
    "10 %",
    "1e999 %",
    [],
    [[]],
    [1],
    [1, 2, 3],
    [float("nan"), 1],
    {},
    {"a": {"b": {"c": 1}}},
    {"range": [0, 1], "scale": "log"},
    ["a", "b"],
    "peak",
    "linear",
]


def mutated(document: Any, rng: random.Random) -> Any:
    """A document with one to four of its parts replaced, dropped, renamed or doubled."""
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, 4)):
        place: Any = document
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = rng.choice(keys)
            inside = place[key]
            if isinstance(inside, dict | list) and inside and rng.random() < 0.8:
                place = inside
                continue
            action = rng.random()
            if action < 0.6:
                place[key] = copy.deepcopy(rng.choice(JUNK))
            elif action < 0.75:
                del place[key]
            elif action < 0.85 and isinstance(place, dict):
                place["".join(rng.choices(string.printable, k=5))] = place.pop(key)
            elif isinstance(inside, float | int) and not isinstance(inside, bool) and abs(inside) < 1e300:
                place[key] = inside * rng.choice([-1, 0, 1e-9, 1e9, 1.5])
            break
    return document


def check_answer(document: Any) -> str:
    """Reads a document; says whether it was taken or refused, and fails on anything else."""
    began, faults = time.perf_counter(), ()
    try:
        Experiment.from_document(document).problem()
    except ExperimentError as error:
        faults = error.faults
    for fault in faults:
        assert " must be " in str(fault)
        assert len(str(fault)) < 1500
    assert time.perf_counter() - began < 60, "it hangs"
    return "refused" if faults else "taken"


def fuzz(count: int, seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    documents = [tomllib.loads(template_path(name).read_text(encoding="utf-8")) for name in template_names()]
    answers = [check_answer(mutated(rng.choice(documents), rng)) for _ in range(count)]
    assert not Path("hacked").exists()
    return {answer: answers.count(answer) for answer in set(answers)}


def test_mutated_files_get_a_clear_answer() -> None:
    found = fuzz(150, seed=0)
    assert found["refused"] > 75


@pytest.mark.slow
def test_two_thousand_mutations_get_a_clear_answer() -> None:
    found = fuzz(2000, seed=1)
    assert found["refused"] > 1000
    assert found["taken"] > 10, "and what is still an experiment is taken"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=80), st.integers(0, 60))
def test_text_in_a_file_gets_a_clear_answer(text: str, line: int) -> None:
    lines = MENTEN.splitlines()
    lines.insert(min(line, len(lines)), text)
    message = "understood"
    try:
        Experiment.from_toml("\n".join(lines))
    except CicpeError as error:
        message = str(error)
    assert message
