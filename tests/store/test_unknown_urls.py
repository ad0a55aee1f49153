"""URLs of stores that nobody knows: what to write instead is told."""

import pytest

from tarry.errors import ConfigError
from tarry.store.opening import open_store


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite://tarry.db", "write three slashes and a path, as in sqlite:///tarry.db"),
        ("sqlite:tarry.db", "write three slashes and a path, as in sqlite:///tarry.db"),
        ("sqlite3:///tarry.db", "write three slashes and a path, as in sqlite:///tarry.db"),
        ("postgresql+psycopg://app@db/app", "tarry chooses the driver by itself; begin with postgresql://"),
        ("mysql+pymysql://app@db/app", "tarry chooses the driver by itself; begin with mysql://"),
        ("postgre://db/app", "did you mean postgres?"),
        ("redi://db", "did you mean redis?"),
        ("redis+sentinal://db", "did you mean redis+sentinel?"),
        ("mongodb://db", "begin with one of sqlite:///, memory://, "),
        ("tarry.db", "three slashes and a path: sqlite:///tarry.db"),
        ("", "begin with one of sqlite:///"),
    ],
)
def test_what_to_write_instead(url: str, told: str) -> None:
    with pytest.raises(ConfigError) as failed:
        open_store(url)
    assert told in str(failed.value)


def test_no_secret_is_shown() -> None:
    for url in ("postgresql+psycopg://app:geheim@db/app", "redi://:geheim@db", "sqlite3://geheim:geheim@db"):
        with pytest.raises(ConfigError) as failed:
            open_store(url)
        assert "geheim" not in str(failed.value)
