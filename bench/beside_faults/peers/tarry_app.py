"""tarry: as it comes."""

import os

from bench.beside_faults import tasks
from tarry import App, Cron

app = App(os.environ["BESIDE_BROKER"])


@app.task
def act(job: str, deed: str, seconds: float) -> None:
    tasks.perform(job, deed, seconds)


SCHEDULES = [Cron(tasks.MINUTES, args=(number,), name=f"tick-{number}") for number in range(tasks.SCHEDULES)]


@app.task(cron=SCHEDULES)
def tick(number: int) -> None:
    tasks.tick(number)


def put(job: str, deed: str, seconds: float, delay: float | None) -> None:
    (act if delay is None else act.using(delay=delay)).enqueue(job, deed, seconds)
