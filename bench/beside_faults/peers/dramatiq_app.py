"""Dramatiq: its default middleware. Schedules by APScheduler."""

import json
import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.beside_faults import tasks

broker = RedisBroker(url=os.environ["BESIDE_BROKER"], **json.loads(os.environ["BESIDE_SETTING"]))
dramatiq.set_broker(broker)
act = dramatiq.actor(tasks.perform, actor_name="act")
tick = dramatiq.actor(tasks.tick, actor_name="tick")


def put(job: str, deed: str, seconds: float, delay: float | None) -> None:
    act.send_with_options(args=(job, deed, seconds), delay=None if delay is None else int(delay * 1000))


def schedule() -> None:
    """Sends ticks until it is killed."""
    from apscheduler.schedulers.blocking import BlockingScheduler  # noqa: PLC0415 - the worker needs none
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415

    scheduler = BlockingScheduler()
    for number in range(tasks.SCHEDULES):
        scheduler.add_job(tick.send, CronTrigger.from_crontab(tasks.MINUTES), args=(number,))
    scheduler.start()


if __name__ == "__main__" and sys.argv[1:] == ["schedule"]:
    schedule()
