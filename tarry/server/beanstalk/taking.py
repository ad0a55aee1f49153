"""Commands of workers: they take jobs and end them."""

from collections.abc import Callable
from functools import partial

from tarry.errors import Busy, Draining, StoreError
from tarry.model.flow.wiring import split
from tarry.model.job import Job
from tarry.operate.access import Scope
from tarry.server.beanstalk import job_mapping, replies
from tarry.server.beanstalk.command_parser import Command
from tarry.server.beanstalk.conversation import Conversation, or_error
from tarry.server.beanstalk.reservations import Reservations
from tarry.server.beanstalk.reserve_job import reserve_job
from tarry.server.beanstalk.shared import Held, TakeTicket, add
from tarry.server.beanstalk.tube_choice import TubeChoice
from tarry.server.claim_requests import Rule

MakeReply = Callable[[Job], bytes]


class ReserveCommands:
    """Of one connection. reply: ends the command that was begun with these bytes."""

    def __init__(self, conversation: Conversation, tubes: TubeChoice, reply: Callable[[bytes], None]) -> None:
        self._conversation, self._tubes, self._reply = conversation, tubes, reply
        self._door = conversation.door
        self._reservations = Reservations(self._door, self.stop_waiting)
        self._ticket: TakeTicket | None = None
        self._is_over = self._is_waiting = False

    @property
    def reserved(self) -> int:
        """How many jobs the connection has reserved."""
        return len(self._reservations)

    @property
    def is_waiting(self) -> bool:
        """Whether its client waits for a job."""
        return self._is_waiting

    def close(self) -> None:
        """The connection is gone: all that it had reserved is ready again."""
        self._is_over = True
        self._end_wait()
        self._reservations.give_back()

    # Taking

    def reserve(self, command: Command) -> None:
        """The next job of the watched tubes."""
        self._conversation.begin()
        at_once = self._conversation.is_half_closed or self._reservations.is_deadline_soon
        wait = 0.0 if at_once else float(command.seconds) if command.verb == "reserve-with-timeout" else None
        self._begin_wait()
        self._reservations.watch_margin(not at_once)
        try:
            self._ticket = self._door.claims.take(self._tubes.takeable(), self._on_taken, wait=wait)
        except (Busy, Draining) as error:
            self._on_taken(error)

    def reserve_job(self, command: Command) -> None:
        """A job by its number."""
        id = self._find(command.number)
        if id is not None:
            self._conversation.begin()
            self._door.call(
                partial(
                    reserve_job, self._door, id, self._door.claims.owner, self._tubes.rights.guard_tube(Scope.TAKE)
                ),
                self._on_chosen,
            )

    def stop_waiting(self) -> None:
        """A job came into its safety margin, or the client has half closed the connection."""
        if self._ticket is not None:
            self._end_wait()
            self._reply(replies.DEADLINE_SOON if self._reservations.is_deadline_soon else replies.TIMED_OUT)

    def _on_taken(self, taken: Job | Exception | None) -> None:
        self._ticket = None
        self._end_wait()
        if isinstance(taken, Exception):
            self._reply(_TAKE_ERRORS.get(type(taken), replies.INTERNAL_ERROR))
        elif taken is not None:
            self._on_reserved(taken)
        else:
            self._reply(replies.DEADLINE_SOON if self._reservations.is_deadline_soon else replies.TIMED_OUT)

    def _on_chosen(self, job: Job | Exception | None) -> None:
        if not isinstance(job, Job):
            self._reply(replies.NOT_FOUND if job is None else or_error(job, lambda _: b""))
            return
        self._on_reserved(job)

    def _on_reserved(self, job: Job) -> None:
        if self._is_over:
            self._door.give_back(job, job_mapping.give_back)
            return
        if refused := self._tubes.rights.refusal_after_wait(Scope.TAKE, job.queue):
            self._door.give_back(job, job_mapping.give_back)
            self._reply(refused)
            return
        try:
            number = self._door.numbers.number(job.id)
        except StoreError:
            # A job of another program, while there are no new numbers.
            self._door.give_back(job, job_mapping.give_back)
            self._reply(replies.INTERNAL_ERROR)
            return
        self._reservations.add(number, job)
        self._reply(replies.reserved(number, split(job.id, job.body)[1]))

    def _begin_wait(self) -> None:
        self._is_waiting = True
        for name in self._tubes.watched:
            add(self._door.waits, name, 1)
        add(self._door.counts, "waiting", 1)

    def _end_wait(self) -> None:
        if not self._is_waiting:
            return
        self._is_waiting = False
        self._reservations.watch_margin(False)
        for name in self._tubes.watched:
            add(self._door.waits, name, -1)
        add(self._door.counts, "waiting", -1)
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.cancel()

    # Ending

    def delete(self, command: Command) -> None:
        """A job that this connection has reserved, or that nobody has."""
        held = self._reservations.pop(command.number)
        if held is not None:
            self._end(command.number, held, job_mapping.finish(self._door.rules(held.job)), self._count_delete)
            return
        id = self._find(command.number)
        if id is not None:
            self._change(id, self._tubes.rights.guard(Scope.OPERATE, job_mapping.delete), self._count_delete)

    def release(self, command: Command) -> None:
        """Gives a job back."""
        rule = job_mapping.release(command.priority, command.seconds)
        self._end_reserved(command, lambda job: rule, lambda job: replies.RELEASED)

    def bury(self, command: Command) -> None:
        """Puts a job aside."""
        rules = self._door.rules
        self._end_reserved(
            command, lambda job: job_mapping.bury(command.priority, rules(job)), lambda job: replies.BURIED
        )

    def touch(self, command: Command) -> None:
        """A job's time begins anew."""
        is_touched = self._reservations.touch(command.number)
        self._conversation.write(replies.TOUCHED if is_touched else replies.NOT_FOUND)

    def kick_job(self, command: Command) -> None:
        """Makes one job ready."""
        id = self._find(command.number)
        if id is not None:
            self._change(id, self._tubes.rights.guard(Scope.OPERATE, job_mapping.kick), lambda job: replies.KICKED)

    def _count_delete(self, job: Job) -> bytes:
        self._door.tube(job.queue).deletes += 1
        return replies.DELETED

    def _end_reserved(self, command: Command, rule: Callable[[Job], Rule], make_reply: MakeReply) -> None:
        held = self._reservations.pop(command.number)
        if held is None:
            self._conversation.write(replies.NOT_FOUND)
        else:
            self._end(command.number, held, rule(held.job), make_reply)

    def _end(self, number: int, held: Held, rule: Rule, make_reply: MakeReply) -> None:
        self._conversation.begin()

        def reply(was: Job | Exception) -> None:
            if isinstance(was, StoreError | Busy):
                self._keep(number, held)
            self._reply(or_error(was, make_reply))

        self._door.change(held.job, rule, reply)

    def _keep(self, number: int, held: Held) -> None:
        """A job whose end failed stays reserved: else this process would hold it for ever."""
        if self._is_over:
            self._door.give_back(held.job, job_mapping.give_back)
        else:
            self._reservations.put_back(number, held)

    def _change(self, id: bytes, rule: Rule, make_reply: MakeReply) -> None:
        self._conversation.begin()
        self._door.change_any(id, rule, lambda was: self._reply(or_error(was, make_reply)))

    def _find(self, number: int) -> bytes | None:
        """The id of a job that this process has not reserved; None, and the reply is sent, if there is none."""
        id = None if number in self._door.held else self._door.numbers.id(number)
        if id is None:
            self._conversation.write(replies.NOT_FOUND)
        return id


# A client takes TIMED_OUT for an empty tube, and asks again.
_TAKE_ERRORS: dict[type[Exception], bytes] = {Draining: replies.TIMED_OUT, Busy: replies.OUT_OF_MEMORY}
