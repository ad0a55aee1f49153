"""What is counted of new jobs and of changes."""

from msgspec.structs import replace

from tarry.model import lifecycle, moving
from tarry.model.change import DEAD, DONE, EXPIRED, FAILED, PUT
from tarry.model.duration import SECOND
from tarry.model.flow.own_queues import own_queue
from tarry.model.history.buckets import bucket_of
from tarry.model.history.counting import NO_ATTEMPT, count_changes, count_new
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT, Rules
from tarry.model.outcome import Expired, Lost, Raised, Released, Returned, TimedOut
from tarry.model.retry import Retry

MINUTE = 1_800_000_000
NOW = (MINUTE + 59) * SECOND
RUNS = Job(b"1" * 16, "mail", b"{}", due=NOW - 20 * SECOND, state=State.RUNNING, epoch=1, owner="ann",
           state_since=NOW - 5 * SECOND)  # fmt: skip
TIMES = bucket_of(15 * SECOND), bucket_of(5 * SECOND)
RETRIES = Rules(retry=Retry(3))


def test_new_jobs_count_by_minute_queue_and_task() -> None:
    jobs = [Job(b"", task, b"", queue, state_since=NOW) for task, queue in [("a", "x"), ("b", "x"), ("a", "x")]]
    counts, which = count_new(jobs)
    assert counts == [
        (MINUTE, "x", "a", PUT, NO_ATTEMPT, NO_ATTEMPT, 0),
        (MINUTE, "x", "b", PUT, NO_ATTEMPT, NO_ATTEMPT, 0),
    ]
    assert which == [1, 2, 1]


def test_the_queues_of_all_hosts_count_as_one() -> None:
    jobs = [replace(RUNS, queue=own_queue(name)) for name in ("web-1|1.1:9:1:0", "web-2|1.1:9:1:0")]
    counts, which = count_new(jobs)
    assert ([count[1] for count in counts], which) == (["@"], [1, 1])
    ends = [lifecycle.after(jobs[0], Returned(), DEFAULT, NOW), lifecycle.after(jobs[1], Expired(), DEFAULT, NOW)]
    assert [count[1] for count in count_changes(ends)[0]] == ["@", "@"]


def test_a_job_that_moves_between_stores_is_not_new() -> None:
    parked = moving.park(replace(RUNS, state=State.READY, owner="")).apply_to(RUNS)
    assert count_new([parked]) == ([], [0])


def test_an_attempt_counts_by_how_long_it_waited_and_ran() -> None:
    changes = [lifecycle.after(RUNS, Returned(), DEFAULT, NOW), lifecycle.after(RUNS, Returned(b"2"), DEFAULT, NOW)]
    assert count_changes(changes) == ([(MINUTE, "default", "mail", DONE, *TIMES, 0)], [1, 1])


def test_an_attempt_counts_by_what_follows() -> None:
    wrong, poisoned = Raised(b"", ("ValueError",)), replace(RUNS, crashes=2, failures=2)
    changes = [
        lifecycle.after(RUNS, wrong, RETRIES, NOW),
        lifecycle.after(RUNS, TimedOut(b""), DEFAULT, NOW),
        lifecycle.after(RUNS, Lost(on=True), DEFAULT, NOW),
        lifecycle.after(poisoned, Lost(on=True), DEFAULT, NOW),
        lifecycle.bury(RUNS, DEFAULT, NOW),
        lifecycle.discard(RUNS, DEFAULT, NOW),
    ]
    assert [change.counts for change in changes] == [FAILED, DEAD, FAILED, DEAD, DEAD, DONE]


def test_a_job_that_expired_did_not_run() -> None:
    counts, _ = count_changes([lifecycle.after(RUNS, Expired(), DEFAULT, NOW)])
    assert counts == [(MINUTE, "default", "mail", EXPIRED, NO_ATTEMPT, NO_ATTEMPT, 0)]


def test_what_is_no_end_counts_as_nothing() -> None:
    waits = replace(RUNS, state=State.READY, owner="")
    changes = [
        lifecycle.after(RUNS, Released(), DEFAULT, NOW),
        lifecycle.give_back(RUNS, NOW),
        lifecycle.forget(waits),
        lifecycle.run_now(waits, NOW),
        lifecycle.move(waits, NOW, queue="slow"),
        moving.park(waits),
    ]
    assert count_changes(changes) == ([], [0] * len(changes))


def test_a_cancelled_job_that_waited_was_no_attempt() -> None:
    counts, _ = count_changes([lifecycle.cancel(replace(RUNS, state=State.READY, owner=""), DEFAULT, NOW)])
    assert counts[0][4:6] == (NO_ATTEMPT, NO_ATTEMPT)


def test_the_status_of_a_delivery_counts() -> None:
    change = replace(lifecycle.after(RUNS, Returned(), DEFAULT, NOW), status=200)
    assert count_changes([change])[0] == [(MINUTE, "default", "mail", DONE, *TIMES, 200)]


def test_what_differs_only_in_what_it_counts_has_the_same_effect() -> None:
    change = lifecycle.after(RUNS, Returned(), DEFAULT, NOW)
    other = lifecycle.after(replace(RUNS, task="other", id=b"2" * 16), Returned(), DEFAULT, NOW)
    assert change.effect == other.effect
