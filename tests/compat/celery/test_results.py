"""What enqueued canvases give: results with parents and children, and how long which of their calls wait."""

import copy
import pickle
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tarry.compat.celery import (
    AsyncResult,
    Celery,
    CeleryDifference,
    CeleryNotSupported,
    chain,
    chord,
    exceptions,
    group,
)
from tarry.compat.celery.result import GroupResult
from tarry.errors import ConfigError
from tarry.testing.kit import Jobs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", CeleryDifference)
    from tests.compat.celery.typical import add, app, fails, join, same


def waits(jobs: Jobs, result: Any) -> list[int]:
    """How many calls run at once, and after each further ten seconds, of thirty."""
    ran = []
    for _ in range(4):
        ran.append(jobs.drain())
        jobs.advance(10)
    assert result.successful()
    return ran


def test_a_countdown_of_a_chain_is_for_its_first_call(jobs: Jobs) -> None:
    result = chain(add.s(1, 1), add.s(2), add.s(3)).apply_async(countdown=10)
    assert waits(jobs, result) == [0, 3, 0, 0]


def test_a_countdown_of_a_group_is_for_all_of_it(jobs: Jobs) -> None:
    assert waits(jobs, group(add.s(1, 1), add.s(2, 2)).apply_async(countdown=10)) == [0, 2, 0, 0]


def test_a_countdown_of_a_chord_is_for_its_body(jobs: Jobs) -> None:
    assert waits(jobs, chord([add.s(1, 1), add.s(2, 2)], join.s()).apply_async(countdown=10)) == [2, 1, 0, 0]


def test_a_countdown_of_a_call_within_is_its_own(jobs: Jobs) -> None:
    result = chain(add.s(1, 1).set(countdown=10), add.s(2).set(countdown=10), add.s(3)).delay()
    assert waits(jobs, result) == [0, 1, 2, 0]


def test_the_results_of_a_chain(jobs: Jobs) -> None:
    last = chain(add.s(1, 1), add.s(2), add.s(3)).delay()
    jobs.drain()
    assert (last.get(), last.parent.get(), last.parent.parent.get(), last.parent.parent.parent) == (7, 4, 2, None)
    assert (last.parent.children, last.parent.parent.children, last.children) == ([last], [last.parent], [])
    # As people keep it: by the id alone.
    assert AsyncResult(last.id).get(timeout=1) == 7
    assert (last.name, last.ready()) == (add.name, True)


def test_the_results_of_a_group(jobs: Jobs) -> None:
    result = group(add.s(1, 1), group(add.s(2, 2), add.s(3, 3))).delay()
    assert (len(result), result.waiting(), result.ready()) == (3, True, False)
    jobs.drain()
    assert [each.get() for each in result] == [2, 4, 6] == result.get() == result.join()
    assert (result[1].get(), result.results, result.completed_count()) == (4, result.children, 3)
    assert (result.waiting(), result.successful(), isinstance(result, GroupResult)) == (False, True, True)
    assert AsyncResult(result.id).get(timeout=1) == [2, 4, 6]


def test_the_parent_of_a_body_is_the_group_before_it(jobs: Jobs) -> None:
    result = chain(add.s(1, 1), group(add.s(1), add.s(2)), join.s()).delay()
    jobs.drain()
    assert (result.get(), result.parent.get(), result.parent.parent.get()) == ("3-4", [3, 4], 2)
    assert [each.get() for each in result.parent] == [3, 4]


def test_errors_stand_among_the_results_if_they_are_not_to_be_raised(jobs: Jobs) -> None:
    result = group(add.s(1, 1), fails.s("no"), add.s(2, 2)).delay()
    jobs.drain()
    assert [str(each) for each in result.get(propagate=False)] == ["2", "no", "4"]
    assert (result.failed(), result.state, [each.state for each in result]) == (
        True, "FAILURE", ["SUCCESS", "FAILURE", "SUCCESS"],
    )  # fmt: skip
    with pytest.raises(ValueError, match="no"):
        result.get()


