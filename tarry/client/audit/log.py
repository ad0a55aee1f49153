"""The store's log of acts: bounded, and in their order. It lives in cells of the store, so every store has it.

- `audit/head` has the numbers of the first and the last page, as `FIRST LAST`.
- `audit/N` is a page: up to 100 acts, the oldest first, as JSON.

A full page is followed by the next; the oldest pages are removed then, so that at most 100 are kept. Acts older than 90
days are left out when their page is written or read.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from tarry.errors import StoreBusy
from tarry.model.duration import DAY
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

    at: int
    """Microseconds since the epoch, by the clock of the host that acted."""
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
        """Adds the acts, in their order; StoreError, StoreBusy. now: microseconds."""
        left = [msgspec.structs.replace(act, id=act.id or ids.text(ids.uuid7())) for act in acts]
        # Each full page takes a try to fill and one to turn.
        for _ in range(_TRIES + 2 * len(left) // PAGE):
            if not left:
                return
            head, (first, last) = self._head()
            name = f"{PREFIX}{last}"
            cell = self._store.kv_get(name)
            kept = [act for act in _decode(cell) if act.at > now - KEPT_FOR]
            room = PAGE - len(kept)
            if room <= 0:
                self._turn(head, first, last)
            elif self._store.kv_cas(name, msgspec.json.encode([*kept, *left[:room]]), cell):
                left = left[room:]
        raise StoreBusy("the log of acts: others wrote it all the time; try again")

    def read(self, wanted: ActFilter, limit: int, cursor: str = "", now: int = 0) -> ActPage:
        """The newest acts that match, before the cursor. A read looks at 2,000 acts, so a page may have few or none and
        a next. now: microseconds. ValueError for a cursor that is none; StoreError. Pages of a shard that is away are
        left out."""
        _, (first, last) = self._head()
        number, before = _parse_cursor(cursor) if cursor else (last, PAGE)
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

    def _head(self) -> tuple[bytes | None, tuple[int, int]]:
        """The head as stored, and the first and the last page."""
        cell = reachable_part(lambda: self._store.kv_get(HEAD))
        words = (cell or b"1 1").split()
        return cell, (int(words[0]), int(words[1]))

    def _turn(self, head: bytes | None, first: int, last: int) -> None:
        """Begins the next page, unless another process has."""
        kept = max(first, last + 2 - PAGES)
        # Removed before the head says so: else a process that dies in between would leave them for ever.
        for number in range(first, kept):
            name = f"{PREFIX}{number}"
            self._store.kv_cas(name, None, self._store.kv_get(name))
        self._store.kv_cas(HEAD, b"%d %d" % (kept, last + 1), head)


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
