"""Experiments on the command line: from a file to a stopped campaign, in the units of the file."""

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from cicpe.errors import InvalidInput
from cicpe.experiments import Experiment, template_names, template_path
from commands import REPOSITORY, Run, assert_refused
from easy_experiments import CALIBRATION_EPISODES, EASY, SHORT, Laboratory, easy_file

TUTORIAL = REPOSITORY / "docs" / "tutorials" / "first-ten-minutes.md"
QUICK = ("michaelis-menten", "dose-toxicity")
"""Files that are taken to a stopped campaign in every run of the tests; the others in the slow ones."""


def words_of(how: dict[str, Any]) -> list[str]:
    """What ``cicpe train`` is told, as ``cicpe.train`` is."""
    words = [f"--{name}={how[name]}" for name in ("recipe", "updates")]
    return words + [f"--set={name}={json.dumps(value)}" for name, value in how["settings"].items()]


def campaign(run: Run, store: Path, lab: Laboratory) -> dict[str, Any]:
    """Runs the last campaign of a store to its end."""
    for _ in range(200):
        asked = run("session", "ask", "--store", store, "--json")
        if asked.code == 1:
            return dict(asked.json)
        assert asked.code == 0, asked.err
        told = run("session", "tell", lab.measure(asked.json["query"]), "--store", store)
        assert told.code == 0, told.err
    raise AssertionError("it does not stop")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("experiments")


def trained(run: Run, folder: Path, name: str) -> Path:
    """The model of an easy experiment, trained once for all tests here."""
    out = folder / f"model-{name}"
    if not out.exists():
        file = easy_file(name, folder)
        done = run(
            "train", file, "--out", out, *words_of(SHORT[EASY[name][0]]), "--calibration-episodes", CALIBRATION_EPISODES
        )
        assert done.code == 0, done.err + done.out
        assert f"cicpe session new {out}" in done.out
    return out


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in EASY]
)
def test_from_file_to_stopped_campaign(run: Run, models: Path, tmp_path: Path, name: str) -> None:
    out, store = trained(run, models, name), tmp_path / "lab.db"
    (models / f"{name}.toml").unlink(missing_ok=True)  # the model needs no file any more
    problem = Experiment.from_document(json.loads((out / "config.json").read_text())["problem_options"]["experiment"])
    right = 0
    for seed in range(3):
        lab = Laboratory(problem.problem(), seed)
        begun = run("session", "new", out, "--store", store, "--seed", seed, "--name", f"{name}-{seed}")
        assert begun.code == 0, begun.err
        first = lab.units.settings[0]
        assert f"measure at  {first.name} " in begun.out
        assert first.unit in begun.out
        end = campaign(run, store, lab)
        assert end["stopped"]
        right += lab.is_right(end["recommendation"], end["epsilon"])
        shown = run("session", "status", "--store", store).out
        assert lab.units.answers[0].name in shown
        assert lab.units.title in shown
    assert right >= 1


def test_units_everywhere(run: Run, models: Path, tmp_path: Path) -> None:
    out, store = trained(run, models, "michaelis-menten"), tmp_path / "lab.db"
    session = ("session", "tell", "--store", store)
    run("session", "new", out, "--store", store)
    assert_refused(run(*session, "yes"), "rate must be a number from", "umol/min", "'yes'")
    assert_refused(run(*session, "400"), "rate must be from", "400")
    assert_refused(run(*session, "3", "--at", "substrat=2"), "substrat", "did you mean substrate?")
    assert_refused(run(*session, "3", "--at", "substrate=200"), "substrate must be from 0.05 mM to 20 mM")
    done = run(*session, "3.1", "--at", "substrate=1.5")
    assert "attached 3.1 umol/min at substrate 1.5 mM" in done.err
    steps = run("session", "status", "--store", store, "--json").json["history"]
    assert (steps[0]["query"], steps[0]["observation"]) == ([1.5], [3.1])
    assert run("session", "correct", "1", "2.5 umol/min", "--store", store).code == 0
    assert "corrected step 1 to 2.5 umol/min" in run("session", "log", "--store", store).out


