"""Experiments over HTTP: drafts with all of their faults, and one training at a time that leaves nothing behind."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cicpe.experiments import Experiment, template_names, template_path
from cicpe.experiments.experiment import LARGEST_FILE
from cicpe.files import lock_within
from cicpe.server import drafts, jobs
from cicpe.server.app import make_app
from cicpe.server.training import BEGUN
from cicpe.sessions.stores import Store, open_store

HERE = "http://127.0.0.1:8642"


@pytest.fixture
def server(store: Store, tmp_path: Path) -> Iterator[TestClient]:
    """A client of a server that keeps its models in ``models``."""
    app = make_app(store, trained=tmp_path / "models")
    yield TestClient(app, base_url=HERE)
    app.state.close()


def document(title: str = "quick", **changes: Any) -> dict[str, Any]:
    return {**Experiment.read("peak-1d").document, "title": title, **changes}


def start(server: TestClient, title: str, name: str | None = None) -> Any:
    return server.post("/api/training", json={"document": document(title), "name": name or title})


def ended(server: TestClient, state: str) -> dict[str, Any]:
    return until(lambda: server.get("/api/training").json(), lambda now: now["state"] == state)


def until(look: Callable[[], Any], good: Callable[[Any], bool], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not good(now := look()):
        assert time.monotonic() < end, now
        time.sleep(0.02)
    return now


def litter(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*")) if folder.exists() else []


# Drafts.


def test_every_template_is_understood(server: TestClient) -> None:
    known = server.get("/api/templates").json()
    assert [one["name"] for one in known["templates"]] == template_names()
    assert {"exp", "sqrt"} <= set(known["functions"])
    for one in known["templates"]:
        assert one["about"]
        view = server.post("/api/experiments/check", json={"document": one["document"]}).json()
        assert view["faults"] == []
        assert Experiment.from_toml(view["toml"]) == Experiment.read(one["name"])
        assert len(view["picture"]["draws"]) == 8
        first = Experiment.read(one["name"]).setting[0]
        low, high = first.limits
        assert view["picture"]["grid"][0][0] == pytest.approx(low)
        assert view["picture"]["grid"][0][-1] == pytest.approx(high)
        for draw in view["picture"]["draws"]:
            assert len(draw["truth"][0]) == len(view["picture"]["grid"][0])
            assert all(low - 1e-6 <= place[0] <= high * (1 + 1e-4) + 1e-6 for place in draw["read_at"])


def test_another_seed_draws_others(server: TestClient) -> None:
    pictures = [
        server.post("/api/experiments/check", json={"document": document(), "seed": seed}).json()["picture"]
        for seed in (0, 0, 1)
    ]
    assert pictures[0] == pictures[1] != pictures[2]


def test_all_faults_are_named_at_once_with_their_places(server: TestClient) -> None:
    wrong = document(setting=[{"name": "x", "range": [100, "far"]}, {"name": "2y", "range": [0, 1]}])
    wrong["goal"] = {"find": "peek", "within": 5, "sure": 2}
    wrong["measurement"] = {"name": "value", "typical": [0, 100], "noise": -1}
    faults = server.post("/api/experiments/check", json={"document": wrong}).json()["faults"]
    assert {tuple(fault["path"]) for fault in faults} == {
        ("setting", 0, "range", 1),
        ("setting", 1, "name"),
        ("goal", "sure"),
        ("measurement", "noise"),
    }
    assert all(fault["allowed"] and fault["message"] for fault in faults)


def test_a_file_is_read_with_its_lines_and_its_content(server: TestClient) -> None:
    text = template_path("peak-1d").read_text(encoding="utf-8")
    good = server.post("/api/experiments/check", json={"toml": text}).json()
    assert good["document"]["goal"]["find"] == "peak"
    assert good["faults"] == []
    bad = server.post("/api/experiments/check", json={"toml": text.replace('"peak"', '"peek"')}).json()
    assert bad["document"]["goal"]["find"] == "peek"  # for the form, so that it can be mended there
    assert [fault["field"] for fault in bad["faults"]] == ["goal find"]
    assert bad["faults"][0]["line"] is not None
    broken = server.post("/api/experiments/check", json={"toml": "title = \n"}).json()
    assert broken["document"] is None
    assert broken["faults"][0]["line"] == 1
    odd = server.post("/api/experiments/check", json={"toml": "when = 2026-01-01\nhow = nan\nwhat = inf"})
    assert odd.status_code == 200
    assert odd.json()["document"] == {"when": "2026-01-01", "how": "nan", "what": "inf"}


DEEP: Any = 1
for _ in range(200):
    DEEP = [DEEP]
HOSTILE: dict[str, str] = {
    "deep": json.dumps({"document": {"setting": DEEP}}),
    "large": json.dumps({"document": {"title": "x" * (LARGEST_FILE + 1)}}),
    "large text": json.dumps({"toml": "x" * (LARGEST_FILE + 1)}),
    "no text": '{"document": {"\\ud800": 1}}',
    "no text either": '{"toml": "title = \'\\ud800\'"}',
    "neither": "{}",
    "both": '{"document": {}, "toml": ""}',
    "no table": '{"document": [1]}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_draft_is_refused(server: TestClient, body: str) -> None:
    refused = server.post("/api/experiments/check", content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    assert refused.json()["allowed"]


@pytest.mark.parametrize(
    "formula",
    ["9**9**9", "x.__class__", "__import__('os')", "(" * 500 + "x" + ")" * 500, "a * x + " * 300 + "x", "1 / (x - a)"],
    ids=["power", "attribute", "import", "brackets", "long", "pole"],
)
def test_a_hostile_formula_is_a_fault(server: TestClient, formula: str) -> None:
    wish = document(model={"kind": "formula", "formula": formula, "parameters": {"a": [0, 100]}})
    wish["goal"] = {"find": "a", "within": 10}
    view = server.post("/api/experiments/check", json={"document": wish})
    assert view.status_code == 200
    assert any(fault["path"][:2] == ["model", "formula"] for fault in view.json()["faults"])


def test_odd_numbers_are_faults_and_no_trouble(server: TestClient) -> None:
    for number in ("NaN", "Infinity", "1e400", "-1e400", "9" * 300, "true", '"1"', "null"):
        body = json.dumps({"document": document()}).replace("100.0", number)
        view = server.post("/api/experiments/check", content=body, headers={"Content-Type": "application/json"})
        assert view.status_code in (200, 422)
        assert view.status_code == 422 or view.json()["faults"]


def test_an_estimate_is_made_elsewhere_and_a_newer_one_takes_its_place(
    server: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "estimator.py"
    answer = {"words": "about 7", "queries": 7.0, "accuracy": 0.9, "episodes": 64, "horizon": 20, "least": 1.5}
    script.write_text(
        "import json, sys, time\nasked = json.loads(sys.stdin.buffer.readline())\n"
        "time.sleep(600 if asked['document']['title'] == 'waits' else 0)\n"
        f"print(json.dumps({{'done': {answer}}}))\n"
    )
    monkeypatch.setattr(jobs, "WORKER", (sys.executable, str(script)))
    assert server.post("/api/experiments/estimate", json={"document": document()}).json() == answer
    service = drafts.DraftService()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.estimate, document("waits"))
        until(lambda: service._estimating, lambda job: job is not None)
        assert service.estimate(document()).queries == 7.0
        with pytest.raises(Exception, match="another estimate took its place"):
            waiting.result(30)
    service.close()


def test_an_estimate_of_a_faulty_experiment_is_refused(server: TestClient) -> None:
    refused = server.post("/api/experiments/estimate", json={"document": document(setting=[])})
    assert refused.status_code == 422
    assert refused.json()["field"] == "setting"


# Training.


@pytest.mark.usefixtures("pretender")
def test_a_training_becomes_a_model_and_a_campaign(server: TestClient, tmp_path: Path) -> None:
    assert server.get("/api/training").json()["state"] == "none"
    begun = start(server, "quick")
    assert begun.status_code == 202
    assert begun.json()["state"] == "running"
    done = ended(server, "done")
    assert (done["model"], done["expected_queries"], done["at_most"], done["delta"]) == ("quick", 4.5, 20, 0.1)
    assert done["lines"] == ["tried nothing"]
    assert litter(tmp_path / "models") == ["quick"]
    assert "quick" in server.get("/api/models").json()["models"]
    wish = {"name": "first", "model": "quick", "epsilon": 0.2, "delta": 0.1}
    assert server.post("/api/campaigns", json=wish).status_code == 201
    again = make_app(open_store(tmp_path / "campaigns.db"), trained=tmp_path / "models")  # after a restart
    with TestClient(again, base_url=HERE) as other:
        assert "quick" in other.get("/api/models").json()["models"]
        assert other.get("/api/campaigns/first").status_code == 200


@pytest.mark.usefixtures("pretender")
def test_a_name_that_a_later_zoo_takes_is_no_trouble(server: TestClient, store: Store, tmp_path: Path) -> None:
    start(server, "quick")
    ended(server, "done")
    (tmp_path / "models" / "quick").rename(tmp_path / "models" / "gp-max-1d")
    later = TestClient(make_app(store, trained=tmp_path / "models"), base_url=HERE)
    assert {"gp-max-1d", "gp-max-1d (trained here)"} <= set(later.get("/api/models").json()["models"])
    wish = {"name": "own", "model": "gp-max-1d (trained here)", "epsilon": 0.2, "delta": 0.1}
    assert later.post("/api/campaigns", json=wish).json()["campaign"]["model"].startswith(str(tmp_path))


@pytest.mark.usefixtures("pretender")
def test_a_second_training_is_refused_in_words(server: TestClient) -> None:
    assert start(server, "waits", "mine").status_code == 202
    second = start(server, "quick", "yours")
    assert second.status_code == 409
    assert "mine is being trained: about 5 min are left" in second.json()["message"]
    assert server.get("/api/campaigns").status_code == 200  # everything else goes on
    now = server.get("/api/training").json()
    assert (now["name"], now["state"]) == ("mine", "running")
    assert 0 <= now["share"] < 1


@pytest.mark.usefixtures("pretender")
def test_a_cancelled_training_leaves_nothing(server: TestClient, tmp_path: Path) -> None:
    now = start(server, "waits").json()
    assert litter(tmp_path / "models") == [f"{BEGUN}{now['id']}"]
    wrong = server.post("/api/training/cancel", json={"id": "another"})
    assert wrong.status_code == 409
    assert server.get("/api/training").json()["state"] == "running"
    over = server.post("/api/training/cancel", json={"id": now["id"]}).json()
    assert over["state"] == "cancelled"
    assert over["document"]["title"] == "waits"
    assert litter(tmp_path / "models") == []
    assert server.post("/api/training/cancel", json={"id": now["id"]}).status_code == 409
    assert start(server, "quick").status_code == 202
    ended(server, "done")


@pytest.mark.usefixtures("pretender")
@pytest.mark.parametrize(
    ("title", "words"), [("fails", "nothing can be learnt of this"), ("empty", "exit code 0"), ("killed", "signal 9")]
)
def test_the_server_outlives_a_training_that_fails(server: TestClient, tmp_path: Path, title: str, words: str) -> None:
    start(server, "waits" if title == "killed" else title, "mine")
    if title == "killed":
        os.kill(worker_of(tmp_path), signal.SIGKILL)
    assert words in ended(server, "failed")["message"]
    assert litter(tmp_path / "models") == []
    assert "mine" not in server.get("/api/models").json()["models"]
    start(server, "quick")
    ended(server, "done")


def worker_of(folder: Path) -> int:
    """The process that pretends."""
    name = str(folder / "pretender.py").encode()

    def look() -> list[int]:
        lines = {path: (path / "cmdline") for path in Path("/proc").iterdir() if path.name.isdigit()}
        return [int(path.name) for path, line in lines.items() if line.exists() and name in _read(line)]

    found: list[int] = until(look, bool)
    return found[0]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.usefixtures("pretender")
def test_what_a_killed_server_left_is_swept_away_and_can_be_trained_again(store: Store, tmp_path: Path) -> None:
    models = tmp_path / "models"
    first = make_app(store, trained=models)
    with TestClient(first, base_url=HERE) as client:
        now = start(client, "waits", "mine").json()
    place = models / f"{BEGUN}{now['id']}"
    other = make_app(store, trained=models)  # another server of the same folder does not touch it
    with TestClient(other, base_url=HERE) as client:
        assert client.get("/api/training").json()["state"] == "none"
    assert place.exists()
    other.state.close()
    kept = place.rename(tmp_path / "kept")  # as a killed server would have left it
    first.state.close()
    kept.rename(place)
    third = make_app(store, trained=models)
    with TestClient(third, base_url=HERE) as client:
        left = client.get("/api/training").json()
        assert (left["state"], left["name"], left["document"]["title"]) == ("interrupted", "mine", "waits")
        assert litter(models) == []
    third.state.close()


def test_a_lock_is_held_as_long_as_anybody_trains(tmp_path: Path) -> None:
    """What the sweeping rests on."""
    handle = lock_within(tmp_path, 0)
    assert handle is not None
    assert lock_within(tmp_path, 0) is None
    os.close(handle)
    again = lock_within(tmp_path, 5)
    assert again is not None
    os.close(again)


@pytest.mark.usefixtures("pretender")
def test_a_training_that_cannot_be_is_refused(server: TestClient, store: Store) -> None:
    base = {"document": document(), "name": "mine"}
    for change, field in (
        ({"name": "two words"}, "name"),
        ({"name": "gp-max-1d"}, "name"),
        ({"minutes": 0}, "minutes"),
        ({"minutes": 1e9}, "minutes"),
        ({"minutes": "5"}, "minutes"),
        ({"seed": -1}, "seed"),
        ({"document": document(setting=[])}, "setting"),
        ({"what": 1}, "what"),
    ):
        refused = server.post("/api/training", json={**base, **change})
        assert refused.status_code == 422, change
        assert refused.json()["field"] == field
    assert server.get("/api/training").json()["state"] == "none"
    without = TestClient(make_app(store), base_url=HERE)
    assert without.get("/api/templates").json()["can_train"] is False
    assert "--trained" in without.post("/api/training", json=base).json()["allowed"]


def test_everything_is_behind_the_token(store: Store, tmp_path: Path) -> None:
    client = TestClient(make_app(store, token="a long secret", trained=tmp_path / "models"), base_url=HERE)
    schema = client.get("/api/openapi.json", headers={"Authorization": "Bearer a long secret"}).json()
    routes = [(path, method) for path, known in schema["paths"].items() for method in known]
    assert ("/api/training", "post") in routes
    for path, method in routes:
        assert client.request(method.upper(), path.replace("{campaign}", "a").replace("{name}", "a")).status_code == 401


# Tables, and campaigns that are begun anew.


def test_a_table_of_earlier_measurements(server: TestClient) -> None:
    wish = {"name": "titan", "model": "gp-max-1d", "epsilon": 0.2, "delta": 0.1}
    assert server.post("/api/campaigns", json=wish).status_code == 201
    table = "/api/campaigns/titan/table"
    taken = server.post(table, json={"csv": "x1;y\n0.25;0.5\n0.75;1.25\n"})
    assert [step["query"] for step in taken.json()["status"]["history"]] == [[0.25], [0.75]]
    exported = server.get(table).text
    assert server.post("/api/campaigns", json={**wish, "name": "twin"}).status_code == 201
    assert server.post("/api/campaigns/twin/table", json={"csv": exported}).status_code == 200
    histories = [server.get(f"/api/campaigns/{name}").json()["status"]["history"] for name in ("titan", "twin")]
    assert histories[0] == histories[1]
    hostile = ("x1,y\n" + '"' * 200_001 + "\n", "x1,y\n", "\n", "\x00", "x" * 100_000 + "\n1\n")
    for csv in hostile:
        refused = server.post(table, json={"csv": csv})
        assert refused.status_code == 422
        assert len(refused.content) < 4_000
    for csv, words in (("x1;y\n0.5;1\n7;1\n", "row 2"), ("a,b\n1,2\n", "x1"), ("x1,y\n0.5,red\n", "line 2")):
        refused = server.post(table, json={"csv": csv})
        assert refused.status_code == 422
        assert words in refused.json()["message"]
    doubtful = server.post(table, json={"csv": "x1,y\n0.5,60.7\n"})
    assert doubtful.status_code == 422
    assert doubtful.json()["needs_confirmation"]
    assert len(server.get("/api/campaigns/titan").json()["status"]["history"]) == 2
    assert server.post(table, json={"csv": "x1,y\n0.5,60.7\n", "confirm": True}).status_code == 200


def test_a_table_that_is_sent_again_is_recorded_once(server: TestClient) -> None:
    wish = {"name": "titan", "model": "gp-max-1d", "epsilon": 0.2, "delta": 0.1}
    assert server.post("/api/campaigns", json=wish).status_code == 201
    table, body = "/api/campaigns/titan/table", {"csv": "x1;y\n0.25;0.5\n0.75;1.25\n", "expected_version": 0}
    for _ in range(2):
        sent = server.post(table, json=body, headers={"Idempotency-Key": "last-year"})
        assert (sent.status_code, len(sent.json()["status"]["history"])) == (200, 2)
    overtaken = server.post(table, json=body)
    assert (overtaken.status_code, overtaken.json()["field"]) == (409, "expected_version")


def test_a_spoilt_campaign_is_begun_anew(server: TestClient) -> None:
    wish = {"name": "titan", "model": "gp-max-1d", "epsilon": 0.2, "delta": 0.1, "seed": 7, "verify": 2}
    server.post("/api/campaigns", json=wish)
    server.post("/api/campaigns/titan/tell", json={"observation": 0.5, "step": 1})
    fresh = server.post("/api/campaigns/titan/restart", json={"name": "titan-2"})
    assert fresh.status_code == 201
    old, new = (server.get(f"/api/campaigns/{name}").json() for name in ("titan", "titan-2"))
    assert len(old["status"]["history"]) == 1
    assert new["status"]["history"] == []
    for field in ("model", "model_sha256", "epsilon", "delta", "seed", "stop", "context"):
        assert new["campaign"][field] == old["campaign"][field]
    assert new["status"]["verify"] == 2
    taken = server.post("/api/campaigns/titan/restart", json={"name": "titan-2"})
    assert taken.status_code == 422
    assert taken.json()["field"] == "name"
