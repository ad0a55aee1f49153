"""Redis Functions: called where the server has them, loaded where it does not, left alone where it refuses."""

from tarry.store.redis.link.base import FunctionLibrary
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.link.redis_errors import ErrorReply

KEPT = 8
"""A server has so many libraries of tarry at most, for as many versions that work side by side."""


def is_not_loaded(reply: ErrorReply) -> bool:
    """Whether the server has no function of that name."""
    return reply.text.startswith("ERR Function not found")


def is_refused(reply: ErrorReply) -> bool:
    """Whether the server knows no functions, or the account may not call them."""
    return "fcall" in reply.text.lower() and (reply.code == "NOPERM" or "unknown command" in reply.text)


def load(connection: RedisConnection, library: FunctionLibrary, deadline: float) -> bool:
    """Gives the library to the server. False: the server refuses it, now or for good."""
    (answer,) = connection.ask([("FUNCTION", "LOAD", library.text)], deadline)
    if not isinstance(answer, ErrorReply):
        _remove_others(connection, library, deadline)
        return True
    if "already exists" in answer.text:
        return True
    # Other replies may pass: memory is full, a script runs for too long.
    if answer.code in ("ERR", "NOPERM"):
        connection.calls_functions = False
    return False


def _remove_others(connection: RedisConnection, library: FunctionLibrary, deadline: float) -> None:
    """Removes libraries of other versions once there are too many."""
    family = library.name.rpartition("_")[0]
    (found,) = connection.ask([("FUNCTION", "LIST", "LIBRARYNAME", f"{family}_*")], deadline)
    # One that is still used is loaded again by whoever calls it next. So nobody has to know which are used.
    if not isinstance(found, ErrorReply) and len(found) > KEPT:
        names = [facts[1].decode() for facts in found]
        connection.ask([("FUNCTION", "DELETE", name) for name in names if name != library.name], deadline)
