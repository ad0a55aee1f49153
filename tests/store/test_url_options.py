"""The options of a store's URL, of each engine: docs/stores.md has them all, and what is wrong is said in one line."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tarry.errors import ConfigError
from tarry.store.mysql.link import address
from tarry.store.postgres.link import url as postgres_url
from tarry.store.redis import url as redis_url
from tarry.store.shared.url_options import UrlOption
from tarry.store.sqlite import url as sqlite_url

PAGE = Path(__file__).parents[2] / "docs/stores.md"
SENTINEL, CLUSTER, UNIX = (redis_url.OF_KIND[kind] for kind in ("sentinel", "cluster", "unix"))
Parse = Callable[[str], object]
FORMS: list[tuple[str, str, Parse, Mapping[str, UrlOption]]] = [
    ("sqlite", "sqlite:///x.db", sqlite_url.parse_url, sqlite_url.OPTIONS),
    ("postgres", "postgresql://ann:hush@h/jobs", postgres_url.parse_url, postgres_url.OPTIONS),
    ("mysql", "mysql://ann:hush@h/jobs", address.parse, address.OPTIONS),
    ("redis", "rediss://ann:hush@h", redis_url.parse_url, {**redis_url.COMMON, **redis_url.TLS}),
    ("unix", "redis+unix:///run/sock", redis_url.parse_url, UNIX),
    ("cluster", "redis+cluster://ann:hush@h", redis_url.parse_url, CLUSTER),
    ("sentinel", "redis+sentinel://ann:hush@h/main", redis_url.parse_url, SENTINEL),
]
EACH = [
    pytest.param(url, parse, name, option, id=f"{engine}-{name}")
    for engine, url, parse, options in FORMS
    for name, option in options.items()
]


def row(name: str, option: UrlOption) -> str:
    """A line of the page's tables."""
    return f"| `{name}={option.default}` | {option.expects} | {option.help} |"


@pytest.mark.parametrize(("url", "parse", "name", "option"), EACH)
def test_each_is_on_the_page_and_says_what_may_stand_there(
    url: str, parse: Parse, name: str, option: UrlOption
) -> None:
    assert row(name, option) in PAGE.read_text(encoding="utf-8").splitlines()
    if option.default:
        parse(f"{url}?{name}={option.default}")
    # A line break is nowhere part of a value.
    with pytest.raises(ConfigError) as refused:
        parse(f"{url}?{name}=a%0Ab")
    says = str(refused.value)
    assert f"{name}='a\\nb': {option.expects} ({option.help})" in says
    assert "hush" not in says
    assert "\n" not in says


@pytest.mark.parametrize(("url", "parse"), [(url, parse) for engine, url, parse, _ in FORMS if engine != "postgres"])
def test_one_that_is_unknown(url: str, parse: Parse) -> None:
    for given, says in (("colour=red", "no option 'colour' here; "), ("colour=", "no such option here; ")):
        with pytest.raises(ConfigError, match=says) as refused:
            parse(f"{url}?{given}")
        assert "hush" not in str(refused.value)


def test_a_value_is_shown_in_part_if_it_is_long() -> None:
    with pytest.raises(ConfigError) as refused:
        sqlite_url.parse_url(f"sqlite:///x.db?fsync={'y' * 5000}")
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("text", ["2", "2s", "2000ms"])
def test_a_timeout_is_seconds_or_a_duration(text: str) -> None:
    """On every server."""
    assert postgres_url.parse_url(f"postgresql://h/jobs?timeout={text}").timeout == 2
    assert address.parse(f"mysql://h/jobs?timeout={text}").timeout == 2
    assert redis_url.parse_url(f"redis://h?timeout={text}").timeout == 2
