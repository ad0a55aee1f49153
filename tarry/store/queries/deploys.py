"""When which code began to run: each generation of each master leaves a mark (`process/deploy_mark.py`)."""

import contextlib
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.job import StoredCount, StoredTime
from tarry.store.rules import owner
from tarry.store.rules.partial_result import reachable_part

# `tarry stats` loads this before it knows whether it opens a store.
if TYPE_CHECKING:
    from tarry.store.rules.base import Store

PREFIX = "deploy:"
SINCE_DEPLOY = "deploy"
"""In place of a time: since the last deploy began."""
_TICKS = re.compile("[0-9]{1,18}")
MOST_KEPT = 500
"""Marks, the newest ones."""


DeployKind = Literal["start", "reload", "upgrade"]
MOST_BY = 100
"""Characters of who asked for a deploy."""


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
    kind: DeployKind = "start"
    """`start` of a master, `reload`, or `upgrade`: a new master in place of another."""
    by: Annotated[str, Meta(max_length=MOST_BY)] = ""
    """Who asked for it: what somebody said of itself, and no identity; empty: not known."""
    is_rollback: bool = False
    """Whether this host ran the same version before, and another one since: told by `read_deploys`."""

    @property
    def host(self) -> str:
        """The name of its host."""
        return self.instance.partition("|")[0]


def read_deploys(store: "Store") -> list[Deploy]:
    """All marks, the newest first. StoreError."""
    found = []
    for cell in reachable_part(lambda: store.kv_list(PREFIX)).values():
        # A newer release may have written it.
        with contextlib.suppress(*UNREADABLE):
            found.append(decode_json(cell, Deploy))
    return _with_rollbacks(sorted(found, key=lambda one: (one.at, one.instance, one.generation)))[::-1]


def _with_rollbacks(deploys: Sequence[Deploy]) -> list[Deploy]:
    """The same, each told whether it went back to an earlier version. deploys: the oldest first."""
    last: dict[str, str] = {}
    known: set[tuple[str, str]] = set()
    found = []
    for one in deploys:
        before, ran = last.get(one.host, ""), (one.host, one.version)
        is_other = bool(before and one.version) and before != one.version
        found.append(replace(one, is_rollback=is_other and ran in known))
        known.add(ran)
        last[one.host] = one.version
    return found


def last_began(deploys: Sequence[Deploy], now: int) -> int:
    """When the last deploy began, in microseconds; 0: there was none. Hosts that come to the same version one after the
    other are one. deploys: the newest first. now: microseconds; marks of a clock that was wrong are later, and tell
    nothing."""
    began = [one for one in deploys if one.at <= now]
    newest = began[0] if began else Deploy("")
    same = takewhile(lambda one: one.version == newest.version != "", began)
    return min((one.at for one in same), default=newest.at)


def deploy_of(name: str, deploys: Sequence[Deploy]) -> Deploy | None:
    """In which generation a worker began; None: not known. name: as owner of jobs. deploys: the newest first."""
    found = owner.process_of(owner.without_door(name))
    if found is None or not _TICKS.fullmatch(found[2]):
        return None
    scope, began = f"{found[0]}:", int(found[2])
    same = [one for one in deploys if 0 < one.ticks <= began and one.instance.startswith(scope)]
    return max(same, key=lambda one: (one.ticks, one.at), default=None)
