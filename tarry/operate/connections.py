"""Methods about the open connections of the server processes of a host."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from tarry import errors
from tarry.model.quantity import Short
from tarry.model.values.connection_records import (
    LISTED,
    MOST_LISTED,
    ConnectionFilter,
    ConnectionList,
    ConnectionRecord,
    describe_connection,
)
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.tasks.arguments.options import Name
from tarry.tasks.lazy_asyncio import asyncio


class ConnectionQuery(Struct, forbid_unknown_fields=True):
    """Which connections to list; what is left out matches all."""

    door: Literal["http", "beanstalk"] | None = None
    address: Short | None = None
    """Of the peer, without a port."""
    caller: Short | None = None
    """The name of a token or person; empty: those without one."""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = LISTED


class ConnectionPath(Struct):
    """The connection of a path, by its id."""

    connection: Name


@method("GET /v1/connections", Scope.READ)
async def list_connections(call: MethodCall, query: ConnectionQuery) -> ConnectionList:
    """Lists the open connections of the doors: first how many there are of each address and caller, then the oldest.

    They are those of the server processes of the host that answers; other hosts have their own. It needs neither the
    store nor a thread that waits for it. Connections whose TLS handshake is not over are left out, and so are those of
    a web application in which the API is mounted. Takes a caller for all queues: they are for all of them."""
    return await asyncio.to_thread(find_connections, call, query)


@method("DELETE /v1/connections/{connection}", Scope.OPERATE, errors=(errors.ConnectionNotFound,))
async def end_connection(call: MethodCall, path: ConnectionPath) -> ConnectionRecord:
    """Ends a connection, as if its client had gone, and tells what it was.

    A claim that waits takes no jobs, jobs that a client of beanstalk has reserved are ready again, a stream ends. What
    was answered is still sent, for 5 s at most; what a request that is under way does in the store may be done all the
    same. The connection of this request itself ends after its answer. The client may connect anew: to keep it out,
    revoke its token. Takes a caller for all queues."""
    call.check(EVERY_QUEUE)
    record = await call.end_connection(path.connection)
    call.subject = describe_connection(record)
    return record


def find_connections(call: MethodCall, query: ConnectionQuery) -> ConnectionList:
    """Those that match. Blocks for a few seconds at most, for processes that do not answer."""
    call.check(EVERY_QUEUE)
    return call.find_connections(ConnectionFilter(query.door, query.address, query.caller, query.limit))


METHODS = methods_of(__name__)
