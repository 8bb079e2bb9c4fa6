"""The page in a real browser: a whole campaign to its stop, a correction, two tabs that collide, a bad value."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from browsing import in_a_browser, new_tab, serving
from cicpe.server.app import make_app
from cicpe.sessions.stores import open_store

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, Route, expect  # noqa: E402

pytestmark = in_a_browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a free port."""
    store = open_store(tmp_path_factory.mktemp("web") / "campaigns.db")
    with serving(make_app(store)) as place:
        yield place
    store.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with new_tab(browser, address) as one:
        yield one


def begin(address: str, name: str, model: str = "gp-max-1d") -> None:
    body = {"name": name, "model": model, "epsilon": 0.2, "delta": 0.1}
    assert httpx.post(f"{address}/api/campaigns", json=body, timeout=120).status_code == 201


def entries(address: str, name: str) -> list[dict[str, object]]:
    events: list[dict[str, object]] = httpx.get(f"{address}/api/campaigns/{name}/log").json()["events"]
    return events


def test_a_whole_campaign_by_keyboard(page: Page, address: str) -> None:
    page.goto("/")
    page.locator(".begin summary").click()
    page.get_by_label("Name").fill("by-hand")
    page.get_by_label("Model").select_option("gp-max-1d")
    expect(page.get_by_text("this model: 0.15 to 0.2")).to_be_visible()
    page.get_by_label("noise").fill("0.1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="by-hand")).to_be_visible()
    field = page.get_by_label("Measurement").first
    field.focus()
    made = 0
    while page.locator("#state").inner_text() == "asking":
        made += 1
        assert made <= 20
        expect(page.get_by_role("heading", name=f"Query {made}")).to_be_visible()
        place = float(page.locator(".query .huge").inner_text().replace("\u2212", "-"))
        page.keyboard.type(f"{1 - 4 * (place - 0.4) ** 2:.3f}")
        page.keyboard.press("Enter")
        # The next query, with the field in focus, or the end.
        expect(page).to_have_title(re.compile(f": (query {made + 1}|stopped|out of queries) "))
    expect(page.locator("#state")).to_have_text("stopped")
    expect(page.get_by_role("heading", name="The answer")).to_be_visible()
    answer = float(page.locator(".result .huge").inner_text())
    assert answer == pytest.approx(1.0, abs=0.3)
    expect(page.locator(".history tbody tr")).to_have_count(made)
    expect(page.locator("#live")).to_contain_text("The campaign has stopped")
    assert len(entries(address, "by-hand")) == made
    assert page.locator("#confidence svg circle").count() == made + 1
    assert page.locator("#space svg circle.seen").count() == made


def test_a_correction_and_an_undo(page: Page, address: str) -> None:
    begin(address, "typo")
    page.goto("/#/c/typo")
    page.get_by_label("Measurement").first.fill("0,5")  # a decimal comma
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_role("heading", name="Query 2")).to_be_visible()
    before = page.locator(".query .huge").inner_text()
    page.get_by_role("button", name="Correct step 1").click()
    box = page.get_by_label("What was really measured at step 1")
    box.fill("-1.25")
    page.get_by_role("button", name="Save the correction").click()
    expect(page.locator(".history")).to_contain_text("corrected, was 0.5")
    expect(page.locator(".history")).to_contain_text("\u22121.25")
    assert page.locator(".query .huge").inner_text() != before
    page.get_by_role("button", name="Undo the last entry").click()
    expect(page.locator(".history")).not_to_contain_text("corrected")
    expect(page.locator(".query .huge")).to_have_text(before)
    page.locator(".log summary").click()
    expect(page.locator(".log li.gone")).to_have_count(1)
    assert len(entries(address, "typo")) == 3