def test_tables_go_out_and_in(run: Run, models: Path, tmp_path: Path) -> None:
    out, store = trained(run, models, "dose-toxicity"), tmp_path / "lab.db"
    run("session", "new", out, "--store", store, "--name", "one")
    before = tmp_path / "before.csv"
    before.write_text("dose;toxicities\n10;0/20\n60;7/20\n480;20\n", encoding="utf-8")
    assert run("session", "attach", before, "--store", store).code == 0
    table = tmp_path / "out.csv"
    assert run("session", "export", "--out", table, "--store", store).code == 0
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [(row["dose"], row["toxicities"], row["source"]) for row in rows] == [
        ("10.0", "0/20", "attached"),
        ("60.0", "7/20", "attached"),
        ("480.0", "20/20", "attached"),
    ]
    run("session", "new", out, "--store", store, "--name", "two")
    assert run("session", "attach", table, "--store", store).code == 0
    again = [run("session", "status", "-c", name, "--store", store, "--json").json for name in ("one", "two")]
    assert again[0]["history"] == again[1]["history"]
    assert again[0]["recommendation"] == again[1]["recommendation"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("dose;toxicities\n10;0/20\n60;27\n", ("row 2: toxicities must be", "27")),
        ("dose;toxicities\nten;0/20\n", ("dose in line 2 must be a number", "ten")),
        ("does,toxicities\n10,0/20\n", ("column must be in the header", "did you mean does?")),
        ("dose;toxicities\n10;0/20\n999;1\n", ("row 2: dose must be from 10 mg to 480 mg", "999")),
    ],
)
def test_a_table_is_taken_whole_or_not_at_all(
    run: Run, models: Path, tmp_path: Path, content: str, words: tuple[str, ...]
) -> None:
    out, store, file = trained(run, models, "dose-toxicity"), tmp_path / "lab.db", tmp_path / "bad.csv"
    run("session", "new", out, "--store", store)
    file.write_text(content, encoding="utf-8")
    assert_refused(run("session", "attach", file, "--store", store), *words)
    assert run("session", "status", "--store", store, "--json").json["history"] == []


def test_a_study_in_units(run: Run, models: Path) -> None:
    """The sampler needs nothing but the model: settings, units and tolerances are in it."""
    import optuna

    import cicpe
    from cicpe.integrations.optuna import RESULT, CicpeSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    model = cicpe.load(trained(run, models, "peak-1d"))
    sampler = CicpeSampler(model)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: 90 - 0.03 * (trial.suggest_float("x", 0, 100) - 60) ** 2, n_trials=14)
    found = study.user_attrs[RESULT]
    assert set(found["recommendation"]) == {"x"}
    session = sampler.session(study)
    assert found["recommendation"]["x"] == pytest.approx(session.recommendation[0])
    told = [(trial.params["x"], trial.value) for trial in study.trials]
    assert [(step.query[0], step.observation[0]) for step in session.history] == [
        pytest.approx(pair, abs=1e-3) for pair in told[: len(session.history)]
    ]
    assert found["credible_region"]["x"][0] <= found["recommendation"]["x"] <= found["credible_region"]["x"][1]
    wrong = optuna.create_study(direction="minimize", sampler=CicpeSampler(model))
    with pytest.raises(InvalidInput, match="direction must be maximize"):
        wrong.optimize(lambda trial: trial.suggest_float("x", 0, 100), n_trials=1)


def test_a_model_serves_another_range_of_the_same_shape(run: Run, models: Path, tmp_path: Path) -> None:
    out, file, mine = trained(run, models, "peak-1d"), easy_file("peak-1d", tmp_path), tmp_path / "mine"
    text = file.read_text(encoding="utf-8")
    own = text.replace('name = "x"\nrange = [0, 100]', 'name = "angle"\nunit = "deg"\nrange = [-90, 90]')
    own = own.replace("within = 20", "within = 36").replace("typical = [0, 100]", "typical = [0, 1]")
    file.write_text(own.replace("noise = 1", "noise = 0.01"), encoding="utf-8")
    assert run("zoo", "use", out, file, "--out", mine).code == 0
    begun = run("session", "new", mine, "--store", tmp_path / "lab.db")
    assert "measure at  angle " in begun.out
    assert " deg" in begun.out
    file.write_text(own, encoding="utf-8")  # the noise is now as large as the signal
    assert_refused(run("zoo", "use", out, file, "--out", tmp_path / "other"), "experiment must be a smooth function")


# Before training.


