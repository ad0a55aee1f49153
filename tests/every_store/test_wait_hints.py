"""Who waits for a job in vain learns why, on every store."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tarry import App, ResultTimeout
from tarry.client import waiting
from tarry.store.queries.hosts import Host, PoolFigures

UNSERVED = "no live worker of a master serves queue mail; start one with `tarry start`"


@pytest.fixture
def mail(app: App) -> Any:
    return app.task(name="mail", queue="mail")(_nothing)


def _nothing() -> None: ...


CASES: dict[str, tuple[Callable[[App, Any], Any], str]] = {
    "ready": (lambda app, mail: mail.enqueue(), f"; {UNSERVED}"),
    "scheduled": (
        lambda app, mail: mail.using(at=4_000_000_000).enqueue(),
        "; it is scheduled for 2096-10-02 07:06:40+00:00",
    ),
    "flow": (lambda app, mail: app.group([mail.call(), mail.call()]), f"; {UNSERVED}"),
}


def test_a_timeout_says_what_the_job_waits_for(app: App, mail: Any) -> None:
    for name, (make, why) in CASES.items():
        job = make(app, mail)
        with pytest.raises(ResultTimeout) as caught:
            job.result(timeout=0)
        assert str(caught.value).endswith(f" has not finished after 0 s{why}"), name
        with pytest.raises(ResultTimeout) as caught:
            asyncio.run(job.aresult(timeout=0))
        assert str(caught.value).endswith(f" has not finished after 0 s{why}"), name


def test_a_pool_that_serves_the_queue_is_no_reason(app: App, mail: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job, pool = mail.enqueue(), PoolFigures("default", workers=1, queues=["*"])
    monkeypatch.setattr("tarry.store.queries.unfinished.list_hosts", lambda store: [Host("one", "one", pools=[pool])])
    with pytest.raises(ResultTimeout, match=r"has not finished after 0 s$"):
        job.result(timeout=0)


def test_a_wait_without_end_logs_it_once(
    app: App, mail: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "HINT_AFTER", 0.05)
    caplog.set_level(logging.WARNING, "tarry.client")

    def said() -> list[str]:
        return [one.getMessage() for one in caplog.records if " waits: " in one.getMessage()]

    async def wait_for(job: Any, many: int) -> None:
        waits = asyncio.create_task(job.aresult())
        async with asyncio.timeout(20):
            while len(said()) < many:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(job.cancel)
        with pytest.raises(Exception, match="cancelled"):
            await waits

    job = mail.enqueue()
    asyncio.run(wait_for(job, 1))
    assert said() == [f"job {job.id} waits: {UNSERVED}"]
    other = mail.enqueue()

    async def sync_wait() -> None:
        waits = asyncio.create_task(asyncio.to_thread(other.result))
        async with asyncio.timeout(20):
            while len(said()) < 2:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(other.cancel)
        with pytest.raises(Exception, match="cancelled"):
            await waits

    asyncio.run(sync_wait())
    assert said()[1:] == [f"job {other.id} waits: {UNSERVED}"]
