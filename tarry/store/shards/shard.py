"""One of several stores: opened when it can be reached, and left alone while it is away.

A failing call lasts as long as the store's time limit. A worker that waits for it in each turn serves the other stores
badly. So after a failure nothing more is sent: a thread tries in the background, with growing pauses, and all calls
fail at once until it succeeds.
"""

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

from msgspec.structs import replace

from tarry.errors import ConfigError, StoreAway, StoreError, StoreUnavailable, TarryError
from tarry.store.rules.base import Diagnostic, Store
from tarry.store.rules.sleeper import JoinedWakeup, Wakeup
from tarry.store.shared.backoff import LEASE_GRACE, OutageLog, back_off, jitter
from tarry.store.shared.deadline import left, until
from tarry.store.shared.masking import is_astray, mask_password

T = TypeVar("T")

log = logging.getLogger("tarry.store")
WHERE = frozenset(
    {"db", "dbname", "database", "schema", "prefix", "host", "hostaddr", "port", "unix_socket", "service"}
)
"""Options of a URL that say where jobs are kept. The others say how."""
_FILE = "sqlite:///"
REFUSED_FOR = 5.0
"""Seconds for which a store that is full or read-only gets no new jobs."""
ANSWERS_WITHIN = 1.0
"""Seconds in which a store has to answer when others could take its new jobs."""
HEARD_LATELY = 0.1
"""Seconds after an answer for which a store counts as there without a question."""
_REMOVED = "it was removed from the list of stores"


