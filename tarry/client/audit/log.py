"""The store's log of acts: bounded, and in their order. It lives in cells of the store, so every store has it.

Each caller has a share of its own, and another one for what was refused or failed: so nobody drives out the acts of
others, however much it does or tries. Of a share there are

- `audit/SHARE/head`: the numbers of the first and the last page, as `FIRST LAST`;
- `audit/SHARE/N`: a page: up to 100 acts, the oldest first, as JSON.

A full page is followed by the next; the oldest pages of the share are removed then. Acts older than 90 days are left
out when their page is written or read. Of more callers than MOST_SHARES allows, the one that has done nothing for the
longest time loses its share.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from tarry.errors import StoreBusy
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import DAY
from tarry.model.job import StoredTime
from tarry.model.quantity import shorten
from tarry.store.rules import ids
from tarry.store.rules.name_pattern import fits
from tarry.store.rules.partial_result import reachable_part

# An act is known without a store: most commands write none.
if TYPE_CHECKING:
    from tarry.store.rules.base import Store

PREFIX = "audit/"
DONE = "done"
PAGE = 100
"""Acts of a page."""
PAGES, PAGES_REFUSED = 20, 2
"""Pages of a caller: of what was done, and of what was refused or failed."""
MOST_SHARES = 64
KEPT_FOR = 90 * DAY
"""Microseconds."""
MOST_TEXT = 300
"""Characters of each text of an act."""
# Each try fails only if another process has written in between.
_TRIES = 200
_REFUSED = "-refused"
_PAGE_NAME = re.compile(rf"{PREFIX}[^/]+/[1-9]\d{{0,14}}")


class Act(Struct, frozen=True, omit_defaults=True):
    """What somebody did, or was refused."""

    at: StoredTime
    """By the clock of the host that acted."""
    who: str
    """The name of a token or of a user; empty: not known, or no token is needed."""
    act: str
    """As the method of the HTTP API is called: `cancel_job`."""
    outcome: str
    """`done`, or why it was refused or failed."""
    address: str = ""
    """Of the client, or the host of a command."""
    via: str = ""
    """`http`, `console` or `command`."""
    subject: str = ""
    """On which."""
    queue: str = ""
    """The queue that it concerns; empty: none, or several."""
    jobs: tuple[str, ...] = ()
    """The ids of the jobs that it names."""
    id: str = ""
    """A UUID of its own."""


class ActFilter(Struct, frozen=True):
    """Which acts to read; what is left out matches all. Times are microseconds since the epoch."""

    job: str = ""
    who: str = ""
    act: str = ""
    queue: str = ""
    since: int = 0
    until: int = 0
    queues: tuple[str, ...] | None = None
    """Only those that concern a queue that fits one of these patterns, and those of `reader` that concern none; None:
    all."""
    reader: str = ""

    def matches(self, act: Act) -> bool:
        """Whether the act is among them."""
        return (
            (not self.job or self.job in act.jobs)
            and self.who in ("", act.who)
            and self.act in ("", act.act)
            and self.queue in ("", act.queue)
            and act.at >= self.since
            and (not self.until or act.at < self.until)
            and self._may_show(act)
        )

    def _may_show(self, act: Act) -> bool:
        if self.queues is None:
            return True
        return fits(self.queues, act.queue) if act.queue else act.who != "" and act.who == self.reader


class ActPage(Struct, frozen=True):
    """Some acts that match, the newest first. next: the cursor of those before; empty: there are none."""

    acts: list[Act]
    next: str = ""


_page = json_decoder(list[Act])


class ActLog:
    """The log in this store."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def append(self, acts: Sequence[Act], now: int) -> None:
        """Adds the acts, in their order; StoreError, StoreBusy. One that is in the newest two pages is left out: it was
        added before, and the answer was lost. now: microseconds."""
        shares: dict[str, list[Act]] = {}
        for act in acts:
            shares.setdefault(share_of(act), []).append(with_id(act))
        for name, some in shares.items():
            # A share begins with its first page, and gets a head with the second.
            if all(self._store.kv_get(f"{PREFIX}{name}/{part}") is None for part in ("head", 1)):
                self._make_room(now)
            _ActShare(self._store, name).append(some, now)

    def read(self, wanted: ActFilter, limit: int, cursor: str = "", now: int = 0) -> ActPage:
        """The newest acts that match, before the cursor. now: microseconds. ValueError for a cursor that is none;
        StoreError. Pages of a shard that is away are left out."""
        before = _parse_cursor(cursor) if cursor else None
        oldest = max(wanted.since, now - KEPT_FOR)
        found = {
            _place(act): act
            for act in self._read_all(wanted.who)
            if act.at >= oldest and wanted.matches(act) and (before is None or _place(act) < before)
        }
        places = sorted(found, reverse=True)
        # From what the reader sees alone: how many others there are is none of its business.
        following = "{}.{}".format(*places[limit - 1]) if len(places) > limit > 0 else ""
        return ActPage([found[place] for place in places[:limit]], following)

    def _read_all(self, who: str) -> Iterable[Act]:
        """All acts of that caller; empty: of all. At most MOST_SHARES times PAGES pages."""
        prefixes = [f"{PREFIX}{name}/" for name in _names_of(who)] if who else [PREFIX]
        for prefix in prefixes:
            for cell in _pages_of(reachable_part(lambda: self._store.kv_list(prefix))).values():  # noqa: B023
                yield from _decode(cell)

    def _make_room(self, now: int) -> None:
        """Removes the shares that have only old acts; and, if there is no room for one more, the one whose newest act
        is the oldest."""
        cells = reachable_part(lambda: self._store.kv_list(PREFIX))
        newest: dict[str, int] = {}
        for name, cell in _pages_of(cells).items():
            share = name.split("/")[1]
            newest[share] = max([newest.get(share, 0), *(act.at for act in _decode(cell))])
        by_age = sorted(newest, key=lambda share: newest[share])
        too_many = max(0, len(by_age) + 1 - MOST_SHARES)
        gone = {*by_age[:too_many], *(share for share in by_age if newest[share] < now - KEPT_FOR)}
        for name, cell in cells.items():
            if name.split("/")[1] in gone:
                self._store.kv_cas(name, None, cell)


