"""Compares the configured pools with queues and tasks: which are not served, which could never run."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarry.client.queue_records import is_served, serves, waiting_by
from tarry.config.config import Config
from tarry.model.quantity import jobs_wait
from tarry.store.rules.base import Diagnostic, Tally

if TYPE_CHECKING:
    from tarry.client.tasks.task import Task


def find_unserved(config: Config, queues: Iterable[str]) -> list[str]:
    """The queues that no configured pool serves, sorted."""
    return sorted(queue for queue in queues if not is_served(config, queue))


def queue_facts(
    config: Config, tasks: "Iterable[Task[Any, Any]]", counts: Iterable[Tally], elsewhere: bool
) -> Iterator[Diagnostic]:
    """Yields a fact for each queue that has waiting jobs or a task but no pool. elsewhere: masters on other hosts are
    alive; their pools are not known here."""
    waiting = waiting_by(counts, lambda tally: tally.queue)
    goes: dict[str, list[str]] = {}
    for task in tasks:
        goes.setdefault(task.queue, []).append(task.name)
    # A pool of another host may serve the queue, so there is nothing certain to change.
    advice = "" if elsewhere else "no pool serves it: add it to the queues of one, in [pools.NAME]"
    for queue in find_unserved(config, waiting.keys() | goes.keys()):
        found = [jobs_wait(waiting[queue])] if queue in waiting else []
        found += [f"jobs of {', '.join(sorted(goes[queue]))} go there"] if queue in goes else []
        found += ["another host serves it, if any does"] if elsewhere else []
        yield Diagnostic(f"queue {queue}", "; ".join(found), advice)


def slot_facts(config: Config, tasks: "Iterable[Task[Any, Any]]") -> Iterator[Diagnostic]:
    """Yields a fact for each pool that serves tasks but has no slots for their kind."""
    # Their jobs would never run.
    tasks = list(tasks)
    for name, pool in config.pools.items():
        for is_async, slots, setting in ((False, pool.threads, "threads"), (True, pool.async_, "async")):
            stuck = [task.name for task in tasks if task.is_async is is_async and serves(pool, task.queue)]
            if stuck and not slots:
                kind = "async" if is_async else "sync"
                advice = f"they would never run: set {setting} to 1 or more, or let it serve other queues only"
                yield Diagnostic(
                    f"pool {name}", f"{setting} = 0, and takes jobs of {kind} tasks: {_some(stuck)}", advice
                )


def pid_file_facts(path: Path) -> Iterator[Diagnostic]:
    """Yields a fact if a master could not write its pid file."""
    # A master makes the missing directories, so the nearest one that exists decides.
    there = path if path.exists() else next(parent for parent in path.parents if parent.exists())
    usable = there.is_file() if there == path else there.is_dir()
    if not usable or not os.access(there, os.W_OK if there == path else os.W_OK | os.X_OK):
        yield Diagnostic(
            "pid file", str(path), f"{there} cannot be written to: set [master] pid_file to a place that can"
        )


def _some(names: list[str]) -> str:
    return ", ".join(sorted(names)[:5]) + (", ..." if len(names) > 5 else "")
