"""A store whose large arguments and results are at a place of their own: it keeps references to them.

An object is written before the job that refers to it, and deleted after it. Its name has a random part, so nothing but
that job can refer to it, and whoever finds out that the job was not stored deletes it at once.
"""

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, cast

from msgspec.structs import replace

from tarry.errors import (
    ConfigError,
    PartlyUnavailable,
    PayloadLost,
    PayloadUnavailable,
    StoreAway,
    StoreError,
)
from tarry.model.change import Change
from tarry.model.checks.unreadable import UNREADABLE, is_apart
from tarry.model.flow.node_ids import is_root
from tarry.model.flow.wiring import added_nodes, split
from tarry.model.job import Job, State
from tarry.model.quantity import MostApart
from tarry.store.payloads.place import FILE, HOW, S3, PayloadPlace
from tarry.store.rules import ids
from tarry.store.rules.base import Store, ValuesWithin
from tarry.store.rules.flows import NewFlow
from tarry.store.rules.partial_result import partial_result
from tarry.store.rules.payload_reference import (
    ARGUMENTS,
    RESULT,
    describe_apart,
    new_name,
    read_reference,
    reference_to,
)
from tarry.store.shared.rewriting import RewritingFlows, RewritingStore

NAMESPACE = "payloads:namespace"
"""The named value that has the name under which a store has its payloads."""
_DIGEST = 16


def open_place(url: str) -> PayloadPlace:
    """The place at a URL; ConfigError if it is none. Nothing is asked of it yet."""
    if url.startswith(FILE):
        from tarry.store.payloads.file_place import FilePlace  # noqa: PLC0415 - of several kinds each needs one

        return FilePlace(url)
    if url.startswith(S3):
        try:
            from tarry.store.payloads.s3_place import S3Place  # noqa: PLC0415 - it needs an extra
        except ImportError as error:
            raise ConfigError(f"[payloads] to: {url} needs boto3: pip install 'tarry[s3]' ({error})") from None
        return S3Place(url)
    raise ConfigError(f"[payloads] to: {url[:100]!r} is no place for payloads: {HOW}")


def try_place(url: str) -> None:
    """Writes, reads, lists and deletes an object; ConfigError, PayloadUnavailable, PayloadLost."""
    place, name, data = open_place(url), f"check/{uuid.uuid4().hex}", b"tarry check"
    place.write(name, data)
    try:
        found = place.read(name, 100)
        # The sweep alone needs that, and says only to a log that it may not.
        place.page("check", "", 1)
    finally:
        place.delete([name])
    if found != data:
        raise PayloadLost(f"[payloads] {url} does not give back what was written to it")


def payload_keeper(url: str, over: int, most: int) -> Callable[[Store], Store]:
    """Makes of a store a `PayloadStore` with the place at this URL; ConfigError."""
    place = open_place(url)
    return lambda store: cast("Store", PayloadStore(store, place, over, most))


