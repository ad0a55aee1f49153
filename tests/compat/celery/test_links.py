"""`link`, `link_error`, headers, classes and options of an app's own, and eager calls of all of these."""

from collections.abc import Iterator
from typing import Any

import pytest

from tarry.compat.celery import AsyncResult, chain, chord, current_task, group, signature
from tarry.compat.celery.differences import CeleryDifference, forget_warnings
from tarry.testing.kit import Jobs
from tests.compat.celery import moved
from tests.compat.celery.moved import add, failed_id, failed_with, fails, note, plain, seen


@pytest.fixture(autouse=True)
def fresh() -> None:
    seen.clear()
    forget_warnings()


@pytest.fixture
def eager() -> Iterator[None]:
    plain.conf.task_always_eager = True
    yield
    plain.conf.task_always_eager = False


def test_a_linked_call_gets_the_result(jobs: Jobs) -> None:
    result = add.apply_async((1, 2), link=[note.s("a"), note.si("b"), add.s(4) | note.s()])
    assert isinstance(result, AsyncResult)
    jobs.drain()
    assert (result.get(), sorted(seen, key=str)) == (3, [("b",), (3, "a"), (7,)])


def test_a_call_that_fails_has_no_linked_one(jobs: Jobs) -> None:
    result = fails.apply_async(("no",), link=note.s())
    jobs.drain()
    assert (result.state, seen) == ("FAILURE", [])


def test_a_linked_call_that_fails_is_nothing_to_the_first(jobs: Jobs) -> None:
    call = add.s(1, 2)
    call.link(fails.si("later"))
    flow = chain(call, add.s(1)).delay()
    jobs.drain()
    assert (flow.state, flow.get()) == ("SUCCESS", 4)


def test_an_errback_gets_the_request_the_error_and_the_traceback(jobs: Jobs) -> None:
    fails.apply_async(("no",), link_error=[failed_with.s(mark="x"), failed_id.s()])
    jobs.drain()
    assert len(seen) == 2
    assert ("tests.compat.celery.moved.fails", ("no",), "no", True, "x") in seen


def test_an_errback_is_called_also_if_a_hook_of_the_class_raises(jobs: Jobs) -> None:
    moved.fails_twice.apply_async(link_error=failed_with.s())
    jobs.drain()
    assert len(seen) == 1


def test_an_errback_is_not_called_for_what_ends_well_or_is_tried_again(jobs: Jobs) -> None:
    moved.once_more.apply_async(link_error=failed_id.s())
    jobs.drain()
    jobs.advance(180)
    jobs.drain()
    assert seen == []


@pytest.mark.parametrize("at", [0, 1])
def test_an_errback_of_a_chain_is_called_once(jobs: Jobs, at: int) -> None:
    calls = [add.si(1, 1), add.si(2, 2)]
    calls[at] = fails.si("no")
    flow = chain(*calls).on_error(failed_with.s()).delay()
    jobs.drain()
    assert (flow.state, len(seen)) == ("FAILURE", 1)


def test_an_errback_of_a_chord_is_called_once_however_many_fail(jobs: Jobs) -> None:
    chord([fails.s("a"), fails.s("b"), add.s(1, 1)], note.s()).on_error(failed_with.s(mark="once")).delay()
    jobs.drain()
    assert len(seen) == 1
    assert "once" in str(seen)


def test_headers_travel_with_a_call_and_with_each_of_a_flow(jobs: Jobs) -> None:
    one = moved.headers.apply_async(headers={"source": {"user": 7}})
    many = group(moved.headers.s().set(headers={"source": n}) for n in range(2)).delay()
    jobs.drain()
    assert one.get() == [{"user": 7}, {"source": {"user": 7}}, False]
    assert [each[0] for each in many.get()] == [0, 1]


def test_an_app_and_a_class_of_its_own(jobs: Jobs) -> None:
    moved.traced.delay()
    moved.traced.s().apply_async()
    jobs.drain()
    assert seen == [("DEBUG", "t1"), ("DEBUG", "t1")]


def test_a_task_as_a_class(jobs: Jobs) -> None:
    by_class = moved.by_class.delay(4)
    jobs.drain()
    assert by_class.get() == 8
    native: Any = plain.tasks["tests.by_class"]
    assert native.s(4).apply().get() == 8


def test_the_current_task(jobs: Jobs) -> None:
    result = moved.which.delay()
    jobs.drain()
    assert result.get() == [moved.which.name, True, 0]
    assert not current_task
    with pytest.raises(AttributeError, match="no task runs"):
        _ = current_task.name


def test_a_retry_after_the_end_of_the_time(jobs: Jobs) -> None:
    result = moved.slow.delay()
    jobs.drain()
    assert result.state == "RETRY"
    jobs.advance(5)
    jobs.drain()
    assert (result.state, seen) == ("FAILURE", ["slow", "slow"])


def test_results_by_the_app_that_is_asked(jobs: Jobs) -> None:
    result = plain.AsyncResult(add.delay(1, 2).id)
    assert (result.app, result.name, result.args, result.kwargs) == (plain, add.name, (1, 2), {})
    assert (result.date_done, result.queue, result.retries) == (None, "default", 0)
    jobs.drain()
    assert (result.info, result.get(), add.AsyncResult(result.id) == result) == (3, 3, True)
    assert result.date_done is not None
    result.forget()
    assert result.state == "PENDING"


def test_the_arguments_of_a_task_that_is_not_imported_here(jobs: Jobs) -> None:
    by_place = plain.send_task("elsewhere.one", (1, 2))
    by_name = plain.send_task("elsewhere.one", kwargs={"a": 1})
    assert (by_place.args, by_place.kwargs) == ((1, 2), {})
    assert (by_name.args, by_name.kwargs) == ((), {"a": 1})


def test_forget_leaves_what_has_not_ended(jobs: Jobs) -> None:
    result = add.delay(1, 2)
    result.forget()
    jobs.drain()
    assert result.get() == 3


def test_options_of_a_whole_chain(jobs: Jobs) -> None:
    chain(add.s(1, 2), add.s(3).set(queue="own")).apply_async(queue="slow", countdown=5)
    jobs.advance(20)
    jobs.drain()
    assert [found.queue for found in jobs.enqueued(add.name)] == ["slow", "own"]


def test_a_signature_as_a_dict_and_back(jobs: Jobs) -> None:
    call = signature(add.s(1).set(queue="q").as_dict(), app=plain)
    assert call == add.s(1).set(queue="q")
    result = signature(add, (1, 2)).delay()
    jobs.drain()
    assert result.get() == 3


def test_eager(jobs: Jobs, eager: None) -> None:
    assert add.apply_async((1, 2), link=note.s()).get() == 3
    assert (add.s(1, 2) | add.s(3)).delay().get() == 6
    assert chord([add.s(1, 1), add.s(2, 2)])(note.s("all")).successful()
    assert group(add.s(1, 1), fails.s("no")).delay().failed()
    fails.apply_async(("no",), link_error=failed_with.s(mark="eager"))
    assert chain(fails.s("no"), note.s()).on_error(failed_id.s()).delay().failed()
    assert moved.headers.apply_async(headers={"source": 1}).get()[0] == 1
    assert seen[0] == (3,)
    assert ([2, 4], "all") in seen
    assert ("tests.compat.celery.moved.fails", ("no",), "no", True, "eager") in seen
    assert jobs.enqueued() == []


def test_an_option_that_is_lost_is_told() -> None:
    with pytest.warns(CeleryDifference, match="serializer= has no effect"):
        plain.task(name="tests.pickled", serializer="pickle")(print_it)


def print_it() -> None:
    """A function at module level."""
