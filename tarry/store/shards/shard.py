"""One of several stores: opened when it can be, and left alone while it is away.

A call that fails costs as long as the store's time limit, and a worker that would pay it in each turn would serve the
other stores badly. So after a failure nothing more is sent: a thread tries in the background, with growing pauses,
and until it succeeds all calls are refused at once.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

from msgspec.structs import replace

from tarry.errors import ConfigError, StoreAway, StoreError, StoreUnavailable
from tarry.store.base import Fact, Store
from tarry.store.shared.masking import astray, masked
from tarry.store.shared.patience import PATIENCE, about, back_off

Answer = TypeVar("Answer")

log = logging.getLogger("tarry.store")
TOLD_EVERY = 60.0
WHERE = frozenset(
    {"db", "dbname", "database", "schema", "prefix", "host", "hostaddr", "port", "unix_socket", "service"}
)
"""Options that say where jobs are kept, and not how."""
REFUSED_FOR = 5.0
"""Seconds for which no new job's id is drawn for a store that is full or can only be read."""


class Shard:
    """A store by its name, which decides what lives there, and how to open it.

    draining: it gets nothing new; what it has is still worked off, or moved. Safe to use from several threads.
    """

    def __init__(self, url: str, opened: Callable[[], Store], *, name: str = "", draining: bool = False) -> None:
        self.url = shown(url)
        self.name = name or identity(url)
        self.draining = draining
        self.joined = 0.0
        """When it came back (monotonic seconds), 0 if it was never away."""
        self.joins = 0
        self._opened = opened
        self._store: Store | None = None
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._why = ""
        self._since = self._told = 0.0
        self._failures = 0
        self._refusing = 0.0
        self._closed = threading.Event()

    @classmethod
    def of(cls, store: Store) -> "Shard":
        """A store that is open already."""
        shard = cls(store.url, lambda: store)
        shard._store = store
        return shard

    @property
    def store(self) -> Store:
        """The store itself, opened if need be; its errors."""
        if self._store is None:
            self._open()
        assert self._store is not None
        return self._store

    @property
    def away(self) -> str:
        """Why nothing is sent to it now; empty if it is there."""
        return self._why

    @property
    def takes(self) -> bool:
        """Whether a new job may be put there."""
        return not self._why and not self.draining and time.monotonic() >= self._refusing

    @property
    def joined_lately(self) -> bool:
        """It came back so lately that its workers may not have prolonged their leases yet."""
        return bool(self.joined) and time.monotonic() - self.joined < PATIENCE

    def told(self) -> str:
        """How it is, in words."""
        if self._why:
            return f"away for {time.monotonic() - self._since:.0f} s"
        return "draining" if self.draining else "up"

    def facts(self) -> list[Fact]:
        """As `Store.facts`, with its URL in each name; or what is wrong with it."""
        try:
            facts = [replace(fact, name=f"{self.url} {fact.name}") for fact in self.ask(lambda store: store.facts())]
        except StoreError as error:
            return [Fact(self.url, self.told(), str(error))]
        return [Fact(self.url, "draining"), *facts] if self.draining else facts

    def ask(self, call: Callable[[Store], Answer]) -> Answer:
        """The answer of the store; its errors. StoreAway, at once, while it is away: then nothing was sent."""
        if self._why:
            raise StoreAway(f"{self.url} is away: {self._why}")
        try:
            store = self.store
        except StoreUnavailable as error:
            self.lose(error)
            raise StoreAway(str(error)) from None
        try:
            answer = call(store)
        except StoreUnavailable as error:
            self.lose(error)
            raise
        self._failures = 0
        return answer

    def connect(self) -> None:
        """Opens it now, if it can be reached, and else in the background. Errors that time does not heal are raised."""
        try:
            self._open()
        except StoreUnavailable as error:
            self.lose(error)

    def lose(self, error: StoreError) -> None:
        """It failed: from now on it is away, until a try in the background succeeds."""
        with self._lock:
            if self._why or self._closed.is_set():
                return
            self._why = str(error)
            self._failures += 1
            self._since = time.monotonic()
            if self._failures == 1 or self._since - self._told > TOLD_EVERY:
                self._told = self._since
                log.error("%s is away: %s", self.url, error)
            threading.Thread(target=self._regain, name="tarry-shard", daemon=True).start()

    def refuse(self) -> None:
        """It took no new job, being full or read-only: none is put there for a while."""
        self._refusing = time.monotonic() + about(REFUSED_FOR)

    def close(self) -> None:
        """Gives back the store; it is not tried again."""
        self._closed.set()
        # One that is just being opened sees that and closes itself.
        if self._store is not None:
            self._store.close()

    def _regain(self) -> None:
        # The longer it has been failing, also with successes at trying in between, the longer the first pause.
        tries = self._failures
        while not self._closed.wait(back_off(tries)):
            try:
                self._open()
                self.store.time()
                self.store.next_due()
            except Exception as error:
                tries += 1
                self._still_away(error)
            else:
                self._back()
                return

    def _still_away(self, error: Exception) -> None:
        self._why = str(error) or type(error).__name__
        if time.monotonic() - self._told > TOLD_EVERY:
            self._told = time.monotonic()
            log.error(
                "%s is still away: %s", self.url, error, exc_info=None if isinstance(error, StoreError) else error
            )

    def _back(self) -> None:
        self.joined = time.monotonic()
        self.joins += 1
        self._why = ""
        log.info("%s is back after %.1f s", self.url, self.joined - self._since)

    def _open(self) -> None:
        with self._opening:
            if self._store is not None:
                return
            store = self._opened()
            try:
                # Some connect only when first asked; a shard that is up has been heard.
                store.time()
            except BaseException:
                store.close()
                raise
            self._store = store
            if self._closed.is_set():
                store.close()


