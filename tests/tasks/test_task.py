import asyncio
import inspect
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from types import ModuleType
from typing import Any

import pytest

from tarry import App, ArgumentError, Retry, State
from tarry.client.clock import FakeClock
from tarry.client.tasks.task import AsyncTask, SyncTask
from tarry.config.config import Config, DefaultRetry, Defaults
from tarry.errors import ConfigError
from tarry.model.duration import SECOND
from tarry.model.limit import parse_limit
from tarry.model.retry import NEVER
from tarry.tasks.definition import full_name

NOW = FakeClock().time


def module_task(a: int) -> int:
    return a


@pytest.fixture
def still(app: App) -> App:
    """The app, while time stands still."""
    app._clock = FakeClock()
    return app


def test_a_task_goes_by_its_module_and_function(app: App) -> None:
    task = app.task(module_task)
    assert task.name == "tests.tasks.test_task.module_task"
    assert app.tasks == {task.name: task}
    assert repr(task) == "<Task tests.tasks.test_task.module_task>"


def test_a_task_goes_by_the_name_it_is_given(app: App) -> None:
    @app.task(name="shop.pay")
    def pay() -> None:
        """Pays."""

    assert (pay.name, pay.__name__, pay.__doc__) == ("shop.pay", "pay", "Pays.")
    assert list(app.tasks) == ["shop.pay"]
    assert inspect.unwrap(pay) is pay.fn


def test_a_scripts_tasks_go_by_the_name_it_is_imported_under(monkeypatch: pytest.MonkeyPatch) -> None:
    def script() -> None: ...

    script.__module__ = "__main__"
    script.__qualname__ = "script"
    main = ModuleType("__main__")
    main.__file__ = "/srv/shop/jobs.py"
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert full_name(script) == "jobs.script"
    main.__spec__ = type("Spec", (), {"name": "shop.jobs"})()
    assert full_name(script) == "shop.jobs.script"


def test_a_callable_object_is_a_task_by_its_class(app: App) -> None:
    class Sender:
        def __call__(self, to: str) -> str:
            return to

    task = app.task(name="send")(Sender())
    assert isinstance(task, SyncTask)
    assert full_name(Sender()).endswith("Sender")
    assert task.enqueue("ann").state == "ready"


def test_two_tasks_of_one_name_are_refused(app: App) -> None:
    @app.task(name="shop.pay")
    def one() -> None: ...

    with pytest.raises(ConfigError, match=r"two tasks are named shop.pay: give one of them another with @app.task"):

        @app.task(name="shop.pay")
        def two() -> None: ...

    assert app.tasks["shop.pay"].fn is one.fn


def test_the_same_function_may_be_declared_again(app: App) -> None:
    def declared(value: int) -> Any:
        def cell() -> int:
            return value

        return app.task(cell)

    declared(1)
    assert declared(2)() == 2
    assert [task() for task in app.tasks.values()] == [2]


def test_a_plain_call_is_just_the_function(app: App) -> None:
    @app.task
    def double(a: int) -> int:
        return 2 * a

    @app.task
    async def triple(a: int) -> int:
        await asyncio.sleep(0)
        return 3 * a

    async def both() -> tuple[int, int]:
        return double(2), await triple(2)

    assert isinstance(double, SyncTask)
    assert isinstance(triple, AsyncTask)
    assert not double.is_async
    assert triple.is_async
    assert asyncio.run(both()) == (4, 6)
    assert app._client is None, "nothing is stored, nothing is opened"


def test_settings_are_kept_in_their_units(app: App) -> None:
    rule = Retry(5)

    @app.task(queue="mail", priority=10, timeout="1m30s", retry=rule, expires=60)
    def send() -> None: ...

    assert (send.queue, send.priority, send.timeout, send.expires) == ("mail", 10, 90.0, 60)
    assert send.retry is rule


