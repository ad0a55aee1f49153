"""Error replies of the server, as errors of tarry."""

from tarry.errors import (
    ConfigError,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TarryError,
)


class ReplyLost(StoreUnavailable):
    """It was sent and its answer did not come, so it may have been done. silent: no answer came in time, but the
    connection did not break."""

    def __init__(self, message: str, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent

    def as_public(self) -> StoreUnavailable:
        """The same for callers outside of this folder, who know only `tarry.errors`."""
        return StoreUnavailable(str(self))


class ErrorReply(Exception):
    """An error reply as the server sent it: `LOADING Redis is loading the dataset in memory`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0]


TRANSIENT = frozenset({"LOADING", "BUSY", "UNKILLABLE", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK"})
"""The server did not begin the command, and soon may do it."""

_WHILE_TRANSIENT = {
    "LOADING": "it has just started and is still reading its data; send it again",
    "BUSY": "a script runs on it for too long; SCRIPT KILL or FUNCTION KILL ends that",
    "UNKILLABLE": "a script runs on it for too long and has written: it goes on until that has ended",
    "MASTERDOWN": "it is a replica that has lost its master",
    "CLUSTERDOWN": "nobody serves a part of the cluster's slots; CLUSTER INFO tells more",
    "TRYAGAIN": "a slot is on its way to another node; send it again",
    "MOVED": "the cluster's slots have moved; send it again",
    "ASK": "the cluster's slots are moving; send it again",
    "NOREPLICAS": "fewer replicas are connected to it than its min-replicas-to-write asks for",
    "MISCONF": "it cannot write to its disk; its log says why",
}
_BY_CODE: dict[str, tuple[type[TarryError], str]] = {
    "OOM": (StoreFull, "maxmemory reached: it takes no more jobs until some are done, or until maxmemory is raised"),
    "READONLY": (StoreReadOnly, "it is a replica: name its master in the URL, or ask with redis+sentinel://"),
    "WRONGTYPE": (StoreForeign, "another program has keys of the same names; choose others with ?prefix="),
    "NOAUTH": (ConfigError, "it asks for a password: write it into the URL, as in redis://:PASSWORD@host"),
    "WRONGPASS": (ConfigError, "the user or the password in the URL is wrong"),
    "NOPERM": (ConfigError, "its account may not do this; ACL SETUSER name ~{tarry*}* &{tarry*}* +@all allows it"),
}
_BROKEN_OFF = (ConfigError, "its account may not run a command of a script, which broke off; `tarry check` names it")
_BY_TEXT: dict[str, tuple[type[TarryError], str]] = {
    "The user executing the script": _BROKEN_OFF,
    "ACL failure in script": _BROKEN_OFF,
    "No space left": (StoreFull, "its disk is full"),
    "max number of clients": (StoreUnavailable, "it has as many clients as its maxclients allows; raise that"),
    "without any password configured": (ConfigError, "it has no password: take yours out of the URL"),
    "DB index is out of range": (ConfigError, "it has no database of that number"),
    "Function not found": (StoreUnavailable, "its functions were removed again and again; send it again"),
    "SELECT is not allowed": (ConfigError, "it has only database 0"),
}


def error_of(reply: ErrorReply, where: str) -> TarryError:
    """The error to raise for a reply. ConfigError: the URL, or the account that it names, is wrong."""
    # Texts first: these replies have only the general code ERR, or one that says less.
    for words, (kind, why) in _BY_TEXT.items():
        if words in reply.text:
            return kind(f"{where}: {why} ({reply.text})")
    if why := _WHILE_TRANSIENT.get(reply.code, ""):
        return StoreUnavailable(f"{where}: {why} ({reply.text})")
    kind, why = _BY_CODE.get(reply.code, (StoreError, ""))
    return kind(f"{where}: {why} ({reply.text})" if why else f"{where}: {reply.text}")
