"""Writes docs/lifecycle.md by asking the state machine itself: `python -m tests.lifecycle_page [--check]`.

Every event is tried on a job in every state; what comes back is what the page says.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tarry.model import lifecycle, outcome
from tarry.model.change import Change
from tarry.model.duration import MINUTE, SECOND
from tarry.model.job import FINISHED, Job, State
from tarry.model.retry import Retry
from tests import flow_phases_page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "lifecycle.md"

NOW = 1_700_000_000 * SECOND
OUTSIDE = "[*]"
RULES = lifecycle.Rules(retry=Retry(5, base=10))
_LAST = lifecycle.Rules(retry=Retry(0))

INTRO = """\
A job is always in exactly one of seven states, and only the events below lead from one to another.
Only a failed attempt uses up one of a job's attempts; an interruption, as by a deployment, never does."""

OWN = """\
Four moves are the store's own. Two must be one with the claim: a scheduled job whose time has come is *promoted*, and \
a ready one that a worker takes is *claimed*. Two must be one with the end of another job: a blocked job is *released* \
with the end of the last job that it waited for, and the job that stands for a flow ends with the last job of the \
flow. Everything else is decided in \
`tarry/model/lifecycle.py`, from which this page is written (`make docs`)."""


class Event(Struct, frozen=True):
    """Something that may happen to a job in some states: its name in the diagram, and in a sentence."""

    name: str
    when: str
    change: Callable[[Job], Change]


class Way(Struct, frozen=True):
    """One arrow: an event that leads from a state to a state, or into and out of the store (`[*]`)."""

    event: str
    when: str
    start: str
    end: str
    failures: str


