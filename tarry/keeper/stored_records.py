"""What people and programs see of a schedule that the store keeps: the same as of one of code."""

from typing import Any

from tarry.client.schedules.facts import schedule_facts
from tarry.keeper.keeper_records import ScheduleDetail, ScheduleRecord, run_records, upcoming_ticks
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE, explain, is_sealed, token_of
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.rules.base import Store


def stored_record(name: str, one: StoredSchedule, now: int) -> ScheduleRecord:
    """A schedule that the store keeps. now: microseconds by the store's clock."""
    return ScheduleRecord(**_stored_fields(name, one, now))


def stored_detail(store: Store, name: str, one: StoredSchedule, now: int) -> ScheduleDetail:
    """The same, with its runs; StoreError."""
    body, options = one.definition.body, one.definition.options
    try:
        args = explain(token_of(body)) if is_sealed(body) else decode_json(body, Any)
    except UNREADABLE:  # another program has written it
        args = None
    return ScheduleDetail(
        **_stored_fields(name, one, now),
        runs=run_records(store, one.runs),
        upcoming=_next_ticks(name, one, now),
        args=args,
        expires=options.expires,
        timeout=options.timeout,
        cost=options.cost,
        labels=options.labels,
    )


def _next_ticks(name: str, one: StoredSchedule, now: int) -> list[float]:
    try:
        return [] if one.paused else upcoming_ticks(one.definition.schedule(name), max(now, one.after))
    except ValueError:  # a zone that is not known on this host
        return []


def _stored_fields(name: str, one: StoredSchedule, now: int) -> dict[str, Any]:
    facts, definition = schedule_facts(name, one, now), one.definition
    return {
        "name": name,
        "task": facts.task,
        "cron": facts.cron,
        "zone": facts.zone,
        "calendar": "",
        "missed": facts.catch_up,
        "next": facts.next,
        "last": facts.last,
        "paused": facts.is_paused,
        "source": "stored",
        "jitter": facts.jitter,
        "until": facts.until,
        "problem": facts.problem,
        "by": facts.by,
        "queue": definition.options.queue,
        "priority": definition.options.priority,
    }