class PayloadStore(RewritingStore):
    """over: arguments and results of more bytes are kept at the place. most: bytes that they may take. namespace: of
    the store."""

    def __init__(
        self, store: Store, place: PayloadPlace, over: int, most: int, namespace: "Namespace | None" = None
    ) -> None:
        super().__init__(store)
        self.place, self.keeps_apart_over, self.most_apart = place, over, MostApart(most)
        self.namespace = namespace or Namespace(store)
        self.flows = PayloadFlows(store.flows, self)

    @property
    def payloads(self) -> "PayloadStore":
        """Itself, also for who has one that stands before it."""
        return self

    @property
    def stores(self) -> list["PayloadStore"]:
        """Of several stores used as one: each."""
        return [self._like(one, self.namespace) for one in cast("Sequence[Store]", self._inner.stores)]

    def _like(self, store: Store, namespace: "Namespace") -> "PayloadStore":
        return PayloadStore(store, self.place, self.keeps_apart_over, self.most_apart, namespace)

    # On the way in

    def insert(self, jobs: Sequence[Job]) -> Any:
        return self._insert_and_tidy(jobs, self._store.insert)

    def insert_bounded(self, jobs: Sequence[Job], *args: Any, **options: Any) -> Any:
        return self._insert_and_tidy(jobs, lambda moved: self._store.insert_bounded(moved, *args, **options))

    def insert_within(self, connection: Any, jobs: Sequence[Job], *args: Any, **options: Any) -> Any:
        def insert(moved: Sequence[Job]) -> Any:
            return self._store.insert_within(connection, moved, *args, **options)

        return self.within(connection, jobs)._insert_and_tidy(jobs, insert)

    def within(self, connection: Any, jobs: Sequence[Job]) -> "PayloadStore":
        """What these jobs go through in a caller's transaction. Errors as of `insert_within`."""
        if not self._has_large(jobs):
            return self
        # First: for a connection that the store refuses nothing is written.
        values = self._store.kv_within(connection)
        if self._store.is_pooled or self.namespace.find():
            return self
        # All other writes would wait for the caller's.
        return self._like(self._store, self.namespace.within(values))

    def supersede(self, change: Change, job: Job, now: int) -> bool:
        moved = self._rewrite_jobs([job])
        with self._discard_if_refused(moved):
            is_stored = self._store.supersede(change, moved[0], now)
        if not is_stored:
            self._discard(moved)
        return is_stored

    def keep_result(self, job: Job, result: bytes) -> bytes:
        return self._move(job.id, RESULT, result)

    def _insert_and_tidy(self, jobs: Sequence[Job], insert: Callable[[Sequence[Job]], Any]) -> Any:
        if not self._has_large(jobs):
            return insert(jobs)
        moved = self._rewrite_jobs(jobs)
        with self._discard_if_refused(moved):
            found = insert(moved)
        # The key of such a job is held by another, or its queue is full.
        self._discard([job for job, id in zip(moved, found, strict=True) if id != job.id])
        return found

    def _has_large(self, jobs: Sequence[Job]) -> bool:
        # Most are small, and must not pay for the others.
        over = self.keeps_apart_over
        return any(len(job.body) > over or len(job.note) > over for job in jobs)

    def _rewrite_jobs(self, jobs: Iterable[Job]) -> list[Job]:
        moved: list[Job] = []
        try:
            moved += map(self._move_job, jobs)
        except PayloadUnavailable:
            self._discard(moved)
            raise
        return moved

    def _move_job(self, job: Job) -> Job:
        body = self._move_body(job.id, job.body)
        note = self._move(job.id, RESULT, job.note) if job.state is State.DONE else job.note
        return job if body is job.body and note is job.note else replace(job, body=body, note=note)

    def _rewrite_changes(self, changes: Iterable[Change]) -> list[Change]:
        over, given = self.keeps_apart_over, list(changes)
        if any(len(one.note) > over or (one.body is not None and len(one.body) > over) for one in given):
            return list(map(self._move_change, given))
        return given

    def _move_change(self, change: Change) -> Change:
        body = change.body and self._move_body(change.id, change.body)
        # Errors are bounded. Which nodes were added is no result: the flow goes by it.
        is_result = change.to is State.DONE and added_nodes(change.note) is None
        note = self._move(change.id, RESULT, change.note) if is_result else change.note
        return change if body is change.body and note is change.note else replace(change, body=body, note=note)

    def _move_body(self, id: bytes, body: bytes) -> bytes:
        if len(body) <= self.keeps_apart_over or is_root(id):
            return body
        envelope, arguments = split(id, body)
        moved = self._move(id, ARGUMENTS, arguments)
        return body if moved is arguments else envelope + moved

    def _move(self, id: bytes, field: str, value: bytes) -> bytes:
        """What stands in the record for this value."""
        if len(value) <= self.keeps_apart_over or is_apart(value):
            return value
        name = new_name(self.namespace.name(), id, field)
        self.place.write(name, value)
        return reference_to(name, len(value), _digest(value), self.place.url)

    # What was written in vain

    @contextlib.contextmanager
    def _discard_if_refused(self, moved: Sequence[Job]) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            # After any other error the jobs may be stored.
            if error.stored is False:
                self._discard(moved)
            raise

    def _discard(self, jobs: Collection[Job]) -> None:
        """Deletes what was written for jobs that are not stored."""
        bodies = [(job.id, split(job.id, job.body)[1]) for job in jobs]
        found = [read_reference(body, id, ARGUMENTS) for id, body in bodies if is_apart(body)]
        # The sweep finds what is left.
        with contextlib.suppress(PayloadUnavailable):
            self.place.delete([reference.name for reference in found if reference is not None])

    # On the way out

    def load_arguments(self, job: Job) -> Job:
        envelope, arguments = split(job.id, job.body)
        return replace(job, body=envelope + self._read(job, ARGUMENTS, arguments)) if is_apart(arguments) else job

    def load_result(self, job: Job) -> Job:
        return replace(job, note=self._read(job, RESULT, job.note)) if is_apart(job.note) else job

    def _read(self, job: Job, field: str, value: bytes) -> bytes:
        what = f"cannot read the {field} of {job.task} {ids.text(job.id)} ({describe_apart(value)})"
        reference = read_reference(value, job.id, field)
        if reference is None:
            raise PayloadLost(f"{what}: its record does not say where, in the form that tarry writes")
        # One byte more, so that a longer object shows: its end may never come.
        found = self.place.read(reference.name, reference.size + 1)
        if found is None and reference.place != self.place.url:
            # By another name it may be the same place, but this one need not be where it was written.
            raise PayloadUnavailable(
                f"{what}: {self.place.url}, [payloads] to of this process, has no {reference.name}; name the former"
                " place until none of its jobs is left, or copy what is there"
            )
        if found is None:
            raise PayloadLost(f"{what}: {self.place.url} has no {reference.name} any more")
        if len(found) != reference.size or _digest(found) != reference.digest:
            raise PayloadLost(f"{what}: {self.place.url} has other bytes than were written as {reference.name}")
        return found


