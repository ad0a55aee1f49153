"""The console of a store with a million jobs: each page comes at once, and those that are open hold up no worker."""

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import pytest
from playwright.sync_api import sync_playwright

from tarry import App
from tarry.model.duration import SECOND
from tarry.server.console.page_updates import SHARE
from tarry.server.serving.console import PAGES
from tarry.store.opening import open_store
from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place
from tarry.store.rules.history.error_sums import MOST_GROUPS
from tests.cli.project import until
from tests.server.console.browser.conftest import OPTIONS
from tests.server.console.large.filling import NEEDLE, QUEUES, RARE, task_name
from tests.server.console.large.place import JOBS, LargePlace, open_pages
from tests.servers.chromium import CHROMIUM

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
MOST_SECONDS, MOST_BYTES = 0.5, 150_000
MOST_PAINT = 200.0
"""Milliseconds to the first paint."""
MOST_COUNTED = 10.0
"""Seconds until the first page of a server that has just started."""
FIRST_PAINT = """new Promise(done => new PerformanceObserver(seen => {
  const paint = seen.getEntriesByName("first-contentful-paint")[0];
  if (paint) done(paint.startTime);
}).observe({ type: "paint", buffered: true }))"""
SLICE, PAIRS = 2.5, 5
"""Seconds of a drain that are compared with as many others, more than pages take to ask again; and how often."""
WORK = 600_000
"""Jobs of each pair: more than a worker ends in it."""
WIDE = 100_000
"""Jobs of a flow."""
ADDED = {"task": "added", "settings": {"url": "http://127.0.0.1:9/hook", "queue": "held"}}
"""A task that can be edited: those of the app and its settings cannot."""
TIMES = 3
FILTERS = (
    "", "state=scheduled", "state=ready", "state=running", "state=done", "state=dead", "state=cancelled",
    "state=dead&state=cancelled", "queue=mail", "queue=none", f"queue={QUEUES[-2]}&task={RARE}",
    f"queue={QUEUES[-2]}&task={RARE}&state=cancelled", f"task={RARE}", "task=none", "key=none", "key=order%20500000",
    "older=1h", "older=30d", "state=ready&older=23h", "queue=sync&state=dead&older=30d", "created_since=2h",
    "created_since=30d&created_until=29d", "created_since=13h&created_until=11h&state=dead", "created_until=20h",
    f"text={NEEDLE}", "text=nothing%20has%20this", f"text={NEEDLE}&created_since=13h&created_until=11h",
    "q=state:dead+task:task-0*+error:address+since:2d", "q=task:none*", "q=error:nothing+state:dead",
    f"text={NEEDLE}&state=dead&queue=mail", "text=nothing&state=running", "limit=1000&state=ready",
)  # fmt: skip
"""Of the page of the jobs."""
DEEP = (
    "",
    "state=done",
    "state=running",
    "queue=mail",
    f"queue={QUEUES[-2]}&task={RARE}",
    "older=30d",
    f"text={NEEDLE}",
)
"""Of those whose pages go on far behind."""


class PageTime(NamedTuple):
    """first, warm: seconds; of the first time after a start, and the median after it."""

    path: str
    first: float
    warm: float
    bytes: int


@pytest.fixture(scope="module")
def names(large: LargePlace) -> Mapping[str, str]:
    """A name of each kind, for the paths of pages."""

    def job(filters: str) -> str:
        found: str = large.browser.get(f"/v1/jobs?limit=1&{filters}").json()["jobs"][0]["id"]
        return found

    wanted = {"act": "retry", "dry_run": True, "filter": {"queue": "mail", "states": ["cancelled"]}}
    assert large.browser.post("/v1/tasks", json=ADDED).status_code == 201
    operation = large.browser.post("/v1/operations", json=wanted).json()["id"]
    until(lambda: large.browser.get(f"/v1/operations/{operation}").json()["state"] == "done", 120)
    return {
        "queue": "mail",
        "task": task_name(1),
        "schedule": "app.drain",
        "limit": f"each:{task_name(1)}",
        "id": job("state=dead"),
        "waiting": job("queue=mail&state=ready"),
        "hook": job(f"queue={QUEUES[-1]}&state=dead"),
        "operation": operation,
        "error": many_errors(large),
        "flow": wide_flow(large),
        "host": large.browser.get("/v1/hosts").json()["hosts"][0]["name"],
        "middle": job("created_since=12h"),
    }


