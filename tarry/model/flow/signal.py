"""Signals: messages for jobs that wait for something outside. An address is a name and a key."""

from msgspec import Struct

MOST_VALUE = 64 * 1024
"""Bytes of a value."""
MOST_ADDRESS = 500
"""Bytes of a name, and of a key."""
MOST_KEPT = 100
"""Signals of an address; then the oldest go."""


class Signal(Struct, frozen=True, gc=False):
    """One message to an address. It is kept until a time, and not consumed: each job reads from where it was."""

    name: str
    key: str
    id: bytes
    """16 bytes; the same id sent twice to an address is one signal."""
    value: bytes
    """JSON."""
    until: int
    """Kept until then: microseconds since the epoch."""
    n: int = 0
    """Its number at its address, from 1. The store gives it, and each shard counts by itself."""


class Awaited(Struct, frozen=True, gc=False):
    """What a job waits for: a signal to this address with a greater number than `after`."""

    name: str
    key: str
    after: int = 0
    """The number of the last signal of the address that the job took; 0: none."""


class SignalWait(Struct, frozen=True, gc=False):
    """A job that waits for a signal, while it is scheduled in this epoch. They are listed by `place`."""

    name: str
    key: str
    job: bytes
    epoch: int
    after: int

    @property
    def place(self) -> tuple[str, str, bytes]:
        """Where it stands in lists."""
        return self.name, self.key, self.job
