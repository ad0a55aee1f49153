"""The form with the settings of an HTTP task: for a new one, and to edit one."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from tarry.errors import UnknownTask
from tarry.model.values.console_paths import task_path
from tarry.operate.problem import RequestError
from tarry.operate.tasks import TaskChange, TaskPath, add_task, edit_task, get_task
from tarry.push.endpoint.edits import TaskChanged
from tarry.push.endpoint.fields import FIELDS, METHODS
from tarry.push.endpoint.hidden import HIDDEN, secrets_of
from tarry.push.endpoint.written import write_setting
from tarry.push.task_records import TaskRecord
from tarry.server.console.act import SETTING_FIELD, ConsoleAct, Form, FormPage
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.http.method import ApiCall

TEMPLATE = "task_form.html"
FIRST = ("url", "method", "delay", "retry_when", "schedule", "max_attempts", "timeout", "queue", "owner", "description")
"""The settings that are asked for first; the others are shown on request."""
_SECRETS = ("secret", "secrets")
_NEW_TASK = "settings."
"""The start of the names of all fields in the form of a new task: those of the method that adds one."""


@console_page("/new-task", TEMPLATE)
def new_task_page(call: ApiCall) -> PageData:
    """The form of a new task."""
    # While the store is away, the form could not be sent: nobody is to fill it in for nothing.
    call.service.sync_tasks()
    return form_data(None, ())


@console_page("/tasks/{task}/edit", TEMPLATE)
def edit_task_page(call: ApiCall, path: TaskPath) -> PageData:
    """The form of a task that is registered in the store."""
    task = get_task.handler(call, path)
    if task.source != "store":
        raise RequestError(f"{path.task} stands in the configuration or the code: edit it there", None, 409)
    return form_data(task, ())


def form_data(task: TaskRecord | None, form: Form, error: Exception | None = None) -> PageData:
    """What the form shows. task: as it is now; None: there is none. form: what was typed, before the error."""
    settings: Mapping[str, Any] = {} if task is None or task.settings is UNSET else task.settings
    now = {name: write_setting(name, settings.get(name)) for name in FIELDS if name not in _SECRETS}
    edits = error.edits if isinstance(error, TaskChanged) else ()
    changed = {"secrets" if name in _SECRETS else name for edit in edits for name in edit.settings}
    texts = {**now, **_typed_texts(form)}
    wrong = _wrong_field(error)
    return {
        "task": task,
        "name": next((value for field, value in form if field == "task"), ""),
        "texts": texts,
        "now_texts": {name: now.get(name, "") for name in changed},
        "secrets": _secrets(settings, form, keep_all="secrets" in changed),
        "new_secret": _new_secret(form),
        "methods": [(method, method) for method in METHODS],
        "wrong": wrong,
        "error": error,
        "why": getattr(error, "why", str(error or "")),
        "edits": edits,
        "is_open": any(texts[name] for name in now if name not in FIRST) or bool(secrets_of(settings))
        or wrong not in ("", "task", *FIRST) or not changed <= {*FIRST},
    }  # fmt: skip


def _typed_texts(form: Form) -> dict[str, str]:
    """The text of each setting as it was typed."""
    fields = [(name.removeprefix(_NEW_TASK), value) for name, value in form]
    return {name.removesuffix(SETTING_FIELD): value for name, value in fields if name.endswith(SETTING_FIELD)}


def _typed_secrets(form: Form) -> list[str]:
    return [value for name, value in form if name.removeprefix(_NEW_TASK) == "secrets"]


def _new_secret(form: Form) -> str:
    """The secret that was typed: the first field of that name, before those of the secrets that there are."""
    return next(iter(_typed_secrets(form)), "")


def _secrets(settings: Mapping[str, Any], form: Form, keep_all: bool) -> list[tuple[str, str, bool]]:
    """The secrets that there are: the text that stands for each, how it is shown, and whether it is to be kept."""
    kept: Sequence[str] = _typed_secrets(form)[1:]
    shown = secrets_of(settings)
    texts = [f"{HIDDEN}{number}" if text == HIDDEN else text for number, text in enumerate(shown, 1)]
    # A change by somebody else may have given the numbers to other secrets.
    return [(text, one, keep_all or not form or text in kept) for text, one in zip(texts, shown, strict=True)]


def _wrong_field(error: Exception | None) -> str:
    field = str(getattr(error, "field", None) or "").removeprefix(_NEW_TASK)
    return "secrets" if field in _SECRETS else field if field in (*FIELDS, "task") else ""


def _show_new_again(call: ApiCall, form: Form, error: Exception) -> PageData | None:
    return form_data(None, form, error)


def _show_edit_again(call: ApiCall, form: Form, error: Exception) -> PageData | None:
    # The button that disables a task has no form with settings.
    if "url" not in _typed_texts(form):
        return None
    name = call.request.path_params["task"]
    try:
        task = get_task.handler(call, TaskPath(name))
    except UnknownTask:
        # It was removed meanwhile: what was typed can make a new one.
        return form_data(None, [("task", name), *form], error)
    if not isinstance(error, TaskChanged):
        # Changes by others of which the editor has not been told are told with the next try.
        task = replace(task, version=call.request.query_params.get("if_version", UNSET))
    return form_data(task, form, error)


def _said_of_new(change: TaskChange) -> str:
    return "The task is added. This may be a mistake: {warnings[0]}" if change.warnings else "The task is added."


def _said_of_edit(change: TaskChange) -> str:
    return "The task is changed. This may be a mistake: {warnings[0]}" if change.warnings else "The task is changed."


PAGES: tuple[ConsolePage, ...] = (new_task_page, edit_task_page)
ACTS = (
    ConsoleAct(
        add_task,
        _said_of_new,
        lambda one: task_path(one.task.task),
        FormPage(TEMPLATE, _show_new_again),
    ),
    ConsoleAct(edit_task, _said_of_edit, None, FormPage(TEMPLATE, _show_edit_again)),
)
