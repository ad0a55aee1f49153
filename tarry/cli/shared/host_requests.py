"""What commands ask of masters on any host, through the store: they wait for its outcome."""

import sys
import time
from collections.abc import Sequence

from tarry.client.client import Client
from tarry.errors import ResultTimeout
from tarry.keeper.host_requests import HostRequest, HostRequests, RequestState
from tarry.keeper.keeper_records import RequestRecord
from tarry.model.duration import format_duration
from tarry.model.job import Job
from tarry.runtime.wait_notes import WaitNotes
from tarry.store.queries.hosts import Host
from tarry.terminal import escape_control, print_line

TIMEOUT = 60.0
"""Seconds that a command waits for an outcome, unless --timeout says otherwise."""
_POLL = 0.2
"""Seconds between two looks for an outcome."""
_UNDER_WAY = (RequestState.WAITING, RequestState.TAKEN)
_REASONS = {
    RequestState.EXPIRED: "the master did not take it in time, and will not any more",
    RequestState.LOST: "the master took it, and told no outcome",
}


def await_outcome(
    client: Client, host: Host, request: HostRequest, timeout: float | None, job: Job | None
) -> HostRequest:
    """Waits for the outcome of a request, so many seconds (None: 60); ResultTimeout. job: the one that it is about."""
    requests, what = HostRequests(client.store, host.instance), ""
    if job is not None:
        ran = format_duration(max(0, client.clock.now() - job.state_since))
        what = f"{request.job} ({job.task}), which has run for {ran},"
    timeout = TIMEOUT if timeout is None else timeout
    end = time.monotonic() + timeout
    notes = WaitNotes(
        _print_note, "its master tries on: Ctrl-C or --timeout 20 end the wait, `tarry status --all` shows what it does"
    )
    while time.monotonic() < end:
        found = next((one for one in requests.known(client.clock.now()) if one.id == request.id), request)
        if found.state not in _UNDER_WAY:
            return found
        notes.note(lambda: [_describe_wait(host, found, what)])  # noqa: B023 - called at once
        time.sleep(_POLL)
    raise ResultTimeout(f"no outcome within {timeout:g} s: `GET /v1/hosts/{host.name}` and the console show it")


def _print_note(line: str) -> None:
    # Not on stdout, which has only the result.
    print_line(line, file=sys.stderr)


def _describe_wait(host: Host, request: HostRequest, what: str) -> str:
    has = "has taken it" if request.state is RequestState.TAKEN else "has not taken it yet"
    return f"waiting for {host.name}: {request.act}{what and f' job {what}'}; its master {has}"


def is_done(outcome: object) -> bool:
    """Whether the master has done what it was asked for; True of any other answer."""
    return not isinstance(outcome, RequestRecord) or outcome.state is RequestState.DONE


def print_outcomes(_: object, names: Sequence[str], found: Sequence[RequestRecord], done: str = "") -> None:
    """Prints what became of each. done: what to say of the job of that name."""
    for name, one in zip(names, found, strict=True):
        if is_done(one):
            print_line(f"{name} {done}: {one.text}" if done else one.text)
        else:
            text = one.text or f"the request is {one.state}: {_REASONS.get(one.state, '')}"
            print_line(f"tarry: {escape_control(text)}", file=sys.stderr)
