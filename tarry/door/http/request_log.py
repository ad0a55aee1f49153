"""The audit log: one line for each act of an operator, also for those that were refused or failed."""

import contextlib
import logging
from collections.abc import Iterator

from tarry.door.http.method import ApiCall, ApiMethod
from tarry.door.identity.access import Scope
from tarry.terminal import harmless

log = logging.getLogger("tarry.audit")

_SCOPES = (Scope.OPERATE, Scope.ADMIN)
_MOST = 300
"""Characters of what a caller wrote."""


@contextlib.contextmanager
def audited(method: ApiMethod, call: ApiCall, address: str) -> Iterator[None]:
    """Logs what becomes of the block, if the method is one for operators that may change something."""
    if method.scope not in _SCOPES or method.verb == "GET":
        yield
        return
    try:
        yield
    # Whatever ends it, also a caller that has gone: the act may be done all the same.
    except BaseException as error:
        _write(method, call, address, f"{type(error).__name__}: {error}")
        raise
    _write(method, call, address, "done")


def _write(method: ApiMethod, call: ApiCall, address: str, outcome: str) -> None:
    write_line(call.caller.name, address, method.name, call.subject, outcome)


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
