"""What commands ask of masters on any host, through the store: they make the request and wait for its outcome."""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

from tarry.cli.printing import print_json
from tarry.client.acting import command_actor
from tarry.client.client import Client
from tarry.errors import HostNotFound, ResultTimeout, TarryError
from tarry.keeper.host_requests import HostAct, HostRequest, HostRequests, RequestState, new_request, why_none
from tarry.keeper.records import RequestRecord, request_record
from tarry.model.duration import format_duration
from tarry.model.job import Job, State
from tarry.runtime.control import WaitNotes
from tarry.store.queries.hosts import Host, host_of_worker
from tarry.store.rules import ids
from tarry.terminal import say

TIMEOUT = 60.0
"""Seconds that a command waits for an outcome, unless --timeout says otherwise."""
_POLL = 0.2
"""Seconds between two looks for an outcome."""
_UNDER_WAY = (RequestState.WAITING, RequestState.TAKEN)
_REASONS = {
    RequestState.EXPIRED: "the master did not take it in time, and will not any more",
    RequestState.LOST: "the master took it, and told no outcome",
}


def make_request(client: Client, host: Host, act: HostAct, job: Job | None = None) -> HostRequest:
    """A request of the user of this command; TarryError if that master takes none."""
    if why := why_none(host):
        raise TarryError(why)
    return new_request(act, command_actor().name, client.clock.now(), job)


def ask_master(client: Client, host: Host, request: HostRequest, timeout: float, what: str = "") -> HostRequest:
    """Makes the request and waits for its outcome; ResultTimeout. what: the job that it is about, in words."""
    requests = HostRequests(client.store, host.instance)
    requests.put(request)
    end = time.monotonic() + timeout
    notes = WaitNotes(
        _print_note, "its master tries on: Ctrl-C or --timeout 20 end the wait, `tarry status --all` shows what it does"
    )
    while time.monotonic() < end:
        found = next((one for one in requests.known(client.clock.now()) if one.id == request.id), request)
        if found.state not in _UNDER_WAY:
            return found
        notes.note(lambda: [_awaited(host, found, what)])  # noqa: B023 - called at once
        time.sleep(_POLL)
    raise ResultTimeout(f"no outcome within {timeout:g} s: `GET /v1/hosts/{host.name}` and the console show it")


def _print_note(line: str) -> None:
    # Not on stdout, which has only the result.
    say(line, file=sys.stderr)


def _awaited(host: Host, request: HostRequest, what: str) -> str:
    has = "has taken it" if request.state is RequestState.TAKEN else "has not taken it yet"
    return f"waiting for {host.name}: {request.act}{what and f' job {what}'}; its master {has}"


def check_outcome(outcome: HostRequest) -> None:
    """TarryError with the reason if the master has not done it."""
    if outcome.state is not RequestState.DONE:
        raise TarryError(outcome.text or f"the request is {outcome.state}: {_REASONS.get(outcome.state, '')}")


def kill_jobs(client: Client, jobs: Sequence[Job], args: argparse.Namespace) -> int:
    """Ends the present attempts of the jobs, one after the other; TarryError at the first that is not ended."""
    # All of them can be asked for, before the first one is.
    asked = [(job, *_kill_request(client, job)) for job in jobs]
    answers: dict[str, RequestRecord] = {}
    for job, host, request in asked:
        if args.outcome == "cancelled":
            HostRequests(client.store, host.instance).cancel_first(partial(client.cancel, job.id), client.clock.now())
        timeout = TIMEOUT if args.timeout is None else args.timeout
        ran = format_duration(max(0, client.clock.now() - job.state_since))
        outcome = ask_master(client, host, request, timeout, f"{request.job} ({job.task}), which has run for {ran},")
        answers[request.job] = request_record(outcome)
        if not args.json:
            check_outcome(outcome)
            say(f"{request.job} killed: {outcome.text}")
    if args.json:
        print_json(answers)
    return 0 if all(answer.state is RequestState.DONE for answer in answers.values()) else 1


def _kill_request(client: Client, job: Job) -> tuple[Host, HostRequest]:
    name = ids.text(job.id)
    if job.state is not State.RUNNING:
        raise TarryError(f"{name} does not run: it is {job.state}")
    try:
        host = host_of_worker(client.store, job.owner)
    except HostNotFound as error:
        raise TarryError(f"{name} cannot be reached: {error}") from None
    return host, make_request(client, host, HostAct.KILL, job)
