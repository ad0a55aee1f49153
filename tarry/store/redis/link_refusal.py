"""What the server refuses, and what that is in tarry's own errors."""

from tarry.errors import (
    ConfigError,
    StoreAway,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TarryError,
)


class Unreached(StoreAway):
    """Nothing was sent: certainly not done."""


class Lost(StoreUnavailable):
    """It was sent, and its answer did not come: it may have been done. `silent`: not that anything broke."""

    def __init__(self, message: str, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


class Refusal(Exception):
    """A server's answer that is an error, as it came: `LOADING Redis is loading the dataset in memory`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0]


PASSING = frozenset({"LOADING", "BUSY", "UNKILLABLE", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK"})
"""The command was not begun, and soon may be."""

_PASSES = {
    "LOADING": "it has just started and is still reading its data; send it again",
    "BUSY": "a script runs on it for too long; SCRIPT KILL ends that",
    "UNKILLABLE": "a script runs on it for too long and has written: it goes on until that has ended",
    "MASTERDOWN": "it is a replica that has lost its master",
    "CLUSTERDOWN": "nobody serves a part of the cluster's slots; CLUSTER INFO tells more",
    "TRYAGAIN": "a slot is on its way to another node; send it again",
    "MOVED": "the cluster's slots have moved; send it again",
    "ASK": "the cluster's slots are moving; send it again",
    "NOREPLICAS": "fewer replicas are connected to it than its min-replicas-to-write asks for",
    "MISCONF": "it cannot write to its disk; its log says why",
}
_STAYS: dict[str, tuple[type[TarryError], str]] = {
    "OOM": (StoreFull, "maxmemory reached: it takes no more jobs until some are done, or until maxmemory is raised"),
    "READONLY": (StoreReadOnly, "it is a replica: name its master in the URL, or ask with redis+sentinel://"),
    "WRONGTYPE": (StoreForeign, "another program has keys of the same names; choose others with ?prefix="),
    "NOAUTH": (ConfigError, "it asks for a password: write it into the URL, as in redis://:PASSWORD@host"),
    "WRONGPASS": (ConfigError, "the user or the password in the URL is wrong"),
    "NOPERM": (ConfigError, "its account may not do this; ACL SETUSER name ~{tarry*}* &{tarry*}* +@all allows it"),
}
_WORDS: dict[str, tuple[type[TarryError], str]] = {
    "No space left": (StoreFull, "its disk is full"),
    "max number of clients": (StoreUnavailable, "it has as many clients as its maxclients allows; raise that"),
    "without any password configured": (ConfigError, "it has no password: take yours out of the URL"),
    "DB index is out of range": (ConfigError, "it has no database of that number"),
    "SELECT is not allowed": (ConfigError, "it has only database 0"),
}


def error_of(refusal: Refusal, where: str) -> TarryError:
    """What to raise for it. ConfigError: the URL, or the account that it names, is wrong."""
    for words, (kind, why) in _WORDS.items():
        if words in refusal.text:
            return kind(f"{where}: {why} ({refusal.text})")
    if why := _PASSES.get(refusal.code, ""):
        return StoreUnavailable(f"{where}: {why} ({refusal.text})")
    kind, why = _STAYS.get(refusal.code, (StoreError, ""))
    return kind(f"{where}: {why} ({refusal.text})" if why else f"{where}: {refusal.text}")
