"""An app that was written for Celery: its files, as text, before anything was changed."""

APP = """
from celery import Celery
from celery.schedules import crontab

app = Celery("shop", broker="redis://localhost:6379/0", include=["shop.tasks"])
app.conf.update(
    task_default_queue="celery",
    task_routes={"shop.tasks.send_*": {"queue": "mail"}},
    timezone="Europe/Paris",
    beat_schedule={
        "tick": {"task": "shop.tasks.tick", "schedule": 1.0},
        "tick-in-mail": {
            "task": "shop.tasks.tick", "schedule": 1.0, "args": ("mail",), "options": {"queue": "mail", "expires": 60},
        },
        "nightly": {"task": "shop.tasks.tick", "schedule": crontab(hour=3, minute=0)},
    },
)
"""

TASKS = """
import json
import os
import time
from pathlib import Path

from celery import Task, chain, chord, group, shared_task
from celery.exceptions import SoftTimeLimitExceeded
from celery.signals import task_failure, task_postrun, worker_process_init, worker_process_shutdown

from .celery import app

HERE = Path(__file__).parent.parent
VERSION = 1


def tell(what, **more):
    line = json.dumps({"what": what, "pid": os.getpid(), **more}).encode() + b"\\n"
    fd = os.open(HERE / "celery_ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line)
    os.close(fd)


@worker_process_init.connect
def begin(**kwargs):
    tell("worker begins")


@worker_process_shutdown.connect
def end(**kwargs):
    tell("worker ends")


@task_postrun.connect
def ended(task_id=None, task=None, state=None, **kwargs):
    tell("postrun", task=task.name, id=task_id, state=state)


@task_failure.connect
def has_failed(sender=None, task_id=None, exception=None, **kwargs):
    tell("failure", task=sender.name, id=task_id, error=str(exception))


class Told(Task):
    def on_success(self, retval, task_id, args, kwargs):
        tell("told", value=retval)


@shared_task
def add(x, y):
    return x + y


@shared_task
def total(numbers):
    return sum(numbers)


@app.task(base=Told)
def version():
    return VERSION


@shared_task(bind=True, max_retries=3, default_retry_delay=1)
def send_mail(self, address):
    try:
        if self.request.retries < 2:
            raise ConnectionError("no route")
    except ConnectionError as error:
        raise self.retry(exc=error, countdown=0.5)
    return [address, self.request.retries, self.request.delivery_info["routing_key"]]


@shared_task(bind=True, autoretry_for=(OSError,), retry_backoff=1, retry_jitter=False, max_retries=2)
def fetch(self, url):
    if self.request.retries < 1:
        raise OSError(url)
    return [url, self.request.retries]


@shared_task(bind=True, autoretry_for=(OSError,), max_retries=1, default_retry_delay=0)
def never(self):
    raise OSError("for ever")


@shared_task(soft_time_limit=1)
def slow():
    try:
        while True:
            time.sleep(0.01)
    except SoftTimeLimitExceeded:
        return "stopped"


@shared_task(bind=True)
def hold(self, gate):
    tell("holds", id=self.request.id)
    while not (HERE / gate).exists():
        time.sleep(0.01)
    return [gate, self.request.retries]


@shared_task
def tick(where="celery"):
    tell("tick", where=where)


@shared_task
def note(value, mark=""):
    tell("note", value=value, mark=mark)


@shared_task
def failed(request, exc, traceback):
    tell("errback", task=request.task, error=str(exc))
"""

PRODUCER = """
import datetime as dt
import json

from celery import chain, chord, group
from shop.tasks import *

soon = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=1)
sent = {
    "delay": add.delay(1, 2),
    "countdown": add.apply_async((2, 2), countdown=1),
    "eta": add.apply_async(args=[3, 2], eta=soon),
    "priority": add.apply_async((4, 2), priority=9),
    "queue": add.apply_async((5, 2), queue="mail"),
    "retry": send_mail.delay("ann@example.org"),
    "autoretry": fetch.delay("u"),
    "never": never.apply_async(link_error=failed.s()),
    "soft limit": slow.delay(),
    "expires": add.apply_async((6, 2), countdown=2, expires=1),
    "link": add.apply_async((7, 2), link=note.s(mark="linked")),
    "by name": app.send_task("shop.tasks.add", (8, 2)),
    "version": version.delay(),
}
flows = {
    "chain": chain(add.s(1, 1), add.s(1), add.s(1)).delay(),
    "group": group(add.s(n, n) for n in range(5)).delay(),
    "chord": chord((add.s(n, 1) for n in range(5)), total.s()).delay(),
    "mixed": (group(add.s(1, 1), send_mail.si("bob")) | note.s(mark="both")).apply_async(),
}
for name in sent:
    found = sent[name].get(timeout=90, propagate=False)
    sent[name] = [sent[name].state, str(found) if isinstance(found, BaseException) else found]
for name in flows:
    result = flows[name].get(timeout=90)
    sent[name] = [flows[name].state, result]
print(json.dumps(sent))
"""


def moved(text: str) -> str:
    """The text with its imports changed, and nothing else."""
    return text.replace("from celery", "from tarry.compat.celery")
