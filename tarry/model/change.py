"""What is to become of a job, as a value: the worker computes it, a store only makes it true.

The idea is River's (`JobSetState...Params`), carried through: no store knows a rule.
"""

from msgspec import Struct

from tarry.model.job import State


class Change(Struct, frozen=True, gc=False):
    """Valid only if the job is still (`was`, `epoch`, `owner`) as it was seen; applied whole or not at all.

    A field that a finished or running job has no use for (owner, lease) is cleared by the store.
    """

    id: bytes
    was: State
    epoch: int
    to: State | None
    """None: the job is forgotten, its record goes."""
    since: int = 0
    due: int | None = None
    """None: as it was, which is so for every finished job."""
    failures: int = 0
    losses: int = 0
    until: int = 0
    note: bytes = b""
    queue: str | None = None
    """Another queue; None, the same."""
    priority: int | None = None
    """Another priority; None, the same."""
    expires: int | None = None
    """Another time by which it must have started, 0 for none; None, the same."""
    holds: int | None = None
    """Until when it holds its key from now on; None, as it was."""
    body: bytes | None = None
    """Other arguments; None, the same."""
    owner: str = ""
    """Who ran it when it was seen; nothing for a job that does not run. A store that loses a claim, as at a failover,
    gives the same epoch again, to somebody else perhaps."""
