"""Which header a proxy names people by, and from which addresses that counts."""

from pathlib import Path

import pytest

from tarry.config.config import load
from tarry.config.server_settings import ServerConfig
from tarry.errors import ConfigError

ALL = {"trusted_header": '"X-User"', "trusted_proxies": '["10.0.0.0/8", "::1", "unix"]', "people": '"people.toml"'}


def read(directory: Path, **changed: str | None) -> ServerConfig:
    """The settings, with these in place of the usual ones; None: without."""
    lines = [f"{name} = {value}" for name, value in {**ALL, **changed}.items() if value is not None]
    (directory / "tarry.toml").write_text("\n".join(["[server]", 'http = ":7800"', *lines]))
    return load(environ={}, directory=directory).server


def test_a_server_that_knows_people_by_its_proxy_may_be_on_a_network(tmp_path: Path) -> None:
    server = read(tmp_path)
    assert (server.trusted_header, server.trusted_proxies) == ("X-User", ("10.0.0.0/8", "::1", "unix"))
    assert server.knows_callers


@pytest.mark.parametrize("missing", ALL)
def test_all_three_or_none(tmp_path: Path, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} as well"):
        read(tmp_path, **{missing: None})


@pytest.mark.parametrize("header", ["X_User", "", "X User", "X-User:", "Host", "authorization", "Cookie", "x" * 101])
def test_a_header_that_clients_send_is_none_of_a_proxy(tmp_path: Path, header: str) -> None:
    with pytest.raises(ConfigError, match="trusted_header"):
        read(tmp_path, trusted_header=f'"{header}"')


@pytest.mark.parametrize("proxies", ['["0.0.0.0/0"]', '["::/0"]', '["10.0.0.1/8"]', '["proxy.internal"]', '"10.0.0.1"'])
def test_proxies_are_addresses_and_not_everybody(tmp_path: Path, proxies: str) -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        read(tmp_path, trusted_proxies=proxies)
