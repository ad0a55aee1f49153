"""The name of a worker as the owner of jobs: on its own host it tells whether the worker is still alive.

Programs that are not tarry's workers take jobs through a server process. Their owners' names tell so: `outside_name` if
only its lease tells whether the program lives, `door_name` if the server process holds the jobs for it.
"""

import itertools
import os
import re
import socket

from tarry import platform

_numbers = itertools.count(1)
_HALTED, _PID = "Tt", re.compile("[0-9]{1,9}")
_OUTSIDE, _DOOR = "outside:", "door"


def new_name() -> str:
    """`host|boot.namespace:pid:start:n`: unique for ever, even if pids and host names are reused."""
    return f"{process_owner(os.getpid())}:{next(_numbers)}"


def outside_name() -> str:
    """`outside:` and a name as of `new_name`: the program may be on any host, so nothing tells that it is dead."""
    return f"{_OUTSIDE}{new_name()}"


def is_outside(name: str) -> bool:
    """Whether `outside_name` made the name."""
    return name.startswith(_OUTSIDE)


def door_name() -> str:
    """`host|boot.namespace:pid:start:doorN`: the owner is dead when this process is."""
    return f"{process_owner(os.getpid())}:{_DOOR}{next(_numbers)}"


def is_door(name: str) -> bool:
    """Whether `door_name` made the name, in any process."""
    return name.rpartition(":")[2].startswith(_DOOR)


def master_name(pid: int) -> str:
    """`host|boot.namespace:pid:start:0`: the name of the master that is this process of this host."""
    return f"{process_owner(pid)}:0"


def process_owner(pid: int) -> str:
    """`host|boot.namespace:pid:start` of a process on this host: the prefix of its owner names."""
    # With the start time: after a while the kernel gives the same pid to another process.
    return f"{host_scope()}:{pid}:{start_time(pid)}"


def is_dead(name: str) -> bool:
    """Whether the owner was a process on this host and is gone; False also if it is on another host, and if this
    process may not see it."""
    local = _local(name)
    # Without a start time the number may be any process's.
    if local is None or not local[1]:
        return False
    if started := start_time(local[0]):
        return started != local[1]
    # Another user's process may be hidden from this one, and live.
    return platform.has_ended(local[0])


def is_running(name: str) -> bool:
    """Whether the owner is a process on this host that is alive and not stopped, as by SIGSTOP or a debugger."""
    local = _local(name)
    if local is None:
        return False
    state, started = platform.process_state(local[0])
    # Both start times are empty where nothing is known.
    return started == local[1] != "" and state not in _HALTED


def is_local(name: str) -> bool:
    """Whether the owner is or was a process on this host."""
    return _local(name) is not None


def _local(name: str) -> tuple[int, str] | None:
    """The pid and start time; None for another host."""
    found = process_of(name)
    return found[1:] if found is not None and found[0] == host_scope() else None


def process_of(name: str) -> tuple[str, int, str] | None:
    """The `host_scope`, pid and start time in the name of an owner, on whatever host; None: it is no such name."""
    host, _, rest = name.rpartition(":")[0].partition("|")
    parts = rest.split(":")
    if len(parts) != 3 or not _PID.fullmatch(parts[1]):
        return None
    return f"{host}|{parts[0]}", int(parts[1]), parts[2]


def without_door(name: str) -> str:
    """The name of an owner without what tells that it is a program outside: that of the server process it came to."""
    return name.removeprefix(_OUTSIDE)


def host_scope() -> str:
    """`host|boot.namespace`: two containers on one host share the first two parts."""
    return f"{socket.gethostname()}|{platform.boot()}.{platform.pid_namespace()}"


def start_time(pid: int) -> str:
    """When the process began, as its system counts; empty if there is no such process, or if that is not known."""
    return platform.process_state(pid)[1]
