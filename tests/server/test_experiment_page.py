"""New experiments in a real browser: from the form, or a file, to a campaign that has stopped."""

import csv
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from browsing import in_a_browser, new_tab, serving
from cicpe.experiments import Experiment
from cicpe.server import training
from cicpe.server.app import make_app
from cicpe.server.experiment_schemas import TrainingWish
from cicpe.sessions.stores import open_store
from easy_experiments import EASY, SHORT, Laboratory, easy_text

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Locator, Page, Route, expect

pytestmark = in_a_browser
PATIENT = 600_000
"""Milliseconds that a training may take here, on a busy machine."""


def quickly(wish: TrainingWish) -> dict[str, Any]:
    """Training in seconds, as what it is called asks for."""
    kind = next((how for name, (how, _) in EASY.items() if wish.name.startswith(name)), "particles")
    return {"calibration_episodes": 100, "seed": wish.seed, **SHORT[kind]}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that trains in seconds."""
    folder = tmp_path_factory.mktemp("experiments")
    store = open_store(folder / "campaigns.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "how_to_train", quickly)
        with serving(make_app(store, trained=folder / "models")) as place:
            yield place
    store.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with new_tab(browser, address) as one:
        yield one


def field(page: Page, path: str) -> Locator:
    """The part of the form that says something of the experiment."""
    return page.locator(f'[data-path="{path}"]')


def fill(page: Page, path: str, *values: str) -> None:
    boxes = field(page, path).locator("input")
    for i, value in enumerate(values):
        boxes.nth(i).fill(value)


def understood(page: Page) -> Locator:
    return page.locator("#understood")


# The form and what it means.


def test_an_empty_start_says_what_to_do_first(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="What to do first")).to_be_visible()
    expect(page.locator(".templates li")).to_have_count(12)
    page.get_by_role("link", name="Half-life of a decay").click()
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible()
    expect(understood(page)).to_contain_text("You choose time, 0 to 48 h in steps of 0.25")
    page.goto("/")
    page.get_by_role("link", name="Describe your experiment").click()
    expect(understood(page)).to_contain_text("You look for the x with the highest value")


def test_the_picture_follows_the_form(page: Page) -> None:
    page.goto("/#/new/peak-1d")
    picture = page.locator("#picture svg")
    expect(picture.locator(".panel")).to_have_count(8)
    expect(picture).to_have_attribute("aria-label", "Eight experiments of this kind: value over x.")
    curve = "document.querySelector('#picture .line').getAttribute('d')"
    few = page.evaluate(curve)
    field(page, "model/bumps").locator("select").select_option("many")
    expect(understood(page)).to_contain_text("changes much over 6 to 14 of x")
    assert page.evaluate(curve) != few
    fill(page, "setting/0/name", "angle")
    fill(page, "setting/0/unit", "deg")
    fill(page, "setting/0/range", "-90", "90")
    expect(understood(page)).to_contain_text("You choose angle, -90 to 90 deg")
    expect(picture).to_contain_text("angle (deg)")
    many = page.evaluate(curve)
    page.get_by_role("button", name="Eight others").click()
    expect(page.locator("#picture .line").first).not_to_have_attribute("d", many)
    page.get_by_role("button", name="Add another setting").click()
    expect(field(page, "setting/1/name")).to_contain_text("Must be")
    fill(page, "setting/1/name", "depth")
    fill(page, "setting/1/range", "0,5", "20")  # a decimal comma
    field(page, "setting/1/scale").locator("select").select_option("log")
    fill(page, "goal/within/angle", "30")
    fill(page, "goal/within/depth", "50 %")
    expect(understood(page)).to_contain_text("within 30 deg of angle and 50 % of depth")
    expect(picture).to_contain_text("depth")
    expect(page.locator("#file")).to_contain_text('within = { angle = 30, depth = "50 %" }')


def test_a_formula_asks_for_what_it_does_not_know(page: Page) -> None:
    page.goto("/#/new/peak-1d")
    expect(page.locator("#picture .panel")).to_have_count(8)
    fill(page, "setting/0/name", "s")
    fill(page, "setting/0/range", "0.05", "20")
    field(page, "model/kind").locator("select").select_option("formula")
    fill(page, "model/formula", "vmax * s / (km + s)")
    expect(page.locator("#parameters legend")).to_have_text(["vmax", "km"])
    expect(field(page, "model/parameters/km/range")).to_contain_text("Must be a valid number")
    fill(page, "model/parameters/vmax/range", "2", "10")
    fill(page, "model/parameters/km/range", "0.1", "5")
    field(page, "model/parameters/km/scale").locator("select").select_option("log")
    fill(page, "model/parameters/km/unit", "mM")
    fill(page, "measurement/noise", "0.1", "")
    fill(page, "goal/find", "km")
    field(page, "goal/find").locator("input").blur()
    fill(page, "goal/within", "20 %")
    expect(understood(page)).to_contain_text("Its mean is vmax * s / (km + s), with vmax 2 to 10 and km 0.1 to 5 mM")
    fill(page, "model/formula", "vmax * s / (km + s")
    expect(field(page, "model/formula")).to_contain_text("Must be")
    expect(page.locator("#stale")).to_contain_text("As it was before")
    fill(page, "model/formula", "vmax * s / (5 + s)")
    expect(page.locator("#parameters legend")).to_have_text(["vmax"])
    expect(field(page, "goal/find")).to_contain_text("Must be")


def test_all_faults_stand_at_their_fields_at_once(page: Page) -> None:
    page.goto("/#/new/peak-2d")
    expect(page.locator("#picture .panel")).to_have_count(8)
    train = page.get_by_role("button", name="Train")
    expect(train).to_be_enabled()
    fill(page, "setting/0/range", "1100", "400")
    fill(page, "setting/1/step", "fast")
    fill(page, "measurement/name", "")
    fill(page, "goal/at_most", "9999")
    for path, words in (
        ("setting/0/range", "Must be two numbers, the lower one first."),
        ("setting/1/step", "Must be a valid number."),
        ("measurement/name", "Must be given."),
        ("goal/at_most", "Must be less than or equal to 2000."),
    ):
        expect(field(page, path).locator(".error")).to_have_text(words)
        expect(field(page, path).locator("input").first).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#fault-count")).to_have_text("4 things are not right yet: see the fields.")
    expect(train).to_be_disabled()
    expect(page.get_by_role("button", name="Download the file")).to_be_disabled()
    page.reload()  # nothing that was typed is lost
    expect(field(page, "setting/1/step").locator("input")).to_have_value("fast")
    expect(page.locator("#fault-count")).to_be_visible()
    fill(page, "setting/0/range", "400", "1100")
    fill(page, "setting/1/step", "1")
    fill(page, "measurement/name", "hardness")
    fill(page, "goal/at_most", "60")
    expect(page.locator("#fault-count")).to_have_count(0)
    expect(page.locator(".parts .error:visible")).to_have_count(0)
    expect(train).to_be_enabled()


def test_templates_and_files_go_in_and_out(page: Page, tmp_path: Path) -> None:
    page.goto("/#/new/peak-1d")
    expect(understood(page)).to_contain_text("the x with the highest value")
    page.get_by_label("Begin with a template").select_option("ec50")
    expect(understood(page)).to_contain_text("You look for ec50, within 40 %")
    page.get_by_role("button", name="Put back what was there").click()
    expect(understood(page)).to_contain_text("the x with the highest value")
    mine = tmp_path / "mine.toml"
    mine.write_text(easy_text("delay-discounting"), encoding="utf-8")
    chooser = page.locator("input[type=file]")
    chooser.set_input_files(mine)
    expect(page.locator("#file")).to_contain_text("choosiness")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download the file").click()
    assert saved.value.suggested_filename.endswith(".toml")
    assert Experiment.read(saved.value.path()) == Experiment.read(mine)
    mine.write_text(easy_text("peak-1d").replace('"peak"', '"peek"'), encoding="utf-8")
    chooser.set_input_files(mine)
    expect(page.locator("#opened")).to_contain_text(re.compile(r"line \d+: goal find must be one of peak"))
    expect(field(page, "goal/find")).to_contain_text("did you mean peak?")
    mine.write_text("title = \n[[", encoding="utf-8")
    chooser.set_input_files(mine)
    expect(page.locator("#opened")).to_contain_text("mine.toml cannot be read")
    expect(page.locator("#opened")).to_contain_text("line 1")


@pytest.mark.parametrize("width", [360, 768])
def test_nothing_is_cut_off_on_a_small_screen(browser: Browser, address: str, width: int) -> None:
    with new_tab(browser, address, width=width, touch=True) as small:
        for name in ("peak-2d", "psychometric-2afc", "ec50"):
            small.goto(f"/#/new/{name}")
            expect(small.locator("#picture .panel")).to_have_count(8)
            assert small.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            outside = """() => [...document.querySelectorAll("input:not([type=file]), select, button, svg")].filter(
                (one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML)"""
            assert small.evaluate(outside) == []
            nameless = """() => [...document.querySelectorAll("input, select, button")].filter((one) =>
                !(one.labels?.length || one.textContent.trim() || one.ariaLabel)).map((one) => one.outerHTML)"""
            assert small.evaluate(nameless) == []


# Training.


def to_training(page: Page, address: str, title: str) -> None:
    page.goto(f"{address}/#/new/peak-1d")
    fill(page, "title", title)
    expect(page.locator("#file")).to_contain_text(f'title = "{title}"')
    page.get_by_role("button", name="Train").click()


def test_a_training_is_shown_cancelled_and_alone(browser: Browser, pretender: Path, tmp_path: Path) -> None:
    store, models = open_store(tmp_path / "c.db"), tmp_path / "models"
    with serving(make_app(store, trained=models)) as place, new_tab(browser, place) as page:
        to_training(page, place, "waits")
        expect(page.get_by_role("heading", name="Training")).to_be_visible()
        expect(page.locator("progress")).to_be_visible()
        expect(page.locator(".progress")).to_contain_text("about 5 min left: pretending")
        expect(page.locator("#tried")).to_have_text("tried nothing")
        with new_tab(browser, place) as other:
            to_training(other, place, "quick")
            expect(other.locator("#train-error")).to_contain_text("waits is being trained: about 5 min are left")
            other.get_by_role("link", name="Show it").click()
            expect(other.locator("progress")).to_be_visible()
            other.goto("/")
            expect(other.locator("#training")).to_contain_text("waits is being trained.")
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("heading", name="The training was cancelled")).to_be_visible()
        assert list(models.iterdir()) == []
        page.get_by_role("button", name="Back to the experiment").click()
        expect(field(page, "title").locator("input")).to_have_value("waits")
        to_training(page, place, "fails")
        expect(page.get_by_role("heading", name="The training failed")).to_be_visible()
        expect(page.locator("main")).to_contain_text("nothing can be learnt of this")
        assert list(models.iterdir()) == []
    store.close()


def serve(folder: Path, port: int) -> "subprocess.Popen[bytes]":
    words = ["serve", "--port", port, "--store", folder / "c.db", "--trained", folder / "models"]
    process = subprocess.Popen([sys.executable, "-m", "cicpe", *map(str, words)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"http")
    return process


def test_a_server_that_is_killed_in_the_middle_loses_no_experiment(browser: Browser, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    models, place = tmp_path / "models", f"http://127.0.0.1:{port}"
    first = serve(tmp_path, port)
    with first, new_tab(browser, place) as page:
        to_training(page, place, "Long")
        expect(page.locator(".progress")).to_be_visible()
        first.kill()
        first.wait()
        expect(page.locator("#connection")).to_contain_text("offline")
        assert [path.name.startswith(training.BEGUN) for path in models.iterdir()] == [True]
        with serve(tmp_path, port) as second:
            try:
                # The worker ends with its server; whoever starts sooner leaves it alone.
                expect(page.get_by_role("heading", name=re.compile("interrupted|No training"))).to_be_visible()
                if page.get_by_role("heading", name="interrupted").is_visible():
                    assert list(models.iterdir()) == []
                    page.get_by_role("button", name="Back to the experiment").click()
                    expect(field(page, "title").locator("input")).to_have_value("Long")
            finally:
                second.terminate()


# Whole campaigns.


def measure_to_the_stop(page: Page, address: str, name: str, lab: Laboratory) -> dict[str, Any]:
    """Types what a laboratory measures until the campaign stops."""
    for step in range(1, 30):
        status: dict[str, Any] = httpx.get(f"{address}/api/campaigns/{name}", timeout=60).json()["status"]
        if status["stopped"]:
            return status
        expect(page.get_by_role("heading", name=f"Query {step}")).to_be_visible()
        first = lab.units.settings[0]
        expect(page.locator(".query .coordinates dt").first).to_have_text(first.name)
        expect(page.locator(".query .coordinates dd").first).to_contain_text(first.unit)
        value = lab.measure(status["query"])
        if value in ("yes", "no"):
            page.get_by_role("button", name=value.capitalize(), exact=True).click()
        else:
            page.locator("#observe-0").fill(value)
            page.keyboard.press("Enter")
        expect(page.locator(".history tbody tr")).to_have_count(step)
    raise AssertionError("it does not stop")


def train_and_measure(page: Page, address: str, name: str) -> None:
    """From a form without faults to a campaign that has stopped with an answer in units."""
    page.get_by_label("Name of the campaign").fill(name)
    expect(page.get_by_role("button", name="Train")).to_be_enabled()
    page.get_by_role("button", name="Train").click()
    expect(page.get_by_role("heading", name="Training")).to_be_visible()
    assert httpx.get(f"{address}/api/campaigns", timeout=30).status_code == 200  # meanwhile
    expect(page.get_by_role("heading", name="Trained")).to_be_visible(timeout=PATIENT)
    expect(page.locator("main")).to_contain_text(re.compile(r"Expect about \d+ measurements, and at most \d+"))
    page.get_by_role("button", name="Begin the campaign").click()
    expect(page.locator(".query")).to_contain_text(re.compile(r"about \d+ more to expect, at most \d+"))
    about = httpx.get(f"{address}/api/models/{name}", timeout=60)
    assert about.status_code == 200, about.text
    options = about.json()["options"]
    lab = Laboratory(Experiment.from_document(options["experiment"]).problem(), 0)
    status = measure_to_the_stop(page, address, name, lab)
    expect(page.locator("#state")).to_have_text(re.compile("stopped|out of queries"))
    answer = lab.units.answers[0]
    expect(page.locator(".result .coordinates dt").first).to_have_text(answer.name)
    expect(page.locator("#confidence")).to_contain_text("measurements")
    assert status["units"]["title"] == lab.units.title
    with page.expect_download() as saved:
        page.locator(".result").get_by_role("button", name="Table (CSV)").click()
    rows = list(csv.DictReader(saved.value.path().read_text(encoding="utf-8").splitlines()))
    assert len(rows) == len(status["history"])
    assert lab.units.settings[0].name in rows[0]


def test_from_the_form_to_a_stopped_campaign(page: Page, address: str) -> None:
    page.goto("/#/new/peak-1d")
    fill(page, "measurement/noise", "1", "")
    field(page, "model/bumps").locator("select").select_option("one")
    fill(page, "goal/within", "20")
    fill(page, "goal/sure", "70 %")
    fill(page, "goal/at_most", "6")
    expect(understood(page)).to_contain_text("within 20, 70 % sure, after at most 6 measurements")
    train_and_measure(page, address, "peak-1d-form")


@pytest.mark.slow  # about a minute each; the form above is taken to its end in every run of the tests
@pytest.mark.parametrize("name", EASY)
def test_from_a_file_to_a_stopped_campaign(page: Page, address: str, tmp_path: Path, name: str) -> None:
    """The six files of ``tests/cli/test_experiments.py``, on the page."""
    file = tmp_path / "mine.toml"
    file.write_text(easy_text(name).replace("at_most = 14", "at_most = 6"), encoding="utf-8")
    page.goto("/#/new")
    page.locator("input[type=file]").set_input_files(file)
    expect(page.locator("#file")).to_contain_text(re.compile(r"at_most = 6(?!\d)"))  # not the 60 of the form before
    train_and_measure(page, address, name)


@pytest.mark.slow  # five minutes each, as a person would
@pytest.mark.parametrize("name", EASY)
def test_from_a_template_to_a_stopped_campaign_in_five_minutes(browser: Browser, tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / "c.db")
    with serving(make_app(store, trained=tmp_path / "models")) as place, new_tab(browser, place) as page:
        page.goto(f"{place}/#/new/{name}")
        train_and_measure(page, place, name)
    store.close()


# What a campaign can do beside.


def begin(address: str, name: str) -> None:
    body = {"name": name, "model": "gp-max-1d", "epsilon": 0.2, "delta": 0.1}
    assert httpx.post(f"{address}/api/campaigns", json=body, timeout=120).status_code == 201


def test_a_run_that_looks_spoilt_is_begun_anew(page: Page, address: str) -> None:
    begin(address, "odd")

    def odd(route: Route) -> None:
        view = route.fetch().json()
        view["status"] |= {"in_prior": "no", "p_value": 0.004}
        route.fulfill(json=view)

    page.route("**/api/campaigns/name%3Aodd", odd)
    page.goto("/#/c/odd")
    expect(page.locator("[data-notice=alarm]")).to_contain_text("this run looks spoilt: begin it anew")
    page.get_by_role("button", name="Restart").click()
    expect(page.get_by_role("heading", name="odd-2")).to_be_visible()
    expect(page.get_by_role("heading", name="Query 1")).to_be_visible()
    page.goto("/#/c/odd")
    page.get_by_role("button", name="Restart").click()
    expect(page.get_by_role("heading", name="odd-3")).to_be_visible()


def test_a_table_is_opened_on_the_page(page: Page, address: str, tmp_path: Path) -> None:
    begin(address, "earlier")
    table = tmp_path / "before.csv"
    table.write_text("x1,y\n0.25,0.5\n7,0.75\n", encoding="utf-8")
    page.goto("/#/c/earlier")
    page.get_by_text("Add measurements made elsewhere").click()
    expect(page.locator(".table-in")).to_contain_text("names the columns x1, y.")
    page.locator(".table-in input[type=file]").set_input_files(table)
    expect(page.locator("#table-error")).to_contain_text("row 2: query")
    table.write_text("x1,y\n0.25,0.5\n0.75,60.7\n", encoding="utf-8")
    page.locator(".table-in input[type=file]").set_input_files(table)
    expect(page.locator("#table-error")).to_contain_text("open the file once more")
    page.locator(".table-in input[type=file]").set_input_files(table)
    expect(page.locator(".history tbody tr")).to_have_count(2)
    expect(page.locator(".history")).to_contain_text("measured elsewhere")


def test_the_server_that_cannot_train_says_so(browser: Browser, tmp_path: Path) -> None:
    store = open_store(tmp_path / "c.db")
    with serving(make_app(store)) as place, new_tab(browser, place) as page:
        page.goto(f"{place}/#/new")
        expect(page.locator(".train")).to_contain_text("cannot train")
        expect(page.get_by_role("button", name="Train")).to_have_count(0)
    store.close()


def test_training_does_not_hold_up_the_server(address: str) -> None:
    """A real training under way, and a hundred answers meanwhile."""
    document = Experiment.from_toml(easy_text("peak-1d")).document
    now = httpx.post(f"{address}/api/training", json={"document": document, "name": "peak-1d-busy"}, timeout=60).json()
    began = time.monotonic()
    states = [httpx.get(f"{address}/api/training", timeout=10).json()["state"] for _ in range(100)]
    assert "running" in states
    assert time.monotonic() - began < 100
    over = httpx.post(f"{address}/api/training/cancel", json={"id": now["id"]}, timeout=60)
    assert over.status_code in (200, 409)
