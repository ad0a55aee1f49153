"""Log lines to syslog and to the journal, which come and go, and may be full."""

import contextlib
import json
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from tarry.runtime.logs import fallback, handlers
from tarry.runtime.logs.datagrams import DatagramHandler
from tarry.runtime.logs.formatting import set_job_facts

pytestmark = pytest.mark.usefixtures("own_logging")

SHOP = logging.getLogger("shop")
JOB = {"job": "0199", "task": 'say "]\\', "queue": "mail", "attempt": 2}

Listens = Callable[..., socket.socket]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "socket")


@pytest.fixture
def listens(place: str) -> Iterator[Listens]:
    """Makes a server that listens at the place."""
    with ExitStack() as stack:

        def listen() -> socket.socket:
            Path(place).unlink(missing_ok=True)
            server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            server.bind(place)
            server.settimeout(15)
            return server

        yield listen


def fields(datagram: bytes) -> dict[str, str]:
    """As the journal reads them."""
    found = {}
    while datagram:
        name, _, rest = datagram.partition(b"\n")
        if b"=" in name:
            key, _, value = name.partition(b"=")
            datagram = rest
        else:
            size = int.from_bytes(rest[:8], "little")
            key, value, datagram = name, rest[8 : 8 + size], rest[9 + size :]
            assert rest[8 + size : 9 + size] == b"\n"
        found[key.decode()] = value.decode()
    return found


def drain(server: socket.socket) -> int:
    """How many datagrams are there."""
    server.setblocking(False)
    taken = 0
    with contextlib.suppress(BlockingIOError):
        while server.recv(9999):
            taken += 1
    return taken


def test_syslog_gets_lines_of_rfc_5424(listens: Listens, place: str) -> None:
    server = listens()
    handlers.configure(f"syslog://{place}")
    set_job_facts(lambda: None, worker="default.1")
    SHOP.warning("paid\nforged")
    host, pid = socket.gethostname(), os.getpid()
    pattern = rf"<28>1 \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z {re.escape(host)} tarry {pid} shop - paid\\nforged"
    assert re.fullmatch(pattern, server.recv(9999).decode())
    SHOP.critical("again", extra={"tarry": JOB})
    line = server.recv(9999).decode()
    assert line.startswith("<26>1 ")
    assert line.endswith(
        ' shop [tarry@32473 job="0199" task="say \\"\\]\\\\" queue="mail" attempt="2" worker="default.1"] again'
    )


def test_syslog_gets_a_traceback_in_one_line_and_no_more_than_8_kib(listens: Listens, place: str) -> None:
    server = listens()
    handlers.configure(f"syslog://{place}")
    try:
        raise ValueError("why")
    except ValueError:
        SHOP.exception("broke")
    line = server.recv(99999).decode()
    assert "\n" not in line
    assert line.endswith("\\nValueError: why")
    SHOP.error("%s", "ü" * 10_000)
    line = server.recv(99999).decode()
    assert 8185 < len(line.encode()) <= 8192
    assert line.endswith("ü...")


def test_syslog_gets_json_as_the_message(listens: Listens, place: str) -> None:
    server = listens()
    handlers.configure(f"syslog://{place}", "json", "debug")
    SHOP.debug("fine", extra={"tarry": JOB})
    line = server.recv(9999).decode()
    facts = json.loads(line[line.index("{") :])
    assert (facts["message"], facts["job"]) == ("fine", "0199")


def test_syslog_of_another_host_by_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(15)
        handlers.configure(f"syslog://127.0.0.1:{server.getsockname()[1]}")
        SHOP.info("by air")
        assert server.recv(9999).endswith(b" by air")


def test_the_journal_gets_fields(listens: Listens, place: str) -> None:
    server = listens()
    handlers.configure(f"journal://{place}")
    set_job_facts(lambda: JOB, worker="default.1")
    SHOP.error("two\nlines", extra={"tarry": JOB})
    found = fields(server.recv(9999))
    assert found["MESSAGE"] == "two\nlines"
    assert (found["PRIORITY"], found["SYSLOG_IDENTIFIER"], found["LOGGER"]) == ("3", "tarry", "shop")
    assert found["CODE_FILE"] == __file__
    assert found["CODE_FUNC"] == "test_the_journal_gets_fields"
    names = ("JOB", "TASK", "QUEUE", "ATTEMPT", "WORKER")
    assert [found[f"TARRY_{name}"] for name in names] == ["0199", JOB["task"], "mail", "2", "default.1"]


def test_the_journal_gets_a_traceback_with_the_message_and_a_long_one_cut(listens: Listens, place: str) -> None:
    server = listens()
    handlers.configure(f"journal://{place}")
    try:
        raise ValueError("why")
    except ValueError:
        SHOP.exception("broke")
    message = fields(server.recv(99999))["MESSAGE"]
    assert message.startswith("broke\nTraceback")
    assert message.endswith("\nValueError: why")
    SHOP.error("%s", "ü" * 100_000)
    assert len(fields(server.recv(999_999))["MESSAGE"].encode()) <= 65536


@pytest.mark.parametrize("kind", ["syslog", "journal"])
def test_without_a_listener_lines_go_to_stderr_until_there_is_one(
    kind: str, listens: Listens, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers.configure(f"{kind}://{place}")
    SHOP.warning("one")
    SHOP.warning("two")
    told, one, two = capfd.readouterr().err.splitlines()
    assert told.startswith("tarry: no log lines can be written to ")
    assert f"{place}" in told
    assert "(No such file or directory)" in told
    assert one.endswith("] one")
    assert two.endswith("] two")
    server = listens()
    handlers.reopen()
    SHOP.warning("three")
    assert b"three" in server.recv(9999)
    assert b"2 lines went to stderr" in server.recv(9999)
    assert capfd.readouterr().err == ""


def test_a_server_that_began_anew_misses_nothing(
    listens: Listens, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    first = listens()
    handlers.configure(f"syslog://{place}")
    SHOP.warning("one")
    assert first.recv(9999).endswith(b"one")
    first.close()
    second = listens()
    SHOP.warning("two")
    assert second.recv(9999).endswith(b"two")
    assert capfd.readouterr().err == ""


def test_nobody_waits_for_a_server_that_reads_nothing(
    listens: Listens, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    server = listens()
    handlers.configure(f"syslog://{place}")
    for number in range(2000):
        SHOP.warning("line %d", number)
    err = capfd.readouterr().err
    assert err.count("tarry: no log lines can be written") == 1
    assert "(Resource temporarily unavailable)" in err
    assert drain(server) + err.count("] line ") == 2000


def test_it_is_tried_again_with_growing_pauses(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now, tries = [100.0], []
    monkeypatch.setattr(fallback, "time", SimpleNamespace(monotonic=lambda: now[0]))
    handlers.configure(f"syslog://{place}")
    dialled = DatagramHandler._connect

    def tried(handler: DatagramHandler) -> socket.socket:
        tries.append(now[0])
        return dialled(handler)

    monkeypatch.setattr(DatagramHandler, "_connect", tried)
    for _ in range(200):
        SHOP.warning("line")
        now[0] += 0.1
    assert len(tries) < 12
    assert tries[-1] - tries[-2] == pytest.approx(5.0, abs=0.11)
