"""Files with named entries that say who may do what: what the files of tokens and of passwords have in common."""

import logging
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import quote

from msgspec import Meta, Struct

from tarry.config.kinds import TEXT
from tarry.config.parser import Kind, SettingsSource
from tarry.errors import ConfigError, NotAllowed
from tarry.operate.access import Scope
from tarry.store.rules.name_pattern import fits, fits_all

log = logging.getLogger("tarry.server")

CHECK_EVERY = 1.0
"""Seconds between two looks at a file."""
PASSWORD_ENTRY = "password:"
"""The start of the `entry` of a caller with a password: a token may have the same name, but no name like that."""
PROXY_ENTRY = "proxy:"
"""The start of the name and the `entry` of a person whom a proxy has signed in."""
_SCOPES = tuple(scope.value for scope in Scope)


def _scopes(written: list[str]) -> frozenset[Scope]:
    return frozenset(Scope(name) for name in written)


class EntrySettings(Struct, frozen=True):
    """What each entry has."""

    scopes: Annotated[
        frozenset[Scope],
        Kind(f"a list of scopes such as [{', '.join(map(repr, _SCOPES))}]", list[str], _scopes, names=_SCOPES),
    ] = frozenset()
    queues: Annotated[
        tuple[str, ...],
        Kind(
            'a list of queues or patterns such as ["mail", "shop-*"]', Annotated[list[str], Meta(min_length=1)], tuple
        ),
    ] = ("*",)
    """Names of queues, in which `*` stands for any characters."""
    tasks: Annotated[
        tuple[str, ...],
        Kind('a list of tasks or patterns such as ["shop.*"]', Annotated[list[str], Meta(min_length=1)], tuple),
    ] = ()
    """Names of tasks whose jobs it may put, in which `*` stands for any characters; empty: those whose own queue is
    one of `queues`, and with all queues any task."""
    note: Annotated[str, TEXT] = ""
    """For people."""


def check_entry_name(source: SettingsSource, keys: tuple[str, ...], name: str) -> None:
    """ConfigError if a token or password has a name that is kept for callers of another kind: its sessions would be
    theirs, and the log of acts could not tell them apart."""
    for start in (PASSWORD_ENTRY, PROXY_ENTRY):
        if name.startswith(start):
            raise source.wrong(keys, f"a name that does not begin with {start}", repr(name))


S = TypeVar("S", bound=EntrySettings)


class EntryCaller(Generic[S]):
    """A caller with the rights of an entry. kind: `token`, `password` or `person`. file: where its rights stand."""

    kind = file = ""

    def __init__(self, name: str, settings: S) -> None:
        self.name, self.settings = name, settings
        self.file = self.file or f"the {self.kind}s' file"
        self.queues = () if fits_all(settings.queues) else settings.queues
        """Names and patterns of the queues that it may use; empty: all of them."""

    @property
    def entry(self) -> str:
        """See `Caller`."""
        return self.name

    @property
    def namespace(self) -> str:
        """See `Caller`."""
        return f"@{quote(self.entry, safe='')}/" if self.queues or self.settings.tasks else ""

    def check_task(self, task: str, queue: str | None) -> None:
        """See `Caller`."""
        if self.settings.tasks:
            is_allowed = fits(self.settings.tasks, task)
        else:
            is_allowed = not self.queues or (queue is not None and fits(self.queues, queue))
        if not is_allowed:
            where = f"tasks in {self.file}"
            raise NotAllowed(f"{self.kind} {self.name} may not put task {task}: add it to its {where}")

    def check(self, scope: Scope, queue: str | None = None) -> None:
        """NotAllowed if the entry has no such scope, or not for that queue. None: for any queue at all."""
        if not self._has(scope):
            raise NotAllowed(f"{self.kind} {self.name} may not {scope}: add the scope to it in {self.file}")
        if queue is not None and not self._may_use(queue):
            only = ", ".join(self.settings.queues)
            if queue == "*":
                raise NotAllowed(f"{self.kind} {self.name} is for some queues only ({only}): this takes all of them")
            raise NotAllowed(f"{self.kind} {self.name} is not for queue {queue}: only {only}")

    def allows(self, scope: Scope, queue: str) -> bool:
        """Whether it may do that with that queue."""
        return self._has(scope) and self._may_use(queue)

    def _has(self, scope: Scope) -> bool:
        return scope in self.settings.scopes or Scope.ADMIN in self.settings.scopes

    def _may_use(self, queue: str) -> bool:
        return not self.queues or fits(self.queues, queue)


C = TypeVar("C", bound=EntryCaller[Any])


class EntryFile(Generic[C]):
    """The callers of a file, which is read again when it changes.

    read: the entries of the file by name; ConfigError. make: the class of its callers. secret: whether nobody but its
    owner and group should be able to read it. clock: seconds of a monotonic clock.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Path], Mapping[str, Any]],
        make: type[C],
        secret: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._read, self._make, self._clock = path, read, make, clock
        self._forbidden = stat.S_IWOTH | (stat.S_IROTH if secret else 0)
        self._seen = self._signature()
        self.callers: Sequence[C] = self._callers_of(read(path))
        self._checked = clock()
        self._check_rights()

    def find(self, name: str) -> C | None:
        """The caller of the entry with that name; None: there is none, or no longer."""
        self.look()
        return next((caller for caller in self.callers if caller.name == name), None)

    def look(self) -> float:
        """Reads the file again if it is time for that; returns the time."""
        now = self._clock()
        if now - self._checked >= CHECK_EVERY:
            self._checked = now
            self._read_again()
        return now

    def _read_again(self) -> None:
        signature = self._signature()
        if signature == self._seen:
            return
        self._seen = signature
        try:
            self.callers = self._callers_of(self._read(self._path))
        except ConfigError as error:
            # A slip in the file must not shut everybody out.
            log.error("the %ss stay as they were: %s", self._make.kind, error)
        self._check_rights()

    def _callers_of(self, entries: Mapping[str, Any]) -> list[C]:
        """A caller for each entry. An unchanged one stays, and with it what is counted of it."""
        before = {caller.name: caller for caller in getattr(self, "callers", ())}
        return [
            before[name] if name in before and before[name].settings == settings else self._make(name, settings)
            for name, settings in entries.items()
        ]

    def _signature(self) -> tuple[Any, ...]:
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _check_rights(self) -> None:
        """Warns if more users than the owner means to could change the file, or read what is secret in it."""
        try:
            mode = os.stat(self._path).st_mode
        except OSError:
            return
        if mode & self._forbidden:
            what = "change" if mode & stat.S_IWOTH else "read"
            log.warning("every user of this host may %s %s: chmod 600 %s", what, self._path, self._path)
