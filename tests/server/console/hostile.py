"""A store whose every text that somebody else may write is hostile: markup, requests, formats, templates, quotes."""

import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from urllib.parse import quote

import msgspec

from tarry import App, approve, current_job, step
from tarry.client.audit.log import Act, ActLog
from tarry.client.operations.operation import JobFilter, MoveTarget, Operation, OperationState
from tarry.client.operations.operation_cells import PREFIX as OPERATIONS
from tarry.keeper import schedule_state
from tarry.keeper.host_requests import HostAct, HostRequests, RequestState, new_request
from tarry.model.job import Job, State
from tarry.model.limit import KeyLimit, Limit
from tarry.model.schedules.schedule import ScheduledRun
from tarry.push.endpoint.endpoint_cells import FLOW_CELL, GONE_CELL, TASK_CELL
from tarry.push.endpoint.flow import FlowState
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.server.serving.console import PAGES
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import PREFIX as HOSTS
from tarry.store.queries.hosts import Host, PoolFigures, WorkerFigures
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place

TEXT = (
    "'\"><div hx-post=/tasks hx-trigger=load id=evil>%s%(x)s 100% {{7*7}}{% x %}{x}</script>"
    "<img src=/evil onerror=alert(1)><script>alert(2)</script><a href='javascript:alert(3)'>"
)
JSON = {TEXT: [TEXT, {"type": TEXT, "message": TEXT, "traceback": TEXT}]}
NOTE = {"type": TEXT, "message": TEXT, "traceback": TEXT}
SHORT = "<b>%s"
HOOK = f"hook {TEXT}"
"""Where few characters fit."""


def hostile_app() -> App:
    """An app whose own names are hostile too."""
    app = App(MemoryStore(), closures=True, retry=None)

    @app.task(name=TEXT, queue=TEXT, cron="0 3 * * *")
    def work(what: str = "") -> str:
        current_job().progress(0.5, TEXT)
        print(TEXT)
        if what == "fail":
            raise LookupError(TEXT)
        step.named(TEXT)(str, TEXT)
        return TEXT

    @app.task(name=f"ask {TEXT}", queue=TEXT)
    def ask() -> str:
        said = approve(TEXT, key=TEXT, timeout="2d")
        return str(said)

    for what in ("", "fail"):
        work.using(queue=TEXT).enqueue(what)
        with app.using(queue=TEXT).flow(TEXT, key=TEXT + what) as f:
            first = f.add(work.call(what), name=TEXT)
            f.add_all([work.call(TEXT) for _ in range(3)], after=[first])
    ask.enqueue()
    app.drain()
    with app.using(queue=TEXT).flow(TEXT) as f:
        f.add(work.call(TEXT), name=TEXT)
    return app


def access(directory: Path) -> TokenAccess:
    """Of one caller, with a hostile name and the token `root`."""
    file = directory / "tokens.toml"
    rights = f'sha256 = "{digest("root").hex()}"\nscopes = ["admin"]\nqueues = ["*"]\n'
    file.write_text(f"[tokens.{json.dumps(TEXT)}]\n{rights}")
    return TokenAccess(file)


def fill(app: App) -> Mapping[str, list[str]]:
    """Writes what its own tasks cannot; returns what fills the addresses of pages, by the names of their parts."""
    store, now = app.client.store, app.client.store.time()
    jobs = [*_jobs(now), *_deliveries(now)]
    store.insert(jobs)
    store.pause(TEXT, True)
    for kind in ("queue", "task", "each"):
        store.limit(f"{kind}:{TEXT}", Limit(3))
    store.limit_key(TEXT, TEXT, KeyLimit(1, is_paused=True))
    _endpoint(store)
    _hosts(store, now)
    _schedule(store, now, jobs[0])
    operation, error = _operations(store, now), _error(store, now)
    via = ["http", "console", TEXT]
    acts = [Act(now, TEXT, TEXT, TEXT, TEXT, one, TEXT, TEXT, (TEXT,)) for one in via]
    ActLog(store).append(acts, now)
    known = store.find(Query(limit=200))
    flows = [ids.text(job.id) for job in known if job.task.startswith("flow:")]
    return {
        "": [""],
        "id": [ids.text(job.id) for job in known],
        "flow": flows,
        "operation": operation,
        "error": [error],
        "hook": [quote(HOOK, safe="")],
        "queue": [quote(TEXT, safe="")],
        "task": [quote(name, safe="") for name in (TEXT, HOOK)],
        "schedule": [quote(TEXT, safe="")],
        "host": [quote(TEXT, safe="")],
        "limit": [quote(f"each:{TEXT}", safe="")],
    }


def _jobs(now: int) -> Iterator[Job]:
    """One in each state, with hostile text in each column."""
    note, body, headers = (msgspec.json.encode(one) for one in (NOTE, JSON, {TEXT: TEXT}))
    progress = msgspec.json.encode([0.5, TEXT, 1, 3, TEXT])
    made = [[1, 1, now, now, outcome, f"{TEXT}|1:2:{TEXT}:4", TEXT, TEXT] for outcome in (TEXT, "100%", "done", "")]
    acts = [[now, TEXT, TEXT, TEXT, TEXT]]
    attempts = msgspec.json.encode([2, made, acts])
    for index, state in enumerate(State):
        owner = f"{TEXT}|1:2:{TEXT}:4" if index % 2 else TEXT
        yield Job(
            ids.uuid7(), TEXT, body, TEXT, due=now, state=state, epoch=2, failures=1, owner=owner, state_since=now,
            expires=now, key=f"{TEXT} {state}", note=note, lane=TEXT, headers=headers, progress=progress,
            attempts=attempts,
        )  # fmt: skip


