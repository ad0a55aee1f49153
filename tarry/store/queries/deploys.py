"""When which code began to run: each generation of each master leaves a mark (`process/deploy_mark.py`)."""

import contextlib
from collections.abc import Sequence
from itertools import takewhile

from msgspec import Struct

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.job import StoredCount, StoredTime
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part

PREFIX = "deploy:"
MOST_KEPT = 500
"""Marks, the newest ones."""


class Deploy(Struct, frozen=True):
    """The mark of a generation: workers of one master that began together, with the same code."""

    instance: str
    """The master, as in the registry of hosts."""
    generation: StoredCount = 1
    at: StoredTime = 0
    """When it began, in microseconds since the epoch, by the store's clock."""
    version: str = ""
    """Of the app: `[master] app_version`, or the commit of its git repository; empty: not known."""
    tarry: str = ""
    """The version of tarry."""
    ticks: StoredCount = 0
    """When its first process began, by the clock of its host that names of owners have; 0: not known."""

    @property
    def host(self) -> str:
        """The name of its host."""
        return self.instance.partition("|")[0]

    @property
    def kind(self) -> str:
        """`start` of a master, also of a new tarry, or `reload`."""
        return "reload" if self.generation > 1 else "start"


class DeployRecord(Struct, frozen=True):
    """A generation of workers that began together, with the same code."""

    host: str
    kind: str
    """`start` of a master, also of a new tarry, or `reload`."""
    generation: int
    """How often this master has loaded the code."""
    at: float
    """When it began, in seconds since the epoch."""
    version: str
    """Of the app: `[master] app_version`, or the commit of its git repository; empty: not known."""
    tarry: str
    """The version of tarry."""


def deploy_record(deploy: Deploy) -> DeployRecord:
    """A deploy as people and programs see it."""
    at = deploy.at / SECOND
    return DeployRecord(deploy.host, deploy.kind, deploy.generation, at, deploy.version, deploy.tarry)


def read_deploys(store: Store) -> list[Deploy]:
    """All marks, the newest first. StoreError."""
    found = []
    for cell in reachable_part(lambda: store.kv_list(PREFIX)).values():
        # A newer release may have written it.
        with contextlib.suppress(*UNREADABLE):
            found.append(decode_json(cell, Deploy))
    return sorted(found, key=lambda one: (one.at, one.instance, one.generation), reverse=True)


def last_began(deploys: Sequence[Deploy], now: int) -> int:
    """When the last deploy began, in microseconds; 0: there was none. Hosts that come to the same version one after the
    other are one. deploys: the newest first. now: microseconds; marks of a clock that was wrong are later, and tell
    nothing."""
    began = [one for one in deploys if one.at <= now]
    newest = began[0] if began else Deploy("")
    same = takewhile(lambda one: one.version == newest.version != "", began)
    return min((one.at for one in same), default=newest.at)


def deploy_of(owner: str, deploys: Sequence[Deploy]) -> Deploy | None:
    """In which generation a worker began; None: that is not known. owner: its name. deploys: the newest first."""
    scope, began = began_at(owner.removeprefix("outside:"))
    if not began:
        return None
    same = [one for one in deploys if one.ticks and scope_of(one.instance) == scope and one.ticks <= began]
    return max(same, key=lambda one: (one.ticks, one.at), default=None)


def scope_of(name: str) -> str:
    """The host, its boot and its namespace of processes, in the name of an owner."""
    host, _, rest = name.partition("|")
    return f"{host}|{rest.partition(':')[0]}"


def began_at(owner: str) -> tuple[str, int]:
    """That, and when the process of an owner began, by the clock of its host; 0: the name does not tell."""
    parts = owner.rpartition("|")[2].split(":")
    ticks = parts[2] if len(parts) == 4 else ""
    return scope_of(owner), int(ticks) if ticks.isascii() and ticks.isdecimal() and len(ticks) < 19 else 0
