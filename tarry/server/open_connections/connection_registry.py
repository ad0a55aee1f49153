"""The open connections of a server process: with whom, since when, what each waits for; and how one is ended."""

import heapq
import os
from collections.abc import Callable, Iterable
from typing import Protocol

from tarry.model.values.connection_records import (
    MOST_OF_PROCESS,
    ConnectionFilter,
    ConnectionGroup,
    ConnectionList,
    ConnectionRecord,
    ConnectionReport,
    add_group,
    largest_groups,
    merge_reports,
)
from tarry.operate.problem import connection_not_found
from tarry.server.open_connections.activity import Activity


class OpenConnection(Protocol):
    """A connection of a door. `end` is for the thread of the event loop, all else for any."""

    @property
    def number(self) -> int:
        """See `next_number`."""

    @property
    def address(self) -> str:
        """Of the peer; empty: it came by a unix socket."""

    @property
    def since(self) -> float:
        """When it was opened, in seconds since the epoch."""

    @property
    def received(self) -> int:
        """Bytes that came."""

    @property
    def sent(self) -> int:
        """Bytes that were sent or wait to be."""

    @property
    def caller_name(self) -> str:
        """Of the last request; empty: none, or it needed no token."""

    def activity(self) -> Activity:
        """What it does now."""

    def end(self, asked_by: object = None) -> None:
        """Ends it as if its client had gone. asked_by: the `state` of the ASGI scope of the request that asks for it: a
        connection that has this request ends after the answer."""


class OtherProcesses(Protocol):
    """The other server processes of the same master. All of it blocks, for a few seconds at most."""

    def reports(self, wanted: ConnectionFilter) -> tuple[list[ConnectionReport], list[int]]:
        """What they report, and the pids of those that do not answer."""

    def end(self, id: str) -> ConnectionRecord:
        """Ends a connection of another process, and returns what it was; ConnectionNotFound, Busy."""


class OpenConnections:
    """The connections of all doors that this process serves by itself, not of a server in which an app is mounted."""

    def __init__(self) -> None:
        self._doors: dict[str, Callable[[], Iterable[OpenConnection]]] = {}
        self.others: OtherProcesses | None = None
        """None: no other process is known."""

    def add_door(self, door: str, connections: Callable[[], Iterable[OpenConnection]]) -> None:
        """From now on that door has these. connections: a copy, since threads go through it."""
        self._doors[door] = connections

    def find(self, wanted: ConnectionFilter, host: str) -> ConnectionList:
        """Those of all processes of the master. Blocks for a few seconds at most."""
        others, silent = ([], []) if self.others is None else self.others.reports(wanted)
        return merge_reports([self.report(wanted), *others], silent, wanted.limit, host)

    def report(self, wanted: ConnectionFilter) -> ConnectionReport:
        """Those of this process. In any thread."""
        groups: dict[tuple[str, str, str], ConnectionGroup] = {}
        found: list[tuple[float, int, str, OpenConnection]] = []
        for door, one in self._all():
            key = door, one.address, one.caller_name
            if wanted.matches(*key):
                found.append((one.since, one.number, door, one))
                add_group(
                    groups,
                    ConnectionGroup(*key, 1, int(one.activity().state == "idle"), one.received, one.sent, one.since),
                )
        oldest = heapq.nsmallest(wanted.limit, found, key=lambda each: each[:2])
        return ConnectionReport(
            os.getpid(),
            len(found),
            largest_groups(groups.values(), MOST_OF_PROCESS),
            [_record(door, one) for *_, door, one in oldest],
        )

    def end(self, number: int, asked_by: object = None) -> ConnectionRecord:
        """Ends a connection of this process, and returns what it was; ConnectionNotFound. On the event loop's thread.
        asked_by: see `OpenConnection.end`."""
        for door, one in self._all():
            if one.number == number:
                record = _record(door, one)
                one.end(asked_by)
                return record
        raise connection_not_found(f"{os.getpid()}-{number}")

    def _all(self) -> Iterable[tuple[str, OpenConnection]]:
        return ((door, one) for door, connections in self._doors.items() for one in connections())


def _record(door: str, one: OpenConnection) -> ConnectionRecord:
    now = one.activity()
    return ConnectionRecord(
        f"{os.getpid()}-{one.number}",
        door,
        one.address,
        one.caller_name,
        one.since,
        one.received,
        one.sent,
        now.state,
        now.request,
        now.waits_for,
        now.held,
    )
