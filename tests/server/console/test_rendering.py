"""How values look on a page."""

import json
from datetime import date

import pytest
from msgspec import Struct

from tarry.push.delivery.delivery_record import AttemptRecord
from tarry.server.console.rendering import MOST_TEXT, moment, number, pretty, size, span
from tarry.server.console.translation import LANGUAGES
from tarry.server.console.views.job_course import ShownAttempt
from tarry.tasks.arguments.masking import DEEPEST, HIDDEN, is_secret

ENGLISH, CHINESE = LANGUAGES


@pytest.mark.parametrize(
    "name",
    [
        "password", "Password", "db_password", "api-key", "API_KEY", "x-api-key", "Authorization", "access_token",
        "client_secret", "awsCredentials", "private-key", "PASSWD", "apikey",
    ],
)  # fmt: skip
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["address", "key", "pass", "author", "amount", "tok", ""])
def test_other_names_are_none(name: str) -> None:
    assert not is_secret(name)


def test_secrets_are_hidden_wherever_they_stand() -> None:
    value = [1, {"to": "ann", "auth": {"token": "abc", "deep": [{"Password": {"old": "abc"}}]}}, ["password", "abc1"]]
    shown = str(pretty(value))
    assert "abc&" not in shown
    assert shown.count(HIDDEN) == 2
    # A value is no name.
    assert "abc1" in shown
    assert "ann" in shown


def test_long_values_are_cut_and_say_by_how_much() -> None:
    shown = str(pretty("x" * (MOST_TEXT + 500)))
    assert len(shown) < MOST_TEXT + 100
    assert shown.endswith("… 502 characters more")
    assert "more" not in pretty("x" * 100)


def test_markup_in_values_is_text() -> None:
    assert "<" not in str(pretty({"<script>": "</pre><img src=x>"}))


def test_deep_values_are_cut() -> None:
    deep: object = "end"
    for _ in range(5000):
        deep = [deep]
    shown = str(pretty(deep))
    assert shown.count("[") == DEEPEST + 1
    assert HIDDEN in shown


class Answer(Struct):
    outcome: str
    token: str


def test_values_that_are_no_json_are_shown() -> None:
    assert json.loads(pretty([Answer("again", "abc")]).unescape()) == [{"outcome": "again", "token": HIDDEN}]
    assert "2026-01-02" in str(pretty({"at": date(2026, 1, 2)}))
    assert json.loads(str(pretty([1.5, None, True])))[1:] == [None, True]


def test_texts_in_other_alphabets_are_readable() -> None:
    assert "中文" in pretty("中文")


@pytest.mark.parametrize(
    ("away", "english", "chinese"),
    [(-200, "3m20s ago", "3m20s前"), (200, "in 3m20s", "3m20s后"), (-0.5, "now", "刚刚"), (0.5, "now", "刚刚")],
)
def test_moments_are_told_in_the_reader_s_language(away: float, english: str, chinese: str) -> None:
    now = 1_800_000_000.0
    assert f">{english}</time>" in moment(ENGLISH, now + away, now)
    assert f">{chinese}</time>" in moment(CHINESE, now + away, now)
    assert 'title="2027-01-15 08:00:00 UTC"' in moment(ENGLISH, now, now + 5)


def test_what_is_not_known_is_a_dash() -> None:
    assert [number(None), span(None), size(None), moment(ENGLISH, None, 0.0)] == ["–"] * 4


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (1204, "1,204"), (1204.5, "1,204.5"), (10**12, "1,000,000,000,000")]
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (5e12, "5.0 TB")]
)
def test_sizes(value: float, shown: str) -> None:
    assert size(value) == shown


@pytest.mark.parametrize("seconds", [-1e11, 1e12, 1e300, float("inf"), float("nan")])
def test_a_time_that_no_calendar_has_keeps_no_page_from_being_shown(seconds: float) -> None:
    """A program that takes a job writes such times, or a clock that was set wrong."""
    assert moment(ENGLISH, seconds, 1_800_000_000.0) == "?"


@pytest.mark.parametrize("written", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"])
def test_a_delivery_at_no_time_keeps_no_page_from_being_shown(written: str) -> None:
    began = ShownAttempt(None, AttemptRecord(1, written, "delivered", "")).began
    assert moment(ENGLISH, began, 1_800_000_000.0) == "?"
