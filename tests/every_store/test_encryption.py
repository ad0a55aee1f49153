"""With [encryption], nobody reads in a store what jobs say, and all else is as without it."""

import base64
import logging
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tarry import App, Progress, Retry, State, approve, current_job, sleep, step, wait_for
from tarry.client.flows.approvals import decide, find_approvals, read_approvals
from tarry.client.flows.flow_records import flow_detail
from tarry.client.flows.searching import FlowSearch, search_flows
from tarry.client.job_records import job_detail
from tarry.client.operations import operation_cells
from tarry.client.operations.job_cloning import clone_job
from tarry.client.operations.job_editing import edit_job, encode_arguments
from tarry.client.operations.operation import JobFilter, Operation
from tarry.client.operations.runner import OperationRunner
from tarry.client.schedules import storing
from tarry.config.config import Config, EncryptionConfig
from tarry.errors import ConfigError, JobFailed, ValueSealed
from tarry.keeper.stored_records import stored_detail
from tarry.keeper.stored_ticks import StoredTicker
from tarry.model import lifecycle
from tarry.model.checks.unreadable import is_sealed
from tarry.model.refusals import NotPossible
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.error_reading import read_groups
from tarry.store.queries.stored_schedules import PREFIX, get
from tarry.store.rules.base import Query
from tarry.store.rules.entry import Entry
from tarry.tasks.durable.durable_waits import Approval
from tarry.testing.leftovers import leftovers
from tests.cli.project import until
from tests.every_store.raw_bytes import raw_bytes

MARKER = "pelican"
"""Nobody may find this word, nor its form in base64."""
HIDDEN = (MARKER.encode(), MARKER.encode().hex().encode(), base64.b64encode(MARKER.encode())[:8])
_draw = random.Random(5)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OLD_KEY", "NEW_KEY"):
        monkeypatch.setenv(name, base64.b64encode(_draw.randbytes(32)).decode())


@pytest.fixture
def twins() -> Iterator[Callable[..., App]]:
    """Makes another app on the store of one, with these keys."""
    made: list[App] = []

    def make(app: App, *keys: str) -> App:
        twin = App(app._given, closures=True)
        made.append(seal(twin, *keys))
        return twin

    yield make
    for app in made:
        if not isinstance(app._given, MemoryStore):
            app.close()


def seal(app: App, *keys: str) -> App:
    app.configure(Config(encryption=EncryptionConfig(keys=[f"env:{key}" for key in keys])))
    return app


def run(app: App, job: Any) -> Any:
    """Runs jobs until this one has ended."""
    until(lambda: app.drain() >= 0 and job.state.finished)
    return job


def shown_flow(app: App, flow: Any) -> Any:
    """What people see of a flow."""
    rows = search_flows(app.client.store, FlowSearch(limit=10)).rows
    return flow_detail(app.client, next(row for row in rows if row.id.hex() == flow.id.replace("-", "")))


def arguments_and_result(app: App) -> Any:
    @app.task(name="echo")
    def echo(text: str, **more: str) -> dict[str, str]:
        return {"said": text, **more}

    job = run(app, echo.enqueue(MARKER, other=MARKER))
    assert job.result() == {"said": MARKER, "other": MARKER}
    return job


def progress_and_output(app: App) -> Any:
    @app.task(name="report")
    def report() -> None:
        print(f"printed {MARKER}")
        logging.getLogger("shop").warning("logged %s", MARKER)
        current_job().progress(0.5, f"at {MARKER}")

    job = run(app, report.enqueue())
    assert job.progress.message == f"at {MARKER}"
    assert MARKER in job.output.text
    return job


def steps_and_signals(app: App) -> Any:
    @app.task(name="durable")
    def durable() -> list[Any]:
        first = step.named(f"step {MARKER}")(lambda: MARKER)
        sleep(0.01)
        heard = wait_for("paid", key="7", timeout=60)
        said = approve("refund?", key="8")
        return [first, heard, said.note]

    job = durable.enqueue()
    until(lambda: app.drain() >= 0 and job.state is State.SCHEDULED)
    app.signal("paid", key="7", value=MARKER)
    until(lambda: app.drain() >= 0 and read_approvals(app.client.store).jobs)
    decide(app.client.store, app.client.clock, find_approvals(app.client.store, "8", None), Approval(True, "", MARKER))
    assert run(app, job).result() == [MARKER] * 3
    return job


