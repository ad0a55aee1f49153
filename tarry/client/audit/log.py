"""The store's log of acts: bounded, and in their order. It lives in cells of the store, so every store has it.

- `audit/head` has the numbers of the first and the last page, as `FIRST LAST`.
- `audit/N` is a page: up to 100 acts, the oldest first, as JSON.

A full page is followed by the next; the oldest pages are removed then, so that at most 100 are kept. Acts older than 90
days are left out when their page is written or read.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from tarry.errors import StoreBusy
from tarry.model.duration import DAY
from tarry.model.job import StoredTime
from tarry.store import ids
from tarry.store.base import Store
from tarry.store.shared.partial_result import reachable_part

PREFIX = "audit/"
HEAD = f"{PREFIX}head"
PAGE, PAGES = 100, 100
"""Acts of a page, and pages: 10,000 acts at most."""
KEPT_FOR = 90 * DAY
"""Microseconds."""
PAGES_AT_ONCE = 20
"""Pages that one read looks at."""
MOST_TEXT = 300
"""Characters of each text of an act."""
# Each try fails only if another process has written in between.
_TRIES = 200


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

    def matches(self, act: Act) -> bool:
        """Whether the act is among them."""
        return (
            (not self.job or self.job in act.jobs)
            and self.who in ("", act.who)
            and self.act in ("", act.act)
            and self.queue in ("", act.queue)
            and act.at >= self.since
            and (not self.until or act.at < self.until)
        )


class ActPage(Struct, frozen=True):
    """Some acts that match, the newest first. next: the cursor of those before; empty: there are none."""

    acts: list[Act]
    next: str = ""


_page = msgspec.json.Decoder(list[Act])


class ActLog:
    """The log in this store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(self, acts: Sequence[Act], now: int) -> None:
        """Adds the acts, in their order; StoreError, StoreBusy. One that is in the newest two pages is left out: it was
        added before, and the answer was lost. now: microseconds."""
        left = [identified(act) for act in acts]
        # Each full page takes a try to fill and one to turn.
        for _ in range(_TRIES + 2 * len(left) // PAGE):
            if not left:
                return
            # Not while a part of the store is away: it may have the newest page.
            head = self._store.kv_get(HEAD)
            first, last = self._pages(head)
            if head not in (None, b"%d %d" % (first, last)):
                self._store.kv_cas(HEAD, b"%d %d" % (first, last), head)
            else:
                left = self._append_page(left, now, head, first, last)
        raise StoreBusy("the log of acts: others wrote it all the time; try again")

    def _append_page(self, acts: list[Act], now: int, head: bytes | None, first: int, last: int) -> list[Act]:
        """Adds as many to the last page as there is room for, or begins the next page; returns those that are left."""
        name = f"{PREFIX}{last}"
        cell = self._store.kv_get(name)
        kept = [act for act in _decode(cell) if act.at > now - KEPT_FOR]
        before = _decode(self._store.kv_get(f"{PREFIX}{last - 1}")) if len(kept) < len(acts) and last > first else []
        left = _without(acts, [*before, *kept])
        room = PAGE - len(kept)
        if room <= 0:
            self._turn(head, first, last)
        elif left and self._store.kv_cas(name, msgspec.json.encode([*kept, *left[:room]]), cell):
            return left[room:]
        return left

    def read(self, wanted: ActFilter, limit: int, cursor: str = "", now: int = 0) -> ActPage:
        """The newest acts that match, before the cursor. A read looks at 2,000 acts, so a page may have few or none and
        a next. now: microseconds. ValueError for a cursor that is none; StoreError. Pages of a shard that is away are
        left out."""
        first, last = self._pages(reachable_part(lambda: self._store.kv_get(HEAD)))
        number, before = _parse_cursor(cursor) if cursor else (last, PAGE)
        if number > last:
            number, before = last, PAGE
        found: list[Act] = []
        oldest = max(wanted.since, now - KEPT_FOR)
        stop = max(first, number - PAGES_AT_ONCE + 1)
        while number >= stop:
            page = _decode(self._read_page(number))
            for at in range(min(before, len(page)) - 1, -1, -1):
                if len(found) == limit:
                    return ActPage(found, f"{number}.{at + 1}")
                if page[at].at >= oldest and wanted.matches(page[at]):
                    found.append(page[at])
            # Whatever came before is older still.
            if page and page[-1].at < oldest:
                return ActPage(found)
            number, before = number - 1, PAGE
        return ActPage(found, f"{number}.{PAGE}" if number >= first else "")

    def _read_page(self, number: int) -> bytes | None:
        return reachable_part(lambda: self._store.kv_get(f"{PREFIX}{number}"))

    def _pages(self, head: bytes | None) -> tuple[int, int]:
        """The first and the last page, by the content of the head."""
        if head is None:
            return 1, 1
        if found := re.fullmatch(rb"([1-9]\d{0,14}) ([1-9]\d{0,14})", head):
            first, last = int(found[1]), int(found[2])
            # What lies between is looked at page by page.
            if first <= last <= first + PAGES:
                return first, last
        return self._find_pages()

    def _find_pages(self) -> tuple[int, int]:
        """The same by the pages that are there: the head cannot be read."""
        names = (name.removeprefix(PREFIX) for name in reachable_part(lambda: self._store.kv_list(PREFIX)))
        numbers = [int(name) for name in names if re.fullmatch(r"[1-9]\d{0,14}", name)]
        last = max(numbers, default=1)
        return max(min(numbers, default=1), last - PAGES), last

    def _turn(self, head: bytes | None, first: int, last: int) -> None:
        """Begins the next page, unless another process has."""
        kept = max(first, last + 2 - PAGES)
        # Removed before the head says so: else a process that dies in between would leave them for ever.
        for number in range(first, kept):
            name = f"{PREFIX}{number}"
            self._store.kv_cas(name, None, self._store.kv_get(name))
        self._store.kv_cas(HEAD, b"%d %d" % (kept, last + 1), head)


def identified(act: Act) -> Act:
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
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # A page that cannot be read must not keep others from being written: it ends with the next act.
        return []


def _parse_cursor(cursor: str) -> tuple[int, int]:
    """The page, and how many of its acts come before; ValueError."""
    page, _, before = cursor.partition(".")
    if not (page.isdecimal() and before.isdecimal() and len(cursor) < 40):
        raise ValueError(f"{cursor!r} is no cursor: give `next` of the page before")
    return int(page), int(before)