def test_a_canvas_raises_what_its_call_raised(jobs: Jobs) -> None:
    results = [chain(add.s(1, 1), fails.s(), same.s()).delay(), chord([fails.s("no")], same.s()).delay()]
    results += [chain(group(add.s(1, 1), fails.s("no")), join.s()).delay()]
    jobs.drain()
    for result in results[1:]:
        with pytest.raises(ValueError, match="no"):
            result.get()
        assert isinstance(result.get(propagate=False), ValueError)
    with pytest.raises(ValueError, match="2"):
        results[0].get()
    # By its id alone it is the last call, which never starts, as with Celery.
    assert (results[0].state, AsyncResult(results[0].id).state) == ("FAILURE", "PENDING")


def test_a_call_is_copied_with_its_app() -> None:
    for element in (add.s(1), chain(add.s(1, 1), add.s(2)), chord([add.s(1, 1)], join.s())):
        for other in (copy.copy(element), copy.deepcopy(element), pickle.loads(pickle.dumps(element))):
            assert (other, type(other)) == (element, type(element))
    assert copy.deepcopy(add.s(1)).app is copy.copy(add.s(1)).app is app


def test_a_call_within_arguments_comes_as_a_dict(jobs: Jobs) -> None:
    result = same.delay(chain(add.s(1, 1), add.s(2)))
    jobs.drain()
    again = app.signature(result.get()).delay()
    jobs.drain()
    assert again.get() == 4


def test_a_wait_for_the_result_at_once() -> None:
    eager = Celery("waiting", set_as_current=False, task_always_eager=True)
    assert ~eager.task(name="waiting.add")(lambda x, y: x + y).s(1, 2) == 3


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Lima", None])
def test_a_retry_at_a_time_without_a_zone_is_in_that_of_the_app(jobs: Jobs, zone: str | None) -> None:
    own = Celery("zoned", set_as_current=False, timezone=zone)
    at = datetime.now(ZoneInfo(zone) if zone else UTC).replace(tzinfo=None) + timedelta(minutes=30)

    @own.task(name=f"zoned.{zone}", bind=True)
    def late(self: Any) -> str:
        if not self.request.retries:
            raise self.retry(eta=at)
        return "done"

    result = late.delay()
    assert jobs.drain() == 1
    assert result.state == "RETRY"
    jobs.advance(28 * 60)
    assert jobs.drain() == 0
    jobs.advance(3 * 60)
    assert jobs.drain() == 1
    assert result.get(timeout=1) == "done"


def test_a_queue_of_the_settings_with_a_long_name_is_refused() -> None:
    long = Celery("long", set_as_current=False, task_default_queue="q" * 201)
    long.task(name="long.one")(print)
    with pytest.raises(ConfigError, match="at most 200 characters"):
        long.finalize()


@pytest.mark.parametrize("name", ["freeze", "stamp", "flatten_links"])
def test_what_canvases_have_there_names_the_way_out(name: str) -> None:
    with pytest.raises(CeleryNotSupported, match=name):
        getattr(add.s(1), name)
    assert not hasattr(chain(add.s(1)), "no_such_name")


@pytest.mark.parametrize("name", ["as_tuple", "collect", "then", "graph", "save", "restore"])
def test_what_results_have_there_names_the_way_out(jobs: Jobs, name: str) -> None:
    for result in (add.delay(1, 2), group(add.s(1, 1)).delay(), chain(add.s(1, 1), add.s(2)).delay()):
        with pytest.raises(CeleryNotSupported, match=name):
            getattr(result, name)
        assert not hasattr(result, "no_such_name")


def test_the_error_of_chords_names_the_way_out() -> None:
    with pytest.raises(CeleryNotSupported, match="ChordError"):
        _ = exceptions.ChordError
