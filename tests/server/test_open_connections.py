"""The list of open connections, of both doors, over real sockets: what it tells of each, and what ending one does."""

import asyncio
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import uvloop

from tarry import App
from tarry.config.server_settings import ServerConfig
from tarry.model.job import State
from tarry.model.values.connection_records import (
    ConnectionFilter,
    ConnectionGroup,
    ConnectionList,
    ConnectionRecord,
    ConnectionReport,
    merge_reports,
)
from tarry.model.values.listen_address import listen_address
from tarry.server.identity.tokens import digest
from tarry.server.open_connections.activity import Activity
from tarry.server.open_connections.connection_registry import OpenConnections
from tarry.server.serving.server import DoorServer, make_service
from tarry.store.rules.base import Query
from tests.server.beanstalk.talking import Client

LIMIT = 20.0
TOKENS = {
    "shop": '["put", "take", "read"]',
    "watch": '["read"]',
    "ops": '["operate", "read"]',
    "narrow": '["operate", "read"]',
}


def until(happened: Callable[[], Any]) -> Any:
    end = time.monotonic() + LIMIT
    while not (found := happened()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


class Doors:
    """Both doors of one process, in a thread of the test."""

    def __init__(self, app: App, folder: Path) -> None:
        tokens = folder / "tokens.toml"
        tokens.write_text(
            "".join(
                f'[tokens.{name}]\nsha256 = "{digest(name).hex()}"\nscopes = {scopes}\n'
                f'queues = ["{"other" if name == "narrow" else "*"}"]\n'
                for name, scopes in TOKENS.items()
            )
        )
        tokens.chmod(0o600)
        self.app = app
        nowhere = (listen_address("127.0.0.1:1"),)
        self.config = ServerConfig(http=nowhere, beanstalk=nowhere, beanstalk_auth=True, tokens=tokens)
        self.sockets = {door: [socket.create_server(("127.0.0.1", 0))] for door in ("http", "beanstalk")}
        self.open: list[Any] = []
        self.ready, self.ends = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: uvloop.run(self._serve()))

    async def _serve(self) -> None:
        self.service = make_service(self.app, self.config)
        server = DoorServer(self.service, self.config)
        await self.service.start()
        await server.start(self.sockets)
        self.ready.set()
        await asyncio.to_thread(self.ends.wait)
        await server.drain(0.1)
        await asyncio.to_thread(self.service.close)

    def __enter__(self) -> "Doors":
        self.thread.start()
        assert self.ready.wait(LIMIT)
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.open:
            one.close()
        self.ends.set()
        self.thread.join(LIMIT)

    def http_client(self) -> http.client.HTTPConnection:
        found = http.client.HTTPConnection("127.0.0.1", self.sockets["http"][0].getsockname()[1], timeout=LIMIT)
        found.connect()
        self.open.append(found)
        return found

    def beanstalk(self, token: str = "shop") -> Client:
        client = Client(socket.create_connection(self.sockets["beanstalk"][0].getsockname(), LIMIT))
        self.open.append(client)
        assert client.ask(f"auth {token}\r\n") == b"AUTHORIZED\r\n"
        return client

    def ask(
        self, verb: str, path: str, token: str = "ops", on: http.client.HTTPConnection | None = None, body: Any = None
    ) -> tuple[int, Any]:
        """The status and the answer of a request, on a connection of its own."""
        connection = on or self.http_client()
        send(connection, verb, path, token, body)
        answer = connection.getresponse()
        found = answer.status, msgspec.json.decode(answer.read() or b"null")
        if on is None:
            connection.close()
        return found

    def listed(self, query: str = "", token: str = "ops") -> ConnectionList:
        status, found = self.ask("GET", f"/v1/connections?{query}", token)
        assert status == 200, found
        return msgspec.convert(found, ConnectionList)

    def one(self, **wanted: Any) -> ConnectionRecord:
        """The only connection with these fields, once it is there."""

        def look() -> list[ConnectionRecord]:
            return [
                one
                for one in self.listed().connections
                if all(getattr(one, name) == value for name, value in wanted.items())
            ]

        found: list[ConnectionRecord] = until(look)
        assert len(found) == 1
        return found[0]

    def end(self, id: str, token: str = "ops") -> tuple[int, Any]:
        return self.ask("DELETE", f"/v1/connections/{id}", token)


def send(connection: http.client.HTTPConnection, verb: str, path: str, token: str, body: Any = None) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(verb, path, None if body is None else msgspec.json.encode(body), headers)


@pytest.fixture
def doors(app: App, tmp_path: Path) -> Iterator[Doors]:
    @app.task(name="mail.send", queue="mail")
    def send() -> None: ...

    with Doors(app, tmp_path) as found:
        yield found


def states(app: App) -> list[State]:
    return [job.state for job in app.client.store.find(Query())]