def test_two_tabs_in_conflict(page: Page, address: str) -> None:
    begin(address, "shared")
    other = page.context.new_page()
    for tab in (page, other):
        tab.goto("/#/c/shared")
        expect(tab.get_by_role("heading", name="Query 1")).to_be_visible()
    first = page.locator(".query .huge").inner_text()
    page.get_by_label("Measurement").first.fill("0.75")
    other.get_by_label("Measurement").first.fill("0.25")
    other.get_by_role("button", name="Record").click()
    expect(other.get_by_role("heading", name="Query 2")).to_be_visible()
    page.get_by_role("button", name="Record").click()
    notice = page.locator("[data-notice=conflict]")
    expect(notice).to_contain_text("told (0.25)")
    expect(notice).to_contain_text("Your value 0.75 was not recorded")
    expect(page.get_by_label("Measurement").first).to_have_value("0.75")
    assert len(entries(address, "shared")) == 1
    page.get_by_role("button", name="Show the campaign as it is now").click()
    expect(page.get_by_role("heading", name="Query 2")).to_be_visible()
    expect(page.locator("#kept")).to_contain_text(f"0.75 for the query at {first}")
    expect(page.get_by_label("Measurement").first).to_have_value("")
    page.reload()
    page.get_by_role("button", name="Record it as measured there").click()
    expect(page.locator(".history")).to_contain_text("measured elsewhere")
    expect(page.locator("#kept")).to_have_count(0)
    assert [entry["event"]["kind"] for entry in entries(address, "shared")] == ["told", "attached"]  # type: ignore[index]


def test_what_others_do_is_shown_where_nothing_is_typed(page: Page, address: str) -> None:
    begin(address, "watched")
    page.goto("/#/c/watched")
    expect(page.get_by_role("heading", name="Query 1")).to_be_visible()
    httpx.post(f"{address}/api/campaigns/watched/tell", json={"observation": 0.5, "step": 1})
    expect(page.get_by_role("heading", name="Query 2")).to_be_visible(timeout=10_000)


@pytest.mark.parametrize("typed", ["", "abc", "1e999", "NaN", "0.5.5", "1 2"])
def test_a_bad_value(page: Page, address: str, typed: str) -> None:
    name = "bad-" + re.sub(r"\W", "", typed)
    begin(address, name)
    page.goto(f"/#/c/{name}")
    field = page.get_by_label("Measurement").first
    field.fill(typed)
    page.get_by_role("button", name="Record").click()
    expect(page.locator("#observe-error")).to_contain_text("number")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()
    expect(field).to_have_value(typed)
    assert entries(address, name) == []


def test_a_value_that_only_the_server_refuses(page: Page, address: str) -> None:
    begin(address, "huge")
    page.goto("/#/c/huge")
    page.get_by_label("Measurement").first.fill("1e39")
    page.get_by_role("button", name="Record").click()
    expect(page.locator("#observe-error")).to_contain_text("observation: a finite number")
    assert entries(address, "huge") == []


def test_what_is_not_plausible_takes_a_second_click_and_the_stop_is_held(page: Page, address: str) -> None:
    begin(address, "slip")
    page.goto("/#/c/slip")
    page.get_by_label("Measurement").first.fill("60.7")
    page.get_by_role("button", name="Record").click()
    expect(page.locator("#observe-error")).to_contain_text("Is that right? Expected from")
    assert entries(address, "slip") == []
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_role("button", name="I have looked: stop all the same")).to_be_visible()
    page.get_by_role("button", name="I have looked: stop all the same").click()
    expect(page.get_by_role("heading", name="The answer")).to_be_visible()
    kinds = [entry["event"]["kind"] for entry in entries(address, "slip")]  # type: ignore[index]
    assert kinds == ["told", "released"]


def test_offline_keeps_what_was_typed(page: Page, address: str) -> None:
    begin(address, "far")
    page.goto("/#/c/far")
    field = page.get_by_label("Measurement").first
    field.fill("0.5")
    page.context.set_offline(True)
    page.get_by_role("button", name="Record").click()
    expect(page.locator("#observe-error")).to_contain_text("kept")
    expect(page.locator("#connection")).to_contain_text("offline")
    page.context.set_offline(False)
    page.reload()
    expect(field).to_have_value("0.5")
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_role("heading", name="Query 2")).to_be_visible()
    expect(page.locator("#connection")).to_be_empty()
    assert len(entries(address, "far")) == 1


def test_several_numbers_pasted_at_once_and_a_skip(page: Page, address: str) -> None:
    begin(address, "wide", "binary-search-6d")
    page.goto("/#/c/wide")
    page.get_by_label("y1").first.focus()
    page.evaluate(
        """() => { const data = new DataTransfer(); data.setData("text", "1 -1 1 -1 1 -1");
        document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true })); }"""
    )
    expect(page.get_by_label("y6").first).to_have_value("-1")
    page.get_by_role("button", name="Record").click()
    expect(page.get_by_role("heading", name="Query 2")).to_be_visible()
    page.get_by_text("It cannot be measured here").click()
    page.get_by_label("Why (for the log)").fill("flooded")
    page.get_by_role("button", name="Skip this query").click()
    expect(page.locator(".log")).to_contain_text("flooded")
    assert [entry["event"]["kind"] for entry in entries(address, "wide")] == ["told", "skipped"]  # type: ignore[index]