def many_errors(place: LargePlace) -> str:
    """The id of one of as many groups as are kept."""
    letters = "ghijklmnop"
    texts = ["".join(letters[int(digit)] for digit in f"{number:04}") for number in range(MOST_GROUPS)]
    now = time.time_ns() // 1000
    hours = {now // SECOND // 3600 * 3600 - 3600 * back: 7 for back in range(48)}
    groups = {
        group_place(QUEUES[number % 20], f"{number:016x}"): encode_group(
            ErrorGroup(
                "ValueError", text * 60, "shop/mail.py:send", 9, now, now, "", bytes(16), {text: 9}, hours, hours
            )
        )
        for number, text in enumerate(texts)
    }
    with closing(open_store(place.store_url)) as store:
        assert any(store.history.change_errors(lambda _: groups) for _ in range(20))
    return f"{0:016x}"


def wide_flow(place: LargePlace) -> str:
    """The id of a flow of very many alike jobs, which no worker takes."""
    with closing(App(place.store_url, closures=True)) as app:

        @app.task(queue="held")
        def pack(number: int) -> int:
            return number

        return str(app.group(pack.call(number) for number in range(WIDE)).id)


def pages(names: Mapping[str, str]) -> Iterator[str]:
    """Every page, and the page of the jobs with each filter."""
    for page in PAGES:
        if page.route == "/endpoints/{task}":
            yield page.route.format(task=task_name(49))
        elif page.route == "/tasks/{task}/edit":
            yield page.route.format(task=ADDED["task"])
        elif page.route != "/jobs":
            ids = {"operations": names["operation"], "flows": names["flow"]}
            yield page.route.format(**{**names, "id": ids.get(page.route.split("/")[1], names["id"])})
    yield f"/jobs/{names['flow'][:-8]}{WIDE // 2:08x}"
    yield f"/jobs/{names['waiting']}"
    yield f"/jobs/{names['hook']}"
    yield f"/tasks/{task_name(49)}"
    yield from (f"/jobs?{filters}" for filters in FILTERS)
    yield from (f"/jobs?{filters}&cursor={names['middle']}" for filters in DEEP)


def seconds_of(place: LargePlace, path: str) -> tuple[float, int]:
    began = time.perf_counter()
    answer = place.browser.get(path)
    seconds = time.perf_counter() - began
    assert answer.status_code == 200, (path, answer.status_code, answer.text[:2000])
    return seconds, len(answer.content)


def test_every_page_comes_at_once(large: LargePlace, names: Mapping[str, str]) -> None:
    paths = list(pages(names))
    large.start_again()
    # The first of all waits for the count of all jobs, which the server began when it started.
    counted, _ = seconds_of(large, "/")
    print(f"\nfirst page after a start: {counted * 1000:.0f} ms")
    first = {path: seconds_of(large, path) for path in paths}
    found = []
    for path in paths:
        warm = statistics.median(seconds_of(large, path)[0] for _ in range(TIMES))
        found.append(PageTime(path, first[path][0], warm, first[path][1]))
    print(f"\n{'first':>8} {'warm':>8} {'kB':>6}  page")
    for one in sorted(found, key=lambda one: -one.warm):
        print(f"{one.first * 1000:6.0f}ms {one.warm * 1000:6.0f}ms {one.bytes / 1000:6.1f}  {one.path}")
    assert counted < MOST_COUNTED
    assert [one for one in found if one.warm > MOST_SECONDS] == []
    assert [one for one in found if one.first > MOST_SECONDS] == []
    assert [one for one in found if one.bytes > MOST_BYTES] == []


def test_what_is_far_behind_is_found(large: LargePlace) -> None:
    """A search that has looked at as much as it may goes on where the reader asks it to."""
    asked, cursor = 0, ""
    while True:
        asked += 1
        page = large.browser.get(f"/v1/jobs?state=dead&text={NEEDLE}{cursor}").json()
        if page["jobs"]:
            break
        assert page["next"], "it ends before it has found the job"
        assert asked < JOBS // 1000
        cursor = f"&cursor={page['next']}"
    assert [job["args"][0] for job in page["jobs"]] == [NEEDLE]


def test_open_pages_hold_up_no_worker(large: LargePlace, names: Mapping[str, str]) -> None:
    """By the ratio of two slices of one drain, one after the other: whatever else the machine does slows both."""
    paths = ["/", "/queues", "/queues/mail", "/jobs?state=ready", "/hosts", f"/jobs/{names['waiting']}"]
    less, refreshed = list[float](), 0
    for number in range(PAIRS):
        large.put_work(WORK)
        # Which comes first alternates: a store that grows is slower later.
        alone = large.rate(SLICE) if number % 2 else 0.0
        with open_pages(large, paths) as opened:
            until(lambda: all(page.refreshed for page in opened), 60)
            watched = large.rate(SLICE)
        alone = alone or large.rate(SLICE)
        assert [one.trouble for one in opened] == [[]] * len(paths)
        refreshed += sum(one.refreshed for one in opened)
        assert large.processed() < (number + 1) * WORK, "there was too little work"
        less.append(1 - watched / alone)
        print(f"\nalone {alone:,.0f}, watched {watched:,.0f} jobs/s: {less[-1]:.0%} less")
    print(f"{refreshed} refreshes; median {statistics.median(less):.0%} less")
    assert refreshed >= len(paths) * PAIRS
    assert statistics.median(less) <= SHARE


@pytest.mark.parametrize("page", ["overview", "jobs", "job"])
def test_the_first_paint_is_soon(large: LargePlace, names: Mapping[str, str], page: str) -> None:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: python -m tests.servers.install")
    path = {"overview": "/", "jobs": "/jobs?state=dead", "job": f"/jobs/{names['id']}"}[page]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        tab = browser.new_page()
        found = []
        for _ in range(5):
            tab.goto(large.url + path)
            found.append(tab.evaluate(FIRST_PAINT))
        browser.close()
    print(f"\n{path}: first paint after {sorted(found)} ms")
    assert statistics.median(found) < MOST_PAINT
