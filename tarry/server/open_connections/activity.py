"""What a connection does, as the code that answers its requests notes it."""

import itertools
from collections.abc import Callable, MutableMapping
from typing import Any

from msgspec import Struct

from tarry.model.values.connection_records import MOST_TEXT, ConnectionState

ENDS_WITHIN = 5.0
"""Seconds in which the client of a connection that is ended may still read what it was answered."""
_REQUEST, _CALLER, _WAITS_FOR = "tarry.request", "tarry.caller", "tarry.waits_for"

next_number: Callable[[], int] = itertools.count(1).__next__
"""The number of a new connection, which no other of this process has."""


class Activity(Struct, frozen=True):
    """What a connection does at one moment."""

    state: ConnectionState
    request: str = ""
    waits_for: str = ""
    held: int = 0


def note_request(scope: MutableMapping[str, Any], request: str, caller: str) -> None:
    """Notes in the scope of an ASGI request what is done for whom. request: its method and path, without names."""
    # Servers give each request a state of its own, which copies of the scope share.
    state = scope.setdefault("state", {})
    state[_REQUEST], state[_CALLER] = request, caller


def note_wait(scope: MutableMapping[str, Any], waits_for: str) -> None:
    """Notes that the request waits, until its answer begins."""
    scope.setdefault("state", {})[_WAITS_FOR] = waits_for[:MOST_TEXT]


def noted_caller(state: MutableMapping[str, Any]) -> str:
    """The caller that is noted there; empty: none is."""
    return str(state.get(_CALLER, ""))


def noted_activity(state: MutableMapping[str, Any]) -> Activity:
    """What is noted there of a request that is under way."""
    waits_for = state.get(_WAITS_FOR, "")
    return Activity("waiting" if waits_for else "working", state.get(_REQUEST, ""), waits_for)
