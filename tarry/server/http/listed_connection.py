"""What the list of connections tells of one of the HTTP door."""

import time
from collections.abc import MutableMapping
from typing import Any, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tarry.server.http.joined_writes import JoinedWrites
from tarry.server.open_connections.activity import Activity, next_number, noted_activity, noted_caller


class ListedConnection(HttpToolsProtocol):
    """One client, as others see it: see `OpenConnection`."""

    def __init__(self, config: Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self.number, self.since, self.address, self.received = next_number(), time.time(), "", 0
        self.is_in_head = False
        """Whether the head of a request has begun to come, and is not whole."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def sent(self) -> int:
        """Bytes that were sent or wait to be."""
        return cast("JoinedWrites", self.transport).sent

    @property
    def caller_name(self) -> str:
        """Of the last request; empty: none, or it needed no token."""
        return noted_caller(self.noted)

    @property
    def noted(self) -> MutableMapping[str, Any]:
        """The state in the scope of the last request, in which the application notes what it does."""
        return {} if self.cycle is None else self.cycle.scope["state"]

    def activity(self) -> Activity:
        """What it does now."""
        if self.is_busy:
            return noted_activity(self.noted)
        return Activity("receiving" if self.is_in_head else "idle")

    def act_as_if_gone(self) -> None:
        """The application learns that the client is gone: it ends, and what it still answers goes nowhere."""
        if self.is_busy:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
