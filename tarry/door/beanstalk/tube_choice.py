"""Which tubes a connection uses and watches."""

from tarry.door.beanstalk import replies
from tarry.door.beanstalk.shared import DEFAULT_TUBE, BeanstalkDoor, add

WATCHED_MOST = 1000
"""Tubes that a connection may watch."""


class TubeChoice:
    """Of one connection. The door counts them."""

    def __init__(self, door: BeanstalkDoor) -> None:
        self._door = door
        self.used, self.watched = DEFAULT_TUBE, [DEFAULT_TUBE]
        add(door.uses, DEFAULT_TUBE, 1)
        add(door.watches, DEFAULT_TUBE, 1)

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