def job_in(state: State, **fields: object) -> Job:
    """A job as it may be seen in that state: two failures, due in the future only while scheduled."""
    due = NOW + MINUTE if state is State.SCHEDULED else NOW - MINUTE
    made = (NOW // 1000 - 120_000).to_bytes(6, "big")
    seen = Job(made + bytes(10), "shop.send", b"[]", due=due, state=state, epoch=4, failures=2, owner="worker-1")
    return replace(seen, **fields)


def ended(kind: outcome.Outcome, rules: lifecycle.Rules = RULES, crashes: int = 0) -> Callable[[Job], Change]:
    """The event that an attempt ended so, for a job that has seen that many workers die."""
    return lambda job: lifecycle.after(replace(job, crashes=crashes), kind, rules, NOW)


_ERROR = outcome.outcome_note("ValueError", "no such address")

EVENTS = (
    Event("returned", "The task returned", ended(outcome.Returned())),
    Event("raised", "The task raised, and attempts are left", ended(outcome.Raised(_ERROR))),
    Event("out of attempts", "The task raised, and no attempt is left", ended(outcome.Raised(_ERROR), _LAST)),
    Event("failed for good", "The task raised `Fail`", ended(outcome.Raised(_ERROR, final=True))),
    Event("timed out", "The attempt took too long, and attempts are left", ended(outcome.TimedOut(_ERROR))),
    Event(
        "out of attempts", "The attempt took too long, and no attempt is left", ended(outcome.TimedOut(_ERROR), _LAST)
    ),
    Event("worker died", "Its worker died while the job was on, for the first time", ended(outcome.Lost(on=True))),
    Event("worker died again", "The same, for the second time", ended(outcome.Lost(on=True), crashes=1)),
    Event(
        "poison",
        "The same, for the third time: the job is held to be the cause",
        ended(outcome.Lost(on=True), crashes=lifecycle.MAX_CRASHES - 1),
    ),
    Event("given back", "Its worker died before the job was on, or lost its lease", ended(outcome.Lost())),
    Event("given back", "The worker was told to stop, and gave the job back", ended(outcome.Released())),
    Event("held back", "The attempt that it is to follow goes on", ended(outcome.HeldBack())),
    Event("put aside", "The worker is at another job that was on at two deaths", ended(outcome.Quarantined())),
    Event("snoozed", "The task said `Snooze`", ended(outcome.Snoozed(MINUTE))),
    Event("suspended", "The task sleeps, or waits for a signal", ended(outcome.Suspended(NOW + MINUTE))),
    Event("unknown task", "The worker does not know the task; a newer one may", ended(outcome.Unknown())),
    Event("no longer wanted", "The task said `Cancel`", ended(outcome.Cancelled())),
    Event("expired", "It was claimed too late to start", ended(outcome.Expired())),
    Event("cancelled", "Somebody cancelled it", lambda job: lifecycle.cancel(job, RULES, NOW)),
    Event("superseded", "A newer job has taken its key", lambda job: lifecycle.make_way(job, RULES, NOW)),
    Event("run now", "Somebody wants it run now, or again", lambda job: lifecycle.run_now(job, NOW)),
    Event("edited", "Somebody gave it other arguments", lambda job: lifecycle.edit(job, b"[1]", NOW)),
    Event("put off", "Somebody moved it to a later time", lambda job: lifecycle.move(job, NOW, due=NOW + MINUTE)),
    Event(
        "brought forward", "Somebody moved it to a time that has come", lambda job: lifecycle.move(job, NOW, due=NOW)
    ),
    Event(
        "replaced",
        "A later enqueue with its key took its place",
        lambda job: lifecycle.replace_call(job, replace(job, due=NOW), NOW),
    ),
    Event(
        "postponed",
        "A later enqueue with its key pushed it back",
        lambda job: lifecycle.postpone(job, replace(job, due=NOW + MINUTE), NOW),
    ),
    Event("given back", "The program that took it gave it back", lambda job: lifecycle.give_back(job, NOW)),
    Event(
        "given back",
        "The program that took it gave it back, for later",
        lambda job: lifecycle.give_back(job, NOW, delay=MINUTE),
    ),
    Event("buried", "The program that took it put it aside", lambda job: lifecycle.bury(job, RULES, NOW)),
    Event("discarded", "A program that takes jobs deleted it", lambda job: lifecycle.discard(job, RULES, NOW)),
    Event("deleted", "Somebody deleted it", lifecycle.forget),
)


def ways() -> list[Way]:
    """Every arrow there is: into the store, the stores' own two moves, what the lifecycle allows, and out again."""
    return [*_placed(), *_stores_own(), *_allowed(), *_forgotten()]


def _placed() -> Iterable[Way]:
    for when, due in (("It was enqueued for later", NOW + 1), ("It was enqueued", NOW)):
        state = lifecycle.initial_state(due, NOW)
        yield Way("enqueued", when, OUTSIDE, state, "no")
    yield Way("enqueued", "It was enqueued in a flow, behind other jobs", OUTSIDE, State.BLOCKED, "no")


def _stores_own() -> Iterable[Way]:
    yield Way("promoted", "Its time has come", State.SCHEDULED, State.READY, "no")
    yield Way("claimed", "A worker took it", State.READY, State.RUNNING, "no")
    for state in (State.READY, State.SCHEDULED):
        yield Way("released", "The last job that it waited for has ended", State.BLOCKED, state, "no")
    for state in (State.DONE, State.DEAD, State.CANCELLED):
        yield Way("flow ended", "It stands for a flow, and that has ended", State.BLOCKED, state, "no")


def _allowed() -> Iterable[Way]:
    for event in EVENTS:
        for state in State:
            if (way := tried(event, state)) is not None:
                yield way


def tried(event: Event, state: State) -> Way | None:
    """Where the event leads from that state; None if it is refused there."""
    seen = job_in(state)
    try:
        change = event.change(seen)
    except lifecycle.NotPossible:
        return None
    grown = change.failures - seen.failures if change.to else 0
    counts = "starts again from 0" if grown < 0 else "yes" if grown else "no"
    return Way(event.name, event.when, state, change.to or OUTSIDE, counts)


def _forgotten() -> Iterable[Way]:
    for state in State:
        if state in FINISHED:
            yield Way("forgotten", "Its time of keeping has ended", state, OUTSIDE, "no")


def page() -> str:
    """The whole text of docs/lifecycle.md."""
    found = ways()
    diagram = "```mermaid\nstateDiagram-v2\n" + "\n".join(_arrows(found)) + "\n```"
    parts = ["# The life of a job", INTRO, diagram, OWN, "\n".join(_table(found)), flow_phases_page.section()]
    return "\n\n".join(parts) + "\n"


def _arrows(found: Iterable[Way]) -> Iterable[str]:
    labels: dict[tuple[str, str], dict[str, None]] = {}
    for way in found:
        labels.setdefault((way.start, way.end), {})[way.event] = None
    for (start, end), names in labels.items():
        yield f"    {start} --> {end} : {', '.join(names)}"


def _table(found: Iterable[Way]) -> Iterable[str]:
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for way in found:
        rows.setdefault((way.event, way.when, way.end, way.failures), []).append(way.start)
    yield "| event | what happened | from | to | counts as a failure? |"
    yield "|---|---|---|---|---|"
    for (event, when, end, failures), starts in rows.items():
        start = "—" if starts == [OUTSIDE] else ", ".join(starts)
        yield f"| {event} | {when} | {start} | {'forgotten' if end == OUTSIDE else end} | {failures} |"


def main(arguments: list[str] | None = None) -> int:
    """Writes the page, or with --check only says whether it is stale (exit status 1)."""
    parser = argparse.ArgumentParser(prog="python -m tests.lifecycle_page", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if the page is stale")
    parser.add_argument("--page", type=Path, default=PAGE, help="the file, docs/lifecycle.md if left out")
    options = parser.parse_args(arguments)
    if not options.check:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(page(), encoding="utf-8")
        return 0
    if options.page.is_file() and options.page.read_text(encoding="utf-8") == page():
        return 0
    print(f"{options.page.name} is not what tarry/model/lifecycle.py does: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
