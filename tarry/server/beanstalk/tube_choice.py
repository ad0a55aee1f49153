"""Which tubes a connection uses and watches."""

from tarry.operate.access import Scope
from tarry.server.beanstalk import replies
from tarry.server.beanstalk.command_parser import Command
from tarry.server.beanstalk.rights import Rights
from tarry.server.beanstalk.shared import DEFAULT_TUBE, BeanstalkDoor, add

WATCHED_MOST = 1000
"""Tubes that a connection may watch."""


class TubeChoice:
    """Of one connection, and what it may do with them. The door counts them."""

    def __init__(self, door: BeanstalkDoor, address: str) -> None:
        self._door, self.rights = door, Rights(door.access, address)
        self.used, self.watched = DEFAULT_TUBE, [DEFAULT_TUBE]
        add(door.uses, DEFAULT_TUBE, 1)
        add(door.watches, DEFAULT_TUBE, 1)

    def takeable(self) -> list[str]:
        """The watched ones from which it may take jobs."""
        return [tube for tube in self.watched if self.rights.allows(Scope.TAKE, tube)]

    def refusal(self, command: Command) -> bytes | None:
        """The reply to a command that the connection may not do; None: it may."""
        return self.rights.refusal(command, self.used, self.watched)

    def use(self, tube: str) -> bytes:
        """Puts go there; the reply."""
        add(self._door.uses, self.used, -1)
        add(self._door.uses, tube, 1)
        self.used = tube
        return replies.using(tube)

    def watch(self, tube: str) -> bytes:
        """Jobs may come from there; the reply."""
        if tube not in self.watched:
            if len(self.watched) >= WATCHED_MOST:
                return replies.OUT_OF_MEMORY
            self.watched.append(tube)
            add(self._door.watches, tube, 1)
        return replies.watching(len(self.watched))

    def ignore(self, tube: str) -> bytes:
        """Jobs come from there no more; the reply."""
        if tube in self.watched:
            if len(self.watched) < 2:
                return replies.NOT_IGNORED
            # As in beanstalkd: the last one takes its place, which `list-tubes-watched` shows.
            at, last = self.watched.index(tube), self.watched.pop()
            if at < len(self.watched):
                self.watched[at] = last
            add(self._door.watches, tube, -1)
        return replies.watching(len(self.watched))

    def close(self) -> None:
        """The connection is gone."""
        add(self._door.uses, self.used, -1)
        for tube in self.watched:
            add(self._door.watches, tube, -1)
