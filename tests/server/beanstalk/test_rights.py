"""Tokens at the beanstalk door: what each may do, command by command."""

from collections.abc import Iterator
from pathlib import Path

import greenstalk
import pystalk  # type: ignore[import-untyped]
import pytest

from tarry import App
from tarry.config.parser import SettingsSource
from tarry.config.server_settings import ServerConfig, check_server
from tarry.errors import ConfigError
from tarry.server.beanstalk.command_parser import _READERS
from tarry.server.identity.tokens import TokenAccess, digest
from tests.server.beanstalk.serving import ServedDoor, serving
from tests.server.beanstalk.talking import Client
from tests.server.http.serving import until

NO, MISSING = b"NOT_AUTHORIZED\r\n", b"NOT_FOUND\r\n"
ENTRIES = {
    "admin": 'scopes = ["admin"]',
    "put": 'scopes = ["put"]\nqueues = ["shop-*"]',
    "take": 'scopes = ["take"]\nqueues = ["shop-*"]',
    "read": 'scopes = ["read"]\nqueues = ["shop-*"]',
    "operate": 'scopes = ["operate"]\nqueues = ["shop-*"]',
    "other": 'scopes = ["put"]\ntasks = ["mail.*"]',
    "slow": 'scopes = ["admin"]\nrate = "2/h"',
}
LINES = {
    "put": "put 0 0 60 1\r\nx\r\n",
    "take": "reserve-with-timeout 0\r\n",
    "operate": "kick 1\r\n",
    "read": "peek-ready\r\n",
}


def entries(*names: str, **more: str) -> str:
    chosen = {name: ENTRIES[name] for name in names} | more
    return "".join(f'[tokens.{name}]\nsha256 = "{digest(name).hex()}"\n{rights}\n' for name, rights in chosen.items())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "tokens.toml").write_text(entries(*ENTRIES))
    return tmp_path / "tokens.toml"


@pytest.fixture
def door(tmp_path: Path, file: Path, passed: list[float]) -> Iterator[ServedDoor]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    with serving(app, access=TokenAccess(file, clock=lambda: passed[0])) as door:
        yield door
    app.close()


@pytest.fixture
def passed() -> list[float]:
    return [0.0]


def signed_in(door: ServedDoor, name: str, tube: str = "shop-a") -> Client:
    client = door.client()
    assert client.ask(f"auth {name}\r\n") == b"AUTHORIZED\r\n"
    if name != "slow":
        client.ask(f"use {tube}\r\n")
        client.ask(f"watch {tube}\r\n")
    return client


def new_job(door: ServedDoor, tube: str) -> str:
    return signed_in(door, "admin", tube).ask(LINES["put"]).split()[1].decode()


def test_without_a_token_nothing_is_done(door: ServedDoor) -> None:
    client = door.client()
    for start, _ in _READERS:
        verb = start.decode().strip()
        if verb not in ("auth", "quit"):
            arguments = {"release": " 1 1 1", "bury": " 1 1", "pause-tube": " t 1", "use": " t", "watch": " t"}
            arguments |= dict.fromkeys(("ignore", "stats-tube"), " t")
            alone = verb in ("reserve", "stats") or verb.startswith(("list", "peek-"))
            assert client.ask(f"{verb}{arguments.get(verb, '' if alone else ' 1')}\r\n") == NO, verb
    assert client.ask(LINES["put"]) == NO
    for wrong in ("nobody", "", "x y", "\xff"):
        assert client.ask(f"auth {wrong}\r\n") == NO
    assert signed_in(door, "admin").ask("stats-tube t\r\n") == MISSING


@pytest.mark.parametrize("name", LINES)
def test_a_scope_is_for_its_commands_and_tubes(door: ServedDoor, name: str) -> None:
    client = signed_in(door, name)
    for scope, line in LINES.items():
        assert (client.ask(line) == NO) == (scope != name), scope
    client.ask("use internal\r\n")
    client.ask("watch internal\r\n")
    client.ask("ignore shop-a\r\n")
    assert client.ask(LINES[name]) == NO


