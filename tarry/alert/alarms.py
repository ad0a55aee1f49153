"""Which conditions are open, and which notices of their start and end are still to be sent.

A condition must hold for a while before it is reported, and must be gone for a while before it counts as over, so that
one that comes and goes is reported once. A notice is kept until all its recipients have it. An `AlarmStorage` keeps
all of this, so that after a restart no start is repeated and no end is forgotten.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.alert.condition import MOST_DETAILS, Condition, clean_line
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import DAY, HOUR, MINUTE, format_duration

log = logging.getLogger("tarry.alerts")

MOST_OPEN, MOST_OWED = 100, 200
MOST_WHERE = 2000
"""Characters of a path."""
MOST_NAMED = 30
"""Bound for each kind whose key contains the name of a queue or task; `MOST_OPEN` bounds all other conditions."""
_NAMED = frozenset({"queue", "dead", "removed", "endpoint", "disabled", "host", "schedule", "schedules"})
BRIEF_AFTER = MINUTE
"""Microseconds from the first outage that was too short to report until such outages are reported together."""
DROPPED_AFTER = HOUR
"""Microseconds after which a notice that could not be sent is dropped."""


class Notice(Struct, omit_defaults=True):
    """The start of a condition, or, with `until`, its end."""

    key: str
    at: int
    """When the notice was created."""
    what: str
    since: int
    until: int = 0
    todo: str = ""
    details: tuple[str, ...] = ()
    where: str = ""
    """See `Condition.where`."""
    # Ids and not addresses, since notices are stored.
    to: list[str] = []
    """Ids of the recipients who do not have it yet."""
    soon: bool = False
    """It does not wait for other notices to join it."""


class BriefOutage(Struct):
    """Outages of one condition that were too short to report. Times are in microseconds."""

    what: str
    since: int
    until: int = 0
    times: int = 0
    lasted: int = 0


class OpenCondition(Struct, omit_defaults=True):
    """A condition that has begun and is not over."""

    since: int
    what: str
    over: str
    calm: int
    task: str = ""
    told: bool = False
    gone: int = 0
    """When it was first missing; 0: it is present."""
    brief: str = ""
    """See `Condition.brief`."""
    soon: bool = False
    """See `Condition.soon`."""


class AlarmState(Struct, omit_defaults=True):
    """All that survives a restart. Its field names are stored: do not rename them."""

    open: dict[str, OpenCondition] = {}
    brief: dict[str, BriefOutage] = {}
    owed: list[Notice] = []
    sent: dict[str, int] = {}
    """When the last message was sent, by id of recipient."""
    early: dict[str, int] = {}
    """When the end of an urgent condition was last sent before its turn, by id of recipient."""


class AlarmStorage(Protocol):
    """Where the state is kept. Both methods may raise StoreError."""

    def read(self) -> bytes | None:
        """The content that was written last."""

    def write(self, content: bytes | None) -> bool:
        """False: another process wrote since the last read."""


class Alarms:
    """The open conditions and unsent notices. Times are microseconds since the epoch, by the caller's clock."""

    def __init__(self, storage: AlarmStorage) -> None:
        self._storage = storage
        self.state = AlarmState()
        self._last_written: bytes | None = None
        self._full_kinds: set[str] = set()
        """Kinds that have reached their bound."""

    def load(self) -> None:
        """Replaces the state by the stored one; content that cannot be decoded counts as none."""
        self._last_written = self._storage.read()
        self.state = AlarmState()
        if self._last_written:
            try:
                self.state = decode_json(self._last_written, AlarmState)
            # Something else may have been written there.
            except UNREADABLE as error:
                log.warning("the stored state of alerts cannot be read and is dropped: %s", error)

    def save(self, now: int) -> bool:
        """Stores the state if it has changed. False: another process wrote meanwhile, and its state was loaded."""
        state = self.state
        # Entries of recipients that are gone would pile up.
        state.sent = {id: at for id, at in state.sent.items() if 0 <= now - at < 30 * DAY}
        state.early = {id: at for id, at in state.early.items() if 0 <= now - at < 30 * DAY}
        # A condition that was not reported yet begins anew after a restart, so most changes need no write.
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
        """Takes over the result of one check; conditions that are missing from it end, after a while. ends: False if
        the check could not see everything: then nothing ends."""
        seen = {condition.key: condition for condition in conditions}
        for condition in seen.values():
            self._handle_present(condition, now, to)
        for key, one in list(self.state.open.items()):
            if ends and key not in seen:
                self._handle_absent(key, one, now, to)
        for key, brief in list(self.state.brief.items()):
            # If it is open again, its next outage belongs to the same summary.
            if key not in self.state.open and now - brief.since >= BRIEF_AFTER:
                del self.state.brief[key]
                # With a key of its own: a message has only the newest notice of each key.
                self._enqueue(Notice(f"brief {key}", now, _brief_summary(brief), brief.since, brief.until), "", to)

    def pending_for(self, id: str) -> list[Notice]:
        """The notices that this recipient does not have yet."""
        return [notice for notice in self.state.owed if id in notice.to]

    def resolve(self, notices: Sequence[Notice], id: str, now: int) -> None:
        """Removes this recipient from these notices: they were sent, or, with `now` 0, given up."""
        heard = {(notice.key, notice.at) for notice in notices}
        for notice in self.state.owed:
            if (notice.key, notice.at) in heard and id in notice.to:
                notice.to.remove(id)
        self.state.owed = [notice for notice in self.state.owed if notice.to]
        if now:
            self.state.sent[id] = now

    def forget(self, known: Collection[str], before: int) -> None:
        """Removes recipients who are no longer known from notices that are older than `before`."""
        # The settings may no longer name a recipient.
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
        one.gone, one.calm, one.task, one.soon = 0, condition.calm, condition.task, condition.soon
        if not one.told:
            one.what = clean_line(condition.what)
        if not one.told and now - one.since >= condition.holds:
            one.told = True
            log.error("%s", one.what)
            self._enqueue(_start_notice(condition, one, now), condition.task, to)
        one.over = clean_line(condition.over)

    def _is_full(self, key: str) -> bool:
        """Whether no more conditions of this kind are opened."""
        # Clients choose the names of queues. Without a bound for each kind, many stuck queues could hide a store that
        # is away.
        kind, most = _kind(key), MOST_NAMED if _kind(key) else MOST_OPEN
        full = sum(_kind(other) == kind for other in self.state.open) >= most
        if full and kind not in self._full_kinds:
            # Logged once, until there is room again.
            which = f"alert limit of the kind {kind!r} ({most})" if kind else f"alert limit ({most})"
            log.error("%s reached; further problems are not reported until some are over", which)
        (self._full_kinds.add if full else self._full_kinds.discard)(kind)
        return full

    def _handle_absent(self, key: str, one: OpenCondition, now: int, to: "RecipientLookup") -> None:
        one.gone = one.gone or now
        # Not at once: a condition that comes and goes is reported once.
        if now - one.gone < one.calm:
            return
        del self.state.open[key]
        if one.brief and not one.told:
            self._count_brief(key, one)
        if one.told:
            log.warning("%s", one.over)
            self._enqueue(Notice(key, now, one.over, one.since, one.gone, soon=one.soon), one.task, to)

    def _count_brief(self, key: str, one: OpenCondition) -> None:
        brief = self.state.brief.setdefault(key, BriefOutage(clean_line(one.brief), one.since))
        brief.times += 1
        brief.lasted += one.gone - one.since
        brief.until = one.gone
        log.warning("%s for %s", brief.what, format_duration(one.gone - one.since))

    def _enqueue(self, notice: Notice, task: str, to: "RecipientLookup") -> None:
        notice.to = [*to.recipient_ids(task)]
        # The log has it all the same.
        if not notice.to:
            return
        self.state.owed.append(notice)
        for lost in self.state.owed[:-MOST_OWED]:
            log.error("too many unsent alerts; dropped: %s", lost.what)
        del self.state.owed[:-MOST_OWED]


def _kind(key: str) -> str:
    """The kind of a condition that exists once for each queue or task; empty for all others."""
    kind, space, _ = key.partition(" ")
    return kind if space and kind in _NAMED else ""


class RecipientLookup(Protocol):
    """Finds the recipients of a condition."""

    def recipient_ids(self, task: str) -> Sequence[str]:
        """Ids of the recipients for that task; with an empty name, for what concerns no task."""


def _start_notice(condition: Condition, one: OpenCondition, now: int) -> Notice:
    details = tuple(clean_line(line) for line in condition.details[:MOST_DETAILS])
    todo, where = clean_line(condition.todo), condition.where[:MOST_WHERE]
    return Notice(condition.key, now, one.what, one.since, 0, todo, details, where, soon=condition.soon)


def _brief_summary(brief: BriefOutage) -> str:
    if brief.times == 1:
        return f"{brief.what} for {format_duration(brief.lasted)}"
    return f"{brief.what} {brief.times} times, for {format_duration(brief.lasted)} in all"