def failures(app: App) -> Any:
    @app.task(name="broken", retry=Retry(2, base=0.01, jitter=0))
    def broken(what: str) -> None:
        raise ValueError(f"no {what}")

    job = run(app, broken.enqueue(MARKER))
    with pytest.raises(JobFailed, match=f"ValueError: no {MARKER}"):
        job.result()
    detail = job_detail(job.record())
    assert [one.error for one in detail.attempts] == [f"ValueError: no {MARKER}"] * 3
    return job


def flow(app: App) -> Any:
    @app.task(name="give")
    def give(text: str) -> str:
        return text

    @app.task(name="join")
    def join(texts: list[str]) -> str:
        return " ".join(texts)

    done = app.chord([give.call(MARKER), give.call("b")], join.call())
    assert run(app, done).result() == f"{MARKER} b"
    mapped = run(app, app.map(give, [MARKER, "c", "d"]))
    assert mapped.result() == [MARKER, "c", "d"]
    return done


def undone_flow(app: App) -> Any:
    seen: list[str] = []

    @app.task(name="charge")
    def charge(order: str) -> str:
        return f"receipt {order}"

    @app.task(name="refund")
    def refund(receipt: str, why: str) -> None:
        seen.append(f"{receipt} {why}")

    @app.task(name="ship", retry=None)
    def ship(order: str) -> None:
        raise RuntimeError(f"no ship for {order}")

    with app.flow("order", on_failure="compensate") as f:
        paid = f.add(charge.call(MARKER), undo=refund.call(why=MARKER))
        f.add(ship.call(MARKER), after=[paid])
    job = run(app, f.handle)
    assert job.state is State.DEAD
    assert seen == [f"receipt {MARKER} {MARKER}"]
    return job


def edit_and_clone(app: App) -> Any:
    @app.task(name="edited", retry=None)
    def edited(text: str, times: int) -> str:
        return text * times

    job = edited.using(delay="1h").enqueue(f"old {MARKER}", 1)
    arguments = encode_arguments(app.client, job.record(), [f"new {MARKER}", 2])
    assert edit_job(app.client, job.record(), arguments, run=True) is not None
    (act, _) = job_detail(job.record()).acts
    assert act.before == [f"old {MARKER}", 1]
    assert run(app, clone_job(app.client, job.record(), None, with_key=False)).result() == f"new {MARKER}" * 2
    return run(app, job)


SCENES = [arguments_and_result, progress_and_output, steps_and_signals, failures, flow, undone_flow, edit_and_clone]
"""Each says the marker in fields of its own, and sees that all is as without keys."""


@pytest.mark.parametrize("scene", SCENES)
def test_what_jobs_say_is_nowhere_in_the_store(app: App, scene: Callable[[App], Any], tmp_path: Path) -> None:
    scene(seal(app, "NEW_KEY"))
    found = raw_bytes(app, tmp_path)
    assert isinstance(app._given, MemoryStore) or b"tarry-sealed" in found
    assert [hidden for hidden in HIDDEN if hidden in found] == []


@pytest.mark.parametrize("scene", SCENES)
def test_without_keys_the_same_is_in_the_clear(app: App, scene: Callable[[App], Any], tmp_path: Path) -> None:
    scene(app)
    found = raw_bytes(app, tmp_path)
    assert isinstance(app._given, MemoryStore) or MARKER.encode() in found


def test_who_has_no_key_edits_and_clones_nothing(app: App, twins: Callable[..., App]) -> None:
    keyless = twins(app)
    for one in (app, keyless):
        one.task(name="echo")(lambda text: text)
    job = seal(app, "NEW_KEY").named("echo").using(delay="1h").enqueue(MARKER)
    seen = keyless.get(job.id).record()
    with pytest.raises(NotPossible, match="sealed, and this process has no key"):
        edit_job(keyless.client, seen, b'["clear"]', run=False)
    with pytest.raises(NotPossible, match="sealed, and this process has no key"):
        clone_job(keyless.client, seen, None, with_key=False)


