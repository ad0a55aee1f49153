"""Makes the pictures of docs/console.md and docs/index.md: `make screenshots`. A real master, a month behind it."""

import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

from tarry import App
from tarry.model.duration import SECOND
from tests.cli.project import until
from tests.server.console.browser.conftest import OPTIONS
from tests.server.console.browser.place import Place, people
from tests.server.console.past import write_month, write_samples
from tests.servers.chromium import CHROMIUM

IMAGES = Path(__file__).parents[4] / "docs" / "images"
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
MONTH = {("mail", "app.send"): 40.0, ("mail", "app.deliver"): 12.0, ("hooks", "shop.paid"): 9.0}
HOOK = {"task": "shop.paid", "settings": {"url": "http://127.0.0.1:9/paid", "queue": "hooks", "owner": "shop"}}


def fill(place: Place) -> tuple[str, str]:
    """Jobs in several states; the ids of one that waits for another, and of a flow that runs."""
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
    return waiting, place_flow(place)


def place_flow(place: Place) -> str:
    """An order whose parcels are packed just now, and one that failed; the id of the first."""
    assert place.api.put("/v1/limits/queue:stuck", json={"at_once": 2}).status_code == 200
    placed, broken = place.add("place_order", 7, "gate"), place.add("place_broken", 8)
    for id in (placed, broken):
        place.becomes(id, "done")
    flow = str(place.api.get(f"/v1/jobs/{placed}").json()["note"])
    # Four parcels need not wait, and two of the others run then.
    until(lambda: running_parcels(place, flow) == 2)
    return flow


def running_parcels(place: Place, flow: str) -> int:
    boxes = place.api.get(f"/v1/flows/{flow}").json()["boxes"]
    return sum(int(box["states"].get("running", 0)) for box in boxes if box["task"] == "app.wait")


def take(browser: Browser, place: Place, waiting: str, flow: str) -> None:
    pictures = {
        "overview": ("/?range=24h", WIDE, "light"),
        "queue": ("/queues/mail?range=24h", WIDE, "dark"),
        "job": (f"/jobs/{waiting}", WIDE, "light"),
        "flow": (f"/flows/{flow}", WIDE, "light"),
        "phone": ("/tasks/app.send?range=7d", NARROW, "dark"),
    }
    (error,) = place.api.get("/v1/errors?task=app.send").json()["errors"]
    pictures["error"] = (f"/errors/{error['id']}", WIDE, "light")
    typed = urlencode({"name": "report:7", "cron": "0 7 * * 1-5", "zone": "Europe/Paris"})
    pictures["schedule"] = (f"/new-schedule?{typed}", WIDE, "light")
    with people(browser, place) as make:
        for name, (path, size, scheme) in pictures.items():
            page = make(viewport=size, color_scheme=scheme, reduced_motion="reduce").open(path)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=IMAGES / f"{name}.png")


def main() -> None:
    """Writes the pictures."""
    IMAGES.mkdir(exist_ok=True)
    # Its name stands on the page of an error.
    directory = Path(tempfile.mkdtemp()) / "shop"
    directory.mkdir()
    place = Place(directory)
    try:
        waiting, flow = fill(place)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
            take(browser, place, waiting, flow)
            browser.close()
    finally:
        place.close()
        shutil.rmtree(directory.parent, ignore_errors=True)


if __name__ == "__main__":
    main()
