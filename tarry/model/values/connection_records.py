"""Connections as others see them, and the reports of several processes as one list."""

import heapq
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

MOST_TEXT = 200
"""Characters of what a connection waits for."""
ConnectionState = Literal["idle", "receiving", "working", "waiting"]
"""idle: no request is under way. receiving: the head of one has not come whole. working: one is done. waiting: one
waits for what may come."""
LISTED, MOST_LISTED = 100, 1000
"""Connections of one list, unless its reader says otherwise; and at most."""
MOST_GROUPS = 100
"""Groups of one list; those with the most connections."""
MOST_OF_PROCESS = 1000
"""Groups that one process reports to another."""


class ConnectionFilter(Struct, frozen=True):
    """Which connections; what is left out matches all."""

    door: str | None = None
    address: str | None = None
    caller: str | None = None
    """Empty: those without one."""
    limit: int = LISTED

    def matches(self, door: str, address: str, caller: str) -> bool:
        """Whether a connection of this door, address and caller is among them."""
        wanted = (self.door, door), (self.address, address), (self.caller, caller)
        return all(want is None or want == has for want, has in wanted)


class ConnectionRecord(Struct, frozen=True):
    """An open connection. Bytes are those within TLS."""

    id: str
    """`4711-17`: the process, and the connection's number there."""
    door: str
    """`http` or `beanstalk`."""
    address: str
    """Of the peer, which may be a proxy; empty: it came by a unix socket."""
    caller: str
    """The name of the token or person of its last request; empty: none was needed, or none was sent yet."""
    since: float
    """When it was opened, in seconds since the epoch."""
    received: int
    """Bytes that came from the client."""
    sent: int
    """Bytes that were sent to the client, or wait to be."""
    state: ConnectionState
    """idle: no request is under way. receiving: the head of one has not come whole. working: one is done. waiting: one
    waits for what may come, such as a job."""
    request: str
    """What is done: the method and the path of the API, without names and ids, or the command of beanstalk."""
    waits_for: str
    """What it waits for: the queues of a claim, the job of a result, events; at most 200 characters."""
    held: int
    """How many jobs go back when it ends: those that a client of beanstalk has reserved."""


class ConnectionGroup(Struct, frozen=True):
    """The connections of one door, address and caller."""

    door: str
    address: str
    caller: str
    connections: int
    idle: int
    """Those without a request under way."""
    received: int
    sent: int
    since: float
    """When the oldest was opened, in seconds since the epoch."""


class ConnectionReport(Struct, frozen=True):
    """What one process tells of its connections."""

    pid: int
    total: int
    groups: list[ConnectionGroup]
    connections: list[ConnectionRecord]


class ConnectionList(Struct, frozen=True):
    """The open connections of the server processes of one master."""

    host: str
    """The host of these processes: only those of the one that answers are known there."""
    total: int
    """How many match."""
    groups: list[ConnectionGroup]
    """Their sums by door, address and caller, the most connections first; at most 100."""
    connections: list[ConnectionRecord]
    """The oldest first; `limit` says how many at most."""
    processes: list[int]
    """The pids of the server processes that answered."""
    silent: list[int]
    """The pids of those that did not answer in time: theirs are missing."""


def merge_reports(reports: Sequence[ConnectionReport], silent: Sequence[int], limit: int, host: str) -> ConnectionList:
    """The reports of several processes as one list."""
    groups: dict[tuple[str, str, str], ConnectionGroup] = {}
    for report in reports:
        for group in report.groups:
            add_group(groups, group)
    connections = heapq.nsmallest(
        limit, (one for report in reports for one in report.connections), key=lambda one: (one.since, one.id)
    )
    return ConnectionList(
        host,
        sum(report.total for report in reports),
        largest_groups(groups.values(), MOST_GROUPS),
        connections,
        sorted(report.pid for report in reports),
        sorted(silent),
    )


def add_group(groups: dict[tuple[str, str, str], ConnectionGroup], more: ConnectionGroup) -> None:
    """Adds the figures of a group to those of the same door, address and caller."""
    key = more.door, more.address, more.caller
    had = groups.get(key)
    groups[key] = more if had is None else ConnectionGroup(
        *key,
        had.connections + more.connections,
        had.idle + more.idle,
        had.received + more.received,
        had.sent + more.sent,
        min(had.since, more.since),
    )  # fmt: skip


def largest_groups(groups: Iterable[ConnectionGroup], most: int) -> list[ConnectionGroup]:
    """Those with the most connections, the largest first."""
    return heapq.nsmallest(most, groups, key=lambda one: (-one.connections, one.door, one.address, one.caller))


def describe_connection(record: ConnectionRecord) -> str:
    """For logs: which one it was."""
    whose, whence = record.caller or "anybody", record.address or "a unix socket"
    return f"connection {record.id} ({record.door}) of {whose} from {whence}"
