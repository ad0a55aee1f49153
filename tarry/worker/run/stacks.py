"""Where a coroutine waits: its own frames, then the frames of the coroutine or task that it waits for. And where
threads are."""

import sys
import traceback
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

from tarry.tasks.lazy_asyncio import asyncio

MOST_FRAMES = 50
GIVEN_UP = "Stack when it was given up"


def format_task_stack(task: "asyncio.Task[Any]", coroutine: Any, title: str = GIVEN_UP) -> str:
    """The stack of an asyncio task, formatted as a traceback, the innermost call last; empty if the task is over.

    coroutine: the part of the asyncio task that is of interest.
    """
    frames = [
        traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        for frame in islice(_frames(task, coroutine), MOST_FRAMES)
    ]
    shown = "".join(traceback.format_list(frames))
    return f"{title} (most recent call last):\n{shown}" if shown else ""


def format_threads() -> str:
    """The stacks of all threads of this process in the form of faulthandler, the innermost call first."""
    # Unlike faulthandler's signal handler, this has the interpreter: no thread frees a frame that is being read.
    return "\n".join(_format_thread(ident, frame) for ident, frame in sys._current_frames().items())


def innermost_line(thread: int, file: str) -> str:
    """Where a thread is, as `shop/mail.py:12 in send`: its innermost call in this file, or else of all."""
    frame = sys._current_frames().get(thread)
    calls = [] if frame is None else list(islice(traceback.walk_stack(frame), MOST_FRAMES))
    own = [call for call in calls if call[0].f_code.co_filename == file]
    for each, line in (own or calls)[:1]:
        return f"{each.f_code.co_filename}:{line} in {each.f_code.co_name}"
    return "an unknown line"


def _format_thread(ident: int, frame: FrameType) -> str:
    calls = "".join(
        f'  File "{each.f_code.co_filename}", line {line} in {each.f_code.co_name}\n'
        for each, line in islice(traceback.walk_stack(frame), MOST_FRAMES)
    )
    return f"Thread 0x{ident:016x} (most recent call first):\n{calls}"


def _frames(task: "asyncio.Task[Any]", coroutine: Any) -> Iterator[FrameType]:
    while coroutine is not None:
        while coroutine is not None:
            frame = _first(coroutine, "cr_frame", "gi_frame", "ag_frame")
            if frame is not None:
                yield frame
            coroutine = _first(coroutine, "cr_await", "gi_yieldfrom", "ag_await")
        waited_for = getattr(task, "_fut_waiter", None)  # there is no public way to ask
        if not isinstance(waited_for, asyncio.Task):
            return
        task, coroutine = waited_for, waited_for.get_coro()


def _first(thing: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(thing, name, None)) is not None), None)