def _deliveries(now: int) -> Iterator[Job]:
    """Jobs of an HTTP task that a program has ended with records of its own making."""
    for outcome, state in product(("delivered", TEXT, "100%"), (State.DONE, State.DEAD)):
        record = {
            "attempt": 1, "at": TEXT, "outcome": outcome, "reason": TEXT, "status": 200, "address": TEXT,
            "version": TEXT, "url": TEXT, "headers": [[TEXT, TEXT], ["set-cookie", TEXT]], "answer": TEXT,
        }  # fmt: skip
        line = msgspec.json.encode(record)
        yield Job(
            ids.uuid7(), HOOK, msgspec.json.encode(JSON), TEXT, due=now, state=state, epoch=1, failures=1,
            state_since=now, note=line, progress=msgspec.json.encode([None, "", 1, 0, line.decode()]),
        )  # fmt: skip


def _endpoint(store: Store) -> None:
    settings = {
        "url": "https://example.org/%3Cb%3E?q=%25s%22", "queue": TEXT, "owner": TEXT, "headers": {"X-A": TEXT},
    }  # fmt: skip
    flow = FlowState(1, until=2**50, opened=1, since=2**50, why=TEXT)
    for name, cell in (
        (TASK_CELL, msgspec.json.encode(settings)), (FLOW_CELL, msgspec.json.encode(flow)), (GONE_CELL, TEXT.encode()),
    ):  # fmt: skip
        assert store.kv_cas(name + HOOK, cell, None)


def _hosts(store: Store, now: int) -> None:
    pool = PoolFigures(TEXT, 1, queues=[TEXT], weights={TEXT: 2}, failure=TEXT, replaced={TEXT: 1})
    workers = [WorkerFigures(TEXT, 1, TEXT, state=state, last_exit=TEXT) for state in (TEXT, "ready")]
    for name, state in ((TEXT, TEXT), (f"second {TEXT}", "serving")):
        host = Host(
            name, name, 1, TEXT, TEXT, state, now, now, [pool], workers, [TEXT], 2, 1, TEXT, 1.0, TEXT,
            remote_control=True,
        )  # fmt: skip
        assert store.kv_cas(HOSTS + name, msgspec.json.encode(host), None)
    requests = HostRequests(store, TEXT)
    for act in HostAct:
        asked = new_request(act, TEXT, now)
        requests.put(asked)
        requests.end(asked, RequestState.FAILED, TEXT, now)


def _schedule(store: Store, now: int, job: Job) -> None:
    runs = [ScheduledRun(now, ids.text(job.id)), ScheduledRun(now, SHORT, SHORT), ScheduledRun(now, end=SHORT)]
    known = schedule_state.read(store).get(TEXT)
    state = schedule_state.ScheduleState(TEXT, now, now, now, False, runs)
    assert schedule_state.write(store, TEXT, state, known[1] if known else None)


def _operations(store: Store, now: int) -> list[str]:
    filter, target = JobFilter(TEXT, TEXT, TEXT, older="1h"), MoveTarget(TEXT)
    states: tuple[OperationState, ...] = ("running", "failed")
    found = [
        Operation(ids.text(ids.uuid7()), "move", filter, target, reason=TEXT, caller=TEXT, state=state, created=now,
                  ended=now if state == "failed" else 0, owner=TEXT, trouble=TEXT)
        for state in states
    ]  # fmt: skip
    for one in found:
        assert store.kv_cas(OPERATIONS + one.id, msgspec.json.encode(one), None)
    return [one.id for one in found]


def _error(store: Store, now: int) -> str:
    """Two groups of one kind, as another program may have written them."""
    group = ErrorGroup(TEXT, TEXT, TEXT, 3, now, now, TEXT, TEXT.encode(), {TEXT: 2, "": 1}, {1: 2}, {1: 2}, True)
    place = group_place(TEXT, "0123456789abcdef")
    assert store.history.change_errors(lambda _: {place: encode_group(group), group_place("", ""): encode_group(group)})
    return place.task


_OWN_KINDS = {
    "/flows/{id}": "flow", "/flows/{id}/nodes": "flow", "/operations/{id}": "operation", "/endpoints/{task}": "hook",
    "/tasks/{task}/edit": "hook",
}  # fmt: skip


def addresses(known: Mapping[str, list[str]]) -> Iterator[str]:
    """Of each page of the console, with each of the things that it may show; and of some with hostile filters."""
    for page in PAGES:
        name = page.route.partition("{")[2].partition("}")[0]
        for value in known[_OWN_KINDS.get(page.route, name)]:
            yield page.route.replace(f"{{{name}}}", value)
    text = quote(TEXT, safe="")
    yield f"/jobs?queue={text}&task={text}&key={text}&text={text}&state=dead"
    yield f"/flows?name={text}&key={text}"
    yield f"/limits/{quote('each:', safe='')}{text}/keys?key={text}"
    yield f"/audit?who={text}&act={text}&queue={text}"