class _ActShare:
    """The acts of one caller: those that were done, or the others."""

    def __init__(self, store: "Store", name: str) -> None:
        self._store, self._prefix = store, f"{PREFIX}{name}/"
        self._head = f"{self._prefix}head"
        self._most = PAGES_REFUSED if name.endswith(_REFUSED) else PAGES

    def append(self, acts: Sequence[Act], now: int) -> None:
        """See `ActLog.append`."""
        left = list(acts)
        # Each full page takes a try to fill and one to turn.
        for _ in range(_TRIES + 2 * len(left) // PAGE):
            if not left:
                return
            # Not while a part of the store is away: it may have the newest page.
            head = self._store.kv_get(self._head)
            first, last = self._pages(head)
            if head not in (None, b"%d %d" % (first, last)):
                self._store.kv_cas(self._head, b"%d %d" % (first, last), head)
            else:
                left = self._append_page(left, now, head, first, last)
        raise StoreBusy("the log of acts: others wrote it all the time; try again")

    def _append_page(self, acts: list[Act], now: int, head: bytes | None, first: int, last: int) -> list[Act]:
        """Adds as many to the last page as there is room for, or begins the next page; returns those that are left."""
        name = f"{self._prefix}{last}"
        cell = self._store.kv_get(name)
        kept = [act for act in _decode(cell) if act.at > now - KEPT_FOR]
        before = (
            _decode(self._store.kv_get(f"{self._prefix}{last - 1}")) if len(kept) < len(acts) and last > first else []
        )
        left = _without(acts, [*before, *kept])
        room = PAGE - len(kept)
        if room <= 0:
            self._turn(head, first, last)
        elif left and self._store.kv_cas(name, msgspec.json.encode([*kept, *left[:room]]), cell):
            return left[room:]
        return left

    def _pages(self, head: bytes | None) -> tuple[int, int]:
        """The first and the last page, by the content of the head."""
        if head is None:
            return 1, 1
        if found := re.fullmatch(rb"([1-9]\d{0,14}) ([1-9]\d{0,14})", head):
            first, last = int(found[1]), int(found[2])
            # What lies between is looked at page by page.
            if first <= last <= first + self._most:
                return first, last
        return self._find_pages()

    def _find_pages(self) -> tuple[int, int]:
        """The same by the pages that are there: the head cannot be read."""
        cells = reachable_part(lambda: self._store.kv_list(self._prefix))
        numbers = [int(name.rpartition("/")[2]) for name in _pages_of(cells)]
        last = max(numbers, default=1)
        return max(min(numbers, default=1), last - self._most), last

    def _turn(self, head: bytes | None, first: int, last: int) -> None:
        """Begins the next page, unless another process has."""
        kept = max(first, last + 2 - self._most)
        # Removed before the head says so: else a process that dies in between would leave them for ever.
        for number in range(first, kept):
            name = f"{self._prefix}{number}"
            self._store.kv_cas(name, None, self._store.kv_get(name))
        self._store.kv_cas(self._head, b"%d %d" % (kept, last + 1), head)


def with_id(act: Act) -> Act:
    """The act with an id of its own, unless it has one."""
    return act if act.id else msgspec.structs.replace(act, id=ids.text(ids.uuid7()))


def _without(acts: Sequence[Act], there: Sequence[Act]) -> list[Act]:
    known = {act.id for act in there}
    return [act for act in acts if act.id not in known]


def cut(text: str) -> str:
    """As much of a text as an act keeps."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def _decode(cell: bytes | None) -> list[Act]:
    if cell is None:
        return []
    try:
        return _page.decode(cell)
    except UNREADABLE:
        # A page that cannot be read must not keep others from being written: it ends with the next act.
        return []


def share_of(act: Act) -> str:
    """The name of the share that an act is in."""
    return _names_of(act.who)[act.outcome != DONE]


def _names_of(who: str) -> tuple[str, str]:
    """The names of the shares of a caller: of what was done, and of the rest."""
    # A digest, since a name may have any characters, and any length.
    name = blake2b(who.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return name, name + _REFUSED


def _pages_of(cells: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those of the cells that are pages of acts."""
    return {name: cell for name, cell in cells.items() if _PAGE_NAME.fullmatch(name)}


def _place(act: Act) -> tuple[int, str]:
    """Its place in the order of all acts."""
    return act.at, act.id


def _parse_cursor(cursor: str) -> tuple[int, str]:
    """The place of the last act that was shown; ValueError."""
    at, _, id = cursor.partition(".")
    if not re.fullmatch(r"\d{1,30}\.[0-9a-f-]{36}", cursor, re.ASCII):
        raise ValueError(f"{shorten(cursor)} is no cursor: give `next` of the page before")
    return int(at), id
