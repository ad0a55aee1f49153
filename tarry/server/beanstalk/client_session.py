"""One client of the door: what it puts, takes and looks at. No I/O of its own."""

from collections.abc import Callable
from typing import Any

from tarry.client.handle import Handle
from tarry.errors import BodyTooLarge, Busy, Draining
from tarry.model.job import Job
from tarry.model.values.connection_records import MOST_TEXT
from tarry.server.beanstalk import job_mapping, replies
from tarry.server.beanstalk.command_parser import Command
from tarry.server.beanstalk.conversation import Conversation, or_error
from tarry.server.beanstalk.looking import PeekCommands
from tarry.server.beanstalk.shared import BeanstalkDoor, add
from tarry.server.beanstalk.taking import ReserveCommands
from tarry.server.beanstalk.tube_choice import TubeChoice
from tarry.server.open_connections.activity import Activity
from tarry.tasks.arguments.options import NO_OPTIONS

PUTS_TOGETHER = 1000
"""Puts of one client that are committed together at most."""
_NO_COMMANDS = frozenset({"refused", "browser"})
_WORKER_VERBS = frozenset({"reserve", "reserve-with-timeout", "reserve-job"})


class Session:
    """The state of one connection. write: sends bytes to the client; close: ends the connection once they are sent.

    All is called on the event loop's thread.
    """

    def __init__(
        self, door: BeanstalkDoor, write: Callable[[bytes], None], close: Callable[[], None], address: str = ""
    ) -> None:
        self._door = door
        self._conversation = talk = Conversation(door, write, close)
        self._tubes = tubes = TubeChoice(door, address)
        self._taking = taking = ReserveCommands(talk, tubes, self._reply)
        self._puts: list[Job] = []
        self._roles: set[str] = set()
        self._is_ended = self._is_draining = self._has_client_ended = False
        self._do: dict[str, Callable[[Command], object]] = {
            "refused": lambda command: talk.write(command.answer),
            "put": lambda command: talk.write(replies.OUT_OF_MEMORY),
            "quit": lambda command: talk.quit(),
            "auth": lambda command: talk.write(tubes.rights.authenticate(command.body)),
            "browser": lambda command: self._drop_browser(),
            "use": lambda command: talk.write(tubes.use(command.tube)),
            "watch": lambda command: talk.write(tubes.watch(command.tube)),
            "ignore": lambda command: talk.write(tubes.ignore(command.tube)),
            "list-tube-used": lambda command: talk.write(replies.using(tubes.used)),
            "list-tubes-watched": lambda command: talk.write(replies.names(tubes.watched)),
            "reserve": taking.reserve,
            "reserve-with-timeout": taking.reserve,
            "reserve-job": taking.reserve_job,
            "delete": taking.delete,
            "release": taking.release,
            "bury": taking.bury,
            "touch": taking.touch,
            "kick-job": taking.kick_job,
        }
        self._look = PeekCommands(door, tubes).table()
        add(door.counts, "connections", 1)
        door.counts["total-connections"] += 1

    # What the connection tells

    @property
    def buffered(self) -> int:
        """Bytes that came and are not understood yet."""
        return self._conversation.buffered

    @property
    def caller_name(self) -> str:
        """Of the token that its client has sent; empty: none."""
        return self._tubes.rights.name

    def activity(self) -> Activity:
        """What its client does now. In any thread."""
        held, verb = self._taking.reserved, self._conversation.verb
        if self._taking.is_waiting:
            return Activity("waiting", verb, f"jobs of {', '.join(self._tubes.watched)}"[:MOST_TEXT], held)
        return Activity("working", verb, "", held) if self._conversation.is_busy else Activity("idle", held=held)

    def feed(self, data: bytes) -> None:
        """Bytes came from the client."""
        self._conversation.feed(data)
        self._conversation.run(self)

    def hold_up(self, is_held_up: bool) -> None:
        """The client reads its answers too slowly, or fast enough again."""
        self._conversation.hold_up(is_held_up)
        self._conversation.run(self)

    def half_close(self) -> None:
        """The client sends nothing more: it gets its answers, then the connection ends."""
        self._has_client_ended = True
        self._end_after_answers()

    def _end_after_answers(self) -> None:
        self._conversation.is_half_closed = True
        self._taking.stop_waiting()
        self._conversation.run(self)

    def drain(self) -> None:
        """The server is about to end: the connection ends as soon as the client has nothing reserved and takes
        no more."""
        self._is_draining = True
        if not self._taking.reserved:
            self._end_after_answers()

    def end(self) -> None:
        """The connection is gone: gives back what was reserved."""
        if self._is_ended:
            return
        self._is_ended = True
        self._conversation.stop()
        self._taking.close()
        self._tubes.close()
        for role in ("connections", *self._roles):
            add(self._door.counts, role, -1)

    # What the conversation tells

    def put(self, command: Command) -> bool:
        """See `Commands`. Without numbers for new jobs it is answered as any other command."""
        door = self._door
        if len(self._puts) >= PUTS_TOGETHER or not door.numbers.is_ready or self._tubes.refusal(command):
            return False
        door.counts["put"] += 1
        self._add_role("producers")
        job = job_mapping.new_job(door.new_id(), self._tubes.used, command, door.now(), door.client.clock.unsure)
        self._puts.append(job)
        return True

    def send_puts(self) -> bool:
        """See `Commands`."""
        jobs, self._puts = self._puts, []
        if jobs:
            self._conversation.begin()
            # Before the jobs are there: else a worker of "*" could take them, and put them off.
            self._door.mark_tube(self._tubes.used, lambda: self._put_all(jobs))
        return bool(jobs)

    def _put_all(self, jobs: list[Job]) -> None:
        self._door.ring.put(jobs, [NO_OPTIONS] * len(jobs), self._on_put)

    def do(self, command: Command) -> None:
        """See `Commands`."""
        verb = command.verb
        if counted := command.counted if verb in _NO_COMMANDS else verb:
            self._door.counts[counted] += 1
        if refusal := self._tubes.refusal(command):
            self._conversation.write(refusal)
            return
        if verb in _WORKER_VERBS:
            if verb != "reserve-job":
                self._add_role("workers")
            if self._is_draining and not self._taking.reserved:
                # Between two jobs: the client does its next ones through another process.
                self._conversation.quit()
                return
        look = self._look.get(verb)
        if look is None:
            self._do[verb](command)
            return
        found = look(command)
        if isinstance(found, bytes):
            self._conversation.write(found)
        else:
            self._conversation.begin()
            self._door.call(found.call, lambda answer: self._reply(or_error(answer, found.make_reply)))

    def _on_put(self, stored: list[Handle[Any] | Exception]) -> None:
        counts, numbers = self._door.tube(self._tubes.used), self._door.numbers
        answers = []
        for each in stored:
            if isinstance(each, Exception):
                answers.append(_put_error(each))
            else:
                counts.jobs += 1
                answers.append(replies.inserted(numbers.number(each._id)))
        self._door.counts["jobs"] += len(answers)
        self._reply(b"".join(answers))

    def _reply(self, answer: bytes) -> None:
        self._conversation.end(answer)
        if self._taking.reserved:
            # Also by `reserve-job`, which makes nobody a worker if there is no such job.
            self._add_role("workers")
        if self._is_draining and self._taking.reserved and not self._has_client_ended:
            # It was given a job meanwhile: the connection goes on until that is done.
            self._conversation.is_half_closed = False
        self._conversation.run(self)

    def _drop_browser(self) -> None:
        self._door.log_browser()
        self._conversation.quit()

    def _add_role(self, role: str) -> None:
        if role not in self._roles:
            self._roles.add(role)
            add(self._door.counts, role, 1)


def _put_error(error: Exception) -> bytes:
    if isinstance(error, Draining):
        return replies.DRAINING
    if isinstance(error, BodyTooLarge):
        return replies.JOB_TOO_BIG
    # What is surely not stored may be sent again, which is what clients read in this answer.
    is_sure = isinstance(error, Busy) or getattr(error, "stored", None) is False
    return replies.OUT_OF_MEMORY if is_sure else replies.INTERNAL_ERROR