class Shard:
    """A store by its name, which decides what lives there, and how to open it.

    draining: it gets no new jobs; the jobs that it has are still run, or moved. Safe to use from several threads.
    """

    def __init__(self, url: str, open_store: Callable[[], Store], *, name: str = "", draining: bool = False) -> None:
        self.url = public_url(url)
        self.name = name or url_identity(url)
        self.draining, self.joining, self.is_removed = draining, False, False
        self.joined_at = 0.0
        """When it came back (monotonic seconds); 0: it was never away."""
        self.join_count = 0
        self._open_store = open_store
        self._store: Store | None = None
        # Two locks: opening may last as long as the store's time limit, and `mark_away` must not wait for it.
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._away_reason = ""
        self._away_since = 0.0
        self._outage = OutageLog(log, f"{self.url} is back")
        self._failures = 0
        self._refuses_until = self._heard_at = 0.0
        self._closed = threading.Event()

    @classmethod
    def from_store(cls, store: Store) -> "Shard":
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
        """Why nothing is sent to it now; empty if it is not away."""
        return _REMOVED if self.is_removed else self._away_reason

    @property
    def accepts_jobs(self) -> bool:
        """Whether a new job may be put there."""
        return not self.away and not self.draining and time.monotonic() >= self._refuses_until

    @property
    def has_joined_lately(self) -> bool:
        """Whether it came back so lately that its workers may not have prolonged their leases yet."""
        return bool(self.joined_at) and time.monotonic() - self.joined_at < LEASE_GRACE

    def describe(self) -> str:
        """Its state, in words."""
        if self.is_removed:
            return "removed"
        if self._away_reason:
            return f"away for {time.monotonic() - self._away_since:.0f} s"
        if self.joining:
            return "joining"
        return "draining" if self.draining else "up"

    def diagnostics(self) -> list[Diagnostic]:
        """As `Store.diagnostics`, with its URL in each name; or what is wrong with it."""
        try:
            facts = [
                replace(fact, name=f"{self.url} {fact.name}") for fact in self.ask(lambda store: store.diagnostics())
            ]
        except StoreError as error:
            return [Diagnostic(self.url, self.describe(), str(error))]
        return [Diagnostic(self.url, "draining"), *facts] if self.draining else facts

    def ask(self, call: Callable[[Store], T]) -> T:
        """The answer of the store; its errors. StoreAway, at once, while it is away; then nothing was sent."""
        if self.away:
            raise StoreAway(f"{self.url} is away: {self.away}")
        try:
            store = self.store
        except StoreUnavailable as error:
            # StoreAway, since nothing was sent yet: the caller may send it to another store.
            self.mark_away(error)
            raise StoreAway(str(error)) from None
        try:
            answer = call(store)
        except StoreUnavailable as error:
            self.mark_away(error)
            raise
        self._failures, self._heard_at = 0, time.monotonic()
        return answer

    def check_answers(self) -> None:
        """Marks it away if it does not answer within ANSWERS_WITHIN. An answer of a moment ago is enough."""
        if self.away or self._store is None or time.monotonic() - self._heard_at < HEARD_LATELY:
            return
        # A question, and not the jobs themselves with that limit: a server that stands still has them in its socket,
        # and stores them when it goes on. By then they would be on another one, too.
        with until(time.monotonic() + left(ANSWERS_WITHIN)), contextlib.suppress(StoreError):
            self.ask(lambda store: store.time())

    def connect(self) -> None:
        """Opens it now if it can be reached, else in the background. Raises errors that time does not heal."""
        try:
            self._open()
        except StoreUnavailable as error:
            self.mark_away(error)

    def mark_away(self, error: TarryError) -> None:
        """It failed: from now on it is away, until a try in the background succeeds."""
        with self._lock:
            # One thread tries already: several callers may see the same failure.
            if self._away_reason or self._closed.is_set():
                return
            self._away_reason = str(error)
            self._failures += 1
            self._away_since = time.monotonic()
            if self._outage.fail(self._away_since):
                log.error("%s is away: %s", self.url, error)
            threading.Thread(target=self._reconnect, name="tarry-shard", daemon=True).start()

    def remove(self) -> None:
        """It was taken out of the list of stores: nothing is sent to it any more."""
        # Not by what says why it is away: a thread that tries to reach it may just be about to change that.
        self.is_removed = self.draining = True
        self.close()

    def note_loss(self) -> None:
        """It lacks what others have, as a server that has started empty before anybody saw it away: it counts as one
        that came back, so that limits are declared again."""
        self.join_count += 1

    def pause_inserts(self) -> None:
        """It is full or read-only: no new job is put there for a while."""
        # Jittered, so that not all processes try it again at once.
        self._refuses_until = time.monotonic() + jitter(REFUSED_FOR)

    def close(self) -> None:
        """Closes the store; it is not tried again."""
        self._closed.set()
        # `_open` looks at this last: a store that is just being opened is closed there.
        if self._store is not None:
            self._store.close()

    def _reconnect(self) -> None:
        # Failures count until a call succeeds (`ask`). So if it only seems to come back, the first pause gets longer.
        tries = self._failures
        while not self._closed.wait(back_off(tries)):
            try:
                self._open()
                self.store.time()
                self.store.next_due()
            except Exception as error:
                # Whatever it is: if this thread ended, the store would stay away for ever.
                tries += 1
                self._log_still_away(error)
            else:
                self._mark_back()
                return

    def _log_still_away(self, error: Exception) -> None:
        self._away_reason = str(error) or type(error).__name__
        if self._outage.fail(time.monotonic()):
            log.error(
                "%s is still away: %s", self.url, error, exc_info=None if isinstance(error, StoreError) else error
            )

    def _mark_back(self) -> None:
        self.joined_at = time.monotonic()
        # Before calls are sent again: one that fails at once begins a new outage.
        self._outage.end(self.joined_at)
        self.join_count += 1
        self._away_reason = ""

    def _open(self) -> None:
        with self._opening:
            if self._store is not None:
                return
            store = self._open_store()
            try:
                # Some stores connect only when first asked. A shard counts as up only if its store has answered.
                store.time()
            except BaseException:
                store.close()
                raise
            self._store = store
            if self._closed.is_set():
                store.close()


def parse_shard_url(url: str) -> tuple[str, str, bool]:
    """The URL of one of several stores, the name that is given to it, and whether it is draining: what follows a `#`,
    as in `redis://b#draining` or `redis://b#name=east&draining`. ConfigError."""
    plain, mark, words = url.rpartition("#")
    given = dict(parse_qsl(words, keep_blank_values=True)) if mark else {}
    # With an @ after it, the # is part of a password.
    if not given.keys() & {"name", "draining"} or "@" in words:
        return url, "", False
    name, draining = given.pop("name", ""), given.pop("draining", "no")
    if given or draining not in ("", "no", "yes"):
        raise ConfigError(f"store {public_url(plain)}: after the # there may be name=NAME and draining, joined by &")
    if not name.isprintable():
        raise ConfigError(f"store {public_url(plain)}: a name has letters, digits and signs only: {name!r}")
    return plain, name, draining != "no"


