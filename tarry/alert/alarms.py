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

from tarry.alert.condition import MOST_DETAILS, Condition, clean_line
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


class BriefOutage(Struct):
    """Times too short to be told, of one condition. Microseconds."""

    what: str
    since: int
    until: int = 0
    times: int = 0
    lasted: int = 0


class OpenCondition(Struct, omit_defaults=True):
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


class AlarmState(Struct, omit_defaults=True):
    """All that is remembered."""

    open: dict[str, OpenCondition] = {}
    brief: dict[str, BriefOutage] = {}
    owed: list[Notice] = []
    sent: dict[str, int] = {}
    """When somebody was told last."""


class AlarmStorage(Protocol):
    """Where that is kept. Both may raise StoreError."""

    def read(self) -> bytes | None:
        """What was written last."""

    def write(self, content: bytes | None) -> bool:
        """False: somebody else wrote meanwhile."""


class Alarms:
    """Times are microseconds since the epoch, by whichever clock the caller goes by."""

    def __init__(self, storage: AlarmStorage) -> None:
        self._storage = storage
        self.state = AlarmState()
        self._last_written: bytes | None = None
        self._full_kinds: set[str] = set()
        """Kinds of which there are too many."""

    def load(self) -> None:
        """From the memory, whatever it was here before. What cannot be read is as if it were not there."""
        self._last_written = self._storage.read()
        self.state = AlarmState()
        if self._last_written:
            try:
                self.state = msgspec.json.decode(self._last_written, type=AlarmState)
            except msgspec.MsgspecError as error:
                log.warning("what was remembered of alerts cannot be read, and is forgotten: %s", error)

    def save(self, now: int) -> bool:
        """Into the memory, if there is news; False, and what is there is taken over, if somebody else wrote."""
        state = self.state
        state.sent = {id: at for id, at in state.sent.items() if 0 <= now - at < 30 * DAY}
        told = replace(state, open={key: one for key, one in state.open.items() if one.told})
        content = msgspec.json.encode(told) if told != AlarmState() else None
        if content == self._last_written:
            return True
        if not self._storage.write(content):
            self.load()
            return False
        self._last_written = content
        return True

    def update(self, conditions: Iterable[Condition], now: int, to: "RecipientLookup", ends: bool = True) -> None:
        """What one look has seen; all that it has not is gone, or soon will be. ends: it could see all there is; else
        nothing is over."""
        seen = {condition.key: condition for condition in conditions}
        for condition in seen.values():
            self._handle_present(condition, now, to)
        for key, one in list(self.state.open.items()):
            if ends and key not in seen:
                self._handle_absent(key, one, now, to)
        for key, brief in list(self.state.brief.items()):
            if key not in self.state.open and now - brief.since >= BRIEF_AFTER:
                del self.state.brief[key]
                self._enqueue(Notice(f"brief {key}", now, _brief_summary(brief), brief.since, brief.until), "", to)

    def pending_for(self, id: str) -> list[Notice]:
        """What that recipient is to hear."""
        return [notice for notice in self.state.owed if id in notice.to]

    def resolve(self, notices: Sequence[Notice], id: str, now: int) -> None:
        """That recipient has heard of these, or, with `now` 0, never will."""
        heard = {(notice.key, notice.at) for notice in notices}
        for notice in self.state.owed:
            if (notice.key, notice.at) in heard and id in notice.to:
                notice.to.remove(id)
        self.state.owed = [notice for notice in self.state.owed if notice.to]
        if now:
            self.state.sent[id] = now

    def forget(self, known: Collection[str], before: int) -> None:
        """What came up before then is for nobody else: somebody may have been taken out of the settings."""
        for notice in self.state.owed:
            notice.to = [id for id in notice.to if id in known or notice.at > before]
        self.state.owed = [notice for notice in self.state.owed if notice.to]

    def _handle_present(self, condition: Condition, now: int, to: "RecipientLookup") -> None:
        one = self.state.open.get(condition.key)
        if one is None:
            if self._is_full(condition.key):
                return
            one = OpenCondition(min(condition.since or now, now - condition.ago), "", "", 0, brief=condition.brief)
            self.state.open[condition.key] = one
        one.gone, one.calm, one.task = 0, condition.calm, condition.task
        if not one.told:
            one.what = clean_line(condition.what)
        if not one.told and now - one.since >= condition.holds:
            one.told = True
            log.error("%s", one.what)
            self._enqueue(_start_notice(condition, one, now), condition.task, to)
        one.over = clean_line(condition.over)

    def _is_full(self, key: str) -> bool:
        """Those who enqueue choose the names of queues, and could have so many of them stuck that nobody hears of a
        store: so each kind has a bound of its own."""
        kind, most = _kind(key), MOST_NAMED if _kind(key) else MOST_OPEN
        full = sum(_kind(other) == kind for other in self.state.open) >= most
        if full and kind not in self._full_kinds:
            what = f"more than {most} things of the kind {kind!r} are wrong" if kind else f"{most} things are wrong"
            log.error("%s; the others are not told until some of them are over", what)
        (self._full_kinds.add if full else self._full_kinds.discard)(kind)
        return full

    def _handle_absent(self, key: str, one: OpenCondition, now: int, to: "RecipientLookup") -> None:
        one.gone = one.gone or now
        if now - one.gone < one.calm:
            return
        del self.state.open[key]
        if one.brief and not one.told:
            self._count_brief(key, one)
        if one.told:
            log.warning("%s", one.over)
            self._enqueue(Notice(key, now, one.over, one.since, one.gone), one.task, to)

    def _count_brief(self, key: str, one: OpenCondition) -> None:
        brief = self.state.brief.setdefault(key, BriefOutage(clean_line(one.brief), one.since))
        brief.times += 1
        brief.lasted += one.gone - one.since
        brief.until = one.gone
        log.warning("%s for %s", brief.what, spoken(one.gone - one.since))

    def _enqueue(self, notice: Notice, task: str, to: "RecipientLookup") -> None:
        notice.to = [*to.recipient_ids(task)]
        if not notice.to:
            return
        self.state.owed.append(notice)
        for lost in self.state.owed[:-MOST_OWED]:
            log.error("too much is to be told; left out: %s", lost.what)
        del self.state.owed[:-MOST_OWED]


def _kind(key: str) -> str:
    """Of a condition that there is one of for each of many names; empty for all others."""
    kind, space, _ = key.partition(" ")
    return kind if space and kind in _NAMED else ""


class RecipientLookup(Protocol):
    """Who is told."""

    def recipient_ids(self, task: str) -> Sequence[str]:
        """The ids of those who hear of that task's troubles; empty: of no task's."""


def _start_notice(condition: Condition, one: OpenCondition, now: int) -> Notice:
    details = tuple(clean_line(line) for line in condition.details[:MOST_DETAILS])
    return Notice(condition.key, now, one.what, one.since, 0, clean_line(condition.todo), details, soon=condition.soon)


def _brief_summary(brief: BriefOutage) -> str:
    if brief.times == 1:
        return f"{brief.what} for {spoken(brief.lasted)}"
    return f"{brief.what} {brief.times} times, for {spoken(brief.lasted)} in all"
