"""Queues: all of them, and one."""

from tarry.door.console.act import ConsoleAct
from tarry.door.console.page import ConsolePage, PageData, console_page
from tarry.door.http.hosts import list_workers
from tarry.door.http.jobs import JobsQuery, list_jobs
from tarry.door.http.method import ApiCall
from tarry.door.http.queues import QueuePath, get_queue, list_queues, pause_queue, purge_queue, resume_queue
from tarry.model.job import State

_SHOWN = 20
"""Jobs of a queue that its page lists."""


@console_page("/queues", "queues.html")
def queues_page(call: ApiCall) -> PageData:
    """All queues."""
    return {"queues": list_queues.handler(call).queues}


@console_page("/queues/{queue}", "queue.html")
def queue_page(call: ApiCall, path: QueuePath) -> PageData:
    """One queue: its figures, jobs that wait, and who works on it."""
    workers = list_workers.handler(call).workers
    waiting = list_jobs.handler(call, JobsQuery([State.READY], path.queue, limit=_SHOWN))
    return {
        "queue": get_queue.handler(call, path),
        "waiting": waiting.jobs,
        "running": [(one.worker, job) for one in workers for job in one.jobs if job.queue == path.queue],
    }


PAGES: tuple[ConsolePage, ...] = (queues_page, queue_page)
ACTS = (
    ConsoleAct(pause_queue, "Queue {queue} is paused: none of its jobs starts."),
    ConsoleAct(resume_queue, "Queue {queue} is resumed."),
    ConsoleAct(purge_queue, "The purge has begun.", lambda one: f"/operations/{one.id}"),
)