class PayloadFlows(RewritingFlows):
    """The flows of a `PayloadStore`."""

    def __init__(self, flows: Any, store: PayloadStore) -> None:
        super().__init__(flows, store._rewrite_jobs)
        self._store = store

    def insert(self, new: NewFlow, now: int) -> bytes:
        return self._insert_moved(new, lambda moved: self._flows.insert(moved, now))

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        flows = self._store.within(connection, new.nodes).flows
        return flows._insert_moved(new, lambda moved: self._flows.insert_within(connection, moved, now))

    def _insert_moved(self, new: NewFlow, insert: Callable[[NewFlow], bytes]) -> bytes:
        moved = self._rewrite(new)
        id = insert(moved)
        if id != new.root.id:
            self._store._discard(moved.nodes)
        return id


def _digest(value: bytes) -> str:
    return blake2b(value, digest_size=_DIGEST).hexdigest()


class Namespace:
    """A random name that a store gets when it first keeps a payload: who sweeps the place touches no other."""

    def __init__(self, store: Store) -> None:
        self._store, self._name = store, ""
        # The same at each try: what was written for a transaction that was rolled back is swept then.
        self._new = uuid.uuid4().hex

    def find(self) -> str:
        """The name; empty if the store has none yet. StoreError."""
        if not self._name and (found := self._look()) is not None:
            self._name = _read(found)
        return self._name

    def name(self) -> str:
        """The name, 32 hexadecimal digits; StoreError."""
        try:
            if not self.find():
                # Of two that do this at once, one wins.
                self._store.kv_cas(NAMESPACE, self._new.encode(), None)
                self._name = _read(self._look())
        except PartlyUnavailable as error:
            # Whoever stores jobs would take its answer for one about these.
            raise StoreAway(str(error)) from None
        return self._name

    def _look(self) -> bytes | None:
        # Of several stores one that has it is enough.
        found, away = partial_result(lambda: self._store.kv_get(NAMESPACE))
        if found is None and away is not None:
            raise away
        return found

    def within(self, values: ValuesWithin) -> "Namespace":
        """The name as a caller's transaction sees it, which may be rolled back."""
        values.kv_cas(NAMESPACE, self._new.encode(), None)
        seen = Namespace(self._store)
        seen._name = _read(values.kv_get(NAMESPACE))
        return seen


def _read(cell: bytes | None) -> str:
    try:
        return uuid.UUID(hex=(cell or b"").decode()).hex
    except UNREADABLE:
        raise StoreError(f"the named value {NAMESPACE} of this store is not what tarry writes: remove it") from None
