"""Makes handles: of jobs that are stored, of those that are not yet, and of those that hold the key of a new one."""

from collections.abc import Callable
from typing import Any

from tarry.client import duplicates
from tarry.client.handle import Handle, JobAccess
from tarry.client.witness import Witness
from tarry.model.job import Job
from tarry.store.base import Store
from tarry.tasks.lazily import asyncio
from tarry.tasks.options import Options


class Handles:
    """Of one client. access: where its handles look. now: by the store's clock."""

    def __init__(self, access: JobAccess, store: Store, now: Callable[[], int], witness: Witness | None) -> None:
        self._access, self._store, self._now, self._witness = access, store, now, witness

    def of(self, id: bytes, is_new: bool | None = False) -> Handle[Any]:
        """The handle of that job."""
        return Handle(self._access, id, is_new)

    def land(self, job: Job, lives: bytes, options: Options) -> Handle[Any]:
        """What to give back for a job that was inserted, and the id that the store answered."""
        return self.of(lives, True) if lives == job.id else self._duplicate(job, lives, options)

    async def aland(self, job: Job, lives: bytes, options: Options) -> Handle[Any]:
        """The same, awaited."""
        if lives == job.id:
            return self.of(lives, True)
        return await asyncio.to_thread(self._duplicate, job, lives, options)

    def settle(self, job: Job, holder: bytes, options: Options) -> bytes:
        """Under which id it lives after all, where another job holds the key; see `duplicates`."""
        lives = duplicates.settled(self._store, self._now, job, holder, options)
        if self._witness is not None and (lives == job.id or options.on_duplicate != "return"):
            there = self._store.get([lives])[0]
            self._witness.accepted([there or job], changed=lives != job.id)
        return lives

    def _duplicate(self, job: Job, holder: bytes, options: Options) -> Handle[Any]:
        lives = self.settle(job, holder, options)
        return self.of(lives, lives == job.id)
