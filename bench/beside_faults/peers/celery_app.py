"""Celery: prefork, no result backend."""

import json
import os
from typing import Any

import celery
from celery.schedules import crontab

from bench.beside_faults import tasks

app = celery.Celery("beside", broker=os.environ["BESIDE_BROKER"])
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
app.conf.update(json.loads(os.environ["BESIDE_SETTING"]))
app.conf.beat_schedule = {
    f"tick-{number}": {"task": "tick", "schedule": crontab(), "args": (number,)} for number in range(tasks.SCHEDULES)
}

act: Any = app.task(tasks.perform, name="act")
tick: Any = app.task(tasks.tick, name="tick")


def put(job: str, deed: str, seconds: float, delay: float | None) -> None:
    act.apply_async((job, deed, seconds), countdown=delay, task_id=job)
