"""A method as the HTTP API calls it: its route, and one request while it runs."""

import os
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack, get_type_hints

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from tarry.app import App
from tarry.client.operations.operation import Operation
from tarry.metrics.store_health import StoreHealth
from tarry.metrics.store_overview import KEPT_FOR, StoreOverview
from tarry.model.values.connection_records import (
    ConnectionFilter,
    ConnectionList,
    ConnectionRecord,
)
from tarry.model.values.console_paths import name_of, path_part
from tarry.operate.access import Caller, Scope
from tarry.operate.call import MethodCall
from tarry.operate.method import Method, MethodSettings, method
from tarry.operate.problem import connection_not_found, split_id
from tarry.server.history_snapshot import OLDEST
from tarry.server.identity.access import is_as_before
from tarry.server.open_connections.activity import note_wait
from tarry.server.service import DoorService
from tarry.tasks.lazy_asyncio import asyncio

_AWAY_FOR = 1.0
"""Seconds for which it is told that a store is away before it is asked again."""
_NAMED = re.compile(r"{(queue|task|limit|schedule|host|key)}")


class NameConvertor(Convertor[str]):
    """A name in a path. Servers decode the path before it gets here, so a name may hold slashes."""

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        """As it stands in the path."""
        return value

    def to_string(self, value: str) -> str:
        """The same."""
        return value


class PageNameConvertor(NameConvertor):
    """The same in the path of a page."""

    def convert(self, value: str) -> str:
        """The name that `path_part` has written."""
        return name_of(value)

    def to_string(self, value: str) -> str:
        """As it stands in the path."""
        return path_part(value)


register_url_convertor("name", NameConvertor())
register_url_convertor("page_name", PageNameConvertor())


def route_of(path: str, convertor: str = "name") -> str:
    """The path of a method or page, as Starlette takes it."""
    return _NAMED.sub(rf"{{\1:{convertor}}}", path)


class ApiCall(MethodCall):
    """One request while its method runs."""

    __slots__ = ("is_page", "request", "service")

    def __init__(self, service: DoorService, caller: Caller, request: Request, scope: Scope | None) -> None:
        super().__init__(caller, scope, request.scope["path"])
        self.service, self.request = service, request
        self.is_page = False
        """Whether a page for a person is made of the answer: it has to come soon, and asks again by itself."""

    @property
    def app(self) -> App:
        """See `MethodCall`."""
        return self.service.app

    def check_again(self, queues: Iterable[str]) -> None:
        """After a wait: NotAuthenticated or NotAllowed if meanwhile the caller's token was revoked, or its rights."""
        access, client = self.service.access, self.request.client
        if not is_as_before(access, self.caller):
            self.caller = access.caller(self.request.headers, client.host if client else "")
            for queue in queues:
                self.check(queue)

    def waits_for(self, what: str) -> None:
        """Has the list of connections say what this request waits for: no secrets."""
        note_wait(self.request.scope, what)

    def look(self, kept_for: float | None = None) -> StoreOverview:
        """See `MethodCall`: one look serves all who ask within that time."""
        return self.service.look.read(KEPT_FOR if kept_for is None else kept_for, OLDEST if self.is_page else 0.0)

    def health(self) -> Sequence[StoreHealth]:
        """See `MethodCall`: as they answered within the last seconds."""
        found = self.service.health.read()
        # That a store is back is seen sooner.
        return self.service.health.read(_AWAY_FOR) if any(one.trouble for one in found) else found

    def find_connections(self, wanted: ConnectionFilter) -> ConnectionList:
        """See `MethodCall`. Blocks for a few seconds at most, for processes that do not answer."""
        return self.service.connections.find(wanted, socket.gethostname())

    async def end_connection(self, id: str) -> ConnectionRecord:
        """See `MethodCall`. That of this request ends after its answer."""
        connections = self.service.connections
        pid, number = split_id(id)
        if pid == os.getpid():
            return connections.end(number, self.request.scope.get("state"))
        if connections.others is None:
            raise connection_not_found(id)
        return await asyncio.to_thread(connections.others.end, id)

    def flush_acts(self) -> None:
        """See `MethodCall`."""
        self.service.flush_acts()

    def submit(self, operation: Operation) -> Operation:
        """See `MethodCall`."""
        return self.service.operations.submit(operation)

    async def run(self, call: Callable[..., Any], /, *args: Any) -> Any:
        """Makes a blocking call in a thread of the service, and returns what it returns."""
        return await self.service.run(call, *args)


def api_method(
    route: str, scope: Scope | None, **settings: Unpack[MethodSettings]
) -> Callable[[Callable[..., Any]], Method]:
    """Makes a method, of the HTTP API alone, of a function: it may also return a Response."""

    def make(handler: Callable[..., Any]) -> Method:
        returned = get_type_hints(handler).get("return")
        if isinstance(returned, type) and issubclass(returned, Response):
            settings.setdefault("answers", None)
        return method(route, scope, **settings)(handler)

    return make
