"""Requests that reach a master through the store: carried out once, by the master that is meant, in time or not at
all."""

import os
import signal
import sqlite3

import pytest

from tarry.keeper.host_requests import OPEN, TAKEN_WITHIN, HostAct, HostRequest, HostRequests, RequestState
from tarry.store.queries.hosts import Host, list_hosts
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tests.cli.project import until
from tests.system.scene import APP, Scene

HUNG = """
import collections
import itertools


@app.task(retry=None)
def hangs() -> None:
    tell("began")
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass


@app.task(retry=None)
def holds() -> None:
    tell("began")
    collections.deque(itertools.count(), maxlen=0)


def deep(left: int) -> int:
    return left and deep(left - 1) + 1


@app.task(retry=None)
def churns() -> None:
    tell("began")
    while True:
        deep(20)


@app.task(retry=None)
async def sleeps() -> None:
    tell("began")
    await asyncio.sleep(3600)
"""


@pytest.fixture
def remote(scene: Scene) -> Scene:
    scene.write("app.py", APP + HUNG)
    scene.settings("[pools.default]\nthreads = 2\n")
    scene.serve()
    until(lambda: any(worker.pid for worker in known_host(scene).workers))
    return scene


def host_of(scene: Scene) -> Host | None:
    with scene.store() as store:
        hosts = list_hosts(store)
    return hosts[0] if hosts and hosts[0].workers else None


def another(found: Host | None, than: Host) -> Host | None:
    return found if found is not None and found.instance != than.instance else None


def known_host(scene: Scene) -> Host:
    host = until(lambda: host_of(scene))
    assert host is not None
    return host


def known_owner(scene: Scene, job: str) -> None:
    """Waits until the heartbeat of the master tells of the worker that runs the job."""
    owner = scene.job(job).owner
    until(lambda: any(worker.owner == owner for worker in known_host(scene).workers))


def put(store: Store, host: Host, act: HostAct, **fields: object) -> HostRequest:
    request = HostRequest(ids.text(ids.uuid7()), act, store.time(), **fields)  # type: ignore[arg-type]
    HostRequests(store, host.instance).put(request)
    return request


def outcome(scene: Scene, host: Host, request: HostRequest) -> HostRequest:
    def ended() -> HostRequest | None:
        with scene.store() as store:
            found = HostRequests(store, host.instance).known(store.time())
        return next((one for one in found if one.id == request.id and one.ended), None)

    found = until(ended)
    assert found is not None
    return found


def ask(scene: Scene, act: HostAct, **fields: object) -> HostRequest:
    host = known_host(scene)
    with scene.store() as store:
        request = put(store, host, act, **fields)
    return outcome(scene, host, request)


def test_a_reload_answers_with_what_the_canary_found(remote: Scene) -> None:
    done = ask(remote, HostAct.RELOAD)
    assert (done.state, done.text) == (RequestState.DONE, "reloaded: generation 2 serves")
    until(lambda: known_host(remote).generation == 2)
    remote.write("app.py", "import nowhere_at_all\n")
    failed = ask(remote, HostAct.RELOAD)
    assert failed.state is RequestState.FAILED
    assert "nowhere_at_all" in failed.text
    assert known_host(remote).generation == 2
    until(lambda: "nowhere_at_all" in known_host(remote).reload_failure)


def test_a_pool_is_scaled_and_the_outcome_says_what_came_of_it(remote: Scene) -> None:
    done = ask(remote, HostAct.SCALE, pool="default", workers=3)
    assert (done.state, done.text) == (RequestState.DONE, "default: 3 wanted")
    until(lambda: len(remote.pids()) == 3)
    failed = ask(remote, HostAct.SCALE, pool="none", workers=3)
    assert (failed.state, failed.text) == (RequestState.FAILED, "no pool 'none': there are default")


def test_the_command_does_the_same_and_waits(remote: Scene) -> None:
    name = known_host(remote).name
    assert remote.said("hosts", "scale", name, "default", "2") == "default: 2 wanted"
    assert "generation 2 serves" in remote.said("hosts", "reload", name)
    assert "no pool 'x'" in remote.misused("hosts", "scale", name, "x", "1")
    assert "tests_of_nobody" in remote.refused("hosts", "reload", "tests_of_nobody")
    worker = until(lambda: known_host(remote).workers[0])
    stack = remote.said("hosts", "stack", name, f"{worker.pool}.{worker.number}")
    assert "worker/run/threads.py" in stack
    assert "stops" in remote.said("hosts", "stop", name)
    until(lambda: not remote.processes())


