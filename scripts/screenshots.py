"""The pictures of the page in ``docs/images``, taken from campaigns that are run here, in a real Chromium.

    cicpe train binary-search --dim 2 --noise 0.05 --epsilon 0.1 0.2 --minutes 0.9 --out runs/search-2d
    python scripts/screenshots.py runs/search-2d [--out docs/images]
    python scripts/screenshots.py                              only the picture of a new experiment

``furnace`` is the campaign of docs/tutorials/first-campaign.md: begun, typed and stopped through the page. The others
are simulated tasks of their families, told over HTTP.
"""

import argparse
import math
import random
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import torch
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from cicpe import make_problem
from cicpe.problems import TaskBatch
from cicpe.server.app import make_app
from cicpe.sessions.stores import open_store


def anneal(place: float) -> float:
    """The furnace of the tutorial."""
    noise = random.Random(place).gauss(0, 0.05)
    return round(1.5 * math.exp(-0.5 * ((place - 0.7) / 0.12) ** 2) - 0.2 + noise, 3)


def simulated(client: httpx.Client, name: str, model: str, family: str, steps: int, **options: float) -> None:
    """A few steps of a task that is drawn from a family."""
    rng = torch.Generator().manual_seed(1)
    tasks = TaskBatch.draw(make_problem(family, **options), 1, rng)
    body = {"name": name, "model": model, "epsilon": 0.2, "delta": 0.1}
    client.post("/api/campaigns", json=body).raise_for_status()
    for _ in range(steps):
        query = client.get(f"/api/campaigns/{name}/ask").json()["query"]
        values = tasks.observe(torch.tensor([query]), rng)[0].tolist()
        body = {"observation": values, "query": query}
        client.post(f"/api/campaigns/{name}/tell", json=body).raise_for_status()


def type_furnace(page: Page, steps: int) -> None:
    """Types up to this many results into the page, as a person would."""
    for _ in range(steps):
        if page.locator("#state").inner_text() != "asking":
            return
        number = int(page.locator("#h-query").inner_text().split()[1])
        place = float(page.locator(".query .huge").inner_text().replace("\u2212", "-"))
        page.get_by_label("Measurement").first.fill(str(anneal(place)))
        page.keyboard.press("Enter")
        expect(page.locator(".history tbody tr")).to_have_count(number)


def picture(browser: Browser, address: str, file: Path, width: int, scheme: str, act: Callable[[Page], None]) -> None:
    context = browser.new_context(base_url=address, viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    act(page)
    page.wait_for_timeout(500)
    page.screenshot(path=file, full_page=True)
    context.close()


def begin_furnace(page: Page) -> None:
    page.goto("/")
    page.locator(".begin summary").click()
    page.get_by_label("Name").fill("furnace")
    page.get_by_label("Model").select_option("gp-max-1d")
    expect(page.get_by_text("gp-max: 1 coordinate")).to_be_visible()
    page.get_by_label("noise").fill("0.05")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="furnace")).to_be_visible()
    type_furnace(page, 4)


def finish_furnace(page: Page) -> None:
    page.goto("/#/c/furnace")
    expect(page.get_by_role("heading", name="furnace")).to_be_visible()
    type_furnace(page, 20)


def describe_annealing(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 1500})
    page.goto("/#/new/peak-2d")
    expect(page.locator("#picture .panel")).to_have_count(8)


def take_new(address: str, out: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        picture(browser, address, out / "experiment-new.png", 1280, "light", describe_annealing)
        browser.close()


def take(address: str, model: str, out: Path) -> None:
    with httpx.Client(base_url=address, timeout=60) as client:
        simulated(client, "titan", "binary-search-6d", "binary-search", 6, dim=6, noise=0.1)
        client.post("/api/campaigns/titan/skip", json={"reason": "flooded", "step": 7}).raise_for_status()
        simulated(client, "drill-east", Path(model).resolve().name, "binary-search", 5, dim=2, noise=0.05)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        picture(browser, address, out / "campaign-light.png", 1280, "light", begin_furnace)
        picture(browser, address, out / "campaign-dark.png", 1280, "dark", lambda page: page.goto("/#/c/titan"))
        picture(browser, address, out / "campaign-tablet.png", 820, "light", lambda page: page.goto("/#/c/drill-east"))
        picture(browser, address, out / "campaign-stopped.png", 1280, "light", finish_furnace)
        picture(browser, address, out / "campaigns.png", 1280, "light", lambda page: page.goto("/"))
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "model", nargs="?", help="a model of two coordinates; without it, only a new experiment is drawn"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "campaigns.db")
        listening = socket.create_server(("127.0.0.1", 0))
        app = make_app(store, models=[chosen.model] if chosen.model else [], trained=Path(folder) / "models")
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            take_new(address, chosen.out)
            if chosen.model:
                take(address, chosen.model, chosen.out)
        finally:
            app.state.close()
            server.should_exit = True
            thread.join()
            store.close()


if __name__ == "__main__":
    main()
