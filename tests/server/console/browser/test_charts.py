"""Charts in a browser: with the right numbers, for everybody, and live without losing what is read out."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tarry import App
from tarry.model.duration import SECOND
from tarry.server.console.charts.ranges import RANGES
from tests.server.console.browser.place import MakePerson, Person, Place
from tests.server.console.browser.test_pages import WIDE, check_accessible
from tests.server.console.past import write_month, write_samples

PAGES = ("/?range=24h", "/queues/mail?range=6h", "/tasks/app.send?range=7d", "/tasks/hook?range=30d", "/tasks")


@pytest.fixture(scope="module")
def past(place: Place) -> Place:
    """A place with a month behind it, also of an HTTP task."""
    hook = {"task": "hook", "settings": {"url": "http://127.0.0.1:9/hook", "queue": "hooks"}}
    assert place.api.post("/v1/tasks", json=hook).status_code in (201, 409)
    app = App(f"sqlite:///{place.directory}/tarry.db")
    store = app.client.store
    write_month(store, {("mail", "app.send"): 40, ("hooks", "hook"): 12}, store.time() // SECOND)
    write_samples(store, {"mail": 900, "hooks": 20}, store.time() // SECOND)
    app.close()
    return place


@pytest.fixture
def ann(past: Place, make_person: MakePerson) -> Person:
    return make_person(viewport=WIDE)


def chart(page: Page, name: str) -> Locator:
    return page.locator(f"#chart-{name}")


def rows(page: Page, name: str) -> dict[str, list[str]]:
    """The table behind a chart: its values by the start of each point."""
    texts = (
        chart(page, name)
        .locator("tbody tr")
        .evaluate_all(
            "them => them.map(row => [...row.cells].filter(cell => cell.className !== 'deploy')"
            ".map(cell => cell.textContent))"
        )
    )
    return {cells[0]: cells[1:] for cells in texts}


def test_charts_have_the_numbers_of_the_api(ann: Person) -> None:
    page = ann.open("/queues/mail?range=24h")
    told = ann.place.api.get("/v1/history?queue=mail").json()
    found, failures = rows(page, "throughput"), rows(page, "failures")
    # The present hour goes on meanwhile.
    points = told["points"][1:-1]
    assert len(points) == 22
    for point in points:
        start = page.evaluate("at => new Date(at * 1000).toISOString().slice(0, 16).replace('T', ' ')", point["start"])
        assert found[f"{start} UTC"] == [f"{point['put']:,}", f"{point['done']:,}"]
        assert failures[f"{start} UTC"] == [f"{point['failed']:,}", f"{point['dead']:,}"]
    assert any(point["put"] > 1000 for point in points)


def test_the_time_shown_is_chosen_by_links(ann: Person) -> None:
    page = ann.open("/")
    ranges = page.get_by_role("navigation", name="Time shown")
    expect(ranges.locator("[aria-current]")).to_have_text("1 h")
    for name, text in (("15m", "15 min"), ("6h", "6 h"), ("24h", "24 h"), ("7d", "7 days"), ("30d", "30 days")):
        ranges.get_by_role("link", name=text, exact=True).click()
        page.wait_for_url(f"**/?range={name}")
        expect(ranges.locator("[aria-current]")).to_have_text(text)
        assert len(rows(page, "throughput")) == RANGES[name].count  # type: ignore[index]


def point_at(page: Page, name: str, part: float) -> None:
    field = chart(page, name).locator(".field")
    field.scroll_into_view_if_needed()
    box = field.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * part, box["y"] + 20)


def read_out(page: Page, name: str) -> str:
    found = chart(page, name).locator(".readout")
    expect(found).to_be_visible()
    return str(found.evaluate("it => [...it.children].map(line => line.textContent).join('|')"))


def test_the_pointer_reads_out_a_point_and_keeps_it_while_the_page_follows(ann: Person) -> None:
    page = ann.open("/?range=24h")
    point_at(page, "throughput", 10.5 / 24)
    start, (put, done) = list(rows(page, "throughput").items())[10]
    assert read_out(page, "throughput") == f"{start}|put {put}|done {done}"
    page.evaluate(
        "document.querySelector('[data-refresh]').dataset.before = '1';document.body.dispatchEvent(new Event('look'));"
    )
    expect(page.locator("[data-refresh][data-before]")).to_have_count(0)
    assert read_out(page, "throughput") == f"{start}|put {put}|done {done}"
    page.mouse.move(5, 5)
    expect(chart(page, "throughput").locator(".readout")).to_be_hidden()


def test_the_keyboard_reads_out_points(ann: Person) -> None:
    page = ann.open("/?range=24h")
    slider = chart(page, "waited").get_by_role("slider", name="Waiting time")
    slider.focus()
    page.keyboard.press("Home")
    first, second, *_ = list(rows(page, "waited"))
    assert read_out(page, "waited").startswith(first)
    page.keyboard.press("ArrowRight")
    assert read_out(page, "waited").startswith(second)
    assert (slider.get_attribute("aria-valuetext") or "").startswith(f"{second}, p50 ")
    page.keyboard.press("Escape")
    expect(chart(page, "waited").locator(".readout")).to_be_hidden()


def test_the_backlog_and_its_age_are_those_of_the_api(ann: Person) -> None:
    page = ann.open("/queues/mail?range=24h")
    told = ann.place.api.get("/v1/history?queue=mail").json()
    ready, oldest = list(rows(page, "backlog").values()), list(rows(page, "oldest").values())
    # The present hour goes on meanwhile.
    points = told["points"][1:-1]
    assert [cells[0] for cells in ready[1:-1]] == [f"{point['ready_most']:,}" for point in points]
    assert max(point["ready_most"] for point in points) > 500
    assert {cells[0] for cells in oldest[1:-1]} == {"4m"}
    ever = page.locator("table.totals").get_by_role("row").filter(has_text="In all").locator("td").first
    assert int(ever.inner_text().replace(",", "")) > 1000
    point_at(page, "backlog", 10.5 / 24)
    assert read_out(page, "backlog").endswith(f"|ready {ready[10][0]}")


def test_a_deploy_is_a_line_that_is_read_out(ann: Person) -> None:
    page = ann.open("/?range=1h")
    # The master of this place has begun within the hour.
    titles = chart(page, "throughput").locator("path.deploy title")
    expect(titles).not_to_have_count(0)
    slider = chart(page, "throughput").get_by_role("slider")
    cells = chart(page, "throughput").locator("td.deploy").all_text_contents()
    place = next(place for place, text in enumerate(cells) if text)
    slider.focus()
    page.keyboard.press("Home")
    assert "Deploy" not in read_out(page, "throughput")
    for _ in range(place):
        page.keyboard.press("ArrowRight")
    assert read_out(page, "throughput").endswith(f"|Deploy {cells[place]}")
    page.get_by_role("link", name="Since the last deploy", exact=True).click()
    page.wait_for_url("**/?range=deploy")
    assert len(rows(page, "waited")) <= 60


def test_what_comes_due_is_read_out_by_the_keyboard(ann: Person) -> None:
    ann.place.add("send", "ann@example.org", queue="later", delay=5400)
    page = ann.open("/queues/later")
    slider = chart(page, "coming").get_by_role("slider", name="Due in the next 24 hours")
    slider.focus()
    page.keyboard.press("Home")
    assert read_out(page, "coming").endswith("|due 0")
    page.keyboard.press("ArrowRight")
    assert read_out(page, "coming").endswith("|due 1")
    assert chart(page, "coming").locator("rect.open").count() == 0


def test_a_task_has_histograms_and_statuses(ann: Person) -> None:
    page = ann.open("/tasks/hook?range=24h")
    told = ann.place.api.get("/v1/history?task=hook&durations=true").json()
    found = rows(page, "ran-histogram")
    assert len(found) == len(told["durations"]["ran"]) > 10
    statuses = rows(page, "statuses")
    assert sum(int(cells[0].replace(",", "")) for cells in statuses.values()) > 1000
    page = ann.open("/tasks")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="app.send", exact=True))
    assert int(row.locator("td.n").first.inner_text().replace(",", "")) > 0
    expect(row.get_by_role("img", name="Attempts that ended, by hour")).to_be_visible()


def test_where_nothing_was_counted_it_says_so(ann: Person) -> None:
    ann.place.add("send", "ann@example.org", queue="quiet", delay=3600)
    page = ann.open("/queues/quiet?range=15m")
    expect(chart(page, "failures")).to_contain_text("No attempt failed in this time.")
    expect(chart(page, "waited")).to_contain_text("No attempt ended in this time.")
    # The others may have the job that was put, and when it is due.
    assert page.locator("#chart-failures[data-chart], #chart-waited[data-chart]").count() == 0


@pytest.mark.parametrize("path", PAGES)
def test_everybody_can_read_them(ann: Person, path: str) -> None:
    page = ann.open(path)
    for details in page.locator("details.behind > summary").all():
        details.click()
    check_accessible(page)


def test_they_are_there_without_javascript_and_in_chinese(past: Place, make_person: MakePerson) -> None:
    page = make_person(java_script_enabled=False, locale="zh-CN").open("/?range=24h")
    expect(page.get_by_role("img", name="入队与完成")).to_be_visible()
    chart(page, "throughput").locator("summary").click()
    expect(chart(page, "throughput").get_by_role("row")).to_have_count(25)
    expect(chart(page, "throughput").locator("thead")).to_contain_text("入队")
    page.get_by_role("link", name="30 天").click()
    page.wait_for_url("**/?range=30d")
