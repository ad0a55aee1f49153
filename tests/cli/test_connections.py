"""`tarry status --connections` of a master with several server processes, and the same by HTTP."""

import asyncio
import contextlib
import http.client
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry import App
from tarry.errors import ConnectionNotFound
from tarry.model.values.connection_records import ConnectionFilter
from tarry.process.connection_sockets import (
    ConnectionSocket,
    HostConnections,
    remove_stale_sockets,
    socket_pids,
)
from tarry.server.service import DoorService
from tests.cli.project import Project, until
from tests.cli.serving import open_socket, serve
from tests.servers.server import free_port


def ask(port: int, verb: str, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(verb, path)
        answer = connection.getresponse()
        return answer.status, msgspec.json.decode(answer.read())
    finally:
        connection.close()


def test_the_connections_of_all_server_processes_are_listed_and_ended(project: Project) -> None:
    takes_at = free_port()
    port = serve(project, processes=2, beanstalk=f"127.0.0.1:{takes_at}")
    pids = sorted(project.pids("server"))
    clients = [open_socket(port) for _ in range(8)]
    takes = open_socket(takes_at)
    takes.sendall(b"watch mail\r\nreserve\r\n")

    def status(*words: str) -> Any:
        return project.facts("status", "--connections", *words)

    waiting = until(lambda: [one for one in status()["connections"] if one["state"] == "waiting"])[0]
    assert (waiting["door"], waiting["waits_for"]) == ("beanstalk", "jobs of default, mail")
    until(lambda: status("--door", "http")["total"] == 8)
    found = status("--limit", "3")
    assert (found["total"], len(found["connections"]), found["processes"], found["silent"]) == (9, 3, pids, [])
    # Whichever process answers, it tells of all of them, and of the connection that asks.
    code, by_http = ask(port, "GET", "/v1/connections")
    assert (code, by_http["total"], by_http["processes"]) == (200, 10, pids)
    said = project.said("status", "--connections", "--address", "127.0.0.1")
    assert "9 in all; the 9 oldest:" in said
    assert "reserve, waits for jobs of default, mail" in said

    ended = project.said("status", "--connections", "--end", waiting["id"])
    assert ended.startswith(f"ended: connection {waiting['id']} (beanstalk) of anybody from 127.0.0.1")
    assert takes.recv(100) == b"WATCHING 2\r\n"
    assert takes.recv(100) == b""
    complaint = project.refused("status", "--connections", "--end", waiting["id"])
    assert f"connection {waiting['id']} is not open (any more)" in complaint
    # Asked often enough, one process ends a connection of the other.
    for one in status("--door", "http")["connections"]:
        assert ask(port, "DELETE", f"/v1/connections/{one['id']}")[0] == 200
    for client in clients:
        assert client.recv(100) == b""
        client.close()
    takes.close()
    acts = until(
        lambda: [one for one in project.facts("audit", "--act", "end_connection")["acts"] if one["via"] == "command"]
    )
    assert (len(acts), acts[0]["outcome"], waiting["id"] in acts[0]["subject"]) == (1, "done", True)

    os.kill(pids[0], signal.SIGSTOP)
    try:
        found = status()
        assert (found["processes"], found["silent"]) == (pids[1:], pids[:1])
        assert "does not answer" in project.refused("status", "--connections", "--end", f"{pids[0]}-1")
    finally:
        os.kill(pids[0], signal.SIGCONT)
    pid_file = project.pid_file
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in pid_file.parent.glob("*.connections"))
    project.said("stop")
    assert list(pid_file.parent.glob("*.connections")) == []
    assert project.tarry("status", "--connections").status == 3
    assert "--door is for connections: add --connections" in project.misused("status", "--door", "http")


def test_sockets_have_long_paths_and_killed_processes_leave_theirs(app: App, tmp_path: Path) -> None:
    # Longer than the kernel takes as the path of a socket.
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    pid_file = folder / "tarry.pid"
    dead, other = folder / f"tarry.pid.{2**22 + 1}.connections", folder / "other.pid.1.connections"
    dead.touch()
    other.touch()

    async def story() -> None:
        service = DoorService(app)
        asked = ConnectionSocket(pid_file, service)
        await asked.start()
        try:
            reports, silent = await asyncio.to_thread(HostConnections(pid_file).reports, ConnectionFilter())
            assert ([one.pid for one in reports], silent) == ([os.getpid()], [])
            await asyncio.to_thread(remove_stale_sockets, pid_file)
            assert (socket_pids(pid_file), other.exists()) == ([os.getpid()], True)
            for line in (b"{}\n", b"no JSON\n", b"\xff\n", b"x" * 100_000):
                reader, writer = await asyncio.open_unix_connection(near / f"tarry.pid.{os.getpid()}.connections")
                writer.write(line)
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            with pytest.raises(ConnectionNotFound, match=r"is not open \(any more\)"):
                await asyncio.to_thread(HostConnections(pid_file).end, f"{os.getpid()}-{10**9}")
        finally:
            await asked.close()
            await asyncio.to_thread(service.close)
        assert socket_pids(pid_file) == []

    near = tmp_path / "near"
    near.symlink_to(folder)
    asyncio.run(story())