def test_a_hung_sync_job_is_seen_and_killed_and_counts_a_failure(remote: Scene) -> None:
    (job,) = remote.put("app.hangs")
    remote.begun(1)
    (pid,) = remote.pids()
    held = remote.job(job)
    facts = {"owner": held.owner, "job": job, "epoch": held.epoch}
    seen = ask(remote, HostAct.STACK, **facts)
    assert seen.state is RequestState.DONE
    assert "in hangs" in seen.text
    assert remote.pids() == [pid]
    assert remote.job(job).state == "running"
    killed = ask(remote, HostAct.KILL, **facts)
    assert killed.state is RequestState.DONE
    until(lambda: remote.job(job).state == "dead")
    note = remote.job(job).note.decode()
    assert "an operator ended it" in note
    assert "in hangs" in note
    remote.replaced(pid)
    until(lambda: known_host(remote).pools[0].replaced == {"hang": 1})


def test_a_worker_whose_threads_go_on_is_looked_at_many_times(remote: Scene) -> None:
    """The stacks of threads that run must not be read from a signal's handler: now and then that ends the process."""
    jobs = remote.put("app.churns", times=2)
    remote.begun(2)
    held = remote.job(jobs[0])
    known_owner(remote, jobs[0])
    (pid,) = remote.pids()
    for _ in range(4):
        host = known_host(remote)
        with remote.store() as store:
            asked = [put(store, host, HostAct.STACK, owner=held.owner) for _ in range(8)]
        for request in asked:
            seen = outcome(remote, host, request)
            # Each by its job, and once more among the threads.
            assert (seen.state, seen.text.count("in churns")) == (RequestState.DONE, 4)
        # Its outcome is stored before it counts no more.
        with remote.store() as store:
            until(lambda: not HostRequests(store, host.instance).under_way())  # noqa: B023
    assert remote.pids() == [pid]


def test_a_job_that_never_lets_go_of_the_interpreter_is_seen(remote: Scene) -> None:
    (job,) = remote.put("app.holds")
    remote.begun(1)
    (pid,) = remote.pids()
    held = remote.job(job)
    seen = ask(remote, HostAct.STACK, owner=held.owner, job=job, epoch=held.epoch)
    assert (seen.state, "in holds" in seen.text) == (RequestState.DONE, True)
    assert remote.pids() == [pid]


def test_a_coroutine_that_waits_is_seen_and_ended_and_its_worker_goes_on(remote: Scene) -> None:
    (job,) = remote.put("app.sleeps")
    remote.begun(1, asleep=1)
    (pid,) = remote.pids()
    held = remote.job(job)
    facts = {"owner": held.owner, "job": job, "epoch": held.epoch}
    # Its worker tells of it a moment after it began.
    until(lambda: "in sleeps" in ask(remote, HostAct.STACK, **facts).text)
    assert ask(remote, HostAct.KILL, **facts).state is RequestState.DONE
    until(lambda: remote.job(job).state == "dead")
    assert "an operator ended it" in remote.job(job).note.decode()
    assert remote.pids() == [pid]


@pytest.mark.parametrize(("option", "state"), [((), "dead"), (("--outcome", "cancelled"), "cancelled")])
def test_the_command_kills_a_hung_job(remote: Scene, option: tuple[str, ...], state: str) -> None:
    (job,) = remote.put("app.hangs")
    remote.begun(1)
    (pid,) = remote.pids()
    name = ids.text(ids.parse(job))
    known_owner(remote, job)
    assert "in hangs" in remote.said("jobs", "stack", job)
    told = remote.said("jobs", "kill", job, *option)
    assert told.startswith(f"{name} killed: ")
    until(lambda: remote.job(job).state == state)
    remote.replaced(pid)
    assert remote.refused("jobs", "kill", job) == f"{name}: the job does not run: it is {state}"
    acts = remote.facts("audit", "--act", "kill_job")["acts"]
    assert [act["outcome"] for act in acts] == [f"RequestError: the job does not run: it is {state}", "done"]
    assert acts[1]["jobs"] == [name]
    assert ("outcome=cancelled" in acts[1]["subject"]) == (state == "cancelled")


def test_a_kill_names_jobs_and_all_of_them_run(remote: Scene) -> None:
    (sleeping,) = remote.put("app.sleeps")
    (later,) = remote.put("app.sleeps", delay="1h")
    remote.begun(1, asleep=1)
    known_owner(remote, sleeping)
    assert "does not run: it is scheduled" in remote.refused("jobs", "kill", sleeping, later)
    assert remote.job(sleeping).state == "running"
    assert "which job" in remote.misused("jobs", "kill")
    assert "not both" in remote.misused("jobs", "kill", sleeping, "--queue", "default")
    assert remote.misused("jobs", "cancel", sleeping, "--outcome", "failed") == "cancel takes no --outcome"
    (answer,) = remote.facts("jobs", "kill", sleeping)
    assert (answer["act"], answer["state"]) == ("kill", "done")
    until(lambda: remote.job(sleeping).state == "dead")


