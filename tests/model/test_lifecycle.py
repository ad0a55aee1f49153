"""The life of a job: the whole table of events and states, written out, and what holds for every job there may be."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tarry.model import lifecycle, outcome
from tarry.model.change import Change
from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.flow.node_ids import flow_id
from tarry.model.flow.signal import Awaited
from tarry.model.job import FINISHED, HELD, UNFINISHED, WAITING, Job, State
from tarry.model.lifecycle import NotPossible, Rules
from tarry.model.retry import Retry
from tests.lifecycle_page import EVENTS, NOW, job_in, tried, ways
from tests.model import strategies

TABLE = """\
event             | scheduled | ready     | running   | done      | dead      | cancelled | blocked
returned          | -         | -         | done      | -         | -         | -         | -
raised            | -         | -         | scheduled | -         | -         | -         | -
out of attempts   | -         | -         | dead      | -         | -         | -         | -
failed for good   | -         | -         | dead      | -         | -         | -         | -
timed out         | -         | -         | scheduled | -         | -         | -         | -
out of attempts   | -         | -         | dead      | -         | -         | -         | -
worker died       | -         | -         | ready     | -         | -         | -         | -
worker died again | -         | -         | scheduled | -         | -         | -         | -
poison            | -         | -         | dead      | -         | -         | -         | -
given back        | -         | -         | ready     | -         | -         | -         | -
given back        | -         | -         | ready     | -         | -         | -         | -
held back         | -         | -         | scheduled | -         | -         | -         | -
put aside         | -         | -         | scheduled | -         | -         | -         | -
snoozed           | -         | -         | scheduled | -         | -         | -         | -
suspended         | -         | -         | scheduled | -         | -         | -         | -
unknown task      | -         | -         | scheduled | -         | -         | -         | -
no longer wanted  | -         | -         | cancelled | -         | -         | -         | -
expired           | -         | -         | cancelled | -         | -         | -         | -
cancelled         | cancelled | cancelled | cancelled | -         | -         | -         | -
superseded        | cancelled | cancelled | cancelled | -         | -         | -         | -
run now           | ready     | ready     | -         | ready     | ready     | ready     | -
edited            | scheduled | ready     | -         | -         | dead      | cancelled | -
put off           | scheduled | scheduled | -         | -         | -         | -         | -
brought forward   | ready     | ready     | -         | -         | -         | -         | -
replaced          | ready     | ready     | -         | -         | -         | -         | -
postponed         | scheduled | scheduled | -         | -         | -         | -         | -
given back        | -         | -         | ready     | -         | -         | -         | -
given back        | -         | -         | scheduled | -         | -         | -         | -
buried            | -         | -         | dead      | -         | -         | -         | -
discarded         | [*]       | [*]       | done      | [*]       | [*]       | [*]       | -
deleted           | [*]       | [*]       | -         | [*]       | [*]       | [*]       | -
"""
"""A dash: refused. `[*]`: forgotten."""

NODE = replace(job_in(State.BLOCKED), id=flow_id(1, 1)[:15] + b"\x07")
ROOT = replace(job_in(State.DEAD), id=flow_id(1, 1))
IN_A_FLOW = "it waits in a flow: see `tarry flows show 00000000-0001-8000-8000-000100000000`"
IS_A_FLOW = "it is a flow: see `tarry flows show 00000000-0001-8000-8000-000100000000`"
_, *ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.splitlines()]


def test_the_table_names_every_event() -> None:
    assert [row[0] for row in ROWS] == [event.name for event in EVENTS]


@pytest.mark.parametrize("number", range(len(EVENTS)))
@pytest.mark.parametrize(("column", "state"), list(enumerate(State, start=1)))
def test_every_event_in_every_state(number: int, column: int, state: State) -> None:
    way = tried(EVENTS[number], state)
    assert (way.end if way else "-") == ROWS[number][column]


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (lambda: lifecycle.after(job_in(State.READY), outcome.Returned(), Rules(), NOW), "it is ready, not running"),
        (lambda: lifecycle.run_now(job_in(State.RUNNING), NOW), "it is running"),
        (lambda: lifecycle.cancel(job_in(State.DONE), Rules(), NOW), "it is done already"),
        (lambda: lifecycle.cancel(job_in(State.CANCELLED), Rules(), NOW), "it is cancelled already"),
        (lambda: lifecycle.move(job_in(State.RUNNING), NOW), "it is running, not waiting"),
        (lambda: lifecycle.move(job_in(State.DEAD), NOW), "it is dead, not waiting"),
        (lambda: lifecycle.give_back(job_in(State.READY), NOW), "it is ready, not running"),
        (lambda: lifecycle.bury(job_in(State.DEAD), Rules(), NOW), "it is dead, not running"),
        (lambda: lifecycle.forget(job_in(State.RUNNING)), "it is running: cancel it first"),
        (lambda: lifecycle.cancel(NODE, Rules(), NOW), IN_A_FLOW),
        (lambda: lifecycle.make_way(NODE, Rules(), NOW), "its flow waits for it"),
        (lambda: lifecycle.forget(NODE), IN_A_FLOW),
        (lambda: lifecycle.run_now(NODE, NOW), IN_A_FLOW),
        (lambda: lifecycle.move(NODE, NOW, due=NOW), IN_A_FLOW),
        (lambda: lifecycle.run_now(ROOT, NOW), IS_A_FLOW),
        (lambda: lifecycle.forget(ROOT), IS_A_FLOW),
    ],
)
def test_a_refusal_says_why(refused: Callable[[], Change], why: str) -> None:
    with pytest.raises(NotPossible, match=f"^{why}$"):
        refused()


@pytest.mark.parametrize(("due", "state"), [(NOW - 1, "ready"), (NOW, "ready"), (NOW + 1, "scheduled"), (0, "ready")])
def test_a_new_job_waits_for_its_time(due: int, state: str) -> None:
    assert lifecycle.initial_state(due, NOW) is State(state)


def test_from_every_state_some_event_leads_elsewhere() -> None:
    left = {way.start for way in ways() if way.start != way.end}
    assert left >= set(State)


@pytest.mark.parametrize("state", [state for state in State if not state.finished])
def test_every_unfinished_state_can_reach_a_finished_one(state: State) -> None:
    reached, more = set[str](), {str(state)}
    while more - reached:
        reached |= more
        more = {way.end for way in ways() if way.start in reached}
    assert reached >= FINISHED


def ended(job: Job, kind: outcome.Outcome, rules: Rules, now: int = NOW) -> Change:
    return lifecycle.after(job, kind, rules, now)


def message(change: Change) -> tuple[str, str]:
    note = msgspec.json.decode(change.note)
    return note["type"], note["message"]


def some_change(job: Job, kind: outcome.Outcome, rules: Rules, number: int, due: int) -> Change:
    """One of the changes that may be asked for; for a running job, the end of its attempt."""
    if job.state is State.RUNNING and number:
        return ended(job, kind, rules)
    asked = (
        lambda: lifecycle.cancel(job, rules, NOW, "why"),
        lambda: lifecycle.run_now(job, NOW),
        lambda: lifecycle.move(job, NOW, due=due),
        lambda: lifecycle.move(job, NOW, queue="slow", priority=7),
        lambda: lifecycle.forget(job),
        lambda: lifecycle.replace_call(job, replace(job, due=due, body=b"[]"), NOW),
        lambda: lifecycle.postpone(job, replace(job, due=due), NOW),
    )
    return asked[number]()


@st.composite
def changes(draw: st.DrawFn) -> tuple[Job, Rules, Change]:
    """A job, the rules for it, and any change that the lifecycle allows."""
    job, kind, rules = draw(strategies.jobs()), draw(strategies.outcomes), draw(strategies.rules)
    possible = (0, 1, 2, 3, 4, 5, 6) if not job.state.finished else (1, 4)
    return job, rules, some_change(job, kind, rules, draw(st.sampled_from(possible)), draw(strategies.times))


@given(changes())
def test_a_change_is_stamped_with_the_state_and_epoch_as_seen(made: tuple[Job, Rules, Change]) -> None:
    job, _, change = made
    assert (change.id, change.was, change.epoch) == (job.id, job.state, job.epoch)


@given(changes())
def test_scheduled_if_and_only_if_due_in_the_future(made: tuple[Job, Rules, Change]) -> None:
    job, _, change = made
    if change.to in (State.SCHEDULED, State.READY) and change.due is None:
        assert change.to is job.state, "a move that leaves the time leaves the state"
    elif change.to in (State.SCHEDULED, State.READY):
        assert change.due is not None
        assert (change.to is State.SCHEDULED) == (change.due > NOW)
    else:
        assert change.due is None


@given(changes())
def test_no_change_makes_a_job_run(made: tuple[Job, Rules, Change]) -> None:
    assert made[2].to is not State.RUNNING


@given(changes())
def test_a_time_of_keeping_is_set_for_finished_jobs_and_only_for_them(made: tuple[Job, Rules, Change]) -> None:
    _, rules, change = made
    if change.to in FINISHED:
        assert change.keep_until == NOW + (rules.keep_dead if change.to is State.DEAD else rules.keep_done)
        assert change.keep_until > NOW
    elif change.to is not None:
        assert change.keep_until == 0


@given(changes())
def test_a_change_says_since_when(made: tuple[Job, Rules, Change]) -> None:
    _, _, change = made
    assert change.to is None or change.state_since == NOW


@given(strategies.running, strategies.counted, strategies.rules)
def test_a_failed_attempt_counts_exactly_one(job: Job, kind: outcome.Outcome, rules: Rules) -> None:
    assert ended(job, kind, rules).failures == job.failures + 1


@given(strategies.running, strategies.uncounted, strategies.rules)
def test_nothing_else_counts(job: Job, kind: outcome.Outcome, rules: Rules) -> None:
    assert ended(job, kind, rules).failures == job.failures


@given(strategies.running, strategies.outcomes, strategies.rules)
def test_only_a_death_while_the_job_was_on_counts_as_a_loss(job: Job, kind: outcome.Outcome, rules: Rules) -> None:
    died = kind == outcome.Lost(on=True)
    assert ended(job, kind, rules).crashes == job.crashes + died


INTERRUPTIONS = [
    outcome.Released(),
    outcome.Lost(on=False),
    outcome.Snoozed(MINUTE),
    outcome.Unknown(),
    outcome.Unread("file:///srv/tarry cannot be read"),
    outcome.Quarantined(),
    outcome.Expired(),
]


@given(strategies.running, st.sampled_from(INTERRUPTIONS), strategies.rules)
def test_an_interruption_never_uses_up_an_attempt_and_never_kills(
    job: Job, kind: outcome.Outcome, rules: Rules
) -> None:
    change = ended(job, kind, rules)
    assert (change.failures, change.crashes) == (job.failures, job.crashes)
    assert change.to is not State.DEAD


@given(strategies.running, st.sampled_from([outcome.Released(), outcome.Lost(on=False)]), strategies.rules)
def test_what_is_given_back_is_as_it_was(job: Job, kind: outcome.Outcome, rules: Rules) -> None:
    change = ended(job, kind, rules)
    assert (change.due, change.note, change.queue, change.priority) == (min(job.due, NOW), job.note, None, None)
    assert change.to is State.READY, "also where the clock was set back while it ran"


STARTED = [
    outcome.Raised(b"{}"),
    outcome.Raised(b"{}", after=MINUTE),
    outcome.TimedOut(b"{}"),
    outcome.Lost(on=True),
    outcome.Lost(on=False),
    outcome.Released(has_started=True),
    outcome.Snoozed(MINUTE),
    outcome.Suspended(NOW + DAY),
]


@pytest.mark.parametrize("kind", STARTED)
def test_a_job_that_has_started_does_not_expire(kind: outcome.Outcome) -> None:
    """However its attempt ends; what it waits for then is no start."""
    job = job_in(State.RUNNING, expires=NOW - 1)
    change = ended(job, kind, Rules(retry=Retry(3)))
    assert (change.to in (State.READY, State.SCHEDULED), change.expires) == (True, 0)
    assert lifecycle.give_back(job, NOW).expires == 0


@pytest.mark.parametrize("kind", [outcome.Released(), outcome.Unknown(), outcome.Unread("away"), outcome.Quarantined()])
def test_a_job_that_was_taken_and_not_started_expires(kind: outcome.Outcome) -> None:
    assert ended(job_in(State.RUNNING, expires=NOW + 1), kind, Rules()).expires is None


@given(strategies.running, st.integers(0, DAY), st.none() | st.integers(-5, 5))
def test_what_a_taker_gives_back_counts_nothing(job: Job, delay: int, priority: int | None) -> None:
    change = lifecycle.give_back(job, NOW, delay=delay, priority=priority)
    assert (change.failures, change.crashes, change.note) == (job.failures, job.crashes, job.note)
    assert (change.priority, change.owner) == (priority, job.owner)
    assert change.due == (NOW + delay if delay else min(job.due, NOW))
    assert change.to is (State.SCHEDULED if delay else State.READY)


@given(strategies.running, strategies.rules)
def test_what_a_taker_buries_is_kept_and_counts_nothing(job: Job, rules: Rules) -> None:
    change = lifecycle.bury(job, rules, NOW, priority=3)
    assert (change.to, change.failures, change.crashes) == (State.DEAD, job.failures, job.crashes)
    assert change.keep_until == NOW + (rules.keep_dead or lifecycle.DEFAULT.keep_dead)
    assert (change.priority, message(change)) == (3, ("Buried", "its taker put it aside"))


@pytest.mark.parametrize(("kept", "to"), [(HOUR, State.DONE), (0, None)])
def test_what_a_taker_discards_is_kept_as_done_jobs_are(kept: int, to: State | None) -> None:
    change = lifecycle.discard(job_in(State.RUNNING), Rules(keep_done=kept), NOW)
    assert (change.to, change.note, change.failures) == (to, b"null", 2)


@given(strategies.jobs((State.RUNNING,), crashes=0), strategies.rules)
def test_three_deaths_make_a_job_dead_whatever_the_retry_rule(job: Job, rules: Rules) -> None:
    seen = [job]
    for _ in range(lifecycle.MAX_CRASHES - 1):
        change = ended(seen[-1], outcome.Lost(on=True), rules)
        assert change.to in (State.READY, State.SCHEDULED)
        seen.append(replace(seen[-1], failures=change.failures, crashes=change.crashes))
    last = ended(seen[-1], outcome.Lost(on=True), rules)
    assert last.to is (State.DEAD if rules.keep_dead else None)
    assert message(last)[0] == "Poison"


def test_after_a_death_at_once_then_after_five_seconds() -> None:
    first = ended(job_in(State.RUNNING), outcome.Lost(on=True), Rules())
    second = ended(job_in(State.RUNNING, crashes=1), outcome.Lost(on=True), Rules())
    assert (first.to, first.due) == (State.READY, NOW)
    assert (second.to, second.due) == (State.SCHEDULED, NOW + 5 * SECOND)
    assert message(first) == ("WorkerDied", "worker worker-1 died while this job was on")
    known = ended(job_in(State.RUNNING), outcome.Lost(on=True, why="crashed (SIGSEGV)"), Rules())
    assert message(known) == ("WorkerDied", "worker worker-1 died while this job was on: crashed (SIGSEGV)")


@pytest.mark.parametrize(
    ("kind", "rules", "kept"),
    [
        (outcome.Returned(), Rules(keep_done=0), None),
        (outcome.Cancelled(), Rules(keep_done=0), None),
        (outcome.Expired(), Rules(keep_done=0), None),
        (outcome.Raised(b""), Rules(keep_done=0), State.DEAD),
        (outcome.Raised(b""), Rules(keep_dead=0), None),
        (outcome.TimedOut(b""), Rules(keep_dead=0), None),
        (outcome.Returned(), Rules(keep_dead=0), State.DONE),
    ],
)
def test_what_is_kept_for_no_time_is_forgotten_at_once(kind: outcome.Outcome, rules: Rules, kept: State | None) -> None:
    assert ended(job_in(State.RUNNING), kind, rules).to is kept


def test_poison_that_is_kept_for_no_time_is_forgotten_too() -> None:
    poisoned = job_in(State.RUNNING, crashes=lifecycle.MAX_CRASHES - 1)
    assert ended(poisoned, outcome.Lost(on=True), Rules(keep_dead=0)).to is None
    assert lifecycle.cancel(job_in(State.READY), Rules(keep_done=0), NOW).to is None


def test_the_result_the_error_and_the_reason_are_noted() -> None:
    job = job_in(State.RUNNING)
    assert ended(job, outcome.Returned(b"42"), Rules()).note == b"42"
    assert ended(job, outcome.Raised(b"{}"), Rules()).note == b"{}"
    assert ended(job, outcome.TimedOut(b"[]"), Rules()).note == b"[]"
    assert message(ended(job, outcome.Cancelled("gone"), Rules())) == ("Cancelled", "gone")
    assert message(ended(job, outcome.Expired(), Rules())) == ("Expired", "it could not start in time")
    assert message(lifecycle.cancel(job, Rules(), NOW, "why not")) == ("Cancelled", "why not")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (outcome.Raised(b""), (State.SCHEDULED, NOW + 10 * SECOND)),
        (outcome.Raised(b"", after=HOUR), (State.SCHEDULED, NOW + HOUR)),
        (outcome.Raised(b"", after=0), (State.READY, NOW)),
        (outcome.Raised(b"", ("KeyError",)), (State.DEAD, None)),
        (outcome.Raised(b"", ("KeyError",), after=HOUR), (State.SCHEDULED, NOW + HOUR)),
        (outcome.Raised(b"", final=True, after=HOUR), (State.DEAD, None)),
    ],
)
def test_an_error_is_retried_as_the_rule_or_the_task_itself_says(
    raised: outcome.Raised, expected: tuple[State, int | None]
) -> None:
    change = ended(job_in(State.RUNNING), raised, Rules(Retry(5, base=10, never=(KeyError,))))
    assert (change.to, change.due) == expected


def test_the_limit_holds_for_the_tasks_own_word_too() -> None:
    change = ended(job_in(State.RUNNING, failures=5), outcome.Raised(b"", after=0), Rules(Retry(5)))
    assert (change.to, change.failures) == (State.DEAD, 6)


def test_the_age_of_the_job_decides_whether_a_retry_is_in_time() -> None:
    job = job_in(State.RUNNING)  # made two minutes ago
    late = ended(job, outcome.Raised(b""), Rules(Retry(5, base="1m", within="179s")))
    in_time = ended(job, outcome.Raised(b""), Rules(Retry(5, base="1m", within="180s")))
    assert (late.to, in_time.to) == (State.DEAD, State.SCHEDULED)


def test_a_snooze_of_nothing_is_ready_behind_its_equals() -> None:
    change = ended(job_in(State.RUNNING), outcome.Snoozed(0), Rules())
    assert (change.to, change.due) == (State.READY, NOW)


@pytest.mark.parametrize("awaits", [None, Awaited("paid", "7", 3)])
def test_a_suspended_job_goes_on_in_the_same_attempt(awaits: Awaited | None) -> None:
    job = job_in(State.RUNNING, expires=NOW + SECOND, attempts=b"[0,[]]", note=b"{}", crashes=1)
    change = ended(job, outcome.Suspended(NOW + DAY, awaits), Rules(Retry(5)))
    # It has started, so it does not expire; and a sleep is no end that is worth a record.
    slept = replace(job, state=State.SCHEDULED, due=NOW + DAY, state_since=NOW, owner="", expires=0)
    assert (change.apply_to(job), change.awaits, change.counts) == (slept, awaits, 0)


def test_a_sleep_that_is_over_makes_ready() -> None:
    change = ended(job_in(State.RUNNING), outcome.Suspended(NOW), Rules())
    assert (change.to, change.expires) == (State.READY, 0)


def test_an_unknown_task_waits_longer_each_time_up_to_a_minute() -> None:
    dues = [ended(job_in(State.RUNNING, epoch=epoch), outcome.Unknown(), Rules()).due for epoch in (1, 2, 3, 7, 10**6)]
    assert dues == [NOW + wait * SECOND for wait in (1, 2, 4, 60, 60)]


def test_to_run_a_finished_job_again_gives_it_all_its_attempts() -> None:
    change = lifecycle.run_now(job_in(State.DEAD, crashes=2, note=b"{}"), NOW)
    assert (change.to, change.due, change.failures, change.crashes, change.note) == (State.READY, NOW, 0, 0, b"{}")


def test_to_run_a_waiting_job_now_keeps_its_count_and_its_place() -> None:
    scheduled = lifecycle.run_now(job_in(State.SCHEDULED, crashes=1), NOW)
    ready = lifecycle.run_now(job_in(State.READY, due=NOW - DAY), NOW)
    assert (scheduled.due, scheduled.failures, scheduled.crashes) == (NOW, 2, 1)
    assert ready.due == NOW - DAY


def test_moved_changes_what_is_named_and_leaves_the_rest() -> None:
    job = job_in(State.SCHEDULED)
    elsewhere = lifecycle.move(job, NOW, queue="slow", priority=-3)
    later = lifecycle.move(job, NOW, due=NOW + HOUR)
    assert (elsewhere.to, elsewhere.due) == (State.SCHEDULED, None)
    assert (elsewhere.queue, elsewhere.priority) == ("slow", -3)
    assert (later.due, later.queue, later.priority) == (NOW + HOUR, None, None)


def test_replaced_is_another_call_of_the_same_job() -> None:
    job = job_in(State.SCHEDULED, failures=1)
    by = replace(job, body=b"[2]", due=NOW, queue="slow", priority=4, expires=NOW + HOUR)
    change = lifecycle.replace_call(job, by, NOW)
    assert (change.to, change.body, change.due, change.queue) == (State.READY, b"[2]", NOW, "slow")
    assert (change.priority, change.expires, change.failures) == (4, NOW + HOUR, 1)


@given(strategies.jobs((State.READY, State.SCHEDULED)), strategies.times)
def test_postponed_is_never_sooner(job: Job, due: int) -> None:
    change = lifecycle.postpone(job, replace(job, due=due), NOW)
    assert change.due == max(job.due, due)
    assert change.seen_times == (job.due, job.expires), "of several from one look, only one is made"
    assert (change.body, change.queue, change.priority) == (None, None, None)


def test_postponed_moves_the_time_by_which_it_must_start_too() -> None:
    job = job_in(State.SCHEDULED, expires=NOW + HOUR)
    assert lifecycle.postpone(job, replace(job, expires=NOW + DAY), NOW).expires == NOW + DAY
    assert lifecycle.postpone(job, replace(job, expires=NOW + MINUTE), NOW).expires is None
    assert lifecycle.postpone(job_in(State.SCHEDULED), replace(job, expires=NOW + DAY), NOW).expires is None


@pytest.mark.parametrize(("unique", "holds"), [(WAITING, 0), (UNFINISHED, 0), (HOUR, NOW + HOUR)])
@pytest.mark.parametrize("kind", [outcome.Returned(), outcome.Raised(b""), outcome.Cancelled(), outcome.Expired()])
def test_a_finished_job_holds_its_key_for_as_long_as_it_says(kind: outcome.Outcome, unique: int, holds: int) -> None:
    job = job_in(State.RUNNING, key="k", key_ttl=unique, key_held_until=HELD)
    change = ended(job, kind, Rules(keep_done=0, keep_dead=0))
    assert change.key_held_until == holds
    assert (change.to is None) == (holds == 0), "the record is what holds it"
    assert change.keep_until >= holds


@given(strategies.running, strategies.outcomes, strategies.rules)
def test_an_attempt_that_does_not_finish_the_job_leaves_its_key(job: Job, kind: outcome.Outcome, rules: Rules) -> None:
    change = ended(replace(job, key="k", key_held_until=HELD), kind, rules)
    assert (change.key_held_until is None) == (change.to in (State.READY, State.SCHEDULED))


def test_only_a_finished_job_that_is_run_again_takes_its_key_back() -> None:
    assert lifecycle.run_now(job_in(State.DONE, key="k"), NOW).key_held_until == HELD
    assert lifecycle.run_now(job_in(State.DONE), NOW).key_held_until is None
    assert lifecycle.run_now(job_in(State.SCHEDULED, key="k"), NOW).key_held_until is None


def made(job: Job, change: Change) -> Job:
    """The job as a store has it when the change is made."""
    assert (change.was, change.epoch) == (job.state, job.epoch)
    due = job.due if change.due is None else change.due
    state = change.to or job.state
    return replace(job, state=state, due=due, failures=change.failures, crashes=change.crashes, note=change.note)


def claimed(job: Job) -> Job:
    return replace(job, state=State.RUNNING, epoch=job.epoch + 1)


@given(st.data(), strategies.jobs((State.READY, State.SCHEDULED), crashes=0), st.integers(0, 6))
def test_a_job_ends_after_its_limit_of_retries_however_often_it_is_interrupted(
    data: st.DataObject, fresh: Job, limit: int
) -> None:
    rules = Rules(Retry(limit, data.draw(st.sampled_from(["fixed", "exponential"])), jitter=0.5))
    job, now, raises = replace(fresh, failures=0, crashes=0), NOW, 0
    kinds: st.SearchStrategy[outcome.Outcome] = st.one_of(strategies.counted, st.sampled_from(INTERRUPTIONS[:-1]))
    interrupted = 0
    while not job.state.finished:
        job, now = claimed(job), max(now, job.due)
        kind = data.draw(kinds) if interrupted < 20 else outcome.Raised(b"")
        change = ended(job, kind, rules, now)
        assert change.epoch == job.epoch
        job = made(job, change)
        raises += isinstance(kind, outcome.Raised)
        interrupted += kind in INTERRUPTIONS
    assert job.state is State.DEAD
    assert raises <= limit + 1
    assert job.failures <= limit + lifecycle.MAX_CRASHES


@pytest.mark.parametrize(("expires", "then"), [(0, None), (NOW - 1, 0), (NOW, 0), (NOW + 1, None)])
def test_who_wants_a_waiting_job_now_wants_it_although_its_time_is_over(expires: int, then: int | None) -> None:
    for state in (State.SCHEDULED, State.READY):
        assert lifecycle.run_now(job_in(state, expires=expires), NOW).expires == then


def test_a_job_is_suspect_when_its_next_death_is_poison() -> None:
    suspects = [
        lifecycle.is_near_poison(job_in(State.RUNNING, crashes=losses)) for losses in range(lifecycle.MAX_CRASHES)
    ]
    assert suspects == [False, False, True]


def test_a_job_of_an_unknown_task_is_claimed_about_once_a_minute() -> None:
    # The cost of a worker that serves a queue of another app: it is bounded, and no attempt of the job counts.
    job, now, claims = Job(b"\1" * 16, "other", b"[]"), 0, 0
    while now < 3600 * SECOND:
        claims += 1
        job = replace(job, state=State.RUNNING, epoch=claims)
        change = lifecycle.after(job, outcome.Unknown(), Rules(), now)
        assert (change.to, change.failures) == (State.SCHEDULED, 0)
        assert change.due is not None
        assert 1 * SECOND <= change.due - now <= 60 * SECOND
        now = change.due
    assert claims <= 66


@pytest.mark.parametrize("run", [False, True])
@pytest.mark.parametrize("state", [State.SCHEDULED, State.READY, State.DEAD, State.CANCELLED])
def test_an_edit_makes_another_of_the_same_job_stale(state: State, run: bool) -> None:
    """Also where state and epoch stay the same."""
    job = job_in(state)
    change = lifecycle.edit(job, b"[1]", NOW, run=run)
    edited = change.apply_to(job)
    assert change.seen_times == (job.due, job.expires)
    assert (edited.due, edited.expires) != change.seen_times
    assert (edited.body, edited.keep_until > 0) == (b"[1]", job.keep_until > 0 and not run)
