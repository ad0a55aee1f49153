"""The audit log: a line for each act of an operator, also for those that were refused or failed, and an entry in the
store's log of acts."""

import contextlib
import logging
from collections.abc import Iterator

from tarry.client.audit.acting import Actor, acting
from tarry.client.audit.log import Act, cut
from tarry.door.http.method import ApiCall, ApiMethod
from tarry.door.identity.access import Scope
from tarry.door.service import DoorService
from tarry.terminal import harmless

log = logging.getLogger("tarry.audit")

_SCOPES = (Scope.OPERATE, Scope.ADMIN)
_MOST = 300
"""Characters of what a caller wrote."""
_OF_A_JOB = ("/v1/jobs/{id}", "/v1/flows/{id}")


def is_audited(method: ApiMethod) -> bool:
    """Whether the method is one for operators that may change something."""
    return method.scope in _SCOPES and method.verb != "GET"


@contextlib.contextmanager
def audited(method: ApiMethod, call: ApiCall, address: str, via: str = "http") -> Iterator[None]:
    """Tells what becomes of the block, if the method is one for operators that may change something. via: `http` or
    `console`."""
    if not is_audited(method):
        yield
        return
    try:
        with acting(Actor(call.caller.name, address, via)):
            yield
    # Whatever ends it, also a caller that has gone: the act may be done all the same.
    except BaseException as error:
        _write(method, call, address, via, f"{type(error).__name__}: {error}")
        raise
    _write(method, call, address, via, "done")


def _write(method: ApiMethod, call: ApiCall, address: str, via: str, outcome: str) -> None:
    write_line(call.caller.name, address, method.name, call.subject, outcome)
    id = call.request.path_params.get("id", "")
    jobs = (cut(id),) if method.route.startswith(_OF_A_JOB) and id else ()
    act = Act(0, call.caller.name, method.name, cut(outcome), address, via, cut(call.subject), call.queue, jobs)
    call.service.record_act(act)


def write_act(service: DoorService, caller: str, address: str, act: str, outcome: str) -> None:
    """Tells of an act at the console that is no method of the API, such as a sign-in."""
    write_line(caller, address, act, "console", outcome)
    service.record_act(Act(0, caller, act, cut(outcome), address, "console", "console"))


def write_command(service: DoorService, actor: Actor, act: str, subject: str) -> None:
    """Tells of what a user of this host has done through a command of this server process."""
    write_line(actor.name, actor.address, act, subject, "done")
    service.record_act(Act(0, actor.name, act, "done", actor.address, actor.via, cut(subject)))


def write_line(caller: str, address: str, act: str, subject: str, outcome: str) -> None:
    """One line of the audit log. caller: the name of a token, and address: of the client; empty: none."""
    # A name may hold characters that a terminal acts on, or a line break, which would forge a line.
    plain, ended = (harmless(text[:_MOST]).replace("\n", " ") for text in (subject, outcome))
    # For logs in JSON, where programs look for them.
    facts = {
        "caller": caller or "anybody",
        "address": address or "-",
        "act": act,
        "subject": plain,
        "outcome": ended,
    }
    log.info("%s from %s: %s %s: %s", *facts.values(), extra=facts)