def test_a_worker_without_the_key_puts_a_job_off_and_one_with_it_runs_it(app: App, twins: Callable[..., App]) -> None:
    keyless = twins(app)

    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    keyless.task(name="echo")(lambda text: text)
    old = keyless.named("echo").enqueue("clear")
    job = seal(app, "NEW_KEY").named("echo").enqueue(MARKER)
    keyless.drain()
    assert (old.state, job.state) == (State.DONE, State.SCHEDULED)
    assert keyless.drain() == 0
    seen = job_detail(keyless.get(job.id).record())
    assert seen.note["message"].startswith("no worker that claimed it has the key ")
    assert [one.outcome for one in seen.attempts] == ["no_key"]
    assert seen.failures == 0
    assert run(app, job).result() == MARKER
    assert old.result() == "clear"


def test_who_has_no_key_is_told_so(app: App, twins: Callable[..., App]) -> None:
    keyless = twins(app)
    why = r"sealed with key [0-9a-f]{8}, which this process does not have"
    done, dead = arguments_and_result(seal(app, "NEW_KEY")), failures(app)
    progress, whole = progress_and_output(app), flow(app)
    with pytest.raises(ValueSealed, match=why):
        keyless.get(done.id).result()
    with pytest.raises(JobFailed, match=f"ValueError: {why}"):
        keyless.get(dead.id).result()
    seen = [job_detail(keyless.get(job.id).record()) for job in (done, dead, progress)]
    assert [bool(re.fullmatch(why, one.args)) for one in seen] == [True] * 3
    assert re.fullmatch(why, seen[0].note)
    assert (seen[1].note["type"], bool(re.fullmatch(why, seen[1].note["message"]))) == ("ValueError", True)
    assert all(re.fullmatch(why, one.error) for one in seen[1].attempts)
    assert re.fullmatch(why, str(seen[2].progress and seen[2].progress.message))
    assert MARKER not in repr(shown_flow(keyless, whole))


def test_a_person_without_the_key_does_no_harm(app: App, twins: Callable[..., App]) -> None:
    keyless = twins(app)
    dead, undone = failures(seal(app, "NEW_KEY")), undone_flow(app)
    assert keyless.get(dead.id).retry()
    detail = job_detail(dead.record())
    assert [one.error for one in detail.attempts] == [f"ValueError: no {MARKER}"] * 3
    assert [one.act for one in detail.acts] == ["retried"]
    with pytest.raises(JobFailed, match=MARKER):
        run(app, dead).result()
    assert MARKER not in repr(shown_flow(keyless, undone))


def test_keys_are_replaced_one_after_the_other(app: App, twins: Callable[..., App]) -> None:
    old = arguments_and_result(seal(app, "OLD_KEY"))
    both, new = twins(app, "NEW_KEY", "OLD_KEY"), twins(app, "NEW_KEY")
    for other in (both, new):
        other.task(name="echo")(lambda text, **more: text)
    assert both.get(old.id).result()["said"] == MARKER
    fresh = both.named("echo").enqueue(MARKER)
    assert run(new, new.get(fresh.id)).result() == MARKER
    with pytest.raises(ValueSealed, match="does not have"):
        new.get(old.id).result()
    with pytest.raises(ValueSealed, match="does not have"):
        app.get(fresh.id).result()


def test_a_value_of_another_job_does_not_open(app: App, twins: Callable[..., App]) -> None:
    keyless = twins(app)
    called: list[str] = []
    seal(app, "NEW_KEY").task(name="echo", retry=None)(called.append)
    first, second = (
        app.named("echo").enqueue("first"),
        app.named("echo").enqueue(
            "second",
        ),
    )
    store = keyless.client.store
    stolen, victim = store.get([first.raw_id, second.raw_id])
    assert stolen is not None
    assert victim is not None
    assert is_sealed(stolen.body)
    store.apply([lifecycle.replace_call(victim, replace(victim, body=stolen.body), store.time())], store.time())
    run(app, first)
    run(app, second)
    assert (called, second.state) == (["first"], State.DEAD)
    with pytest.raises(JobFailed, match="altered since, or taken from another job or field"):
        second.result()


