"""Queues of one host or worker, into which broadcasts put their jobs.

Only whoever it belongs to takes jobs from such a queue. Lists of queues leave them out: they come and go with workers.
"""

_MARK = "@"
BROADCAST = "broadcast"
"""The name of the flow of a broadcast."""
COUNTED_AS = _MARK
"""As which queue the jobs of all of them count in the history: else each worker that ever lived would have a series."""


def own_queue(name: str) -> str:
    """The queue of a master or worker, by its name as `store.owner` makes them."""
    return _MARK + name


def owner_of(queue: str) -> str:
    """Whose queue it is."""
    return queue.removeprefix(_MARK)


def is_own_queue(queue: str) -> bool:
    """Whether the queue belongs to one master or worker. A queue of users may begin with @, too."""
    return queue[:1] == _MARK and ("|" in queue or queue == COUNTED_AS)


def counted_queue(queue: str) -> str:
    """As which queue the jobs of a queue count in the history."""
    return COUNTED_AS if is_own_queue(queue) else queue