@pytest.mark.parametrize(("retry", "limit"), [(None, 0), (0, 0), (4, 4)])
def test_retries_are_as_many_as_said(app: App, retry: int | None, limit: int) -> None:
    task = app.task(retry=retry)(module_task)
    assert task.retry is not None
    assert task.retry.limit == limit
    assert retry is not None or task.retry is NEVER


def test_the_rule_is_the_tasks_else_the_apps_else_that_of_the_settings() -> None:
    def limit(app: App, name: str) -> int | None:
        return app.rules(name, "default").retry.limit

    plain, own = App(closures=True), App(retry=7, closures=True)
    for app in (plain, own):
        app.task(name="plain")(module_task)
        app.task(name="own", retry=1)(module_task)
    assert (limit(plain, "plain"), limit(plain, "own")) == (12, 1)
    assert (limit(own, "plain"), limit(own, "own")) == (7, 1)
    configured = App(closures=True)
    configured.task(name="plain")(module_task)
    configured.configure(Config(defaults=Defaults(DefaultRetry(max=3))))
    assert limit(configured, "plain") == 3
    assert App(retry=None, closures=True).retry is NEVER


@pytest.mark.parametrize("wrong", ["often", True, 1.5, [1]])
def test_a_rule_that_is_none_is_refused(app: App, wrong: Any) -> None:
    with pytest.raises(TypeError, match="how many times to try again, a Retry"):
        app.task(retry=wrong)(module_task)
    with pytest.raises(TypeError, match="how many times to try again"):
        App(retry=wrong, closures=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"priority": 2**40 + 1}, "priority=1099511627777: an integer within"),
        ({"priority": 1.5}, "priority=1.5: an integer within"),
        ({"queue": ""}, "queue='': text of 1 to 200 characters"),
        ({"queue": "x" * 201}, "queue='xxx"),
        ({"timeout": -1}, "-1 is negative"),
        ({"timeout": "soon"}, "timeout='soon' is no duration"),
        ({"expires": "soon"}, "expires='soon' is no duration"),
        ({"retry": -5}, "limit=-5: 0 to"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(app: App, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        app.task(**settings)(module_task)
    assert app.tasks == {}


def test_a_task_is_made_of_a_function(app: App) -> None:
    with pytest.raises(TypeError, match="a task is made of a function, not of 5"):
        app.task()(5)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({}, NOW),
        ({"delay": 0}, NOW),
        ({"delay": 1.5}, NOW + 1_500_000),
        ({"delay": "5m"}, NOW + 300 * SECOND),
        ({"delay": timedelta(milliseconds=1)}, NOW + 1000),
        ({"at": NOW / SECOND + 60}, NOW + 60 * SECOND),
        ({"at": datetime.fromtimestamp(NOW / SECOND, UTC) + timedelta(hours=1)}, NOW + 3600 * SECOND),
        ({"at": datetime(1969, 1, 1, tzinfo=UTC)}, 0),
        ({"at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}, 0),
        ({"at": 5}, 5 * SECOND),
    ],
)
def test_when_a_job_is_due(still: App, options: dict[str, Any], due: int) -> None:
    job = still.task(module_task).using(**options).enqueue(1).record()
    assert (job.due, job.state) == (due, State.SCHEDULED if due > NOW else State.READY)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": 1, "at": 5}, "delay= and at= both say when; give one of them"),
        ({"at": datetime(2026, 1, 1)}, "at= needs a time zone"),
        ({"at": float("nan")}, "at=nan: a datetime with a time zone, until 9999, or seconds since"),
        ({"at": float("inf")}, "at=inf: a datetime with a time zone, until 9999, or seconds since"),
        ({"at": "noon"}, "at='noon': a datetime with a time zone, until 9999, or seconds since"),
        ({"at": True}, "at=True: a datetime with a time zone, until 9999, or seconds since"),
        ({"delay": "soon"}, "delay='soon' is no duration"),
        ({"expires": -1}, "expires=-1 is negative"),
        ({"at": -1}, "at=-1: a datetime with a time zone, until 9999, or seconds since"),
        ({"at": 10**15}, "at=1000000000000000: a datetime with a time zone, until 9999, or seconds since"),
        ({"at": datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(-timedelta(hours=14)))}, "until 9999"),
        ({"priority": -(2**40) - 1}, "priority=-1099511627777"),
        ({"priority": True}, "priority=True: an integer"),
        ({"priority": "high"}, "priority='high': an integer"),
        ({"key": ""}, "key='': text of 1 to 200 characters"),
        ({"key": "k" * 201}, "key='kkk"),
        ({"key": 5}, "key=5: text"),
        ({"queue": ""}, "queue='': text"),
        ({"queue": "q" * 201}, "queue='qqq"),
        *(
            ({name: f"a{sign}"}, f"^{name}=.*: no store can hold a NUL or half of a character")
            for name in ("key", "queue", "idempotency")
            for sign in ("\0", "\ud800", "\udfff")
        ),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(app: App, options: dict[str, Any], message: str) -> None:
    task = app.task(module_task)
    with pytest.raises(ValueError, match=message):
        task.using(**options)


def test_functions_of_unknown_arguments_are_refused(app: App) -> None:
    with pytest.raises(
        TypeError, match=r"^largest: Python does not know which arguments <built-in function max> takes"
    ):
        app.task(name="largest")(max)
    with pytest.raises(TypeError, match=r"^each: limit_by: Python does not know which arguments <class 'str'> takes"):
        app.task(name="each", limit_by=str)(module_task)


def test_names_and_limit_keys_that_no_store_can_hold_are_refused(app: App) -> None:
    for text in ("a\ud800", "\0"):
        with pytest.raises(ValueError, match=r"^name=.*: no store can hold"):
            app.task(name=text)(module_task)
        with pytest.raises(ValueError, match=r"^queue=.*: no store can hold"):
            app.task(name="fine", queue=text)(module_task)
        by = lambda *args, text=text: text  # noqa: E731
        task = app.task(name=f"by{ord(text[0])}", limit=1, limit_by=by)(module_task)
        with pytest.raises(ValueError, match=r"limit_by=.*: no store can hold"):
            task.enqueue(1)


@pytest.mark.parametrize("options", [{"delay": -1}, {"delay": "soon"}, {"expires": -1}, {"delay": float("nan")}])
def test_a_duration_that_is_none_stores_nothing(app: App, options: dict[str, Any]) -> None:
    task = app.task(module_task)
    with pytest.raises(ValueError, match=r"negative|no duration|no number"):
        task.using(**options).enqueue(1)
    assert app.client.store.counts() == []


@pytest.mark.parametrize("priority", [2**40, -(2**40), 0, 100])
def test_bounds_are_within(app: App, priority: int) -> None:
    job = app.task(module_task).using(priority=priority, key="k" * 200, queue="q" * 200).enqueue(1).record()
    assert (job.priority, job.key, job.queue) == (priority, "k" * 200, "q" * 200)


def test_options_stand_above_the_tasks_settings(still: App) -> None:
    task = still.task(queue="mail", priority=1, expires=60)(module_task)
    plain = task.enqueue(1).record()
    other = task.using(queue="slow", priority=-1, expires=5, delay=10).enqueue(1).record()
    zero = task.using(priority=0).enqueue(1).record()
    assert (plain.queue, plain.priority, plain.expires) == ("mail", 1, NOW + 60 * SECOND)
    assert (other.queue, other.priority, other.expires) == ("slow", -1, NOW + 15 * SECOND)
    assert zero.priority == 0


Enqueued = Callable[[App], list[Any]]


async def _later(awaitable: Any) -> Any:
    return await awaitable


WAYS: dict[str, Enqueued] = {
    "enqueue": lambda app: [app.tasks["t"].enqueue(1)],
    "aenqueue": lambda app: [asyncio.run(_later(app.tasks["t"].aenqueue(1)))],
    "enqueue_many": lambda app: app.tasks["t"].enqueue_many([(1,)]),
    "aenqueue_many": lambda app: asyncio.run(_later(app.tasks["t"].aenqueue_many([(1,)]))),
    "app.enqueue": lambda app: [app.enqueue("t", 1)],
    "app.aenqueue": lambda app: [asyncio.run(_later(app.aenqueue("t", 1)))],
    "using.enqueue": lambda app: [app.tasks["t"].using().enqueue(1)],
    "using.aenqueue": lambda app: [asyncio.run(_later(app.tasks["t"].using().aenqueue(1)))],
    "using.enqueue_many": lambda app: app.tasks["t"].using().enqueue_many([{"a": 1}]),
    "using.aenqueue_many": lambda app: asyncio.run(_later(app.tasks["t"].using().aenqueue_many([[1]]))),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_enqueue_stores_the_call(app: App, way: str) -> None:
    task = app.task(name="t")(module_task)
    (job,) = WAYS[way](app)
    assert job.is_new
    record = app.get(job.id).record()
    assert (record.task, record.state, task.codec.decode(record.body)) in [
        ("t", "ready", ((1,), {})),
        ("t", "ready", ([], {"a": 1})),
    ]


def test_many_are_stored_in_order_or_not_at_all(app: App) -> None:
    task = app.task(name="t")(module_task)
    jobs = task.using(queue="many").enqueue_many([(number,) for number in range(7000)])
    assert len({job.id for job in jobs}) == 7000
    records = [app.get(job.id).record() for job in jobs[::1000]]
    assert [task.codec.decode(record.body)[0] for record in records] == [(n,) for n in range(0, 7000, 1000)]
    assert sorted(job.id for job in jobs) == [job.id for job in jobs]
    with pytest.raises(ArgumentError, match="t: argument a: Expected int, got str"):
        task.enqueue_many([(1,), ("x",)])
    assert sum(tally.count for tally in app.client.store.counts()) == 7000
    assert task.enqueue_many([]) == []


HOUR = 3600 * SECOND
SPREADS: dict[str, tuple[dict[str, Any], int]] = {
    "from now": ({}, NOW),
    "from a delay": ({"delay": 60}, NOW + 60 * SECOND),
    "from a time": ({"at": datetime.fromtimestamp(NOW / SECOND + 9, UTC)}, NOW + 9 * SECOND),
}


@pytest.mark.parametrize("waits", [False, True], ids=["", "awaited"])
@pytest.mark.parametrize("through", [False, True], ids=["", "through middleware"])
@pytest.mark.parametrize("spread", SPREADS)
def test_many_are_spread_evenly_over_a_time(still: App, spread: str, through: bool, waits: bool) -> None:
    task = still.task(name="t", expires="1m")(module_task)
    if through:
        still.middleware("enqueue")(lambda job, call_next: call_next(job))
    options, first = SPREADS[spread]
    using, calls = task.using(**options), [(number,) for number in range(4)]
    jobs = asyncio.run(_later(using.aenqueue_many(calls, over="1h"))) if waits else using.enqueue_many(calls, over="1h")
    records = [still.get(job.id).record() for job in jobs]
    assert [record.due for record in records] == [first + quarter * HOUR // 4 for quarter in range(4)]
    assert [record.state for record in records] == ["ready" if first == NOW else "scheduled", *["scheduled"] * 3]
    assert {record.expires - record.due for record in records} == {60 * SECOND}
    assert len({job.id for job in jobs}) == 4


def test_a_spread_that_is_none(still: App) -> None:
    task = still.task(name="t")(module_task)
    assert task.enqueue_many([], over="1h") == []
    jobs = task.enqueue_many([(1,), (2,)], over=0)
    assert {still.get(job.id).record().due for job in jobs} == {NOW}
    for wrong in (-1, "soon", True):
        with pytest.raises(ValueError, match="over"):
            task.enqueue_many([(1,)], over=wrong)
    with pytest.raises(ValueError, match="until 9999"):
        task.using(at=datetime(9999, 12, 31, 23, tzinfo=UTC)).enqueue_many([(1,), (2,)], over="1d")
    assert sum(tally.count for tally in still.client.store.counts()) == 2


def test_arguments_are_checked_before_anything_is_stored(app: App) -> None:
    task = app.task(name="t")(module_task)
    with pytest.raises(ArgumentError, match="t: missing a required argument: 'a'"):
        task.enqueue()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="t: argument a"):
        task.enqueue("x")  # type: ignore[arg-type]
    assert app.client.store.counts() == []


@pytest.mark.parametrize("name", ["delay", "apply_async", "send"])
def test_what_other_libraries_call_it_is_told_with_what_it_is_here(app: App, name: str) -> None:
    task: Any = app.task(module_task)
    with pytest.raises(AttributeError, match=rf"has no {name}: write \.enqueue\(\.\.\.\), or \.using\(delay="):
        getattr(task, name)(1)
    with pytest.raises(AttributeError, match=r"has no enqueu; did you mean enqueue\?"):
        task.enqueu(1)
    assert not hasattr(task, "nothing_like_it")


def test_an_unknown_setting_is_told_with_the_nearest(app: App) -> None:
    with pytest.raises(TypeError, match=r"@app.task has no setting retries; did you mean retry\?"):
        app.task(retries=3)(module_task)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"has no setting xyz; there are name, queue, .*, batch, wait"):
        app.task(xyz=3)(module_task)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"[]", "missing a required argument: 'a'"),
        (b"[1]", "missing a required argument: 'b'"),
        (b'{"a": 1}', "missing a required argument: 'b'"),
        (b'[1, "2", 3]', "too many positional arguments: it takes 2"),
        (b'{"a": 1, "b": "x", "cc": 1}', "got an unexpected keyword argument 'cc'; did you mean c?"),
        (b'[1, ["x"]]', "argument b: Expected str, got array"),
    ],
)
def test_a_wrong_number_of_arguments_names_the_one(app: App, body: bytes, told: str) -> None:
    def work(a: int, b: str, *, c: int = 1) -> None: ...

    task = app.task(work)
    with pytest.raises(ArgumentError) as error:
        app.client.make_job(task.name, body)
    assert str(error.value) == f"{task.name}: {told}"