def test_each_connection_tells_what_it_does_for_whom(doors: Doors) -> None:
    began = time.time()
    (job,) = doors.app.named("mail.send").using(delay="1h").enqueue_many([()])
    idle, claims, waits, follows, silent = (doors.http_client() for _ in range(5))
    doors.ask("GET", "/v1/jobs?key=not-to-be-shown", "watch", idle)
    send(claims, "POST", "/v1/claim", "shop", {"queues": ["mail", "other"], "wait": 20})
    send(waits, "GET", f"/v1/jobs/{job.id}/result?wait=20", "shop")
    send(follows, "GET", "/v1/events?queue=mail", "watch")
    silent.sock.sendall(b"POST /v1/jobs?key=not-to-be-shown HTTP/1.1\r\nAuth")
    takes = doors.beanstalk()
    takes.ask("watch sms\r\n")
    takes.send(b"reserve-with-timeout 20\r\n")
    rests = doors.beanstalk("watch")

    assert doors.one(caller="watch", state="idle", door="http").request == ""
    claim = doors.one(request="POST /v1/claim")
    assert (claim.state, claim.waits_for, claim.caller) == ("waiting", "jobs of mail, other", "shop")
    result = doors.one(request="GET /v1/jobs/{id}/result")
    assert (result.state, result.waits_for) == ("waiting", f"the end of job {job.id}")
    stream = doors.one(request="GET /v1/events")
    assert (stream.state, stream.waits_for, stream.caller) == ("waiting", "events", "watch")
    assert stream.received > 0 < stream.sent
    assert doors.one(state="receiving").caller == ""
    reserve = doors.one(request="reserve-with-timeout")
    assert (reserve.door, reserve.state, reserve.caller) == ("beanstalk", "waiting", "shop")
    assert reserve.waits_for == "jobs of default, sms"
    at_rest = doors.one(door="beanstalk", state="idle")
    assert (at_rest.caller, at_rest.sent, at_rest.received) == ("watch", len(b"AUTHORIZED\r\n"), len(b"auth watch\r\n"))
    found = doors.listed()
    assert all(one.address == "127.0.0.1" and began - 1 < one.since < time.time() + 1 for one in found.connections)
    assert [one.since for one in found.connections] == sorted(one.since for one in found.connections)
    assert "not-to-be-shown" not in repr(found)
    assert rests is not takes


def test_sums_come_first_and_filters_choose(doors: Doors) -> None:
    for name in ("shop", "shop", "watch"):
        doors.ask("GET", "/v1/jobs", name, doors.http_client())
    doors.beanstalk()
    # The asking one is there too.
    found = doors.listed("limit=2", "ops")
    assert (found.total, len(found.connections), found.silent) == (5, 2, [])
    assert [(one.door, one.caller, one.connections, one.idle) for one in found.groups] == [
        ("http", "shop", 2, 2), ("beanstalk", "shop", 1, 1), ("http", "ops", 1, 0), ("http", "watch", 1, 1),
    ]  # fmt: skip
    assert found.groups[0].received > found.groups[3].received > 0

    def of(query: str) -> int:
        return doors.listed(query).total

    assert of("door=beanstalk") == 1
    assert (of("caller=shop"), of("caller=shop&door=http"), of("address=127.0.0.1"), of("address=::1")) == (3, 2, 5, 0)
    doors.http_client()
    until(lambda: of("caller=") == 1)


@pytest.mark.parametrize("how", ["claim", "reserve"])
def test_a_wait_that_is_ended_takes_no_job(doors: Doors, how: str) -> None:
    if how == "claim":
        client = doors.http_client()
        send(client, "POST", "/v1/queues/mail/claim", "shop", {"wait": 20})
        read = client.sock.recv
    else:
        takes = doors.beanstalk()
        takes.ask("watch mail\r\n")
        takes.send(b"reserve\r\n")
        read = takes._socket.recv
    id = doors.one(state="waiting").id
    status, ended = doors.end(id)
    assert (status, ended["id"], ended["caller"], ended["state"]) == (200, id, "shop", "waiting")
    assert read(100) == b""
    until(lambda: doors.service.claims.waiting == 0)
    doors.app.named("mail.send").enqueue()
    # Another one takes it at once: it was not handed to the one that was ended.
    status, taken = doors.ask("POST", "/v1/queues/mail/claim", "shop", body={"wait": 10})
    assert (status, len(taken["jobs"])) == (200, 1)


def test_what_a_client_of_beanstalk_had_reserved_is_ready_again(doors: Doors) -> None:
    client = doors.beanstalk()
    assert client.ask("put 1 0 60 2\r\nhi\r\n").startswith(b"INSERTED")
    assert client.ask("reserve\r\n").startswith(b"RESERVED")
    holder = doors.one(held=1)
    assert (holder.state, states(doors.app)) == ("idle", [State.RUNNING])
    assert doors.end(holder.id)[0] == 200
    until(lambda: states(doors.app) == [State.READY])


