"""The processes of a master: the groups of its roles, the canary of a reload, and the deaths to report."""

import select
from collections.abc import Iterable
from math import ceil

from tarry.runtime.board.layout import RESTING, SERVING
from tarry.runtime.board.reader import SERVER
from tarry.runtime.child_process import ChildProcess
from tarry.runtime.pipe import PipeMessage
from tarry.runtime.process_group import ProcessGroup
from tarry.runtime.role import KEEPER


class Processes:
    """All children of the master. Groups have the key (role, pool)."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str], ProcessGroup] = {}
        self.canary: ChildProcess | None = None

    def all(self) -> list[ChildProcess]:
        """Every child, those that wait for their start included."""
        children = [child for group in self.groups.values() for child in group.children]
        return children if self.canary is None else [*children, self.canary]

    def pids(self) -> list[int]:
        """The pids of the living children."""
        return [child.pid for child in self.all() if child.pid]

    def workers(self) -> list[ChildProcess]:
        """The living children that are not keepers."""
        return [child for child in self.all() if child.pid and not child.is_keeper]

    def unconfirmed(self, generation: int) -> list[ChildProcess]:
        """The processes of other generations that may still take jobs: they have not confirmed that they are to end."""
        leaving = [child for child in self.all() if child.pid and child.stopping_since]
        return [child for child in leaving if child.generation != generation and not child.has_confirmed_stop]

    def ready_keepers(self) -> list[ChildProcess]:
        """The keepers to which messages can be sent."""
        return [child for child in self.all() if child.is_keeper and child.is_ready]

    def pools(self) -> list[ProcessGroup]:
        """The groups of workers, one for each pool."""
        return [group for group in self.groups.values() if group.role.pool]

    def worker_groups(self) -> list[ProcessGroup]:
        """All groups but the keeper's."""
        return [group for group in self.groups.values() if group.role.name != KEEPER]

    def wait_for_news(self, also: int, seconds: float) -> None:
        """Waits until a child sends a message or ends, or the descriptor `also` is readable; at most so long."""
        sleeper = select.poll()
        sleeper.register(also, select.POLLIN)
        for child in self.all():
            # A pipe at its end is always readable: the loop would never sleep.
            if child.pipe is not None and not child.pipe.at_eof:
                sleeper.register(child.pipe, select.POLLIN | (select.POLLOUT if child.pipe.has_unsent else 0))
        sleeper.poll(ceil(seconds * 1000))

    def reconcile(self, now: float, state: str) -> list[ChildProcess]:
        """Takes a step towards the wanted processes; returns the places where one is to be started now."""
        due = []
        for group in self.groups.values():
            # Without servers, whoever puts a job would wait for an answer until the rest is over.
            group.is_resting = state == RESTING and group.role.name not in (KEEPER, SERVER)
            if state == SERVING:
                for child in group.children:
                    child.kill_if_over_memory()
                    child.check_recycling(now)
            group.reconcile(now)
            due += group.due_to_start(now)
        return due

    def group_of(self, child: ChildProcess) -> ProcessGroup | None:
        """The child's group; None for a canary, and for a child that has been removed."""
        return next((group for group in self.groups.values() if child in group.children), None)


class DeathReports:
    """Deaths of processes that claimed jobs. Each is sent to the keepers until one has brought the jobs back."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._unconfirmed: dict[str, PipeMessage] = {}

    def owners(self) -> list[str]:
        """The owners whose deaths no keeper has confirmed yet."""
        return list(self._unconfirmed)

    def report(self, message: PipeMessage) -> None:
        """Sends a death to the keepers."""
        # Kept, since a keeper may die before it has brought the jobs back.
        self._unconfirmed[message["gone"]] = message
        for keeper in self._processes.ready_keepers():
            keeper.send(message)

    def resend(self, keepers: Iterable[ChildProcess]) -> None:
        """Sends all unconfirmed deaths to these keepers."""
        for keeper in keepers:
            for message in self._unconfirmed.values():
                keeper.send(message)

    def confirm(self, owner: str) -> None:
        """A keeper has brought back that owner's jobs."""
        self._unconfirmed.pop(owner, None)
