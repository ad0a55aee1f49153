"""A typical app of Celery's, whose imports were changed: it does what it did."""

import datetime as dt
import uuid
import warnings
from decimal import Decimal

import pytest

from tarry.compat.celery import AsyncResult, CeleryDifference, CeleryNotSupported
from tarry.compat.celery.calling import route_of
from tarry.compat.celery.differences import forget_warnings
from tarry.compat.celery.exceptions import MaxRetriesExceededError
from tarry.compat.celery.settings import as_rate
from tarry.errors import JobFailed
from tarry.testing.kit import Jobs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", CeleryDifference)
    from tests.compat.celery import typical

app = typical.app


@pytest.fixture(autouse=True)
def fresh() -> None:
    typical.seen.clear()
    forget_warnings()


def test_a_call_and_its_result(jobs: Jobs) -> None:
    result = typical.add.delay(2, y=3)
    assert (result.state, result.ready()) == ("PENDING", False)
    jobs.drain()
    assert result.get(timeout=1) == 5
    assert (result.state, result.successful(), result.result) == ("SUCCESS", True, 5)
    assert AsyncResult(result.id) == result
    assert typical.add(2, 3) == 5


def test_an_id_that_nobody_knows_is_pending(jobs: Jobs) -> None:
    assert AsyncResult(str(uuid.uuid4())).state == "PENDING"


def test_annotations_bind_nobody_as_with_celery(jobs: Jobs) -> None:
    result = typical.add.delay("a", "b")
    jobs.drain()
    assert result.get() == "ab"


@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC),
        dt.date(2026, 1, 2),
        dt.time(3, 4),
        Decimal("1.10"),
        uuid.UUID(int=7),
        b"text",
        b"\xff\x00",
        {"a": [1, None, {"b": dt.date(2026, 1, 2)}]},
        [True, 1.5, "x"],
    ],
)
def test_values_travel_as_with_celery(jobs: Jobs, value: object) -> None:
    result = typical.same.delay(value)
    jobs.drain()
    assert result.get() == value


def test_what_cannot_be_json_fails_at_the_call(jobs: Jobs) -> None:
    with pytest.raises(TypeError, match="object is not JSON"):
        typical.same.delay(object())
    assert jobs.enqueued() == []


def test_options_of_apply_async(jobs: Jobs) -> None:
    typical.add.apply_async((1, 2), countdown=60, queue="fast", priority=5)
    jobs.assert_enqueued(typical.add.native, delay=60, queue="fast", priority=5)
    typical.add.apply_async(args=[1], kwargs={"y": 3}, eta=jobs.now + dt.timedelta(hours=1), expires=7200)
    job = jobs.enqueued(typical.add.name)[1].job.record()
    assert job.expires - job.due == pytest.approx(3600e6, abs=5e6)


def test_a_task_id_is_a_key(jobs: Jobs) -> None:
    with pytest.warns(CeleryDifference, match="task_id"):
        first = typical.add.apply_async((1, 2), task_id="order-7")
    assert typical.add.apply_async((1, 2), task_id="order-7") == first


def test_retry_after_its_delay_until_the_last(jobs: Jobs) -> None:
    result = typical.flaky.delay("http://x")
    jobs.drain()
    assert (result.state, typical.seen) == ("RETRY", [0])
    jobs.advance(59)
    assert jobs.drain() == 0
    for _ in range(2):
        jobs.advance(60)
        jobs.drain()
    assert typical.seen == [0, 1, 2]
    assert result.state == "FAILURE"
    with pytest.raises(ConnectionError, match="http://x"):
        result.get()
    assert isinstance(result.get(propagate=False), ConnectionError)
    assert "ConnectionError" in (result.traceback or "")


def test_without_exc_the_last_retry_says_so(jobs: Jobs) -> None:
    result = typical.gives_up.delay()
    jobs.drain()
    jobs.advance(5)
    jobs.drain()
    with pytest.raises((MaxRetriesExceededError, JobFailed), match="last time"):
        result.get()


def test_autoretry_with_backoff(jobs: Jobs) -> None:
    result = typical.fetch.delay("u")
    for delay in (5, 10, 20):
        jobs.drain()
        jobs.advance(delay - 1)
        assert jobs.drain() == 0, f"not before {delay} s"
        jobs.advance(1)
    jobs.drain()
    assert (len(typical.seen), result.state) == (4, "FAILURE")


def test_what_is_not_for_autoretry_fails_at_once(jobs: Jobs) -> None:
    key, value = typical.picky.delay("key"), typical.picky.delay("value")
    jobs.drain()
    assert (key.state, value.state) == ("FAILURE", "RETRY")
    jobs.advance(7)
    jobs.drain()
    assert value.state == "FAILURE"


def test_a_plain_error_is_a_failure_at_once(jobs: Jobs) -> None:
    result = typical.fails.delay("no")
    assert jobs.drain() == 1
    with pytest.raises(ValueError, match="no"):
        result.get()


def test_the_worker_that_dies_counts_as_no_retry(jobs: Jobs) -> None:
    result = typical.who.delay()
    jobs.kill_worker_during(typical.who.name, at="start")
    jobs.drain()
    assert result.get()[1] == 0


