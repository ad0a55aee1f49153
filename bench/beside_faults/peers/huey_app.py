"""Huey: RedisHuey, results off."""

import json
import os
from typing import Any

import huey as library
from huey import crontab, signals

from bench.beside_faults import tasks

huey = library.RedisHuey("beside", url=os.environ["BESIDE_BROKER"], results=False)
act = huey.task(name="act")(tasks.perform)

if json.loads(os.environ["BESIDE_SETTING"]).get("enqueue_interrupted"):

    @huey.signal(signals.SIGNAL_INTERRUPTED)
    def enqueue_again(signal: str, task: Any, *_: Any) -> None:
        huey.enqueue(task)


for number in range(tasks.SCHEDULES):
    huey.periodic_task(crontab(), name=f"tick_{number}")(lambda number=number: tasks.tick(number))


def put(job: str, deed: str, seconds: float, delay: float | None) -> None:
    if delay is None:
        act(job, deed, seconds)
    else:
        act.schedule((job, deed, seconds), delay=delay)
