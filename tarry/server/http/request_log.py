"""The audit log: a line for each act of an operator, also for those that were refused or failed, and an entry in the
store's log of acts."""

import contextlib
import logging
from collections.abc import Iterator

from tarry.client.acting import Actor
from tarry.client.audit.log import Act, cut
from tarry.operate.call import audited as audited_call
from tarry.operate.method import Method
from tarry.server.http.method import ApiCall
from tarry.server.service import DoorService
from tarry.terminal import escape_control

log = logging.getLogger("tarry.audit")

_MOST = 300
"""Characters of what a caller wrote."""


@contextlib.contextmanager
def audited(method: Method, call: ApiCall, address: str, via: str = "http") -> Iterator[None]:
    """Tells what becomes of the block, if the method is one for operators that may change something. via: `http` or
    `console`."""

    def record(act: Act) -> None:
        # A handler may have changed the subject to something longer than the log of acts keeps.
        write_line(act.who, address, act.act, call.subject, act.outcome)
        call.service.record_act(act)

    actor = Actor(call.caller.name, address, via)
    with audited_call(method, call, call.request.path_params, actor, record):
        yield


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
    plain, ended = (escape_control(text[:_MOST]).replace("\n", " ") for text in (subject, outcome))
    # For logs in JSON, where programs look for them.
    facts = {
        "caller": caller or "anybody",
        "address": address or "-",
        "act": act,
        "subject": plain,
        "outcome": ended,
    }
    log.info("%s from %s: %s %s: %s", *facts.values(), extra=facts)
