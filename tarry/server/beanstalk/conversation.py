"""The order of one client's commands and answers. No I/O of its own.

Commands are done one after the other, as the protocol says; only puts that follow each other go together, so that the
jobs of a client that does not wait for answers are committed together.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from tarry.errors import NotHeld, StoreError
from tarry.model.lifecycle import NotPossible
from tarry.server.beanstalk import replies
from tarry.server.beanstalk.command_parser import Command, CommandParser
from tarry.server.beanstalk.shared import BeanstalkDoor

R = TypeVar("R")


class Commands(Protocol):
    """Does the commands of a client."""

    def put(self, command: Command) -> bool:
        """Adds a put to those that go together; False if it has to wait until these were sent."""

    def send_puts(self) -> bool:
        """Sends the puts that were added; False if there are none."""

    def do(self, command: Command) -> None:
        """Begins any other command."""


class Conversation:
    """write: sends bytes to the client; close: ends the connection once they are sent."""

    def __init__(self, door: BeanstalkDoor, write: Callable[[bytes], None], close: Callable[[], None]) -> None:
        self.door = door
        self._send, self._close = write, close
        self._parser = CommandParser(door.max_job_size)
        self._next: Command | None = None
        self._is_busy = self._is_running = self._is_over = self._is_held_up = False
        self.is_half_closed = False
        """The client sends nothing more, but may read."""
        self.verb = ""
        """Of the last command that was begun."""

    @property
    def buffered(self) -> int:
        """Bytes that came and are not understood yet."""
        return self._parser.buffered

    def feed(self, data: bytes) -> None:
        """Bytes came."""
        self._parser.feed(data)

    def hold_up(self, is_held_up: bool) -> None:
        """The client reads too slowly, or fast enough again: meanwhile no command is begun."""
        self._is_held_up = is_held_up

    def stop(self) -> None:
        """No command is begun any more, and nothing is sent."""
        self._is_over = True

    def quit(self) -> None:
        """The client wants the connection to end."""
        self.stop()
        self._close()

    def run(self, commands: Commands) -> None:
        """Does the commands that came, as far as possible now."""
        # A reply may come at once, amid the loop, which then goes on by itself.
        if self._is_running:
            return
        self._is_running = True
        while not (self._is_busy or self._is_held_up or self._is_over) and self._step(commands):
            pass
        self._is_running = False
        if self.is_half_closed and not (self._is_busy or self._is_held_up or self._is_over):
            self.quit()

    def _step(self, commands: Commands) -> bool:
        command, self._next = self._next or self._parser.next(), None
        if command is not None:
            self.verb = command.verb
        if command is not None and command.verb == "put" and commands.put(command):
            return True
        if commands.send_puts():
            self._next = command
            return True
        if command is not None:
            commands.do(command)
        return command is not None

    @property
    def is_busy(self) -> bool:
        """Whether a command is under way whose reply comes later."""
        return self._is_busy

    def begin(self) -> None:
        """A command was begun whose reply comes later."""
        self._is_busy = True

    def end(self, answer: bytes) -> None:
        """Replies to the command that was begun; call `run` then."""
        self._is_busy = False
        self.write(answer)

    def write(self, answer: bytes) -> None:
        """Replies."""
        if not self._is_over:
            self._send(answer)


def or_error(answer: R | Exception, make_reply: Callable[[R], bytes]) -> bytes:
    """The reply that is made of the answer, or what the protocol has for the error."""
    if isinstance(answer, NotHeld | NotPossible | LookupError):
        return replies.NOT_FOUND
    try:
        return replies.INTERNAL_ERROR if isinstance(answer, Exception) else make_reply(answer)
    except StoreError:
        # A job of another program needs a number to be shown, and the store gives none now.
        return replies.INTERNAL_ERROR
