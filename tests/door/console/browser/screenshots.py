"""Makes the pictures of docs/console.md and the README: `make screenshots`. A real master, with a month behind it."""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tarry import App
from tarry.model.duration import SECOND
from tests.door.console.browser.conftest import CHROMIUM, OPTIONS
from tests.door.console.browser.place import Place, people
from tests.door.console.past import write_month, write_samples

IMAGES = Path(__file__).parents[4] / "docs" / "images"
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
MONTH = {("mail", "app.send"): 40.0, ("mail", "app.deliver"): 12.0, ("hooks", "shop.paid"): 9.0}
HOOK = {"task": "shop.paid", "settings": {"url": "http://127.0.0.1:9/paid", "queue": "hooks", "owner": "shop"}}


def fill(place: Place) -> str:
    """Jobs in several states; the id of one that waits for another."""
    assert place.api.post("/v1/tasks", json=HOOK).status_code == 201
    dead = place.add("send", "ann at example.org")
    assert place.api.put("/v1/limits/queue:slow", json={"at_once": 1}).status_code == 200
    running = place.add("wait", "gate")
    place.becomes(running, "running")
    waiting = place.add("wait", "gate", priority=5)
    for number in range(40):
        place.add("send", f"customer-{number}@example.org", queue="mail", delay=f"{1 + number * number}m")
        place.add("send", f"customer-{number}@example.org")
    place.becomes(dead, "dead")
    app = App(place.store_url)
    store = app.client.store
    write_month(store, MONTH, store.time() // SECOND)
    write_samples(store, {"mail": 1200}, store.time() // SECOND)
    app.close()
    return waiting


def take(browser: Browser, place: Place, waiting: str) -> None:
    pictures = {
        "overview": ("/?range=24h", WIDE, "light"),
        "queue": ("/queues/mail?range=24h", WIDE, "dark"),
        "job": (f"/jobs/{waiting}", WIDE, "light"),
        "phone": ("/tasks/app.send?range=7d", NARROW, "dark"),
    }
    with people(browser, place) as make:
        for name, (path, size, scheme) in pictures.items():
            page = make(viewport=size, color_scheme=scheme, reduced_motion="reduce").open(path)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=IMAGES / f"{name}.png")


def main() -> None:
    """Writes the pictures."""
    IMAGES.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp())
    place = Place(directory)
    try:
        waiting = fill(place)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
            take(browser, place, waiting)
            browser.close()
    finally:
        place.close()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
