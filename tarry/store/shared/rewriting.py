"""What stands before a store and changes what jobs say on its way in."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store.rules.base import Exchange, Store
from tarry.store.rules.flows import NewFlow, StoreFlows
from tarry.store.shared.proxy import Proxy


class RewritingStore(Proxy):
    """The verbs that take jobs, and changes of them; all others are those of the store within."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    def _rewrite_jobs(self, jobs: Iterable[Job]) -> list[Job]:
        """These jobs, as the store within gets them."""
        raise NotImplementedError

    def _rewrite_changes(self, changes: Iterable[Change]) -> list[Change]:
        """These changes, as the store within gets them."""
        raise NotImplementedError

    def insert(self, jobs: Sequence[Job]) -> Any:
        return self._store.insert(self._rewrite_jobs(jobs))

    def insert_bounded(self, jobs: Sequence[Job], *args: Any, **options: Any) -> Any:
        return self._store.insert_bounded(self._rewrite_jobs(jobs), *args, **options)

    def insert_within(self, connection: Any, jobs: Sequence[Job], *args: Any, **options: Any) -> Any:
        return self._store.insert_within(connection, self._rewrite_jobs(jobs), *args, **options)

    def supersede(self, change: Change, job: Job, now: int) -> bool:
        return self._store.supersede(self._rewrite_changes([change])[0], self._rewrite_jobs([job])[0], now)

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        return self._store.apply(self._rewrite_changes(changes), now)

    def exchange(self, changes: Sequence[Change], *args: Any, **options: Any) -> Exchange:
        return self._store.exchange(self._rewrite_changes(changes), *args, **options)


class RewritingFlows(Proxy):
    """The same for flows. rewrite_jobs: of the store to which they belong."""

    def __init__(self, flows: StoreFlows, rewrite_jobs: Callable[[Iterable[Job]], list[Job]]) -> None:
        super().__init__(flows)
        self._flows, self._rewrite_jobs = flows, rewrite_jobs

    def insert(self, new: NewFlow, now: int) -> bytes:
        return self._flows.insert(self._rewrite(new), now)

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        return self._flows.insert_within(connection, self._rewrite(new), now)

    def add_nodes(self, jobs: Sequence[Job]) -> None:
        self._flows.add_nodes(self._rewrite_jobs(jobs))

    def _rewrite(self, new: NewFlow) -> NewFlow:
        return replace(new, root=self._rewrite_jobs([new.root])[0], nodes=self._rewrite_jobs(new.nodes))
