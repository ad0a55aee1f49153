"""tarry's backend with what the tests of Django's two backends use of theirs."""

from collections.abc import Mapping
from typing import Any

from asgiref.sync import sync_to_async

from tarry.django.backend import TarryBackend
from tarry.store.rules.base import Query


class KeepingBackend(TarryBackend):
    """As Django's DummyBackend: nothing runs, and all results can be seen and cleared."""

    @property
    def results(self) -> list[Any]:
        return [self.app.result_of(job) for job in self.app.client.store.find(Query(limit=100))]

    def clear(self) -> None:
        for job in self.app.client.store.find(Query(limit=100)):
            self.app.client.cancel(job.id)
            self.app.client.forget(job.id)


class RunningBackend(TarryBackend):
    """As Django's ImmediateBackend: an enqueue returns when the job has run, once."""

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, {**params, "OPTIONS": {"retries": 0, **params.get("OPTIONS", {})}})

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.app.drain(timeout=30)
        result.refresh()
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        return await sync_to_async(self.enqueue)(task, args, kwargs)
