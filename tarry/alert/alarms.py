"""What is wrong, from one look to the next: what has just begun and is to be told, and what is over.

A condition has to hold for a while before it is told, and to be gone for a while before it is over, so that one that
comes and goes is one. What is to be told stays with those who are to hear it until they have; all of it is kept by a
`Memory`, so that who comes next neither repeats the start nor forgets the end.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.alert.condition import MOST_DETAILS, Condition, plain
from tarry.model.duration import DAY, HOUR, MINUTE, spoken

log = logging.getLogger("tarry.alerts")

MOST_OPEN, MOST_OWED = 100, 200
MOST_NAMED = 30
"""Of one kind that has a queue's or a task's name in it; `MOST_OPEN` is for all that has none."""
_NAMED = frozenset({"queue", "dead", "removed", "endpoint", "disabled"})
BRIEF_AFTER = MINUTE
"""Microseconds from the first time that was too short to be told until such times are told together."""
DROPPED_AFTER = HOUR
"""Microseconds for which it is tried to tell."""


class Notice(Struct, omit_defaults=True):
    """The start of a condition, or, with `until`, its end."""

    key: str
    at: int
    """When there was something to tell."""
    what: str
    since: int
    until: int = 0
    todo: str = ""
    details: tuple[str, ...] = ()
    to: list[str] = []
    """Who has not heard of it yet: ids of recipients."""
    soon: bool = False
    """It waits for no others that come up."""


class Brief(Struct):
    """Times too short to be told, of one condition. Microseconds."""

    what: str
    since: int
    until: int = 0
    times: int = 0
    lasted: int = 0


class Open(Struct, omit_defaults=True):
    """A condition that is not over."""

    since: int
    what: str
    over: str
    calm: int
    task: str = ""
    told: bool = False
    gone: int = 0
    """Since when it was not seen."""
    brief: str = ""
    """See `Condition.brief`."""


class Kept(Struct, omit_defaults=True):
    """All that is remembered."""

    open: dict[str, Open] = {}
    brief: dict[str, Brief] = {}
    owed: list[Notice] = []
    sent: dict[str, int] = {}
    """When somebody was told last."""


class Memory(Protocol):
    """Where that is kept. Both may raise StoreError."""

    def read(self) -> bytes | None:
        """What was written last."""

    def write(self, content: bytes | None) -> bool:
        """False: somebody else wrote meanwhile."""


class Alarms:
    """Times are microseconds since the epoch, by whichever clock the caller goes by."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.kept = Kept()
        self._written: bytes | None = None
        self._full: set[str] = set()
        """Kinds of which there are too many."""

    def load(self) -> None:
        """From the memory, whatever it was here before. What cannot be read is as if it were not there."""
        self._written = self._memory.read()
        self.kept = Kept()
        if self._written:
            try:
                self.kept = msgspec.json.decode(self._written, type=Kept)
            except msgspec.MsgspecError as error:
                log.warning("what was remembered of alerts cannot be read, and is forgotten: %s", error)

    def save(self, now: int) -> bool:
        """Into the memory, if there is news; False, and what is there is taken over, if somebody else wrote."""
        kept = self.kept
        kept.sent = {id: at for id, at in kept.sent.items() if 0 <= now - at < 30 * DAY}
        told = replace(kept, open={key: one for key, one in kept.open.items() if one.told})
        content = msgspec.json.encode(told) if told != Kept() else None
        if content == self._written:
            return True
        if not self._memory.write(content):
            self.load()
            return False
        self._written = content
        return True

    def see(self, conditions: Iterable[Condition], now: int, to: "Hearers", ends: bool = True) -> None:
        """What one look has seen; all that it has not is gone, or soon will be. ends: it could see all there is; else
        nothing is over."""
        seen = {condition.key: condition for condition in conditions}
        for condition in seen.values():
            self._seen(condition, now, to)
        for key, one in list(self.kept.open.items()):
            if ends and key not in seen:
                self._missed(key, one, now, to)
        for key, brief in list(self.kept.brief.items()):
            if key not in self.kept.open and now - brief.since >= BRIEF_AFTER:
                del self.kept.brief[key]
                self._owe(Notice(f"brief {key}", now, _in_all(brief), brief.since, brief.until), "", to)

    def owed(self, id: str) -> list[Notice]:
        """What that recipient is to hear."""
        return [notice for notice in self.kept.owed if id in notice.to]

    def settle(self, notices: Sequence[Notice], id: str, now: int) -> None:
        """That recipient has heard of these, or, with `now` 0, never will."""
        heard = {(notice.key, notice.at) for notice in notices}
        for notice in self.kept.owed:
            if (notice.key, notice.at) in heard and id in notice.to:
                notice.to.remove(id)
        self.kept.owed = [notice for notice in self.kept.owed if notice.to]
        if now:
            self.kept.sent[id] = now

    def forget(self, known: Collection[str], before: int) -> None:
        """What came up before then is for nobody else: somebody may have been taken out of the settings."""
        for notice in self.kept.owed:
            notice.to = [id for id in notice.to if id in known or notice.at > before]
        self.kept.owed = [notice for notice in self.kept.owed if notice.to]

    def _seen(self, condition: Condition, now: int, to: "Hearers") -> None:
        one = self.kept.open.get(condition.key)
        if one is None:
            if self._is_full(condition.key):
                return
            one = Open(min(condition.since or now, now - condition.ago), "", "", 0, brief=condition.brief)
            self.kept.open[condition.key] = one
        one.gone, one.calm, one.task = 0, condition.calm, condition.task
        if not one.told:
            one.what = plain(condition.what)
        if not one.told and now - one.since >= condition.holds:
            one.told = True
            log.error("%s", one.what)
            self._owe(_begun(condition, one, now), condition.task, to)
        one.over = plain(condition.over)

    def _is_full(self, key: str) -> bool:
        """Those who enqueue choose the names of queues, and could have so many of them stuck that nobody hears of a
        store: so each kind has a bound of its own."""
        kind, most = _kind(key), MOST_NAMED if _kind(key) else MOST_OPEN
        full = sum(_kind(other) == kind for other in self.kept.open) >= most
        if full and kind not in self._full:
            what = f"more than {most} things of the kind {kind!r} are wrong" if kind else f"{most} things are wrong"
            log.error("%s; the others are not told until some of them are over", what)
        (self._full.add if full else self._full.discard)(kind)
        return full

    def _missed(self, key: str, one: Open, now: int, to: "Hearers") -> None:
        one.gone = one.gone or now
        if now - one.gone < one.calm:
            return
        del self.kept.open[key]
        if one.brief and not one.told:
            self._count(key, one)
        if one.told:
            log.warning("%s", one.over)
            self._owe(Notice(key, now, one.over, one.since, one.gone), one.task, to)

    def _count(self, key: str, one: Open) -> None:
        brief = self.kept.brief.setdefault(key, Brief(plain(one.brief), one.since))
        brief.times += 1
        brief.lasted += one.gone - one.since
        brief.until = one.gone
        log.warning("%s for %s", brief.what, spoken(one.gone - one.since))

    def _owe(self, notice: Notice, task: str, to: "Hearers") -> None:
        notice.to = [*to.of(task)]
        if not notice.to:
            return
        self.kept.owed.append(notice)
        for lost in self.kept.owed[:-MOST_OWED]:
            log.error("too much is to be told; left out: %s", lost.what)
        del self.kept.owed[:-MOST_OWED]


def _kind(key: str) -> str:
    """Of a condition that there is one of for each of many names; empty for all others."""
    kind, space, _ = key.partition(" ")
    return kind if space and kind in _NAMED else ""


class Hearers(Protocol):
    """Who is told."""

    def of(self, task: str) -> Sequence[str]:
        """The ids of those who hear of that task's troubles; empty: of no task's."""


def _begun(condition: Condition, one: Open, now: int) -> Notice:
    details = tuple(plain(line) for line in condition.details[:MOST_DETAILS])
    return Notice(condition.key, now, one.what, one.since, 0, plain(condition.todo), details, soon=condition.soon)


def _in_all(brief: Brief) -> str:
    if brief.times == 1:
        return f"{brief.what} for {spoken(brief.lasted)}"
    return f"{brief.what} {brief.times} times, for {spoken(brief.lasted)} in all"
