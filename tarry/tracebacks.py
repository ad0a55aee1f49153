"""Tracebacks that begin where the code of the app does, and not in the worker that called it."""

import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

_PACKAGE = f"{Path(__file__).parent}/"
# Tasks that come with tarry are tasks like those of an app.
_TASKS = (f"{_PACKAGE}demo/", f"{_PACKAGE}cli/project/starters/")
_STDLIB, _INSTALLED = f"{sysconfig.get_path('stdlib')}/", ("/site-packages/", "/dist-packages/")
MOST_SKIPPED = 1000
"""How many frames are looked at."""


def app_traceback(error: BaseException) -> TracebackType | None:
    """The error's traceback without the frames of tarry at its beginning, and those of Python's own modules between
    them. If no other frames are there, all stay: then the error is tarry's own."""
    begin = at = error.__traceback__
    for _ in range(MOST_SKIPPED):
        if at is None:
            break
        name = at.tb_frame.f_code.co_filename
        if _is_own(name):
            begin = at.tb_next
        elif not _is_of_python(name):
            break
        at = at.tb_next
    return error.__traceback__ if begin is None else begin


def format_app_traceback(error: BaseException) -> str:
    """The traceback as text, with what it says of causes."""
    return "".join(traceback.format_exception(type(error), error, app_traceback(error)))


def exc_info(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """The same, for a log line."""
    return type(error), error, app_traceback(error)


def _is_own(name: str) -> bool:
    return name.startswith(_PACKAGE) and not name.startswith(_TASKS)


def _is_of_python(name: str) -> bool:
    return (name.startswith(_STDLIB) and not any(part in name for part in _INSTALLED)) or name.startswith("<frozen ")
