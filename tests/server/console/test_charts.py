"""Charts: scales that people can read, shapes that say what was counted."""

import re
from pathlib import Path

import pytest

from tarry import App
from tarry.model.duration import MINUTE, SECOND
from tarry.model.history.buckets import bucket_of, lower_end
from tarry.model.job import Job, State
from tarry.server.console.charts.drawing import (
    Series,
    area_below,
    count_bars,
    count_lines,
    duration_lines,
    histogram,
    line,
    spark,
)
from tarry.server.console.charts.ranges import RANGES
from tarry.server.console.charts.scale import CountScale, DurationScale, short_number, time_labels
from tarry.server.console.rendering import about
from tarry.store.queries.history_reading import Bucket, totals
from tarry.store.rules.history.gauges import QueueSample
from tarry.store.rules.history.sums import KEPT, LENGTH
from tests.server.console.past import write_month
from tests.server.console.visiting import Tokens, Visitor, visit

STARTS = range(0, 240, 60)
MOST_PAGE = 80_000
"""Bytes of a page, so that it is small with its scripts, too."""


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 9, 10, 99, 101, 1234, 39_999, 10**9])
def test_a_scale_of_numbers_is_round_and_large_enough(most: int) -> None:
    scale = CountScale.of(most)
    assert most <= scale.top <= max(4, 2.5 * most)
    assert str(scale.step).rstrip("0") in ("1", "2", "5")
    assert 2 <= len(labels := scale.labels()) <= 6
    assert (labels[0].at, labels[-1].at) == (0, 100)


