"""Masters and their workers: all of them, and one with its scoreboard. The connections of the servers of this host."""

import time
from collections.abc import Sequence

from tarry.errors import JobNotFound, TooManyRequests
from tarry.keeper.keeper_records import RequestRecord
from tarry.operate import hosts
from tarry.operate.access import Scope
from tarry.operate.connections import ConnectionQuery, end_connection, find_connections
from tarry.operate.hosts import (
    HostPath,
    ProcessRecord,
    dump_worker,
    kill_job,
    list_all_hosts,
    list_workers,
    reload_host,
    scale_host,
    show_host,
    stop_host,
)
from tarry.operate.jobs import JobPath
from tarry.server.console.act import ConsoleAct
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.http.method import ApiCall, api_method
from tarry.tasks.lazy_asyncio import asyncio

ANSWERED_WITHIN, _POLL = 2.0, 0.1
"""Seconds for which the page of a job waits for its stack, and between two looks for it."""
_ASKED = "The host is asked. Its answer is here within seconds."


@console_page("/hosts", "hosts.html")
def hosts_page(call: ApiCall) -> PageData:
    """Masters with their pools, and what workers run."""
    workers = list_workers.handler(call)
    return {"hosts": list_all_hosts.handler(call).hosts, "workers": workers.workers, "total": workers.total}


@console_page("/hosts/{host}", "host.html")
def host_page(call: ApiCall, path: HostPath) -> PageData:
    """One master: its pools, each of its workers, and what it was asked for."""
    host = show_host.handler(call, path)
    return {
        "host": host,
        "by_pool": {pool.name: [one for one in host.processes if one.pool == pool.name] for pool in host.pools},
        "names": {one.worker: one.name for one in host.processes},
        "stacks": newest_stacks(host.processes, host.requests),
    }


@console_page("/connections", "connections.html")
def connections_page(call: ApiCall, query: ConnectionQuery) -> PageData:
    """The connections of the servers of this host."""
    return {
        "found": find_connections(call, query),
        "query": query,
        "filters": bool(query.door or query.address or query.caller),
    }


def newest_stacks(processes: Sequence[ProcessRecord], requests: Sequence[RequestRecord]) -> list[RequestRecord]:
    """For each worker that is there, the newest request for its stacks. requests: the newest first."""
    found: dict[str, RequestRecord] = {}
    for one in requests:
        if one.act == "stack" and not one.job:
            found.setdefault(one.worker, one)
    return [found[each.worker] for each in processes if each.worker in found]


@api_method("POST /jobs/{id}/stack", Scope.OPERATE, errors=(JobNotFound, TooManyRequests), tag="console")
async def dump_job(call: ApiCall, path: JobPath) -> RequestRecord:
    """Asks where a running job is, and waits a moment for the answer: so the next page has it, without a script too."""
    asked: RequestRecord = await call.run(hosts.dump_job.handler, call, path)
    until = time.monotonic() + ANSWERED_WITHIN
    while asked.ended is None and time.monotonic() < until:
        await asyncio.sleep(_POLL)
        known = await call.run(hosts.list_job_requests.handler, call, path)
        # None once the job has ended meanwhile.
        asked = next((one for one in known.requests if one.id == asked.id), asked)
    return asked


def _answer_text(request: RequestRecord) -> str:
    return _ASKED if request.ended is None else "The host has answered."


PAGES: tuple[ConsolePage, ...] = (hosts_page, host_page, connections_page)
ACTS = (
    ConsoleAct(reload_host, _ASKED),
    ConsoleAct(scale_host, _ASKED),
    ConsoleAct(stop_host, _ASKED),
    ConsoleAct(dump_worker, _ASKED),
    ConsoleAct(dump_job, _answer_text),
    ConsoleAct(kill_job, "This attempt is being ended."),
    ConsoleAct(end_connection, "Connection {id} is ended."),
)
