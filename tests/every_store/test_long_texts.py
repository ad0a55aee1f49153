"""Every text that a task gives is cut before it is stored, whatever way it takes: neighbours end, rows stay small."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tarry import App, Cancel, Fail, Retry, current_job
from tarry.model.checks.texts import MOST_MESSAGE, MOST_NOTE, cut
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules, after
from tarry.model.outcome import Cancelled, Lost, Outcome, Raised, Released, TimedOut, outcome_note
from tarry.model.verdict import Verdict
from tarry.store.rules import ids
from tests.worker.bench import LIMIT, until

HUGE, LONG = "x" * 20_000_000, "é" * 500_000
MOST_ROW = 80_000
"""Bytes of a job whose texts are cut, in all."""


class Spoken(Exception):
    """Its class has a name, and its text is made anew each time."""

    def __str__(self) -> str:
        return HUGE


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(HUGE)


class Own(Verdict):
    pass


def raise_chain() -> None:
    error: BaseException = ValueError("first")
    for _ in range(50):
        error, before = ValueError(LONG), error
        error.__cause__ = before
    raise error


def raise_noted() -> None:
    error = ValueError("noted")
    error.add_note(HUGE)
    raise error


def raise_named() -> None:
    raise type("N" * 200_000, (Exception,), {})(LONG)


def raise_late() -> None:
    error = Retry.after(0)
    error.args = (HUGE,)
    raise error


def report_progress() -> None:
    current_job().progress(0.5, HUGE)
    print(LONG)
    raise ValueError(HUGE)


def return_unkept() -> Any:
    return type("N" * 200_000, (), {})()


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


WAYS: dict[str, Callable[[], Any]] = {
    "a message": raising(ValueError(HUGE)),
    "a message that is made": raising(Spoken()),
    "no message": raising(Leaving()),
    "a chain of causes": raise_chain,
    "a note": raise_noted,
    "the name of a class": raise_named,
    "a group": raising(ExceptionGroup(LONG, [ValueError(LONG) for _ in range(20)])),
    "a failure": raising(Fail(HUGE)),
    "a failure, returned": lambda: Fail(HUGE),
    "a cancel": raising(Cancel(HUGE)),
    "a cancel whose reason is no text": raising(Cancel(5)),  # type: ignore[arg-type]
    "a retry": raise_late,
    "a verdict of one's own": raising(Own(HUGE)),
    "progress and output": report_progress,
    "a result that cannot be kept": return_unkept,
    "half a character": raising(Cancel("\ud800" * 20_000)),
}


def check_rows(app: App, handles: Mapping[str, Any]) -> None:
    rows = app.client.store.get([ids.parse(one.id) for one in handles.values()])
    for name, job in zip(handles, rows, strict=True):
        assert job is not None
        assert len(msgspec.json.encode(job)) < MOST_ROW, name
        note = msgspec.json.decode(job.note)
        assert max(map(len, note.values())) <= MOST_MESSAGE, name


def test_texts_of_a_task_are_cut_and_its_neighbours_end(app: App) -> None:
    @app.task(name="sync", retry=Retry(0))
    def sync(way: str) -> Any:
        return WAYS[way]() if way else 1

    @app.task(name="loop", retry=Retry(0))
    async def loop(way: str) -> Any:
        await asyncio.sleep(0)
        return WAYS[way]() if way else 1

    kinds = [sync, loop]
    wild = {f"{task.name}: {way}": task.enqueue(way) for way in WAYS for task in kinds}
    tame = [task.enqueue("") for task in kinds for _ in range(10)]
    with app.running(threads=2):
        assert [one.result(LIMIT) for one in tame] == [1] * len(tame)
        until(lambda: all(one.state.finished for one in wild.values()))
    check_rows(app, wild)
    said = msgspec.json.decode(wild["sync: a message"].record().note)["message"]
    assert said.startswith("xxx")
    assert " characters left out) ... xxx" in said
    progress = wild["sync: progress and output"].progress
    assert progress is not None
    assert "characters left out" in progress.message


def test_the_reason_of_a_cancel_and_of_a_bulk_cancel_is_cut(app: App) -> None:
    app.task(name="mail")(lambda to: None)
    one, other = (app.named("mail").enqueue(to) for to in ("ann", "bob"))
    assert one.cancel(LONG)
    app.jobs(state="ready").cancel(LONG)
    until(lambda: other.state.finished)
    check_rows(app, {"one": one, "other": other})


OUTCOMES: list[Outcome] = [
    Raised(outcome_note("ValueError", HUGE, HUGE)),
    Raised(msgspec.json.encode({"type": LONG, "message": LONG, "other": LONG})),
    Raised(msgspec.json.encode({"message": "no", "other": [LONG]}), final=True),
    Raised(LONG.encode()),
    TimedOut(msgspec.json.encode({"message": LONG})),
    Cancelled(LONG),
    Lost(True, LONG),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=range(len(OUTCOMES)))
def test_whoever_made_an_outcome_its_note_is_cut_where_the_row_is_made(outcome: Outcome) -> None:
    job = Job(bytes(16), "task", b"[]", state=State.RUNNING, epoch=1, owner="w")
    change = after(job, outcome, Rules(retry=Retry(1)), 10**15)
    assert len(change.note) <= MOST_NOTE
    assert len(change.attempts or b"") < MOST_ROW
    again = after(replace(job, note=LONG.encode()), Released(), Rules(retry=Retry(1)), 10**15)
    assert len(again.note) <= MOST_NOTE


@given(st.text(st.characters(), max_size=400), st.integers(60, 300))
def test_a_text_is_cut_to_its_bound_and_not_again(text: str, most: int) -> None:
    once = cut(text, most)
    assert len(once) <= most
    assert cut(once, most) == once
    once.encode()
    if len(text) <= most and text.isascii():
        assert once == text