@pytest.mark.parametrize("values", [[0.0], [1.0], [0.004, 0.2], [3.0, 700.0], [1e-6, 1e9], [86400.0]])
def test_a_scale_of_durations_has_them_all(values: list[float]) -> None:
    scale = DurationScale.of(values)
    assert scale.low < scale.top
    assert all(0 <= scale.place(value) <= 100 for value in values)
    assert 2 <= len(scale.labels()) <= 5


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (1200, "1.2k"), (34_000, "34k"), (5e6, "5M"), (7e9, "7G")]
)
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (0.2949, "290ms"), (1.69, "1.7s"), (0.0042, "4.2ms"), (83.0, "1m23s")]
)
def test_percentiles_are_no_more_exact_than_they_are(seconds: float | None, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize("name", RANGES)
def test_each_range_is_kept_and_has_readable_times(name: str) -> None:
    span = RANGES[name]  # type: ignore[index]
    assert span.count * span.step <= KEPT[span.resolution]
    assert span.step % LENGTH[span.resolution] == 0
    assert span.count <= 72
    start = 1_800_000_000 // span.step * span.step
    found = time_labels(range(start, start + span.count * span.step, span.step))
    assert 2 <= len(found) <= 6
    assert all(0 <= label.at <= 100 for label in found)
    assert {
        bool(re.fullmatch(r"\d\d:\d\d" if name in ("15m", "1h", "6h", "24h") else r"\d\d-\d\d", label.text))
        for label in found
    } == {True}


def test_a_line_is_broken_where_nothing_is() -> None:
    assert line([0, 100], lambda value: value) == "M0.5 100L1.5 0"
    assert line([None, 50, None, 25, 75], lambda value: value) == "M1.5 50h.01M3.5 75L4.5 25"
    assert line([None, None], lambda value: value) == ""


def test_bars_of_a_point_stand_upon_each_other() -> None:
    found = count_bars(STARTS, [Series("failed", [0, 1, 2, 0]), Series("dead", [0, 3, 0, 0])])
    assert [shape.path for shape in found.shapes] == [
        "M1.1 100V75h.8V100zM2.1 100V50h.8V100z",
        "M1.1 75V0h.8V75z",
    ]
    assert found.rows == [(0, (0, 0)), (60, (1, 3)), (120, (2, 0)), (180, (0, 0))]


def test_what_has_nothing_to_show_is_empty() -> None:
    nothing = [Series("put", [0, 0, 0, 0])]
    assert count_lines(STARTS, nothing).is_empty
    assert count_bars(STARTS, nothing).is_empty
    assert duration_lines(STARTS, [Series("p50", [None] * 4)]).is_empty
    assert not duration_lines(STARTS, [Series("p50", [None, 0.0, None, None])]).is_empty
    assert histogram([]) is None
    assert spark([]) == spark([0, 0]) == ""
    assert spark([0, 4]) == "M0.5 95L1.5 5"


def test_a_histogram_has_a_bar_for_each_bucket() -> None:
    buckets = [
        Bucket(lower_end(place) / SECOND, lower_end(place + 1) / SECOND, count)
        for place, count in ((bucket_of(SECOND), 3), (bucket_of(3 * SECOND), 1))
    ]
    found = histogram(buckets)
    assert found is not None
    assert (found.total, found.path.count("z")) == (4, 2)
    assert found.places[1] - found.places[0] == bucket_of(3 * SECOND) - bucket_of(SECOND)
    assert "1s" in [label.text for label in found.across]


@pytest.fixture
def busy(tmp_path: Path) -> App:
    """With a month of 50 tasks."""
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)
    store = app.client.store
    names = {(f"queue{n % 5}", f"task{n}"): 1.0 + n for n in range(50)}
    write_month(store, names, store.time() // SECOND, days=7)
    return app


def test_pages_are_small_in_every_range(busy: App) -> None:
    async def story(browser: Visitor) -> None:
        for name in RANGES:
            text = await browser.text(f"/?range={name}")
            assert len(text) < MOST_PAGE, name
            assert text.count("data-chart") >= 3, name
        assert (await browser.get("/?range=2h")).status_code == 422

    try:
        visit(busy, story)
    finally:
        busy.close()


def test_a_reader_of_one_queue_sees_the_figures_of_that_queue(app: App, tokens: Tokens) -> None:
    tokens.add("mailer", "read", queues='["mail"]').add("other", "read", queues='["shop"]')
    store = app.client.store
    store.history.sum_up(store.time())

    async def story(browser: Visitor) -> None:
        for name, put in (("mailer", 3), ("other", 0)):
            await browser.sign_in(f"{name}-token")
            text = await browser.text("/")
            row = re.search(r'<th scope="row">1 h</th><td class="n">(\d+)</td>', text)
            assert row is not None
            assert int(row[1]) == put

    visit(app, story, tokens)


def test_what_is_below_a_line_is_broken_where_the_line_is() -> None:
    assert area_below([4, 8], lambda value: value) == "M0.5 100L0.5 96L1.5 92V100z"
    assert area_below([None, 4, None, 8, 2], lambda value: value) == "M1.5 100L1.5 96V100zM3.5 100L3.5 92L4.5 98V100z"
    assert area_below([None], lambda value: value) == ""


def test_hours_to_come_have_their_own_times() -> None:
    # 20:40, so 00:00 is 3 h 20 min later: a sixth less than 14 % of a day.
    start = 1_800_000_000 // 86400 * 86400 + 20 * 3600 + 40 * 60
    labels = time_labels(range(start, start + 86400, 3600))
    assert (labels[0].text, round(labels[0].at, 1)) == ("00:00", 13.9)


def test_a_queue_says_what_is_ready_by_priority_and_when_it_is_empty(app: App) -> None:
    async def story(browser: Visitor) -> None:
        text = await browser.text("/queues/mail")
        assert "high 0 · normal 3 · low 0" in text
        assert "never at this rate" in text
        assert "never at this rate" in await browser.text("/")

    visit(app, story)


def cells(text: str, chart: str) -> list[str]:
    """What the first column of values behind a chart says, from the first point on."""
    figure = text[text.index(f'id="chart-{chart}"') :]
    return re.findall(r'<tr><th scope="row">[^<]*</th><td class="n">([^<]*)</td>', figure[: figure.index("</figure>")])


def latest(text: str, chart: str) -> str:
    """The last value: a point without one follows once the next minute has begun."""
    return [cell for cell in cells(text, chart) if cell != "–"][-1]


def legend(text: str, chart: str) -> list[str]:
    figure = text[text.index(f'id="chart-{chart}"') :]
    return re.findall(r"<b>([^<]*)</b>", figure[: figure.index("</ul>")])


def test_what_comes_due_is_shown_by_hour(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.store.queries.due_horizon.MOST_OF_ALL", 2)
    store = app.client.store
    now = store.time()
    due = [(90, "shop"), (95, "shop"), (99, "shop"), (200, "mail"), (30 * 60, "shop")]
    store.insert(
        [
            Job(bytes([n]) * 16, "mail.send", b"", queue, due=now + minutes * MINUTE, state=State.SCHEDULED)
            for n, (minutes, queue) in enumerate(due)
        ]
    )

    store.history.sum_up(now)

    async def story(browser: Visitor) -> None:
        text = await browser.text("/")
        assert cells(text, "coming")[:5] == ["0", "at least 2", "0", "1", "0"]
        assert legend(text, "coming") == ["0", "at least 3", "1"]
        # Whole hours: none of them is unfinished.
        figure = text[text.index('id="chart-coming"') :]
        assert 'class="open"' not in figure[: figure.index("</figure>")]
        assert 'class="open"' in text
        mail = await browser.text("/queues/mail")
        assert cells(mail, "coming")[3] == "1"
        assert legend(mail, "coming")[0] == "0"

    visit(app, story)


def test_the_backlog_is_shown_with_its_age_and_all_of_time(app: App, tokens: Tokens) -> None:
    tokens.add("mailer", "read", queues='["mail"]').add("all", "read")
    store = app.client.store
    now = store.time()
    write_month(store, {("mail", "mail.send"): 7.0}, now // SECOND, days=2)
    store.history.sample(now, store, lambda _: {"mail": QueueSample(30, 90 * SECOND), "shop": QueueSample(12, 0)})
    ever = totals(store.history).total.put

    async def story(browser: Visitor) -> None:
        for name, ready in (("all", "42"), ("mailer", "30")):
            await browser.sign_in(f"{name}-token")
            text = await browser.text("/?range=15m")
            assert (latest(text, "backlog"), legend(text, "backlog")) == (ready, [ready])
            assert (latest(text, "oldest"), legend(text, "oldest")) == ("1m30s", ["1m30s"])
            assert f'<th scope="row">In all</th><td class="n">{ever:,}</td>' in text
        assert "chart-backlog" not in await browser.text("/tasks/mail.send")
        queue = await browser.text("/queues/mail?range=24h")
        assert latest(queue, "backlog") == "30"

    visit(app, story, tokens)