def parted(url: str) -> tuple[str, str, bool]:
    """The URL of one of several stores, the name that is given to it, and whether it is draining: what follows a `#`,
    as in `redis://b#draining` or `redis://b#name=east&draining`. ConfigError."""
    plain, mark, words = url.rpartition("#")
    given = dict(parse_qsl(words, keep_blank_values=True)) if mark else {}
    # An @ further on says that the # is part of a password.
    if not given.keys() & {"name", "draining"} or "@" in words:
        return url, "", False
    name, draining = given.pop("name", ""), given.pop("draining", "no")
    if given or draining not in ("", "no", "yes"):
        raise ConfigError(f"store {shown(plain)}: after the # there may be name=NAME and draining, joined by &")
    return plain, name, draining != "no"


def identity(url: str) -> str:
    """What stays the same of a URL when the password, the user or an option changes."""
    scheme, _, place, where = _parts(url)
    return scheme + place + where


def shown(url: str) -> str:
    """The URL without its password and options, to be read by anybody."""
    scheme, user, place, where = _parts(url)
    return scheme + user + place + where


def _parts(url: str) -> tuple[str, str, str, str]:
    """Scheme, user, place, and those options that say where. A file's path may have a ? or an @ of its own."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return masked(url), "", "", ""
    place, mark, query = rest.rpartition("?")
    if not mark or "=" not in query or (scheme == "sqlite" and "/" in query):
        place, query = rest, ""
    if scheme != "sqlite" and astray(place, query):
        return scheme + separator, "***@", rest.rpartition("@")[2], ""
    who, at, host = ("", "", place) if scheme == "sqlite" else place.rpartition("@")
    if re.search(r"[/?#\[\]]", who):  # a part of a password may stand before the first colon
        who = "***"
    where = urlencode(sorted((word, said) for word, said in parse_qsl(query) if word in WHERE))
    return scheme + separator, who.partition(":")[0] + at, host, where and f"?{where}"