@pytest.mark.parametrize(
    "name", ["michaelis-menten", pytest.param("peak-2d", marks=pytest.mark.slow), "psychometric-2afc"]
)
def test_check_says_what_was_understood(run: Run, tmp_path: Path, name: str) -> None:
    picture = tmp_path / "drawn.png"
    done = run("check", name, "--seconds", "0.5", "--png", picture, "--json")
    assert done.code == 0, done.err
    found = done.json
    for key in ("unknowns", "query_space", "answer_space", "observation_kind", "expected_queries"):
        assert key in found
    assert found["faults"] == []
    assert found["units"]["settings"][0]["name"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_check_draws_eight_experiments_at_the_terminal(run: Run) -> None:
    done = run("check", "half-life", "--seconds", "0.2")
    assert "You choose time, 0 to 48 h in steps of 0.25" in done.out
    assert "within 10 %, 90 % sure, after at most 60 measurements" in done.out
    assert "activity in kBq over time (h)" in done.out
    assert len([line for line in done.out.splitlines() if line.rstrip().endswith("|")]) == 4 * 8
    assert "cicpe train half-life --out half-life" in done.out


def test_check_names_all_faults(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    text = template_path("peak-2d").read_text(encoding="utf-8")
    file.write_text(text.replace("[400, 1100]", "[1100, 400]").replace('"peak"', '"peek"'), encoding="utf-8")
    done = run("check", file)
    assert done.code == 2
    assert done.out == ""
    assert [line.split(" must ")[0] for line in done.err.splitlines()] == [
        "error: line 7: setting 1 range",
        "error: line 29: goal find",
    ]
    assert_refused(run("train", file, "--out", tmp_path / "model"), "goal find must be one of peak, trough")
    found = run("check", file, "--json")
    assert found.code == 2
    assert [fault["line"] for fault in found.json["faults"]] == [7, 29]


def test_flags_of_problems_are_refused_for_experiments(run: Run) -> None:
    assert_refused(run("check", "peak-1d", "--dim", "3"), "dim must be left out")
    assert_refused(run("train", "peak-1d", "--out", "x", "--noise", "3"), "noise must be left out")


# New files.


@pytest.mark.parametrize("name", template_names())
def test_new_from_a_template(run: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.toml"
    assert run("new", "--template", name, "--out", file).code == 0
    assert Experiment.read(file) == Experiment.read(name)
    assert_refused(run("new", "--template", name, "--out", file), "a new file")


def test_new_lists_what_there_is(run: Run) -> None:
    assert {row["name"] for row in run("new", "--list", "--json").json["templates"]} == set(template_names())
    assert_refused(run("new", "--template", "peak-3d"), "template must be one of", "did you mean peak-")


CONVERSATIONS: dict[str, list[str]] = {
    "peak": [
        "Annealing", "peak", "2",
        "temperature", "°C", "400", "1100", "5",
        "time", "min", "10", "240", "yes", "0",
        "hardness", "HV", "150", "420", "5", "15",
        "one", "70", "35 %", "0.9", "60",
    ],
    "threshold": ["", "threshold", "level", "dB", "0", "80", "1", "heard", "yes/no", "logistic", "0",
                  "0.02", "0.5", "5", "0.9", "100"],
    "formula": [
        "Enzyme", "formula", "1", "s", "mM", "0.05", "20", "yes", "0", "rate", "number", "", "0.1", "0.1",
        "vmax * s / (km + ", "vmax * s / (km + s)", "0.1", "5", "yes", "2", "x", "10", "yes", "km", "20 %", "0.9", "50",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_new_by_a_conversation(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    answers = iter(CONVERSATIONS[name])
    monkeypatch.setattr("typer.prompt", lambda question, **options: next(answers) or options.get("default", ""))
    file = tmp_path / "mine.toml"
    done = run("new", "--out", file)
    assert done.code == 0, done.err
    assert next(answers, None) is None, "every answer was asked for"
    experiment = Experiment.read(file)
    assert experiment.goal.find == {"peak": "peak", "threshold": "threshold", "formula": "km"}[name]
    experiment.problem()


# The tutorial.


def commands_of(page: str) -> list[tuple[list[str], str]]:
    """Every command of a page, and what it is said to print."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((shlex.split(command), printed))
    return found


@pytest.mark.slow  # it trains
def test_every_command_of_the_tutorial_works(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CICPE_STORE", str(tmp_path / "lab.db"))
    text = template_path("michaelis-menten").read_text(encoding="utf-8")
    broken = text.replace("[0.05, 20]", "[20, 0.05]").replace('"20 %"', '"twenty"')
    Path("broken.toml").write_text(broken, encoding="utf-8")
    commands = commands_of(TUTORIAL.read_text(encoding="utf-8"))
    assert len(commands) >= 11
    for words, printed in commands:
        assert words[0] == "cicpe"
        if words[1] == "train":
            file = Path(words[2])
            quicker = file.read_text(encoding="utf-8").replace("at_most = 60", "at_most = 20")
            file.write_text(quicker.replace("sure = 0.9", "sure = 0.7"), encoding="utf-8")
            words = [*words[:-2], "--recipe", "particles", "--updates", "1", "--calibration-episodes", "100"]
        if words[1] == "check":
            words = [*words, "--seconds", "0.2"]
        done = run(*words[1:])
        assert done.code == (2 if printed.startswith("error: ") else 0), (words, done)
        # What a campaign says hangs on its training, and what is drawn on the processor.
        said = printed.splitlines() if words[1] != "session" else []
        for line in [line.strip() for line in said if "|" not in line]:
            assert line in done.out + done.err, (words, line)


@pytest.mark.slow
@pytest.mark.parametrize("name", EASY)
def test_five_minutes_are_enough_for_a_template(run: Run, tmp_path: Path, name: str) -> None:
    """The files as they are, on one quiet core: as sure as asked on 2,000 fresh tasks, but for chance (1 in 1,000)."""
    out = tmp_path / "model"
    assert run("train", name, "--out", out, "--minutes", 5).code == 0
    found = run("evaluate", out, "--stop", "each", "--episodes", 2000, "--json").json
    sure = Experiment.read(name).goal.sure
    assert found["accuracy"] >= sure - 3.1 * (sure * (1 - sure) / 2000) ** 0.5
