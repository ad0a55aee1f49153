"""An extension for Flask: an app whose jobs run in Flask's application context."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from flask import Flask

from tarry.app import App
from tarry.model.retry import RetryRule
from tarry.store.rules.base import Store
from tarry.tasks.running import CurrentJob


class Tarry(App):
    """`jobs = Tarry()`, and in the factory `jobs.init_app(flask)`.

    The arguments are those of `App`. The context is around each run of a task and its middleware; not around hooks,
    and not around tasks with `batch=`.
    """

    def __init__(
        self,
        store: str | Sequence[str] | Store | None = None,
        *,
        retry: RetryRule = "default",
        outbox: str | Path | None = None,
        closures: bool = False,
    ) -> None:
        super().__init__(store, retry=retry, outbox=outbox, closures=closures)
        self._flask: Flask | None = None
        # Now, before anybody else can: so the middleware of tasks has the context, too.
        self.middleware("run")(self._run_within_context)

    def init_app(self, flask: Flask) -> None:
        """Makes this the app of `flask`, in `flask.extensions["tarry"]`.

        `flask.config["TARRY_STORE"]` is the store, if it is set. Called again, as by a factory in tests, the last one
        counts.
        """
        store = flask.config.get("TARRY_STORE")
        if store is not None and store != self._given:
            # What was opened before is another store.
            self.close()
            self._given = store
        self._flask = flask
        flask.extensions["tarry"] = self

    def _run_within_context(self, job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
        if self._flask is None:
            return call_next(job)
        if job.is_async:
            return self._arun_within_context(self._flask, job, call_next)
        with self._flask.app_context():
            return call_next(job)

    async def _arun_within_context(
        self, flask: Flask, job: CurrentJob, call_next: Callable[[CurrentJob], Awaitable[Any]]
    ) -> Any:
        with flask.app_context():
            return await call_next(job)
