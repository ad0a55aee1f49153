"""RQ: forking workers."""

import json
import os
from datetime import timedelta

import redis
import rq
from rq import Retry

from bench.beside_faults import tasks

setting = json.loads(os.environ["BESIDE_SETTING"])
queue = rq.Queue("beside", connection=redis.Redis.from_url(os.environ["BESIDE_BROKER"]))


def put(job: str, deed: str, seconds: float, delay: float | None) -> None:
    retry = Retry(max=setting["retry"]) if "retry" in setting else None
    if delay is None:
        queue.enqueue(tasks.perform, job, deed, seconds, job_id=job, retry=retry)
    else:
        queue.enqueue_in(timedelta(seconds=delay), tasks.perform, job, deed, seconds, job_id=job, retry=retry)
