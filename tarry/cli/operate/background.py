"""Changes of many jobs, as commands make them: they ask first, and wait for the end."""

import time
from collections.abc import Iterator

from tarry.app import App
from tarry.cli.printing import confirm, progress_bar
from tarry.client.client import Client
from tarry.client.operations import registry
from tarry.client.operations.operation import Operation, count_jobs
from tarry.client.operations.runner import OperationRunner
from tarry.errors import StoreFull, TarryError
from tarry.model.quantity import quantity
from tarry.store.rules import owner

_POLL = 0.05
"""Seconds between two looks at how far an operation is."""


class NotConfirmed(TarryError):
    """The user did not say yes; that was told already."""


def ask(client: Client, operation: Operation, yes: bool) -> None:
    """Asks whether to do it, with the number of jobs; NotConfirmed. Of none it asks nothing."""
    total = 0 if operation.dry_run else count_jobs(client, operation.filter)
    match, them = ("matches", "it") if total == 1 else ("match", "them")
    if total and not confirm(f"{quantity(total)} {match}; {operation.act} {them}?", yes):
        raise NotConfirmed("not confirmed")


def finish(app: App, operation: Operation) -> Operation:
    """Runs the operation in this process to its end; Ctrl-C stops it. TarryError if it fails."""
    client = app.client
    runner = OperationRunner(lambda: client, owner.new_name(), prepare=app.sync_tasks, poll=_POLL)
    try:
        submitted = runner.submit(operation)
    except StoreFull:
        # To delete jobs is what makes room.
        if operation.act != "delete":
            raise
        return runner.run_unstored(operation)
    runner.start()
    try:
        ended = _wait(client, submitted)
    except KeyboardInterrupt:
        registry.stop(client.store, submitted.id, client.clock.now())
        raise
    finally:
        runner.close()
    if ended.state == "failed":
        raise TarryError(f"operation {ended.id}: {ended.trouble}")
    return ended


def _wait(client: Client, operation: Operation) -> Operation:
    def matched() -> Iterator[int]:
        """A number for each job that matched, as they come."""
        nonlocal operation
        seen = 0
        while not operation.is_ended:
            time.sleep(_POLL)
            operation, _ = registry.read(client.store, operation.id)
            yield from range(seen, operation.matched)
            seen = operation.matched

    for _ in progress_bar(matched(), None, "jobs"):
        pass
    return operation
