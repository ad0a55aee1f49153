"""How other processes ask a server process of this host for its connections: by a unix socket beside the pid file.

A question is a line of JSON, and so is the answer. Only the user of the master, and root, may connect.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from tarry import files, platform
from tarry.client.acting import Actor
from tarry.errors import Busy, ConnectionNotFound, MasterError
from tarry.model.checks.decoders import decode_json
from tarry.model.values.connection_records import (
    ConnectionFilter,
    ConnectionRecord,
    ConnectionReport,
    describe_connection,
)
from tarry.operate.problem import connection_not_found, split_id
from tarry.tasks.lazy_asyncio import asyncio

if TYPE_CHECKING:
    from tarry.server.service import DoorService

log = logging.getLogger("tarry.server")

ENDING = ".connections"
ANSWERS_WITHIN = 2.0
"""Seconds in which a process has to answer."""
MOST_QUESTION, MOST_ANSWER = 16_384, 8 * 2**20
"""Bytes of a line."""
MOST_AT_ONCE = 16
"""Processes that are asked at once, and questions that one answers at once."""

A = TypeVar("A")


class ListQuestion(Struct, frozen=True, tag="list"):
    """Which connections are open?"""

    wanted: ConnectionFilter


class EndQuestion(Struct, frozen=True, tag="end"):
    """Ends a connection. actor: for the log of acts; None: the asking process writes it."""

    number: int
    actor: Actor | None = None


class EndAnswer(Struct, frozen=True):
    """What was ended; None: it is not open."""

    ended: ConnectionRecord | None


class ConnectionSocket:
    """The side that answers. Its methods are for the thread of the event loop."""

    def __init__(self, pid_file: Path, service: "DoorService") -> None:
        self._pid_file, self._service = pid_file, service
        self._name = f"{pid_file.name}.{os.getpid()}{ENDING}"
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self) -> None:
        """Listens; without a socket the server serves all the same."""
        try:
            listener = await asyncio.to_thread(_listen, self._pid_file.parent, self._name)
            self._server = await asyncio.start_unix_server(self._answer_one, sock=listener, limit=MOST_QUESTION)
        except OSError as error:
            log.warning("`tarry status --connections` does not see this process: %s: %s", self._name, error)

    async def close(self) -> None:
        """Answers no more."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):
                self._pid_file.with_name(self._name).unlink()

    async def _answer_one(self, reader: "asyncio.StreamReader", writer: "asyncio.StreamWriter") -> None:
        self._open += 1
        try:
            if self._open <= MOST_AT_ONCE:
                async with asyncio.timeout(ANSWERS_WITHIN):
                    writer.write(await self._answer(await reader.readline()) + b"\n")
                    await writer.drain()
        # Who asks is told by the end of the connection.
        except (OSError, ValueError, TimeoutError) as error:
            log.debug("a question about connections came to nothing: %s", error)
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        question = decode_json(line, ListQuestion | EndQuestion)
        connections = self._service.connections
        if isinstance(question, ListQuestion):
            return msgspec.json.encode(await asyncio.to_thread(connections.report, question.wanted))
        try:
            return msgspec.json.encode(EndAnswer(self._end(question)))
        except ConnectionNotFound:
            return msgspec.json.encode(EndAnswer(None))

    def _end(self, question: EndQuestion) -> ConnectionRecord:
        record = self._service.connections.end(question.number)
        if question.actor is not None:
            from tarry.server.http.request_log import write_command  # noqa: PLC0415 - of the extra

            write_command(self._service, question.actor, "end_connection", describe_connection(record))
        return record


class HostConnections:
    """The side that asks the server processes of one master. All of it blocks, for a few seconds at most."""

    def __init__(self, pid_file: Path, but: int = 0) -> None:
        """but: the pid of a process that is not asked."""
        self._pid_file, self._but = pid_file, but

    def reports(self, wanted: ConnectionFilter) -> tuple[list[ConnectionReport], list[int]]:
        """What they report, and the pids of those that do not answer. MasterError: they belong to another user."""
        pids = [pid for pid in socket_pids(self._pid_file) if pid != self._but]
        reports: list[ConnectionReport] = []
        silent: list[int] = []
        with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
            for pid, found in zip(pids, threads.map(lambda pid: self._report(pid, wanted), pids), strict=True):
                if isinstance(found, ConnectionReport):
                    reports.append(found)
                elif found:
                    silent.append(pid)
        return reports, silent

    def end(self, id: str, actor: Actor | None = None) -> ConnectionRecord:
        """Ends a connection, and returns what it was; ConnectionNotFound, MasterError; Busy if its
        process does not answer. actor: for the log of acts; None: the caller writes it there."""
        pid, number = split_id(id)
        try:
            answer = self._ask(pid, EndQuestion(number, actor), EndAnswer)
        except (FileNotFoundError, ConnectionRefusedError):
            raise connection_not_found(id) from None
        except (OSError, msgspec.DecodeError):
            raise Busy(f"server process {pid} does not answer: connection {id} may be open still") from None
        if answer.ended is None:
            raise connection_not_found(id)
        return answer.ended

    def _report(self, pid: int, wanted: ConnectionFilter) -> ConnectionReport | bool:
        """False: it is gone. True: it is there, and does not answer."""
        try:
            return self._ask(pid, ListQuestion(wanted), ConnectionReport)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except (OSError, msgspec.DecodeError):
            return True

    def _ask(self, pid: int, question: ListQuestion | EndQuestion, kind: type[A]) -> A:
        with (
            _near(self._pid_file.parent, f"{self._pid_file.name}.{pid}{ENDING}") as path,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking,
        ):
            asking.settimeout(ANSWERS_WITHIN)
            try:
                asking.connect(path)
            except PermissionError:
                raise MasterError(f"server process {pid} belongs to another user: run this as that user") from None
            asking.sendall(msgspec.json.encode(question) + b"\n")
            return decode_json(_read_line(asking), kind)


def socket_pids(pid_file: Path) -> list[int]:
    """The pids in the names of the sockets beside the pid file: of processes that serve, or were killed."""
    begin = f"{pid_file.name}."
    with contextlib.suppress(OSError):
        names = os.listdir(pid_file.parent)
        named = [name for name in names if name.startswith(begin) and name.endswith(ENDING)]
        between = [name[len(begin) : -len(ENDING)] for name in named]
        return sorted(int(text) for text in between if text.isascii() and text.isdigit())
    return []


def remove_stale_sockets(pid_file: Path) -> None:
    """Removes the sockets of processes that were killed."""
    for pid in socket_pids(pid_file):
        if platform.has_ended(pid):
            with contextlib.suppress(OSError):
                pid_file.with_name(f"{pid_file.name}.{pid}{ENDING}").unlink()


def _read_line(asking: socket.socket) -> bytes:
    parts, size = [], 0
    while size <= MOST_ANSWER and (more := asking.recv(65536)):
        parts.append(more)
        size += len(more)
        if more.endswith(b"\n"):
            return b"".join(parts)
    raise ConnectionAbortedError("no whole answer")


def _listen(directory: Path, name: str) -> socket.socket:
    with _near(directory, name) as path:
        # That of an earlier process with this number.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Before it has a name; the umask could leave it open to all.
            os.fchmod(listener.fileno(), files.OURS)
            listener.bind(path)
            os.chmod(path, files.OURS)
            listener.listen(MOST_AT_ONCE)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    return listener


@contextlib.contextmanager
def _near(directory: Path, name: str) -> Iterator[str]:
    """A path of that file that is short enough for a socket."""
    near, give_up = platform.near_folder(directory)
    try:
        yield f"{near}/{name}"
    finally:
        give_up()
