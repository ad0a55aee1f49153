"""Schedules: all of them, one with its last runs, and the form in which people make and edit those of the store."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tarry.keeper.keeper_records import ScheduleDetail
from tarry.model.duration import SECOND
from tarry.model.schedules import words
from tarry.model.schedules.definition import ScheduleDefinition
from tarry.model.schedules.given import expression_of, given_of, jitter_of, moment
from tarry.model.schedules.phrases import SENTENCES
from tarry.model.values.console_paths import schedule_path
from tarry.operate.access import Scope
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.problem import RequestError, named_option
from tarry.operate.schedules import (
    SchedulePath,
    ScheduleQuery,
    delete_schedule,
    get_schedule,
    list_schedules,
    pause_schedule,
    put_schedule,
    resume_schedule,
    run_schedule,
)
from tarry.operate.tasks import TaskQuery, list_tasks
from tarry.server.console.act import ConsoleAct, Form, FormPage
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.console.views.arguments import masked_arguments
from tarry.server.http.method import ApiCall

TEMPLATE = "schedule_form.html"
UPCOMING = 5
FIELDS = ("task", "args", "cron", "every", "at", "zone", "until", "jitter", "catch_up", "queue", "priority")
_KEPT = ("expires", "timeout", "cost", "labels")
"""Options that the form does not show, and sends as they are."""
FormText = Annotated[str, Meta(max_length=1000)]


class SchedulesPageQuery(ScheduleQuery, frozen=True, forbid_unknown_fields=True):
    """Which schedules a page shows."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 200


class ScheduleFormQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a schedule, and what was typed up to now of when it ticks: as text, which may be wrong."""

    name: Annotated[str, Meta(max_length=200)] = ""
    cron: FormText = ""
    every: FormText = ""
    at: FormText = ""
    zone: FormText = ""
    until: FormText = ""


@console_page("/schedules", "schedules.html")
def schedules_page(call: ApiCall, query: SchedulesPageQuery) -> PageData:
    """The schedules: those of code, and those that people made."""
    found = list_schedules.handler(call, query)
    lines = {one.name: words.parts(one.cron, one.zone) for one in found.schedules}
    shown = {"query": query, "next": found.next, "lines": lines, "sentences": SENTENCES}
    return {"schedules": found.schedules, **shown}


@console_page("/schedules/{schedule}", "schedule.html")
def schedule_page(call: ApiCall, path: SchedulePath) -> PageData:
    """One of them, with what became of its last ticks."""
    found = get_schedule.handler(call, path)
    return {
        "schedule": found,
        "arguments": masked_arguments(call, found.task, found.args),
        "parts": words.parts(found.cron, found.zone),
        "sentences": SENTENCES,
    }


@console_page("/new-schedule", TEMPLATE)
def schedule_form_page(call: ApiCall, query: ScheduleFormQuery) -> PageData:
    """The form of a new schedule, or of one that the store keeps; with the next ticks of what was typed."""
    now = _now(call, query.name)
    typed = {name: value for name, value in msgspec.structs.asdict(query).items() if name != "name" and value}
    if now is not None and now.source == "code":
        raise RequestError(f"schedule {query.name} is a line of task {now.task}: edit it there", None, 409)
    # With the arguments, which other pages show without secrets.
    may_edit = call.caller.allows(Scope.ADMIN, _queue_of(call, now)) if now else False
    texts = {**(_texts(now) if now and may_edit else {}), **typed}
    if typed:
        # Of cron, every and at one counts: what was typed, and not what there was.
        texts |= {name: typed.get(name, "") for name in ("cron", "every", "at")}
    return _form_data(call, query.name, texts, now is not None)


def _now(call: ApiCall, name: str) -> ScheduleDetail | None:
    try:
        return get_schedule.handler(call, SchedulePath(name)) if name else None
    except RequestError:
        return None


def _queue_of(call: ApiCall, one: ScheduleDetail) -> str:
    task = call.service.app.tasks.get(one.task)
    # As `operate/schedules.py` has it.
    return one.queue or (EVERY_QUEUE if task is None else task.queue)


def _texts(one: ScheduleDetail) -> dict[str, str]:
    when, written = given_of(one.cron)
    until = "" if one.until is None else datetime.fromtimestamp(one.until, UTC).isoformat()
    jitter = f"{one.jitter:g}s" if one.jitter else ""
    args = "" if one.args in (None, []) else msgspec.json.encode(one.args).decode()
    priority = "" if one.priority is None else str(one.priority)
    return {
        "task": one.task, "args": args, when: written, "zone": one.zone, "until": until,
        "jitter": jitter, "catch_up": one.missed, "queue": one.queue or "", "priority": priority,
        "labels": msgspec.json.encode(one.labels).decode() if one.labels else "",
        "expires": _as_text(one.expires), "timeout": _as_text(one.timeout), "cost": str(one.cost or ""),
    }  # fmt: skip


def _as_text(span: float | str | None) -> str:
    return f"{span:g}s" if isinstance(span, int | float) else span or ""


def _form_data(
    call: ApiCall, name: str, texts: Mapping[str, str], is_there: bool, error: Exception | None = None
) -> PageData:
    wrong = str(getattr(error, "field", None) or "").partition(".")[0]
    return {
        "name": name,
        "is_there": is_there,
        "texts": {field: texts.get(field, "") for field in (*FIELDS, *_KEPT)},
        "tasks": [task.task for task in list_tasks.handler(call, TaskQuery()).tasks],
        "wrong": wrong if wrong in FIELDS else "",
        "error": error,
        "sentences": SENTENCES,
        **_preview(call, texts),
    }


def _preview(call: ApiCall, texts: Mapping[str, str]) -> dict[str, Any]:
    """What it says in words, and its next ticks; or what is wrong with it."""
    cron, every, at = (texts.get(name, "").strip() or None for name in ("cron", "every", "at"))
    none: dict[str, Any] = {"parts": [], "upcoming": [], "mistake": "", "mistaken": ""}
    if not (cron or every or at):
        return none
    try:
        once, until = (_moment(name, texts.get(name, "").strip()) for name in ("at", "until"))
        expression = expression_of(cron, every, None if once is None else once / SECOND)
        zone = texts.get("zone", "").strip() or "UTC"
        jitter_of(texts.get("jitter", "").strip() or None)
        schedule = ScheduleDefinition("x", b"[]", expression, zone, until=until or 0).schedule("x")
        ticks = schedule.next_ticks(call.client.clock.now(), UPCOMING)
    except ValueError as error:
        return none | {"mistake": str(error), "mistaken": named_option(error) or ""}
    return none | {"parts": words.parts(expression, zone), "upcoming": [tick / SECOND for tick in ticks]}


def _moment(name: str, text: str) -> int | None:
    if not text:
        return None
    return moment(name, float(text) if text.replace(".", "", 1).isdigit() else text)


def _show_again(call: ApiCall, form: Form, error: Exception) -> PageData | None:
    typed = {name.removesuffix(":json"): value for name, value in form}
    name = call.request.path_params["schedule"]
    return _form_data(call, name, typed, _now(call, name) is not None, error)


PAGES: tuple[ConsolePage, ...] = (schedules_page, schedule_page, schedule_form_page)
ACTS = (
    ConsoleAct(
        put_schedule, "Schedule {name} is saved.", lambda one: schedule_path(one.name), FormPage(TEMPLATE, _show_again)
    ),
    ConsoleAct(delete_schedule, "Schedule {schedule} is deleted.", lambda _: "/schedules"),
    ConsoleAct(run_schedule, "The job is enqueued.", lambda run: f"/jobs/{run.id}"),
    ConsoleAct(pause_schedule, "Schedule {name} is paused."),
    ConsoleAct(resume_schedule, "Schedule {name} is resumed."),
)