def test_data_unlike_the_prior_is_said_aloud(page: Page, address: str) -> None:
    begin(address, "odd")

    def odd(route: Route) -> None:
        view = route.fetch().json()
        view["status"] |= {"in_prior": "no", "p_value": 0.004}
        route.fulfill(json=view)

    page.route("**/api/campaigns/name%3Aodd", odd)
    page.goto("/#/c/odd")
    expect(page.locator("[data-notice=alarm]")).to_contain_text("does not look like")
    expect(page.locator("[data-notice=alarm]")).to_contain_text("0.4 %")


def test_every_field_and_button_has_a_name_and_can_be_reached(page: Page, address: str) -> None:
    begin(address, "reach")
    httpx.post(f"{address}/api/campaigns/reach/tell", json={"observation": 0.5, "step": 1})
    page.goto("/#/c/reach")
    expect(page.get_by_role("heading", name="Query 2")).to_be_visible()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button")].filter(
        (one) => !(one.labels?.length || one.textContent.trim() || one.ariaLabel)).map((one) => one.outerHTML)"""
    )
    assert nameless == []
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        shown = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert shown != "none", reached
    wanted = ["Skip to the content", "cicpe", "Campaigns", "observe-0", "Record", "Undo the last entry"]
    assert reached[: len(wanted)] == wanted
    assert "correct-1" in reached


@pytest.fixture
def phone(browser: Browser, address: str) -> Iterator[Page]:
    with new_tab(browser, address, width=360, touch=True) as one:
        yield one


def test_on_a_phone_numbers_stay_whole_and_nothing_is_cut_off(phone: Page, address: str) -> None:
    begin(address, "pocket", "binary-search-6d")
    httpx.post(f"{address}/api/campaigns/pocket/tell", json={"observation": [1, -1, 1, -1, 1, -1], "step": 1})
    phone.goto("/#/c/pocket")
    expect(phone.get_by_role("heading", name="Query 2")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    box = phone.locator("#correct-1").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    # A number that is broken in the middle has more than one box.
    broken = "() => [...document.querySelectorAll('.history .whole')].map((one) => one.getClientRects().length)"
    assert phone.evaluate(broken) == [1] * 12
    scrolled = "() => [...document.querySelectorAll('.scroll')].every((one) => one.scrollWidth <= one.clientWidth)"
    assert phone.evaluate(scrolled)


def test_a_phone_shows_the_keys_of_numbers_and_a_minus(phone: Page, address: str) -> None:
    begin(address, "keys")
    phone.goto("/#/c/keys")
    field = phone.get_by_label("Measurement").first
    expect(field).to_have_attribute("inputmode", "decimal")
    field.fill("1.5")
    sign = phone.get_by_role("button", name="Change the sign").first
    sign.click()
    expect(field).to_have_value("-1.5")
    sign.click()
    expect(field).to_have_value("1.5")
    phone.goto("/")
    phone.locator(".begin summary").click()
    expect(phone.get_by_label("Name")).to_have_attribute("inputmode", "text")
    expect(phone.get_by_label("How often")).to_have_attribute("inputmode", "decimal")


def test_the_map_keeps_within_its_frame_and_its_legend_names_everything(page: Page, address: str) -> None:
    begin(address, "field", "geochem-2d")
    httpx.post(f"{address}/api/campaigns/field/tell", json={"observation": 0.5, "step": 1})
    httpx.post(f"{address}/api/campaigns/field/attach", json={"query": [0.0, 1.0], "observation": -1.0})
    httpx.post(f"{address}/api/campaigns/field/correct", json={"step": 1, "observation": 0.75})
    page.goto("/#/c/field")
    expect(page.locator("#space .seen")).to_have_count(2)
    outside = """() => { const frame = document.querySelector("#space .border").getBoundingClientRect();
        return [...document.querySelectorAll("#space .seen, #space .next-ring, #space .region")].filter((one) => {
            const box = one.getBoundingClientRect();
            return box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom;
        }).map((one) => one.outerHTML); }"""
    assert page.evaluate(outside) == []
    for words in ("measured elsewhere", "corrected", "next", "answer", "90 % credible region"):
        expect(page.locator(".legend")).to_contain_text(words)
    begin(address, "plain", "geochem-2d")
    page.goto("/#/c/plain")
    expect(page.get_by_role("heading", name="Query 1")).to_be_visible()
    expect(page.locator(".legend")).not_to_contain_text("corrected")


def test_what_is_refused_is_said_in_words(page: Page, address: str) -> None:
    page.goto("/")
    page.locator(".begin summary").click()
    page.get_by_label("Name").fill("two words")
    page.get_by_label("Model").select_option("gp-max-1d")
    expect(page.get_by_text("this model: 0.15 to 0.2")).to_be_visible()
    page.get_by_role("button", name="Begin", exact=True).click()
    expect(page.locator(".begin .error")).to_contain_text("name: 1 to 64 letters, digits, dots")
    begin(address, "far-off")
    page.goto("/#/c/far-off")
    page.get_by_text("Add measurements made elsewhere").click()
    page.get_by_label("x1, 0 to 1").fill("7")
    page.locator("#attach-value-0").fill("1")
    page.get_by_role("button", name="Add it").click()
    expect(page.locator("#attach-value-error")).to_have_text("query: a number from 0 to 1.")


def test_the_interval_and_the_answer_have_the_digits_that_count(page: Page, address: str) -> None:
    begin(address, "digits")
    httpx.post(f"{address}/api/campaigns/digits/tell", json={"observation": -0.012, "step": 1})
    page.goto("/#/c/digits")
    expect(page.get_by_role("heading", name="Query 2")).to_be_visible()
    status = httpx.get(f"{address}/api/campaigns/digits").json()["status"]
    (low, high), (decimals,) = status["credible_region"][0], status["decimals"]
    assert decimals == 1
    expect(page.get_by_text(f"90 % credible interval: {low:.1f} to {high:.1f}")).to_be_visible()
    expect(page.locator(".large")).to_have_text(f"{status['recommendation'][0]:.1f}")


def test_where_it_stops_and_what_was_asked_for_are_told_apart(page: Page, address: str) -> None:
    body = {"name": "together", "model": "best-arm-5d", "epsilon": 0.02, "delta": 0.1, "stop": "confidence"}
    assert httpx.post(f"{address}/api/campaigns", json=body, timeout=120).status_code == 201
    status = httpx.get(f"{address}/api/campaigns/together").json()["status"]
    page.goto("/#/c/together")
    if f"{status['stops_at']:.2f}" != "0.90":
        expect(page.locator("#confidence")).to_contain_text("stops at")
    expect(page.locator("#confidence")).to_contain_text("asked for: 0.9")


def test_a_token_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    store = open_store(tmp_path / "c.db")
    with serving(make_app(store, token="a long secret")) as place:
        secret = browser.new_page()
        secret.goto(place)
        secret.get_by_label("Token").fill("a wrong secret")
        secret.get_by_role("button", name="Enter").click()
        expect(secret.get_by_role("alert")).to_contain_text("This token is wrong")
        secret.get_by_label("Token").fill("a long secret")
        secret.get_by_role("button", name="Enter").click()
        expect(secret.get_by_role("heading", name="Campaigns")).to_be_visible()
        secret.close()
    store.close()


def test_the_report_is_for_paper(page: Page, address: str) -> None:
    begin(address, "paper")
    httpx.post(f"{address}/api/campaigns/paper/tell", json={"observation": 0.5, "step": 1})
    page.goto("/#/c/paper")
    expect(page.get_by_role("heading", name="Query 2")).to_be_visible()
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    for hidden in ("#observe", ".top", "#correct-1"):
        expect(page.locator(hidden)).to_be_hidden()
    for shown in (".history", ".log ol", ".particulars dl"):
        expect(page.locator(shown)).to_be_visible()
    for words in ("Noise0.1", "Units", "a query is from 0 to 1", "Seed0", "Modelgp-max-1d", "Model fingerprint"):
        expect(page.locator(".particulars dl")).to_contain_text(words)
    for drawn in (".swatch.seen", "#confidence .area", ".chip"):
        exact = f"getComputedStyle(document.querySelector({drawn!r})).printColorAdjust"
        assert page.evaluate(exact) == "exact"
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