def test_a_task_may_do_without(app: App, twins: Callable[..., App], tmp_path: Path) -> None:
    @seal(app, "NEW_KEY").task(name="open", encrypt=False)
    def of_all(text: str) -> str:
        current_job().progress(0.5, "halfway")
        if text == "bad":
            raise ValueError("it is bad")
        return text

    keyless = twins(app)
    job, bad = run(app, of_all.enqueue("plain")), of_all.using(retry=None).enqueue("bad")
    assert keyless.get(job.id).result() == "plain"
    assert keyless.get(job.id).progress == Progress(0.5, "halfway")
    run(app, bad)
    with pytest.raises(JobFailed, match="it is bad"):
        keyless.get(bad.id).result()
    assert b"tarry-sealed" not in raw_bytes(app, tmp_path)


def test_groups_of_errors_are_as_without_keys_but_for_their_message(app: App, twins: Callable[..., App]) -> None:
    failures(seal(app, "NEW_KEY"))
    store = app.client.store
    store.history.sum_up(store.time())
    (group,) = read_groups(store.history, store.time(), lambda queue, tasks: True).values()
    assert (group.type, group.message, group.count) == ("ValueError", "…", 3)
    assert group.place.endswith("test_encryption.py:broken")


def test_a_job_in_the_outbox_is_sealed_too(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", outbox=tmp_path / "outbox.db", closures=True)
    seal(app, "NEW_KEY").task(name="echo")(lambda text: text)
    assert app.outbox is not None
    job = app.client.make_job("echo", b'["%b"]' % MARKER.encode())
    app.outbox.keep([Entry(job)])
    assert MARKER.encode() not in raw_bytes(app, tmp_path)
    assert app.get(job.id).record().body == job.body
    assert app.client.forwarder is not None
    app.client.forwarder.step()
    assert run(app, app.get(job.id)).result() == MARKER
    assert MARKER.encode() not in raw_bytes(app, tmp_path)
    app.close()


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "env:NEW_KEY: the variable NEW_KEY is not set"),
        ("x" * 43, "env:NEW_KEY: a key is 32 bytes in base64"),
        (base64.b64encode(b"short").decode(), "env:NEW_KEY: a key has 32 bytes, not 5"),
    ],
)
def test_a_wrong_key_is_an_error_that_names_it(key: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW_KEY", key)
    with pytest.raises(ConfigError, match=rf"\[encryption\] keys: {why}.*openssl rand -base64 32"):
        _ = seal(App("memory://"), "OLD_KEY", "NEW_KEY").client


def test_the_call_of_a_schedule_is_sealed_and_waits_for_a_key(
    app: App, twins: Callable[..., App], tmp_path: Path
) -> None:
    keyless = twins(app)
    called: list[str] = []
    seal(app, "NEW_KEY").task(name="echo", retry=None)(called.append)
    keyless.task(name="echo", retry=None)(called.append)
    echo = app.named("echo")
    app.schedules.put("report:7", echo.call(MARKER), every="1s")
    app.schedules.put("report:7", echo.call(MARKER), every="1s")
    assert [hidden for hidden in HIDDEN if hidden in raw_bytes(app, tmp_path)] == []
    detail = stored_detail(keyless.client.store, "report:7", stored(keyless), keyless.client.store.time())
    assert re.fullmatch("sealed with key [0-9a-f]{8}, which this process does not have", str(detail.args))
    with pytest.raises(ValueSealed):
        storing.run_now(keyless.client, stored(keyless).definition)
    ticker = StoredTicker(keyless.client)
    until(lambda: ticker.tick() and stored(keyless).problem)
    assert "the call of schedule report:7 is sealed with key" in stored(keyless).problem
    assert app.client.store.find(Query()) == []
    # Paused and resumed without the key, it is what it was.
    keyless.schedules.pause("report:7")
    keyless.schedules.resume("report:7")
    ticker.close()
    ticker = StoredTicker(app.client)
    until(lambda: ticker.tick() and app.client.store.find(Query()))
    app.drain()
    assert set(called) == {MARKER}
    assert [hidden for hidden in HIDDEN if hidden in raw_bytes(app, tmp_path)] == []


def test_the_call_of_another_schedule_does_not_open(app: App, twins: Callable[..., App]) -> None:
    keyless = twins(app)
    seal(app, "NEW_KEY").task(name="echo")(print)
    for name in ("a", "b"):
        app.schedules.put(name, app.named("echo").call(name), every="1h")
    store = keyless.client.store
    stolen, victim = store.kv_get(f"{PREFIX}a"), store.kv_get(f"{PREFIX}b")
    assert store.kv_cas(f"{PREFIX}b", stolen, victim)
    with pytest.raises(ValueSealed, match="altered since, or taken from another"):
        storing.run_now(app.client, stored(app, "b").definition)


def stored(app: App, name: str = "report:7") -> StoredSchedule:
    found = get(app.client.store, name)
    assert found is not None
    return found


def test_what_somebody_types_into_an_operation(app: App, twins: Callable[..., App], tmp_path: Path) -> None:
    keyless = twins(app)

    @seal(app, "NEW_KEY").task(name="broken", retry=None)
    def broken(what: str) -> None:
        raise ValueError(f"no {what}")

    broken.enqueue(MARKER)
    other = broken.enqueue("a pear")
    app.drain()
    apps = {"a": keyless, "b": app}
    filter = JobFilter(task="broken", text=MARKER, error_text=(f"no {MARKER}",))
    runners = [OperationRunner(partial(getattr, one, "client"), name, poll=0.02) for name, one in apps.items()]
    typed = runners[1].submit(Operation("", "delete", filter, reason=f"they typed {MARKER}"))
    assert [hidden for hidden in HIDDEN if hidden in raw_bytes(app, tmp_path)] == []
    for runner in runners:
        runner.start()
        # The keyless one does what is in the clear, and leaves the rest to who has the key.
        clear = runner.submit(Operation("", "delete", JobFilter(queue="none")))
        until(lambda: operation_cells.read(app.client.store, clear.id)[0].is_ended)  # noqa: B023
        if runner is runners[0]:
            seen = operation_cells.read(keyless.client.store, typed.id)[0]
            assert seen.state == "waiting"
            for text in (seen.filter.text, *seen.filter.error_text, seen.reason):
                assert re.fullmatch("sealed with key [0-9a-f]{8}, which this process does not have", text)
    until(lambda: operation_cells.read(app.client.store, typed.id)[0].is_ended)
    for runner in runners:
        runner.close()
    ended = operation_cells.read(app.client.store, typed.id)[0]
    assert (ended.changed, ended.filter, ended.reason, ended.sealed) == (1, filter, f"they typed {MARKER}", b"")
    assert [found.id for found in app.client.store.find(Query())] == [other.record().id]
    assert [hidden for hidden in HIDDEN if hidden in raw_bytes(app, tmp_path)] == []


def test_who_has_no_key_stops_a_sealed_operation(app: App, twins: Callable[..., App]) -> None:
    keyless, now = twins(app), 1_800_000_000_000_000
    store = seal(app, "NEW_KEY").client.store
    added = operation_cells.add(store, Operation("", "delete", JobFilter(text=MARKER)), now)
    assert operation_cells.stop(keyless.client.store, added.id, now).state == "stopped"
    stopped = operation_cells.read(store, added.id)[0]
    assert (stopped.state, stopped.filter.text) == ("stopped", MARKER)


def test_what_is_left_in_a_sealed_store_is_found(app: App, twins: Callable[..., App]) -> None:
    keyless = twins(app)
    seal(app, "NEW_KEY").task(name="echo")(print)
    app.named("echo").using(delay="1h").enqueue(MARKER)
    assert leftovers(app.client.store, is_empty=True) == leftovers(keyless.client.store, is_empty=True) != []
