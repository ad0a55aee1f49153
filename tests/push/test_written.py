"""Settings as people type them: what is read, and that each value is written so that it is read back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.push.endpoint.fields import FIELDS
from tarry.push.endpoint.written import read_written, write_setting


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("delay", "10m", "10m"),
        ("delay", "  5 ", 5),
        ("delay", "", None),
        ("delay", " \r\n ", None),
        ("owner", "7", "7"),
        ("owner", "2026-11-24", "2026-11-24"),
        ("schedule", '["1m", "3m"]', ["1m", "3m"]),
        ("schedule", '{ exponential = "10s", factor = 2 }', {"exponential": "10s", "factor": 2}),
        ("schedule", "2n+1 minutes", "2n+1 minutes"),
        ("enabled", "false", False),
        ("max_attempts", "forever", "forever"),
        ("retry_when", 'body != "ok"', 'body != "ok"'),
        ("description", '"a"\r\nb = 2', '"a"\nb = 2'),
        (
            "headers",
            "Authorization: env:TOKEN\r\n\r\nx-shop: eu west",
            {"Authorization": "env:TOKEN", "x-shop": "eu west"},
        ),
        ("headers", "authorization:\nx-shop: ***", {"authorization": "***", "x-shop": "***"}),
        ("headers", '{ x-shop = "eu" }', {"x-shop": "eu"}),
        ("headers", "nonsense", "nonsense"),
        ("headers", "a: 1\na: 2", "a: 1\na: 2"),
        ("alert", "ops@example.org\r\nhttps://host/...", ["ops@example.org", "https://host/..."]),
        ("alert", "ops@example.org", "ops@example.org"),
    ],
)
def test_what_is_typed_is_read(name: str, text: str, value: Any) -> None:
    assert read_written(name, text) == value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("delay", "10m", "10m"),
        ("delay", "5", '"5"'),
        ("delay", 5, "5"),
        ("owner", "5", "5"),
        ("enabled", False, "false"),
        ("schedule", ["1m", 180], '["1m", 180]'),
        ("schedule", {"exponential": "10s", "jitter": 0.1}, '{ exponential = "10s", jitter = 0.1 }'),
        ("headers", {"X-Shop": "***", "authorization": "env:TOKEN"}, "X-Shop: ***\nauthorization: env:TOKEN"),
        ("alert", ["ops@example.org", "https://host/..."], "ops@example.org\nhttps://host/..."),
        ("alert", ["ops@example.org"], '["ops@example.org"]'),
        ("success", [200, "3xx"], '[200, "3xx"]'),
        ("description", "two\nlines", "two\nlines"),
        ("until", None, ""),
    ],
)
def test_a_value_is_written_as_a_person_would(name: str, value: Any, text: str) -> None:
    assert write_setting(name, value) == text
    assert read_written(name, text) == value


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text.strip() != "")
WHOLE = st.integers(-(2**63), 2**63 - 1)
ONE = TEXTS | WHOLE | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
TABLES = st.dictionaries(TEXTS, TEXTS | WHOLE, min_size=1, max_size=4)


@given(st.sampled_from([*FIELDS]), ONE | st.lists(ONE, max_size=4) | TABLES)
def test_every_value_is_read_back(name: str, value: Any) -> None:
    # A number or a truth is no value of a setting that is always a text.
    read = read_written(name, write_setting(name, value))
    assert read == value or read == str(value).lower() or read == repr(value)
