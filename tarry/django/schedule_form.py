"""The form in which people make and edit schedules in the admin, and what it makes of them."""

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy
from msgspec.structs import asdict

from tarry.client.acting import Actor, acting
from tarry.client.schedules.facts import ScheduleFacts
from tarry.django.app import DjangoApp, find_django_task
from tarry.errors import ArgumentError, BodyTooLarge, ConfigError
from tarry.model.checks.unreadable import explain, is_sealed, token_of
from tarry.model.schedules.definition import CallOptions
from tarry.model.schedules.given import given_of
from tarry.model.schedules.schedule import MAX_NAME
from tarry.model.schedules.stored import StoredSchedule
from tarry.tasks.arguments.masking import name_positional

MOST_TEXT = 64 * 1024
_NAMED = re.compile(r"(\w+)=")
_CATCH_UP = (
    ("last", gettext_lazy("one run for all")),
    ("skip", gettext_lazy("no run")),
    ("all", gettext_lazy("one run for each")),
)


class ScheduleForm(forms.Form):
    """A schedule: one of cron, every and at."""

    name = forms.CharField(max_length=MAX_NAME, label=gettext_lazy("Name"))
    task = forms.CharField(max_length=200, label=gettext_lazy("Task"))
    args = forms.CharField(
        required=False, max_length=MOST_TEXT, label=gettext_lazy("Arguments"), widget=forms.Textarea({"rows": 2}),
        help_text=gettext_lazy("JSON: a list, or an object by name."),
    )  # fmt: skip
    cron = forms.CharField(required=False, max_length=1000, label=gettext_lazy("Cron"), help_text="0 7 * * 1-5")
    zone = forms.CharField(required=False, max_length=100, label=gettext_lazy("Zone"), help_text="Europe/Paris")
    every = forms.CharField(required=False, max_length=100, label=gettext_lazy("Every"), help_text="90s")
    at = forms.CharField(
        required=False, max_length=100, label=gettext_lazy("Once, at"), help_text="2026-12-31T07:00+01:00"
    )
    until = forms.CharField(required=False, max_length=100, label=gettext_lazy("Until"))
    jitter = forms.CharField(required=False, max_length=100, label=gettext_lazy("Jitter"), help_text="30s")
    catch_up = forms.ChoiceField(choices=_CATCH_UP, label=gettext_lazy("When missed"))

    def save(self, app: DjangoApp, who: str, options: CallOptions) -> ScheduleFacts | None:
        """Puts the schedule; None: something is wrong, and the form says it. options: those of its call that the form
        does not show. StoreError."""
        given = self.cleaned_data
        task = app.find(given["task"])
        if task is None:
            self.add_error("task", gettext_lazy("There is no such task."))
            return None
        when = {name: given[name] or None for name in ("cron", "every", "at", "until", "jitter")}
        try:
            call = _call(task.using(**asdict(options)), json.loads(given["args"] or "[]"))
            with acting(Actor(who, via="program")):
                return app.schedules.put(
                    given["name"], call, zone=given["zone"] or "UTC", catch_up=given["catch_up"], **when
                )
        except json.JSONDecodeError as error:
            self.add_error("args", str(error))
        except (ConfigError, ValueError, TypeError) as error:
            found = _NAMED.match(str(error))
            field = found[1] if found else None
            of_args = "args" if isinstance(error, ArgumentError | BodyTooLarge) else None
            self.add_error(field if field in self.fields else of_args, str(error))
        return None


def initial(app: DjangoApp, name: str, one: StoredSchedule) -> Mapping[str, Any]:
    """What the form shows of a schedule."""
    definition = one.definition
    when, written = given_of(definition.expression)
    return {
        "name": name,
        "task": definition.task,
        "args": _written(app, definition.task, definition.body),
        when: written,
        "zone": definition.zone,
        "until": str(definition.until / 1_000_000) if definition.until else "",
        "jitter": f"{definition.jitter}us" if definition.jitter else "",
        "catch_up": definition.catch_up,
    }


def _call(task: Any, args: Any) -> Any:
    if isinstance(args, dict):
        return task.call(**args)
    if not isinstance(args, list):
        raise ValueError("args= a list, or an object by name")
    return task.call(*args)


def _written(app: DjangoApp, name: str, body: bytes) -> str:
    """The arguments as somebody may write them; empty: nobody here knows the task."""
    task, declared = app.find(name), find_django_task(name, app.may_import)
    if task is None:
        return ""
    if is_sealed(body):
        # No JSON: a form that is saved so is refused, and the arguments stay.
        return explain(token_of(body))
    try:
        args, kwargs = task.codec.decode(body)
    except ArgumentError:
        # They do not fit the task any more: whoever edits mends them.
        return body.decode("utf-8", "replace")
    if not kwargs:
        return json.dumps([*args], ensure_ascii=False)
    named = name_positional(declared.func, [*args], int(declared.takes_context)) if declared is not None else {}
    return json.dumps({**named, **kwargs} if isinstance(named, dict) else {**kwargs}, ensure_ascii=False)