def test_hooks_of_a_base_class(jobs: Jobs) -> None:
    typical.recorded.delay(1)
    jobs.drain()
    assert typical.seen == [("before", (1,)), ("success", Decimal(1), (1,)), ("after", "SUCCESS")]
    typical.seen.clear()
    typical.recorded.delay(-1)
    jobs.drain()
    assert typical.seen == [("before", (-1,)), ("retry", "less than nothing")]
    jobs.advance(1)
    jobs.drain()
    assert typical.seen[2:] == [("before", (-1,)), ("failure", "less than nothing", True), ("after", "FAILURE")]


def test_the_request(jobs: Jobs) -> None:
    result = typical.who.apply_async((1, dt.date(2026, 1, 2)), {"a": 2})
    jobs.drain()
    assert result.get() == [result.id, 0, [1, dt.date(2026, 1, 2)], {"a": 2}, "celery"]
    assert typical.who.request.called_directly


def test_routes(jobs: Jobs) -> None:
    typical.mail_out.delay("ann")
    typical.routed.delay()
    typical.add.delay(1, 2)
    assert [found.queue for found in jobs.enqueued()] == ["mail", "own", "celery"]


@pytest.mark.parametrize(
    ("routes", "queue"),
    [
        (None, None),
        ({"a.*": {"queue": "q"}}, "q"),
        ({"a.*": {"queue": "q"}, "a.b": "exact"}, "exact"),
        ([("a.*", {"queue": "q"})], "q"),
        ([{"x": "y"}, lambda name, *rest: {"queue": name}], "a.b"),
        ({"b.*": "q"}, None),
        (([("a.*", {"queue": "q"}), ("c.*", {"queue": "r"})],), "q"),
    ],
)
def test_forms_of_routes(routes: object, queue: str | None) -> None:
    assert route_of(routes, "a.b").get("queue") == queue


@pytest.mark.parametrize(
    ("limit", "rate"), [(10, "10/1s"), ("10/m", "10/60s"), ("1/h", "1/3600s"), ("0.5/s", "1/2s"), (0.25, "1/4s")]
)
def test_rates(limit: str | float, rate: str) -> None:
    assert as_rate(limit) == rate


def test_time_limits(jobs: Jobs) -> None:
    result = typical.slow.delay()
    jobs.drain()
    assert result.get() == "cleaned up"
    assert typical.slow.native.timeout == 10


def test_schedules(jobs: Jobs) -> None:
    typical.add.delay(1, 2)  # the first use applies the settings
    named = {s.name: (s.expression, s.zone) for task in app.tasks.values() for s in task.schedules}
    assert named == {
        "every-night": ("30 3 * * *", "Europe/Paris"),
        "often": ("@every 30s", "Europe/Paris"),
        "delta": ("@every 300s", "Europe/Paris"),
    }
    jobs.advance(300, schedules=True)
    jobs.drain()
    assert len(jobs.enqueued(typical.sweep.name)) == 1


def test_ignored_and_rejected_end_as_revoked(jobs: Jobs) -> None:
    results = typical.ignored.delay(), typical.rejected.delay()
    jobs.drain()
    assert [result.state for result in results] == ["REVOKED", "REVOKED"]


def test_revoke(jobs: Jobs) -> None:
    one, two = typical.add.delay(1, 2), typical.add.delay(3, 4)
    one.revoke()
    app.control.revoke(two.id)
    assert jobs.drain() == 0
    assert (one.state, two.state) == ("REVOKED", "REVOKED")


def test_what_control_has_not_names_its_command(jobs: Jobs) -> None:
    assert (app.control.inspect().ping(), app.control.inspect().stats(), app.control.ping()) == (None, None, [])
    with pytest.raises(CeleryNotSupported, match="tarry stop"):
        app.control.shutdown()
    with pytest.raises(CeleryNotSupported, match="tarry queues"):
        app.control.inspect().active_queues()


def test_a_result_that_no_backend_would_keep(jobs: Jobs) -> None:
    result = typical.model.delay()
    with pytest.warns(CeleryDifference, match="its result is None"):
        jobs.drain()
    assert result.get() is None


def test_by_name(jobs: Jobs) -> None:
    result = app.send_task("tests.compat.celery.typical.add", (1, 2))
    other = app.signature("tests.compat.celery.typical.add", (1,)).delay(5)
    jobs.drain()
    assert (result.get(), other.get()) == (3, 6)


def test_always_eager(jobs: Jobs) -> None:
    app.conf.task_always_eager = True
    try:
        assert typical.add.delay(1, 2).get() == 3
        assert typical.fetch.delay("u").state == "FAILURE"
        assert len(typical.seen) == 4
    finally:
        app.conf.task_always_eager = False
    assert jobs.enqueued() == []
    with pytest.raises(ValueError, match="no"):
        typical.fails.apply(("no",), throw=True)


def test_a_task_that_only_workers_know(jobs: Jobs) -> None:
    app.send_task("elsewhere.one", (1, 2), countdown=5)
    app.send_task("elsewhere.two", kwargs={"a": 1}, queue="other")
    one, two = jobs.enqueued()
    assert (one.task, one.queue, two.queue) == ("elsewhere.one", "celery", "other")
    with pytest.raises(CeleryNotSupported, match="all by name"):
        app.send_task("elsewhere.one", (1,), {"a": 2})


def test_a_class_may_put_a_context_around_each_run(jobs: Jobs) -> None:
    result = typical.in_context.delay(1)
    jobs.drain()
    assert (result.get(), typical.seen) == (1, ["context"])
