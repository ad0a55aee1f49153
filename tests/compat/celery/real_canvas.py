"""Runs the cases with the real Celery, in a process of its own: what it gives, as one line of JSON."""

# mypy: ignore-errors

import json
import logging
import os
import time
from typing import Any

import celery
from celery.contrib.testing.worker import start_worker
from celery.signals import before_task_publish

from tests.compat.celery.canvas_cases import OPTIONS, RUN, SENT, VALUES, define

# Celery counts half a second for each of its looks, and these are made to come 250 times sooner: a minute and more.
WITHIN = 20_000.0


def outcome(result: Any) -> Any:
    """The result, or the error, as JSON has it."""
    if result is None:
        return ["nothing"]
    try:
        return ["gave", result.get(timeout=WITHIN)]
    except Exception as error:
        return ["raised", type(error).__name__, str(error)]


def sent(m: Any) -> list[Any]:
    """What each case is sent with: of each call its task, queue, priority, whether it expires, time limit."""
    log: list[Any] = []

    def note(sender: str, headers: Any, routing_key: str, properties: Any, **rest: Any) -> None:
        facts = [routing_key, properties.get("priority") or 0, headers["expires"] is not None, headers["timelimit"][0]]
        log.append([sender, *facts])

    before_task_publish.connect(note, weak=False)
    found = []
    for case in SENT:
        for options in OPTIONS:
            log.clear()
            case(m).apply_async(**options).get(timeout=WITHIN)
            found.append(sorted(log, key=str))
    return found


def main() -> None:
    """Prints a line."""
    logging.disable(logging.CRITICAL)
    # Its loops look again after half a second, also for the parts of a chord.
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(seconds, 0.002))
    app = celery.Celery("real", broker="memory://", backend="cache+memory://")
    app.conf.update(task_default_queue="default", worker_hijack_root_logger=False, worker_redirect_stdouts=False)
    m = define(app, celery)
    results = [case(m) for case in RUN]
    with start_worker(app, pool="solo", perform_ping_check=False, queues="default,slow,own"):
        found = {
            "run": [outcome(result) for result in results],
            "values": [case(m) for case in VALUES],
            "sent": sent(m),
        }
        print(json.dumps(found), flush=True)
        # Its worker takes four seconds to stop.
        os._exit(0)


if __name__ == "__main__":
    main()
