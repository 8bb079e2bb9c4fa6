"""The server: a whole campaign over HTTP, people who collide, values that cannot be, and who may talk to it at all."""

import importlib.util
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from cicpe.cli.main import main
from cicpe.errors import InvalidInput
from cicpe.server import service
from cicpe.server.app import WEB, make_app
from cicpe.server.guard import BODY_LIMIT
from cicpe.sessions.stores import Store
from commands import REPOSITORY

HERE = "http://127.0.0.1:8642"
MODEL = "binary-search-6d"
NEW = {"name": "titan", "model": MODEL, "epsilon": 0.2, "delta": 0.1}


@pytest.fixture(autouse=True, scope="module")
def one_load() -> Iterator[None]:
    """Every server of these tests reads a model once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "load", lru_cache(service.load))
        yield


@pytest.fixture
def server(store: Store) -> TestClient:
    """A client of a server with one campaign, ``titan``. An exception inside it is a failure, not a 500."""
    client = TestClient(make_app(store), base_url=HERE)
    assert client.post("/api/campaigns", json=NEW).status_code == 201
    return client


def tell(client: TestClient, body: dict[str, Any], key: str | None = None, name: str = "titan") -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(f"/api/campaigns/{name}/tell", json=body, headers=headers)


def truth(query: list[float]) -> list[int]:
    return [1 if value < 0.25 else -1 for value in query]


def fault(response: httpx.Response, code: int, field: str | None) -> dict[str, Any]:
    assert response.status_code == code, response.text
    body: dict[str, Any] = response.json()
    assert body["field"] == field
    assert body["allowed"]
    assert body["message"]
    return body


# What can be told.


def test_what_cannot_be_is_refused_and_words_are_understood(server: TestClient) -> None:
    seven = fault(tell(server, {"observation": [7] * 6, "step": 1}), 422, "observation")
    assert seven["allowed"] == "yes or no (1 or -1) in entry 1"
    assert not seven["needs_confirmation"]
    assert tell(server, {"observation": ["yes", "no", True, False, 1, -1], "step": 1}).status_code == 200
    view = server.get("/api/campaigns/titan").json()
    assert view["status"]["history"][0]["observation"] == [1, -1, 1, -1, 1, -1]
    assert view["setting"]["observed"] == ["yes or no (1 or -1)"] * 6


def test_what_is_not_plausible_has_to_be_confirmed_and_then_holds_the_stop(server: TestClient) -> None:
    wish = NEW | {"name": "furnace", "model": "gp-max-1d", "context": {"noise": 0.05}}
    assert server.post("/api/campaigns", json=wish).status_code == 201
    for step, value in ((1, -0.012), (2, 60.7)):
        body = {"observation": value, "step": step}
        if value > 5:
            doubted = fault(tell(server, body, name="furnace"), 422, "observation")
            assert doubted["needs_confirmation"]
            body |= {"confirm": True}
        told = tell(server, body, name="furnace")
        assert told.status_code == 200
    status = told.json()["status"]
    assert (status["held"], status["stopped"], status["in_prior"]) == (True, False, "no")
    release = {"expected_version": status["version"], "reason": "I have looked"}
    released = server.post("/api/campaigns/furnace/release", json=release).json()["status"]
    assert (released["held"], released["stopped"], released["released"]) == (False, True, True)
    log = server.get("/api/campaigns/furnace/log").json()["events"]
    assert [entry["words"] for entry in log][-1] == "released the stop: I have looked"
    again = server.post("/api/campaigns/furnace/release", json=release | {"expected_version": status["version"] + 1})
    assert again.status_code == 409


def test_redundant_queries_can_be_asked_for(server: TestClient) -> None:
    begun = server.post("/api/campaigns", json=NEW | {"name": "checked", "verify": 2}).json()
    assert begun["status"]["verify"] == 2
    fewer = server.post("/api/campaigns/checked/verify", json={"queries": 1}).json()
    assert fewer["status"]["verify"] == 1
    fault(server.post("/api/campaigns/checked/verify", json={"queries": -1}), 422, "queries")


def test_a_campaign_whose_wish_is_refused_is_not_made(server: TestClient, store: Store) -> None:
    wish = {"name": "unchecked", "model": "ackley-4d", "epsilon": 0.2, "delta": 0.1, "verify": 2}
    assert server.post("/api/campaigns", json=wish).status_code == 422, "this model has no alarm"
    assert [record.name for record in store.campaigns()] == ["titan"]


# A campaign.


def test_a_whole_campaign(server: TestClient, store: Store) -> None:
    for _ in range(40):
        asked = server.get("/api/campaigns/titan/ask").json()
        assert asked == server.get("/api/campaigns/titan/ask").json()
        if asked["stopped"]:
            break
        said = tell(server, {"observation": truth(asked["query"]), "expected_version": asked["version"]})
        assert said.status_code == 200
    view = server.get("/api/campaigns/titan").json()
    assert view["status"]["reason"]["code"] == "confident"
    assert view["status"]["recommendation"] == pytest.approx([0.25] * 6, abs=0.2)
    assert view["status"]["confidence"] >= view["status"]["stops_at"]
    plot = server.get("/api/campaigns/titan/plot").json()
    assert len(plot["trace"]) == view["status"]["step"] + 1
    assert plot["trace"][-1]["confidence"] == pytest.approx(view["status"]["confidence"])
    assert all(then["confidence"] < view["status"]["stops_at"] for then in plot["trace"][:-1])
    # A server that knows nothing yet says the same, bit for bit: everything follows from the log.
    other = TestClient(make_app(store), base_url=HERE)
    assert other.get("/api/campaigns/titan").json() == view
    stopped = fault(tell(server, {"observation": [1] * 6, "expected_version": asked["version"]}), 409, "campaign")
    assert stopped["now"] == view


def test_what_is_told_wrong_is_corrected_undone_skipped_attached_and_forked(server: TestClient) -> None:
    first = server.get("/api/campaigns/titan").json()["status"]
    tell(server, {"observation": [1, 1, 1, 1, 1, 1], "step": 1})
    change = "/api/campaigns/titan/"
    corrected = server.post(change + "correct", json={"step": 1, "observation": [-1] * 6}).json()["status"]
    assert (corrected["history"][0]["observation"], corrected["corrected"]) == ([-1] * 6, 1)
    skipped = server.post(change + "skip", json={"reason": "flooded", "step": 2}).json()["status"]
    assert (skipped["skipped"], skipped["query"] != corrected["query"]) == (1, True)
    attached = server.post(change + "attach", json={"query": [0.5] * 6, "observation": [1] * 6}).json()["status"]
    assert attached["attached"] == 1
    copy = server.post(change + "fork", json={"name": "titan-2"})
    assert copy.status_code == 201
    assert copy.json()["status"] == attached
    for version in range(4, 8):
        undone = server.post(change + "undo", json={"expected_version": version}).json()["status"]
    assert undone["query"] == first["query"]
    fault(server.post(change + "undo", json={"expected_version": 8}), 409, "campaign")
    log = server.get(change + "log").json()["events"]
    assert [entry["position"] for entry in log] == list(range(8))
    assert not any(entry["in_force"] for entry in log)
    assert len(server.get("/api/campaigns/titan-2/log").json()["events"]) == 4
    exported = server.get(change + "export")
    assert exported.json()["status"] == undone
    assert "titan.json" in exported.headers["content-disposition"]


def test_a_value_sent_twice_is_recorded_once(server: TestClient) -> None:
    one = tell(server, {"observation": [1] * 6, "expected_version": 0}, key="k1")
    two = tell(server, {"observation": [1] * 6, "expected_version": 0}, key="k1")
    assert one.json() == two.json()
    assert one.json()["status"]["version"] == 1
    fault(tell(server, {"observation": [-1] * 6, "expected_version": 0}, key="k1"), 422, "key")


def test_two_people_at_one_campaign(server: TestClient) -> None:
    assert tell(server, {"observation": [1] * 6, "expected_version": 0}).status_code == 200
    late = fault(tell(server, {"observation": [-1] * 6, "expected_version": 0}), 409, "expected_version")
    assert [entry["event"]["observation"] for entry in late["since"]] == [[1] * 6]
    assert late["now"]["status"] == server.get("/api/campaigns/titan").json()["status"]
    assert late["now"]["status"]["version"] == 1


def test_a_value_says_which_query_it_answers(server: TestClient) -> None:
    asked = server.get("/api/campaigns/titan/ask").json()
    missing = fault(tell(server, {"observation": [1] * 6}), 422, "expected_version")
    assert "the step or the query" in missing["message"]
    fault(tell(server, {"observation": [1] * 6, "step": 2}), 409, "step")
    other = fault(tell(server, {"observation": [1] * 6, "query": [0.987] * 6}), 409, "query")
    assert other["now"]["status"]["query"] == asked["query"]
    assert tell(server, {"observation": [1] * 6, "query": asked["query"], "step": 1}).status_code == 200
    fault(tell(server, {"observation": [1] * 6, "query": asked["query"]}), 409, "query")
    fault(tell(server, {"observation": [1] * 6, "step": 1}), 409, "step")
    assert server.get("/api/campaigns/titan").json()["status"]["version"] == 1


def test_a_campaign_named_after_another_does_not_take_its_values(server: TestClient) -> None:
    titan = server.get("/api/campaigns/titan").json()["campaign"]["id"]
    fault(server.post("/api/campaigns", json=NEW | {"name": titan}), 422, "name")
    fault(server.post("/api/campaigns/titan/fork", json={"name": titan.upper()}), 422, "name")
    assert server.post("/api/campaigns", json=NEW | {"name": titan[:8]}).status_code == 201
    fault(tell(server, {"observation": [1] * 6, "step": 1}, name=titan[:8]), 404, "campaign")
    assert tell(server, {"observation": [1] * 6, "step": 1}, name=titan).json()["campaign"]["name"] == "titan"
    assert server.get(f"/api/campaigns/name:{titan[:8]}").json()["status"]["version"] == 0
    assert server.get(f"/api/campaigns/id:{titan[:8]}").json()["status"]["version"] == 1


@pytest.mark.parametrize("reason", ["\\ud800", "a\\udfffb", "\\u0085", "\\u001b[2J"])
def test_a_reason_that_cannot_be_shown_is_refused(server: TestClient, reason: str) -> None:
    content, headers = f'{{"reason": "{reason}", "step": 1}}', {"Content-Type": "application/json"}
    fault(server.post("/api/campaigns/titan/skip", content=content, headers=headers), 422, "reason")
    for rest in ("", "/log", "/plot", "/export"):
        assert server.get(f"/api/campaigns/titan{rest}").status_code == 200


def test_a_log_with_a_hole_is_no_answer(server: TestClient, store: Store, tmp_path: Path) -> None:
    for step in (1, 2):
        assert tell(server, {"observation": [1] * 6, "step": step}).status_code == 200
    with sqlite3.connect(tmp_path / "campaigns.db") as file:
        file.execute("DELETE FROM cicpe_events WHERE position = 0")
    fresh = TestClient(make_app(store), base_url=HERE)
    for rest in ("", "/log", "/plot", "/export"):
        assert "are missing" in fault(fresh.get(f"/api/campaigns/titan{rest}"), 503, "store")["message"]


def test_what_another_process_did_is_seen(server: TestClient, tmp_path: Path) -> None:
    """The cache is by version: a change that did not come through this server counts at once."""
    before = server.get("/api/campaigns/titan").json()["status"]
    place = tmp_path / "campaigns.db"
    assert main(["session", "tell", *"111111", "-c", "titan", "-s", "1", "--store", str(place), "--json"]) == 0
    after = server.get("/api/campaigns/titan").json()["status"]
    assert (before["version"], after["version"], after["history"][0]["observation"]) == (0, 1, [1] * 6)


def test_a_folder_does_not_take_the_name_of_another_model(store: Store, tmp_path: Path) -> None:
    make_app(store, models=[tmp_path / "a" / "mine", tmp_path / "a" / "mine"])
    for folders in ([tmp_path / MODEL], [tmp_path / "a" / "mine", tmp_path / "b" / "mine"]):
        with pytest.raises(InvalidInput, match="is another model of this server"):
            make_app(store, models=folders)


def test_models(server: TestClient) -> None:
    names = server.get("/api/models").json()["models"]
    assert MODEL in names
    about = server.get(f"/api/models/{MODEL}").json()
    assert (about["problem"], about["queries"], about["observations"]) == ("binary-search", 6, 6)
    assert about["context"][0]["name"] == "noise"
    fault(server.get("/api/models/nothing"), 404, "model")


# Values that cannot be.

BAD = [
    ('{"observation": [NaN, 1, 1, 1, 1, 1]}', "observation"),
    ('{"observation": [Infinity, 1, 1, 1, 1, 1]}', "observation"),
    ('{"observation": [1e39, 1, 1, 1, 1, 1], "step": 1}', "observation"),
    ('{"observation": ["1", 1, 1, 1, 1, 1], "step": 1}', "observation"),
    ('{"observation": [null, 1, 1, 1, 1, 1]}', "observation"),
    ('{"observation": 1, "confirm": "yes"}', "confirm"),
    ('{"observation": [1], "step": 1}', "observation"),
    ('{"observation": 1}', "expected_version"),
    ('{"observation": 1, "step": 0}', "step"),
    ('{"observation": 1, "step": 1.0}', "step"),
    ('{"observation": 1, "query": [1]}', "query"),
    ('{"observation": "\\ud800"}', "observation"),
    ("{}", "observation"),
    ('{"observation": 1, "expected_version": -1}', "expected_version"),
    ('{"observation": 1, "expected_version": 99999999999999999999}', "expected_version"),
    ('{"observation": 1, "colour": "red"}', "colour"),
    ("[]", "body"),
]


@pytest.mark.parametrize(("content", "field"), BAD, ids=[content for content, _ in BAD])
def test_a_bad_value_is_refused_by_name(server: TestClient, content: str, field: str) -> None:
    headers = {"Content-Type": "application/json"}
    fault(server.post("/api/campaigns/titan/tell", content=content, headers=headers), 422, field)
    assert server.get("/api/campaigns/titan").json()["status"]["version"] == 0


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, '{"observation": ' + "9" * 10_000 + "}", "\xff"])
def test_what_is_no_json_is_refused(server: TestClient, content: str) -> None:
    headers = {"Content-Type": "application/json"}
    said = server.post("/api/campaigns/titan/tell", content=content.encode("latin-1"), headers=headers)
    assert said.status_code in (400, 422)
    assert said.json()["message"]


WISHES = [
    ({"epsilon": 1e9}, "epsilon"),
    ({"epsilon": 0}, "epsilon"),
    ({"delta": 1}, "delta"),
    ({"delta": 1e-9}, "delta"),
    ({"name": "../x"}, "name"),
    ({"name": "titan"}, "name"),
    ({"model": "/etc"}, "model"),
    ({"seed": -1}, "seed"),
    ({"stop": "never"}, "stop"),
    ({"context": {"noise": 9.0}}, "noise"),
    ({"context": {"seed": 1.0}}, "context"),
    ({"context": {"self": 1.0}}, "context"),
]


@pytest.mark.parametrize(("wish", "field"), WISHES, ids=[str(wish) for wish, _ in WISHES])
def test_a_campaign_that_cannot_be(server: TestClient, wish: dict[str, Any], field: str) -> None:
    fault(server.post("/api/campaigns", json=NEW | {"name": "europa"} | wish), 422, field)
    assert len(server.get("/api/campaigns").json()["campaigns"]) == 1


def test_out_of_range(server: TestClient) -> None:
    where = {"query": [1.5] * 6, "observation": [1] * 6}
    fault(server.post("/api/campaigns/titan/attach", json=where), 422, "query")
    fault(server.post("/api/campaigns/titan/correct", json={"step": 1, "observation": [1] * 6}), 422, "step")
    fault(server.post("/api/campaigns/titan/skip", json={"reason": "a\u0000b", "step": 1}), 422, "reason")
    fault(server.post("/api/campaigns/titan/skip", json={"reason": "flooded"}), 422, "expected_version")
    fault(server.post("/api/campaigns/titan/undo", json={}), 422, "expected_version")
    fault(tell(server, {"observation": [1] * 6, "step": 1}, key="k" * 201), 422, "Idempotency-Key")


@pytest.mark.parametrize("name", ["nothing", "%00", "a b", "-", "x" * 64])
def test_a_campaign_that_is_not_there(server: TestClient, name: str) -> None:
    for rest in ("", "/ask", "/log", "/plot", "/export"):
        assert server.get(f"/api/campaigns/{name}{rest}").status_code == 404
    assert tell(server, {"observation": [1] * 6}, name=name).status_code == 404


def test_a_model_that_has_changed_is_a_conflict(store: Store) -> None:
    store.create(name="old", model=MODEL, model_sha256="0" * 64, epsilon=0.2, delta=0.1)
    store.create(name="gone", model="/nowhere", model_sha256="0" * 64, epsilon=0.2, delta=0.1)
    client = TestClient(make_app(store), base_url=HERE)
    assert "put the first one back" in fault(client.get("/api/campaigns/old"), 409, "model")["message"]
    assert client.get("/api/campaigns/gone").status_code == 422
    assert client.get("/api/campaigns/old/log").status_code == 200


# Who may talk to it.


def test_only_this_machine_by_its_own_name(server: TestClient) -> None:
    for host in ("127.0.0.1", "127.0.0.1:99", "localhost:8642", "[::1]:8642", "LOCALHOST"):
        assert server.get("/api/campaigns", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "192.168.0.7", "", "[::2]", "localhost@evil.example"):
        for path in ("/api/campaigns", "/"):
            fault(server.get(path, headers={"Host": host}), 403, "Host")


def test_only_from_its_own_page(server: TestClient) -> None:
    broken = ("http://[", "http://[::1", "//", "http://127.0.0.1:8642]", "\xff", "http://a]b[")
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://localhost:8642", *broken):
        said = server.post("/api/campaigns", json=NEW | {"name": "other"}, headers={"Origin": origin.encode("latin-1")})
        fault(said, 403, "Origin")
    assert server.post("/api/campaigns", json=NEW | {"name": "other"}, headers={"Origin": HERE}).status_code == 201


def test_other_hosts_need_a_token(store: Store) -> None:
    for hosts in (["0.0.0.0"], ["lab.example"], ["127.0.0.1", "192.168.0.7"]):
        with pytest.raises(InvalidInput, match="token"):
            make_app(store, hosts=hosts)
    client = TestClient(make_app(store, "a long secret", ["lab.example"]), base_url="http://lab.example")
    for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic a long secret"}):
        fault(client.get("/api/campaigns", headers=header), 401, "Authorization")
    assert client.get("/api/campaigns", headers={"Authorization": "Bearer a long secret"}).status_code == 200
    assert client.get("/").status_code == 200  # the page itself holds no secret
    everywhere = make_app(store, "a long secret", ["0.0.0.0"])
    right = {"Authorization": "Bearer a long secret"}
    by_address = TestClient(everywhere, base_url="http://192.168.0.7:8642", headers=right)
    assert by_address.get("/api/campaigns").status_code == 200
    fault(TestClient(everywhere, base_url="http://evil.example", headers=right).get("/api/campaigns"), 403, "Host")


def test_the_largest_body(server: TestClient) -> None:
    padding = " " * (BODY_LIMIT - len('{"step": 1, "observation": 1}'))
    headers = {"Content-Type": "application/json"}
    just = server.post(
        "/api/campaigns/titan/tell", content='{"step": 1, "observation": 1' + padding + "}", headers=headers
    )
    fault(just, 422, "observation")  # read, and found to be one number of six
    fault(server.post("/api/campaigns/titan/tell", content=b" " * (BODY_LIMIT + 1), headers=headers), 413, "body")

    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 100_000

    fault(server.post("/api/campaigns/titan/tell", content=chunks(), headers=headers), 413, "body")


# The page and the schema.


def test_the_page_loads_nothing_from_elsewhere(server: TestClient) -> None:
    page = server.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for file in sorted(WEB.iterdir()):
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/", "")  # the name of SVG, not an address
        assert "http://" not in text
        assert "https://" not in text
        assert server.get(f"/{file.name}").status_code == 200
    assert server.get("/../pyproject.toml").status_code == 404


def test_the_schema_says_what_every_route_takes_and_gives(server: TestClient) -> None:
    schema = server.get("/api/openapi.json").json()
    routes = [(path, method) for path, known in schema["paths"].items() for method in known]
    assert len(routes) == 26
    for path, method in routes:
        known = schema["paths"][path][method]
        assert known["summary"]
        assert known["description"]
        assert "422" in known["responses"]
        assert all("application/json" in answer["content"] for answer in known["responses"].values())
    assert server.get("/docs").status_code == server.get("/redoc").status_code == 404


FUZZ = REPOSITORY / "benchmarks" / "fuzz_server.py"


@pytest.fixture
def fuzz() -> Any:
    pytest.importorskip("schemathesis")
    spec = importlib.util.spec_from_file_location("fuzz_server", FUZZ)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
def test_no_request_breaks_it(store: Store, fuzz: Any) -> None:
    """A few hostile requests made from the schema; ``benchmarks/fuzz_server.py`` makes thousands."""
    report = fuzz.fuzz_server(make_app(store), 150)
    assert report.cases >= 150
    assert not report.failures, json.dumps(report.failures[:3], indent=1)
    assert {200, 201, 404, 422} <= set(report.codes)


@pytest.mark.filterwarnings("ignore")
def test_a_server_that_breaks_is_found(store: Store, fuzz: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: one route that fails, one that answers what it did not promise."""
    monkeypatch.setattr(type(store), "campaigns", lambda self: 1 / 0)
    report = fuzz.fuzz_server(make_app(store), 60)
    assert {failure["code"] for failure in report.failures} == {500}


