"""Changes of many jobs, as commands make them: they ask first, and wait for the end."""

import contextlib
from collections.abc import Iterator

from tarry.app import App
from tarry.cli.shared.printing import NotConfirmed, confirm, progress_bar
from tarry.client.client import Client
from tarry.client.operations.operation import Operation, count_jobs
from tarry.client.operations.runner import OperationRunner
from tarry.errors import TarryError
from tarry.model.quantity import quantity
from tarry.store.rules import owner


def ask(client: Client, operation: Operation, yes: bool) -> None:
    """Asks whether to do it, with the number of jobs; NotConfirmed. Of none it asks nothing."""
    total = 0 if operation.dry_run else count_jobs(client, operation.filter)
    match, them = ("matches", "it") if total == 1 else ("match", "them")
    if total and not confirm(f"{quantity(total)} {match}; {operation.act} {them}?", yes):
        raise NotConfirmed("not confirmed")


def finish(app: App, operation: Operation) -> Operation:
    """Runs the operation in this process to its end; Ctrl-C stops it. StoreError; TarryError if it fails."""
    client = app.client
    runner = OperationRunner(lambda: client, owner.new_name(), prepare=app.sync_tasks)

    def matched(pages: Iterator[Operation]) -> Iterator[int]:
        """A number for each job that matched, as they come."""
        nonlocal operation
        for one in pages:
            yield from range(operation.matched, one.matched)
            operation = one

    with contextlib.closing(runner.run(operation)) as pages:
        for _ in progress_bar(matched(pages), None, "jobs"):
            pass
    if operation.state == "failed":
        raise TarryError(f"operation {operation.id}: {operation.trouble}")
    return operation
