"""Times of pages: in the zone that the reader has chosen, which stands beside each of them."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tarry import App
from tarry.server.console.charts.scale import time_labels
from tarry.server.console.charts.times import COOKIE, MOST_NAME, ONLY_UTC, zone_of
from tarry.server.console.rendering import written_time
from tests.server.console.hostile import access, addresses, fill, hostile_app
from tests.server.console.visiting import Visitor, visit
from tests.server.http.calling import api, run

WINTER, SUMMER = 1_795_003_200.0, 1_782_000_000.0
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?")


@pytest.mark.parametrize(
    ("name", "winter", "summer"),
    [
        ("UTC", "2026-11-18 12:00:00 UTC", "2026-06-21 00:00:00 UTC"),
        ("Europe/Berlin", "2026-11-18 13:00:00 UTC+01:00", "2026-06-21 02:00:00 UTC+02:00"),
        ("Asia/Kolkata", "2026-11-18 17:30:00 UTC+05:30", "2026-06-21 05:30:00 UTC+05:30"),
        ("America/New_York", "2026-11-18 07:00:00 UTC-05:00", "2026-06-20 20:00:00 UTC-04:00"),
    ],
)
def test_a_time_is_written_with_its_zone(name: str, winter: str, summer: str) -> None:
    zone = zone_of(name)
    assert [zone.second(WINTER), zone.second(SUMMER)] == [winter, summer]
    assert zone.minute(WINTER) == winter.replace(":00 UTC", " UTC")
    assert written_time("2026-11-18T12:00:00Z", zone) == winter


def test_local_time_without_a_browser_s_zone_is_that_of_the_server() -> None:
    here = datetime.fromtimestamp(WINTER, UTC).astimezone()
    assert zone_of("local").second(WINTER).startswith(here.strftime("%Y-%m-%d %H:%M:%S UTC"))


@pytest.mark.parametrize(
    "name", [None, "", "utc?", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b", "É", "x" * 10_000, "Nowhere/Else"]
)
def test_a_name_of_no_zone_is_utc(name: str | None) -> None:
    assert zone_of(name) is ONLY_UTC
    assert name is None or len(zone_of(name).name) <= MOST_NAME


@pytest.mark.parametrize("name", ["UTC", "Asia/Tokyo", "America/New_York", "local"])
@pytest.mark.parametrize("seconds", [-1e11, 1e12, 1e300, float("inf"), float("nan"), -62135596800.0, 253402300799.0])
def test_a_time_that_no_calendar_has_is_told(name: str, seconds: float) -> None:
    zone = zone_of(name)
    assert zone.second(seconds) == "?" or zone.second(seconds)[4] == "-"
    assert isinstance(zone.offset(seconds), int)


@pytest.mark.parametrize("written", ["", "yesterday", "<b>", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"])
def test_what_is_no_time_stays_as_it_was_written(written: str) -> None:
    assert written_time(written, zone_of("Asia/Tokyo")) == written


def test_charts_have_round_times_of_the_reader_s_clock() -> None:
    starts = range(int(WINTER), int(WINTER) + 24 * 3600, 3600)
    assert [one.text for one in time_labels(starts)][:3] == ["12:00", "18:00", "00:00"]
    assert [one.text for one in time_labels(starts, zone_of("Europe/Berlin"))][:3] == ["18:00", "00:00", "06:00"]
    assert [one.text for one in time_labels(starts, zone_of("Asia/Kolkata"))][:3] == ["18:00", "00:00", "06:00"]
    # A point that is a day is one of UTC, wherever the reader is.
    days = range(int(WINTER), int(WINTER) + 30 * 86400, 86400)
    assert time_labels(days, zone_of("Asia/Tokyo")) == time_labels(days)


def test_a_person_chooses_the_zone(app: App) -> None:
    async def story(browser: Visitor) -> list[str]:
        pages = [await browser.text("/jobs")]
        for name in ("Asia/Tokyo", "UTC", "Nowhere/Else"):
            told = await browser.send("/zone", {"zone": name, "next": "/jobs?state=ready"})
            assert (told.status_code, told.headers["location"]) == (303, "/jobs?state=ready")
            pages.append(await browser.text("/jobs"))
        assert (await browser.send("/zone", {"zone": "Asia/Tokyo"}, "https://evil.example")).status_code == 403
        return pages

    first, chosen, *others = visit(app, story)
    assert "UTC+09:00" in chosen
    assert "Local time (Asia/Tokyo)</button>" in chosen
    assert [page for page in (first, *others) if "UTC+" in page] == []


def test_on_every_page_each_time_names_its_zone(tmp_path: Path) -> None:
    app = hostile_app()
    paths = [*addresses(fill(app))]

    async def story() -> list[tuple[str, str]]:
        found = []
        async with api(app, access=access(tmp_path)) as client:
            browser = Visitor(client)
            await browser.sign_in("root")
            client.cookies.set(COOKIE, "Asia/Tokyo", domain="tarry.test")
            for path in paths:
                shown = re.sub(r'datetime="[^"]*"|placeholder="[^"]*"|<pre.*?</pre>', "", await browser.text(path))
                times = [shown[one.start() : one.end() + 10] for one in _TIME.finditer(shown)]
                found += [(path, time) for time in times]
        return found

    found = run(story)
    assert len(found) > 500
    assert [one for one in found if not one[1].endswith(" UTC+09:00")] == []
    app.close()