@pytest.mark.parametrize("path", ["/v1/events", "/v1/jobs/{id}/result?wait=20"])
def test_a_stream_or_a_wait_ends(doors: Doors, path: str) -> None:
    job = doors.app.named("mail.send").enqueue()
    client = doors.http_client()
    send(client, "GET", path.format(id=job.id), "shop")
    ended = doors.one(state="waiting").id
    assert doors.end(ended)[0] == 200
    with contextlib.suppress(http.client.HTTPException):
        while client.sock and client.sock.recv(1000):
            pass
    status, problem = doors.end(ended)
    assert (status, problem["type"]) == (404, "urn:tarry:problem:no-such-connection")
    assert problem["detail"] == f"connection {ended} is not open (any more)"


def test_a_client_that_reads_nothing_cannot_stay(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tarry.server.http.protocol.ENDS_WITHIN", 0.1)
    client = doors.http_client()
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    head = b"GET /v1/openapi.json HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer shop\r\n\r\n"
    # More than the kernel keeps for a client.
    client.sock.sendall(head * 100)
    stuck = until(lambda: [one for one in doors.listed().connections if one.sent > 2_000_000])[0]
    assert stuck.state == "working"
    assert doors.end(stuck.id)[0] == 200
    until(lambda: doors.listed().total == 1)
    assert "Exception" not in caplog.text


def test_the_connection_that_asks_ends_after_its_answer(doors: Doors) -> None:
    own = doors.http_client()
    status, found = doors.ask("GET", "/v1/connections?caller=ops", on=own)
    (mine,) = found["connections"]
    status, ended = doors.ask("DELETE", f"/v1/connections/{mine['id']}", on=own)
    assert (status, ended["id"], ended["request"]) == (200, mine["id"], "DELETE /v1/connections/{connection}")
    until(lambda: doors.listed().total == 1)


def test_what_is_not_there_is_said(doors: Doors) -> None:
    for id in ("1-1", "x", "1", "-", "1-", "²-³", "9" * 400, "1-1-1", "%2e%2e"):
        assert doors.end(quote(id))[0] in (404, 422), id


@pytest.mark.parametrize("token", ["watch", "shop", "narrow"])
def test_operators_of_all_queues_end_them(doors: Doors, token: str) -> None:
    doors.ask("GET", "/v1/jobs", "shop", doors.http_client())
    (theirs,) = doors.listed("caller=shop").connections
    assert doors.end(theirs.id, token)[0] == 403
    assert doors.listed("caller=shop").total == 1


def test_an_end_is_an_act(doors: Doors) -> None:
    doors.ask("GET", "/v1/jobs", "shop", doors.http_client())
    (theirs,) = doors.listed("caller=shop").connections
    assert doors.end(theirs.id)[0] == 200
    assert doors.end(theirs.id)[0] == 404
    _, found = doors.ask("GET", "/v1/audit?act=end_connection")
    acts = [(one["who"], one["subject"], one["outcome"]) for one in found["acts"]]
    assert acts[1] == ("ops", f"connection {theirs.id} (http) of shop from 127.0.0.1", "done")
    assert acts[0][2] == f"ConnectionNotFound: connection {theirs.id} is not open (any more)"


def test_reports_of_several_processes_are_one_list() -> None:
    def record(pid: int, since: float) -> ConnectionRecord:
        return ConnectionRecord(f"{pid}-1", "http", "10.0.0.1", "", since, 1, 2, "idle", "", "", 0)

    def report(pid: int, *sinces: float) -> ConnectionReport:
        group = ConnectionGroup("http", "10.0.0.1", "", len(sinces), 1, 10, 20, min(sinces))
        own = ConnectionGroup("http", f"10.0.0.{pid}", "", 1, 0, 1, 1, 9.0)
        return ConnectionReport(pid, len(sinces) + 1, [group, own], [record(pid, since) for since in sorted(sinces)])

    found = merge_reports([report(5, 3.0, 1.0), report(6, 2.0)], [9, 8], 2, "web-1")
    assert (found.total, found.processes, found.silent) == (5, [5, 6], [8, 9])
    assert found.groups[0] == ConnectionGroup("http", "10.0.0.1", "", 3, 2, 20, 40, 1.0)
    assert [one.id for one in found.connections] == ["5-1", "6-1"]
    assert len(found.groups) == 3


def test_a_list_is_bounded() -> None:
    class Quiet:
        def __init__(self, number: int) -> None:
            self.number, self.address, self.since = number, f"10.0.{number // 250}.{number % 250}", float(number)
            self.received = self.sent = 0
            self.caller_name = ""

        def activity(self) -> Activity:
            return Activity("idle")

        def end(self, asked_by: object = None) -> None: ...

    many: Sequence[Quiet] = [Quiet(number) for number in range(5000, 0, -1)]
    connections = OpenConnections()
    connections.add_door("http", lambda: many)
    found = connections.find(ConnectionFilter(), "web-1")
    assert (found.total, len(found.groups), len(found.connections)) == (5000, 100, 100)
    assert found.connections[0].since == 1.0
    assert len(connections.report(ConnectionFilter()).groups) == 1000
