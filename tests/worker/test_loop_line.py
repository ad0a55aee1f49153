"""A job that is called back while it stands in a loop's line."""

import asyncio
from functools import partial

from tarry import App
from tarry.model.job import Job
from tarry.model.outcome import Released, Returned
from tarry.store.rules.ids import uuid7
from tarry.tasks.interrupts import CalledBack
from tarry.tasks.running import Running
from tarry.worker.run.context import AttemptContext, never_final
from tarry.worker.run.loop import LoopRunner
from tarry.worker.run.runner import OutcomeQueue
from tests.worker.bench import until


def test_it_never_begins_and_those_behind_it_do() -> None:
    app, begun = App("memory:", closures=True), list[int]()
    gate = asyncio.Event()

    @app.task(name="one")
    async def one(n: int) -> int:
        begun.append(n)
        if n == 0:
            await gate.wait()
        return n

    loop = LoopRunner(1, outcomes := OutcomeQueue(lambda: None), partial(AttemptContext, 2**20, never_final, None), 0)
    all = [Running(Job(uuid7(), "one", b"[%d]" % n), app.tasks["one"]) for n in range(3)]
    loop.put(all)
    until(lambda: begun == [0])
    loop.interrupt(all[1], CalledBack)
    until(lambda: all[1].interrupt)
    loop._soon(gate.set)
    until(lambda: len(outcomes.ended) == 3)
    loop.stop()
    found = {running.job.body: outcome for running, outcome in outcomes.ended}
    assert found == {b"[0]": Returned(b"0"), b"[1]": Released(), b"[2]": Returned(b"2")}
    assert begun == [0, 2]
