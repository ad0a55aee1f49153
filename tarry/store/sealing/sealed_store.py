"""A store of which nobody can read what jobs say who has no key: seals what goes in, and opens what comes out."""

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from tarry.errors import ConfigError
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store.rules.base import Exchange, Store
from tarry.store.rules.entry import Entry
from tarry.store.sealing.fields import FieldSealer
from tarry.store.sealing.sealed_flows import SealedFlows
from tarry.store.shared.proxy import Proxy, open_answer
from tarry.store.shared.rewriting import RewritingStore

if TYPE_CHECKING:
    from tarry.store.outbox import Outbox
    from tarry.store.sealing.key_ring import KeyRing

MOST_CLEAR = 100_000
"""So many claimed jobs of tasks that are not sealed are remembered."""


def store_sealer(places: Sequence[str], seals: Callable[[str], bool]) -> Callable[[Store], Store]:
    """Gives a store the keys in these places (`env:NAME`, `file:PATH`); ConfigError. seals: whether the jobs of a task
    are sealed."""
    sealer = _sealer(places)
    return lambda store: cast("Store", SealedStore(store, sealer, seals))


def sealed_outbox(outbox: "Outbox", places: Sequence[str], seals: Callable[[str], bool]) -> "Outbox":
    """An outbox with these keys; ConfigError."""
    return cast("Outbox", SealedOutbox(outbox, _sealer(places), seals))


def names_of_keys(places: Sequence[str]) -> list[str]:
    """The ids of the keys in these places; ConfigError."""
    return _read_keys(places).names


def _sealer(places: Sequence[str]) -> FieldSealer:
    return FieldSealer(_read_keys(places))


def _read_keys(places: Sequence[str]) -> "KeyRing":
    try:
        from tarry.store.sealing.key_ring import read_keys  # noqa: PLC0415 - it needs an extra
    except ImportError as error:
        raise ConfigError(f"[encryption] needs cryptography: pip install 'tarry[encryption]' ({error})") from None
    return read_keys(places)


def _reading_verb(name: str) -> Callable[..., list[Job]]:
    def read(store: "SealedStore", *args: Any, **options: Any) -> list[Job]:
        return open_answer(lambda: getattr(store._store, name)(*args, **options), store._open_jobs)

    return read


class SealedStore(RewritingStore):
    """The verbs that take or give jobs; all others are those of the store within."""

    def __init__(self, store: Store, sealer: FieldSealer, seals: Callable[[str], bool]) -> None:
        super().__init__(store)
        self._sealer, self._seals, self._open = sealer, seals, sealer.open_job
        self._lock = threading.Lock()
        self._clear: dict[bytes, None] = {}
        """The ids of jobs that were claimed here and are not to be sealed."""
        self.flows = SealedFlows(store.flows, sealer, self._rewrite_jobs)

    @property
    def stores(self) -> list["SealedStore"]:
        """Of several stores used as one: each."""
        return [SealedStore(each, self._sealer, self._seals) for each in self._inner.stores]

    def claim(self, *args: Any, **options: Any) -> list[Job]:
        return self._open_claimed(self._store.claim(*args, **options))

    def exchange(self, changes: Sequence[Change], *args: Any, **options: Any) -> Exchange:
        return self._open_exchange(super().exchange(changes, *args, **options))

    def sleep_and_claim(self, *args: Any, **options: Any) -> Exchange | None:
        answer = self._store.sleep_and_claim(*args, **options)
        return answer and self._open_exchange(answer)

    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        clear, seal = self._clear, self._sealer.seal_progress
        sealed = [(id, epoch, progress if id in clear else seal(id, progress)) for id, epoch, progress in marks]
        return self._store.save_progress(owner, sealed)

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        return open_answer(lambda: self._store.get(ids), lambda found: [job and self._open(job) for job in found])

    find, oldest_waiting = _reading_verb("find"), _reading_verb("oldest_waiting")
    reclaim, expiring = _reading_verb("reclaim"), _reading_verb("expiring")

    @property
    def keeps_apart_over(self) -> float:
        """Of what is not sealed yet, which makes it larger by a third."""
        return cast("float", self._inner.keeps_apart_over) * 0.7

    def keep_result(self, job: Job, result: bytes) -> bytes:
        sealed = self._sealer.seal_result(job.id, result) if self._seals(job.task) else result
        return self._store.keep_result(job, sealed)

    def load_arguments(self, job: Job) -> Job:
        return self._open(self._store.load_arguments(job))

    def load_result(self, job: Job) -> Job:
        return self._open(self._store.load_result(job))

    def seal_value(self, name: str, value: bytes, task: str) -> bytes:
        return self._sealer.seal_value(name, value) if self._seals(task) else value

    def open_value(self, name: str, value: bytes) -> bytes:
        return self._sealer.open_value(name, value)

    def _rewrite_jobs(self, jobs: Iterable[Job]) -> list[Job]:
        return [self._sealer.seal_job(job) if self._seals(job.task) else job for job in jobs]

    def _open_jobs(self, jobs: Iterable[Job]) -> list[Job]:
        return [self._open(job) for job in jobs]

    def _rewrite_changes(self, changes: Iterable[Change]) -> list[Change]:
        return [change if self._is_clear(change) else self._sealer.seal_change(change) for change in changes]

    def _is_clear(self, change: Change) -> bool:
        if change.id in self._clear:
            return True
        # With other arguments the job itself tells; else no more is clear than has to be.
        job = change.job if change.job is not None or not change.body else self._store.get([change.id])[0]
        return job is not None and not self._seals(job.task)

    def _open_exchange(self, answer: Exchange) -> Exchange:
        return replace(answer, jobs=self._open_claimed(answer.jobs)) if answer.jobs else answer

    def _open_claimed(self, jobs: Sequence[Job]) -> list[Job]:
        if clear := [job.id for job in jobs if not self._seals(job.task)]:
            with self._lock:
                self._clear |= dict.fromkeys(clear)
                for id in list(islice(self._clear, max(0, len(self._clear) - MOST_CLEAR))):
                    del self._clear[id]
        return self._open_jobs(jobs)


class SealedOutbox(Proxy):
    """An outbox whose file has no more in the clear than the store has."""

    def __init__(self, outbox: Any, sealer: FieldSealer, seals: Callable[[str], bool]) -> None:
        super().__init__(outbox)
        self._sealer, self._seals = sealer, seals

    def keep(self, entries: Sequence[Entry]) -> Any:
        sealed = [
            replace(entry, job=self._sealer.seal_job(entry.job)) if self._seals(entry.job.task) else entry
            for entry in entries
        ]
        return self._inner.keep(sealed)

    def page(self, after: int, limit: int) -> list[tuple[int, Entry]]:
        found = self._inner.page(after, limit)
        return [(number, replace(entry, job=self._sealer.open_job(entry.job))) for number, entry in found]

    def find(self, ids: Sequence[bytes]) -> dict[bytes, Job]:
        return {id: self._sealer.open_job(job) for id, job in self._inner.find(ids).items()}