def test_jobs_of_other_tubes_are_not_there(door: ServedDoor) -> None:
    own, foreign = new_job(door, "shop-a"), new_job(door, "internal")
    reader, operator, taker = (signed_in(door, name) for name in ("read", "operate", "take"))
    for client, line in (
        (reader, "peek {}\r\n"),
        (reader, "stats-job {}\r\n"),
        (taker, "reserve-job {}\r\n"),
        (operator, "kick-job {}\r\n"),
        (operator, "delete {}\r\n"),
    ):
        assert client.ask(line.format(foreign)) == MISSING
    assert b"internal" not in reader.ask("list-tubes\r\n")
    assert reader.ask("stats\r\n") == reader.ask("stats-tube internal\r\n") == NO
    assert operator.ask("pause-tube internal 1\r\n") == NO
    # A tube that is watched without the right to it brings nothing.
    taker.ask("watch internal\r\n")
    assert taker.ask("reserve-with-timeout 5\r\n") == f"RESERVED {own} 1\r\nx\r\n".encode()
    assert taker.ask(f"touch {own}\r\n") == b"TOUCHED\r\n"
    assert taker.ask("reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert taker.ask(f"delete {own}\r\n") == b"DELETED\r\n"
    assert taker.ask(f"delete {foreign}\r\n") == MISSING


def test_the_tasks_of_a_token_hold(door: ServedDoor) -> None:
    assert signed_in(door, "other").ask(LINES["put"]) == NO


def test_a_token_that_is_revoked_does_nothing_more(door: ServedDoor, file: Path, passed: list[float]) -> None:
    client = signed_in(door, "put")
    assert client.ask(LINES["put"]).startswith(b"INSERTED")
    file.write_text(entries("admin"))
    passed[0] += 10
    assert client.ask(LINES["put"]) == NO


@pytest.mark.parametrize(
    "left", [{}, {"take": 'scopes = ["take"]\nqueues = ["other-*"]'}], ids=["revoked", "fewer queues"]
)
def test_a_token_that_is_revoked_during_a_wait_gets_no_job(
    door: ServedDoor, file: Path, passed: list[float], left: dict[str, str]
) -> None:
    client, root = signed_in(door, "take"), signed_in(door, "admin")
    client.send(b"reserve\r\n")
    until(lambda: door.service.claims.waiting == 1)
    file.write_text(entries("admin", **left))
    passed[0] += 10
    assert root.ask(LINES["put"]).startswith(b"INSERTED")
    assert client.answer() == NO
    assert root.ask("reserve-with-timeout 5\r\n").startswith(b"RESERVED")


def test_the_rate_of_a_token_counts_commands(door: ServedDoor, passed: list[float]) -> None:
    client = signed_in(door, "slow")
    for _ in range(3):
        last = client.ask("list-tube-used\r\n")
    assert last == b"OUT_OF_MEMORY\r\n"
    passed[0] += 3600
    assert client.ask("list-tube-used\r\n") == b"USING default\r\n"


def test_clients_raise_an_error(door: ServedDoor) -> None:
    with pytest.raises(greenstalk.Error), greenstalk.Client(("127.0.0.1", door.port)) as client:
        client.put("x")
    other = pystalk.BeanstalkClient("127.0.0.1", door.port)
    with pytest.raises(pystalk.BeanstalkError):
        other.put_job("x")
    other.close()


def test_without_the_setting_there_is_no_such_command(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    with serving(app) as door:
        assert door.client().ask("auth admin\r\n") == b"UNKNOWN_COMMAND\r\n"
    app.close()


def test_the_setting_needs_tokens() -> None:
    with pytest.raises(ConfigError, match=r"server\.tokens"):
        check_server(ServerConfig(beanstalk_auth=True), SettingsSource())