# The command.


def test_serve_refuses_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    base = ["serve", "--store", str(tmp_path / "c.db")]
    for words, field in (
        (["--host", "0.0.0.0"], "token"),
        (["--name", "lab.example"], "token"),
        (["--host", "0.0.0.0", "--token", "short"], "token"),
        (["--port", "70000"], "port"),
        (["--port", "x"], "whole number"),
        (["--model", str(tmp_path)], "model"),
        (["--host", "no.such.host.invalid", "--token", "long enough"], "host"),
    ):
        assert main([*base, *words]) == 2
        assert field in capsys.readouterr().err


def test_serve_names_the_extra_that_it_misses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "--store", str(tmp_path / "c.db")]) == 2
    assert "pip install 'cicpe[server]'" in capsys.readouterr().err


def test_serve_answers_and_ends(tmp_path: Path) -> None:
    words = ["serve", "--port", "0", "--store", str(tmp_path / "c.db")]
    with subprocess.Popen([sys.executable, "-m", "cicpe", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        assert httpx.get(address + "api/campaigns").json() == {"campaigns": []}
        process.terminate()
        assert process.wait(timeout=20) in (0, -15)


def test_what_cannot_be_read_is_refused_in_words(server: TestClient) -> None:
    wish = {"name": "two words", "model": "binary-search-6d", "epsilon": 0.2, "delta": 0.1}
    refused = server.post("/api/campaigns", json=wish)
    assert refused.status_code == 422
    assert refused.json()["allowed"].startswith("1 to 64 letters, digits")
    assert "pattern" not in refused.text
    long = server.post("/api/campaigns", json=wish | {"name": "long", "model": "m" * 300})
    assert long.json()["allowed"] == "of at most 200 characters"