def test_an_attempt_that_is_over_is_not_killed(remote: Scene) -> None:
    (job,) = remote.put("app.hangs")
    remote.begun(1)
    (pid,) = remote.pids()
    held = remote.job(job)
    ask(remote, HostAct.KILL, owner=held.owner, job=job, epoch=held.epoch + 1)
    other = ask(remote, HostAct.KILL, owner="elsewhere", job=job, epoch=held.epoch)
    assert (other.state, other.text) == (RequestState.FAILED, "this worker does not run any more")
    assert remote.pids() == [pid]
    assert remote.job(job).state == "running"


def test_what_is_too_old_is_never_done(remote: Scene) -> None:
    host = known_host(remote)
    with remote.store() as store:
        old = HostRequest(ids.text(ids.uuid7()), HostAct.STOP, store.time() - TAKEN_WITHIN)
        HostRequests(store, host.instance).put(old)
    # One that comes later is taken, and the old one is not.
    assert ask(remote, HostAct.SCALE, pool="default", workers=1).state is RequestState.DONE
    with remote.store() as store:
        states = {one.id: one.state for one in HostRequests(store, host.instance).known(store.time())}
    assert states[old.id] is RequestState.EXPIRED
    assert remote.board().state == "serving"


def test_a_restarted_master_finds_no_request_of_the_one_before(remote: Scene) -> None:
    host = known_host(remote)
    remote.kill(remote.board().pid, signal.SIGSTOP)
    keeper = remote.pids("keeper")
    for pid in keeper:
        os.kill(pid, signal.SIGSTOP)
    with remote.store() as store:
        put(store, host, HostAct.STOP)
    remote.kill_all()
    remote.serve()
    until(lambda: another(host_of(remote), host))
    assert ask(remote, HostAct.SCALE, pool="default", workers=1).state is RequestState.DONE
    assert remote.board().state == "serving"


def test_garbage_in_the_cell_harms_nobody(remote: Scene) -> None:
    host = known_host(remote)
    request = b'{"id":"x","act":"kill","at":%d,"job":"no id","owner":"me"}'
    with remote.store() as store:
        for value in (b"\xff\x00", b"[" * 5000, b'[1, "a", {}]', b"[" + request % store.time() + b"]", b"{}"):
            store.kv_cas(OPEN + host.instance, value, store.kv_get(OPEN + host.instance))
            assert ask(remote, HostAct.SCALE, pool="default", workers=1).state is RequestState.DONE
    assert len(remote.pids("keeper")) == 1


def test_of_two_masters_of_one_host_only_the_one_that_is_meant_acts(
    remote: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first = known_host(remote)
    beside = Scene(tmp_path_factory.mktemp("beside"))
    try:
        beside.settings(f'store = "sqlite:///{remote.database}"\n')
        master = beside.serve()
        with remote.store() as store:
            until(lambda: len(list_hosts(store)) == 2)
            other = next(host for host in list_hosts(store) if host.instance != first.instance)
        assert "several masters" in remote.misused("hosts", "stop", first.name)
        with remote.store() as store:
            request = put(store, other, HostAct.STOP)
        assert outcome(remote, other, request).state is RequestState.DONE
        master.wait(30)
        assert remote.board().state == "serving"
    finally:
        beside.close()


def test_a_master_that_forbids_it_takes_nothing(scene: Scene) -> None:
    scene.settings("[master]\nremote_control = false\n")
    scene.serve()
    host = known_host(scene)
    assert "remote_control" in scene.refused("hosts", "stop", host.name)
    with scene.store() as store:
        put(store, host, HostAct.STOP)
    # Later than any request would have been taken: two heartbeats.
    seen = host.seen
    until(lambda: known_host(scene).seen > seen + 6_000_000)
    assert scene.board().state == "serving"


def test_while_the_store_is_away_the_outcome_waits_for_it(remote: Scene) -> None:
    """Of SQLite: another process holds the file's lock."""
    host = known_host(remote)
    keeper = remote.pids("keeper")
    with remote.store() as store:
        request = put(store, host, HostAct.RELOAD)
    until(lambda: remote.board().notice.asked == 1)
    lock = sqlite3.connect(remote.database, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    try:
        until(lambda: "is locked by another program" in remote.log())
        until(lambda: remote.board().notice.done == 1, 60)
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    ended = outcome(remote, host, request)
    assert (ended.state, ended.text) == (RequestState.DONE, "reloaded: generation 2 serves")
    assert remote.board().notice.asked == 1, "it was asked for once"
    assert len(remote.pids("keeper")) == len(keeper)