def test_dir_has_what_there_is() -> None:
    import tarry  # noqa: PLC0415

    assert set(tarry.__all__) <= set(dir(tarry))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"order_by": "key"}, "each: order_by='key': a function of the task's arguments"),
        ({"order_by": lambda nobody: nobody}, "each: order_by asks for nobody, which the task has no parameter for"),
        ({"on_dead": "hold"}, "each: on_dead= stands beside order_by="),
        ({"order_by": lambda a: a, "on_dead": "wait"}, 'each: on_dead=\'wait\': "skip" or "hold"'),
        ({"order_by": lambda a: a, "limit_by": lambda a: a}, "a job waits in one line, that of its key"),
        ({"order_by": lambda a: a, "limit": 2}, "each: limit=2 beside order_by=: one job of a key runs at a time"),
    ],
)
def test_an_order_that_cannot_be_kept_is_refused(app: App, settings: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(error)):
        app.task(name="each", **settings)(module_task)


def test_an_ordered_task_may_have_limits_of_all_keys_and_a_rate_of_each(app: App) -> None:
    task = app.task(name="each", order_by=lambda a: a, rate="5/s", limit_all=3, rate_all="9/s")(module_task)
    assert task.limits == {"each:each": parse_limit(1, "5/s"), "task:each": parse_limit(3, "9/s")}
    halves = app.task(name="halves", order_by=lambda a: a / 2)(module_task)
    with pytest.raises(TypeError, match=r"^halves: order_by gave 1\.5: the key must be text or a whole number"):
        halves.enqueue(3)