def absolute_url(url: str) -> str:
    """The URL with the whole path, if it is one of a file."""
    path = url.removeprefix(_FILE)
    # The name decides which jobs belong to the shard: it must be the same in whatever directory a process runs.
    return f"{_FILE}{Path.cwd()}/{path}" if path != url and not path.startswith(("/", ":memory:")) else url


def url_identity(url: str) -> str:
    """The part of a URL that stays the same when the password, the user or an option changes."""
    scheme, _, place, where = _parts(url)
    return scheme + place + where


def public_url(url: str) -> str:
    """The URL without its password and options: it may be shown."""
    scheme, user, place, where = _parts(url)
    shown = mask_password(url)
    # A part of the password may stand in what is the place here: see `mask_password`.
    if scheme != "sqlite://" and (
        is_astray(url.partition("://")[2]) or "://" not in url or shown.endswith(("://***", "?***"))
    ):
        return shown
    return scheme + user + place + where


def _parts(url: str) -> tuple[str, str, str, str]:
    """Scheme, user, place, and the options that say where."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return mask_password(url), "", "", ""
    place, mark, query = rest.rpartition("?") if scheme == "sqlite" else rest.partition("?")
    # A file's path may have a ? or an @ of its own.
    if not mark or "=" not in query or (scheme == "sqlite" and "/" in query):
        place, query = rest, ""
    who, at, host = ("", "", place) if scheme == "sqlite" else place.rpartition("@")
    # A part of a password may stand before the first colon.
    if re.search(r"[/?#\[\]]", who) or "@" in who.partition(":")[0]:
        who = "***"
    where = urlencode(sorted((word, said) for word, said in parse_qsl(query) if word in WHERE))
    return scheme + separator, who.partition(":")[0] + at, host, where and f"?{where}"


def connect_all(shards: Sequence[Shard], patient: bool) -> None:
    """Opens the stores of all shards. A store that cannot be reached is tried again in the background; if none can be
    reached, StoreUnavailable, unless `patient`. An error that time does not heal, as a wrong password, is raised."""
    errors: list[Exception] = []
    # At the same time: each store that does not answer takes its whole time limit.
    threads = [threading.Thread(target=_connect, args=(shard, errors)) for shard in shards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not patient and all(shard.away for shard in shards):
        errors.append(StoreUnavailable("; ".join(shard.away for shard in shards)))
    if errors:
        raise errors[0]


def _connect(shard: Shard, errors: list[Exception]) -> None:
    try:
        shard.connect()
    except Exception as error:
        # Raised here it would end with this thread; `connect_all` raises it to the caller.
        errors.append(error)


class ShardWakeup(JoinedWakeup):
    """A sleeper on each shard, made when the shard is first up. listens: called when it has begun to listen."""

    def __init__(self, shards: Sequence[Shard], listens: Callable[[], None]) -> None:
        super().__init__()
        self._shards, self._listens = shards, listens
        self._made: dict[int, Wakeup] = {}
        self._choose_parts()

    def listen(self, topic: str) -> None:
        # Shards may have gone or come back since the last time.
        self._choose_parts()
        super().listen(topic)
        # What came before nobody hears of: the look that follows must ask all.
        self._listens()

    def is_listening(self) -> bool:
        """Not known: a shard may be back, and only `listen` finds that."""
        return False

    def is_receiving(self) -> bool:
        # One that is away may be back at any moment, with jobs of which nobody here hears.
        count = sum(not shard.is_removed for shard in self._shards)
        return len(self.parts) == count > 0 and all(part.is_receiving() for part in self.parts)

    def close(self) -> None:
        # Also the sleepers on shards that are away.
        self.parts = list(self._made.values())
        super().close()

    def _choose_parts(self) -> None:
        """Takes the sleepers on the shards that are up."""
        # The others are left alone: a broken sleeper would wake all the time.
        there = [number for number, shard in enumerate(self._shards) if not shard.away]
        for number in there:
            if number not in self._made:
                # A shard that fails here is tried again at the next `listen`.
                with contextlib.suppress(StoreError):
                    self._made[number] = self._shards[number].ask(lambda store: store.wakeup())
        self.parts = [self._made[number] for number in there if number in self._made]
