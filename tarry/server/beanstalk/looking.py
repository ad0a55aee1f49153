"""Commands that look at the store, or change many jobs: peeks, statistics, `kick`, `pause-tube`."""

from collections.abc import Callable
from typing import TypeVar

from tarry.model.flow.wiring import split
from tarry.model.job import Job
from tarry.operate.access import Scope
from tarry.server.beanstalk import job_mapping, replies, stats
from tarry.server.beanstalk.command_parser import Command
from tarry.server.beanstalk.shared import DEFAULT_TUBE, BeanstalkDoor
from tarry.server.beanstalk.tube_choice import TubeChoice

R = TypeVar("R")


class StoreCall:
    """A call that blocks, and how its answer becomes a reply."""

    __slots__ = ("call", "make_reply")

    def __init__(self, call: Callable[[], R], make_reply: Callable[[R], bytes]) -> None:
        self.call: Callable[[], object] = call
        self.make_reply: Callable[..., bytes] = make_reply


class PeekCommands:
    """Of one connection. Each method gives the call to make, or the reply."""

    def __init__(self, door: BeanstalkDoor, tubes: TubeChoice) -> None:
        self._door, self._tubes = door, tubes

    def table(self) -> dict[str, Callable[[Command], StoreCall | bytes]]:
        """The methods by the verbs of their commands."""
        return {
            "kick": self.kick,
            "peek": self.peek,
            "peek-ready": self.peek_first,
            "peek-delayed": self.peek_first,
            "peek-buried": self.peek_first,
            "stats": self.stats,
            "stats-job": self.stats_job,
            "stats-tube": self.stats_tube,
            "list-tubes": self.list_tubes,
            "pause-tube": self.pause_tube,
        }

    def peek(self, command: Command) -> StoreCall | bytes:
        """Any job."""
        return self._look(command.number, self._found, with_body=True)

    def stats_job(self, command: Command) -> StoreCall | bytes:
        """Of any job."""
        door = self._door
        return self._look(command.number, lambda job: stats.job_stats(door, command.number, job, door.now()))

    def _found(self, job: Job) -> bytes:
        return replies.found(self._door.numbers.number(job.id), split(job.id, job.body)[1])

    def _look(self, number: int, make_reply: Callable[[Job], bytes], *, with_body: bool = False) -> StoreCall | bytes:
        door, rights = self._door, self._tubes.rights
        id = door.numbers.id(number)
        if id is None:
            return replies.NOT_FOUND

        def find() -> Job | None:
            (job,) = door.client.fetch([id])
            is_read = with_body and job is not None and rights.allows(Scope.READ, job.queue)
            return job and door.client.load_arguments(job) if is_read else job

        def reply(job: Job | None) -> bytes:
            if job is None or job_mapping.state_of(job, door.now()) is None or not rights.allows(Scope.READ, job.queue):
                return replies.NOT_FOUND
            return make_reply(job)

        return StoreCall(find, reply)

    def peek_first(self, command: Command) -> StoreCall:
        """The next job of the used tube that is ready, delayed or buried."""
        state, tube, door = command.verb.removeprefix("peek-"), self._tubes.used, self._door

        def find() -> Job | None:
            job = door.tubes.peek(state, tube, door.now())
            return job and door.client.load_arguments(job)

        return StoreCall(find, lambda job: replies.NOT_FOUND if job is None else self._found(job))

    def kick(self, command: Command) -> StoreCall:
        """Many jobs of the used tube."""
        tube, door = self._tubes.used, self._door
        return StoreCall(lambda: door.tubes.kick(tube, command.number, door.now()), replies.kicked)

    def stats_tube(self, command: Command) -> StoreCall:
        """Of any tube."""
        door, tube, now = self._door, command.tube, self._door.now()
        return StoreCall(
            lambda: (door.tubes.jobs(now, tube), door.pauses.get(tube, now)),
            lambda found: stats.tube_stats(door, tube, *found, now),
        )

    def stats(self, command: Command) -> StoreCall:
        """Of all."""
        door, now = self._door, self._door.now()
        return StoreCall(
            lambda: (door.tubes.jobs(now), door.tubes.names()),
            lambda found: stats.server_stats(door, found[0], len(found[1] | door.used_tubes() | {DEFAULT_TUBE})),
        )

    def list_tubes(self, command: Command) -> StoreCall:
        """All that have jobs, or that connections of this process use or watch."""
        door, rights = self._door, self._tubes.rights

        def reply(names: set[str]) -> bytes:
            found = [DEFAULT_TUBE, *sorted((names | door.used_tubes()) - {DEFAULT_TUBE})]
            return replies.names([tube for tube in found if rights.allows(Scope.READ, tube)])

        return StoreCall(door.tubes.names, reply)

    def pause_tube(self, command: Command) -> StoreCall:
        """For a time."""
        door, tube, seconds, now = self._door, command.tube, command.seconds, self._door.now()
        is_known = door.is_known(tube)

        def pause() -> bool:
            if is_known or tube in door.tubes.names():
                door.pauses.pause(tube, seconds, now)
                return True
            return False

        def reply(is_paused: bool) -> bytes:
            if is_paused:
                door.tube(tube).pauses += 1
                door.resume_after(seconds)
            return replies.PAUSED if is_paused else replies.NOT_FOUND

        return StoreCall(pause, reply)
