"""The name under which a worker claims: it says enough to tell, on its own host, whether it still lives."""

import itertools
import os
import socket
from pathlib import Path

_numbers = itertools.count(1)
_HALTED = "Tt"


def new_name() -> str:
    """`host|boot.namespace:pid:start:n`: unique for ever, also when pids and host names come again."""
    return f"{of_process(os.getpid())}:{next(_numbers)}"


def of_process(pid: int) -> str:
    """`host|boot.namespace:pid:start` of a process of this host: what all its names begin with."""
    return f"{place()}:{pid}:{_started(pid)}"


def is_dead(name: str) -> bool:
    """True if that owner was a process of this host and is gone; False if it lives, or may live elsewhere."""
    local = _local(name)
    return local is not None and _started(local[0]) != local[1]


def is_at_work(name: str) -> bool:
    """True if that owner is a process of this host that lives and is not stopped, as by SIGSTOP or a debugger."""
    local = _local(name)
    if local is None:
        return False
    state, started = _stat(local[0])
    return started == local[1] != "" and state not in _HALTED


def is_local(name: str) -> bool:
    """True if that owner is, or was, a process of this host."""
    return _local(name) is not None


def _local(name: str) -> tuple[int, str] | None:
    """Its pid, and when it began; None if it is not of this host."""
    host, _, rest = name.rpartition(":")[0].partition("|")
    parts = rest.split(":")
    if f"{host}|{parts[0]}" != place() or len(parts) != 3 or not parts[1].isdigit():
        return None
    return int(parts[1]), parts[2]


def place() -> str:
    """The host's name, this boot of it, and the pid namespace: two containers of one host share the first two."""
    boot = _read(Path("/proc/sys/kernel/random/boot_id"))[:8]
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return f"{socket.gethostname()}|{boot}.{namespace}"


def _started(pid: int) -> str:
    """When the process began, in the kernel's ticks; empty if there is none (or no /proc to ask)."""
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[str, str]:
    """The letter of its state, and when it began; both empty if there is none."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    # A zombie runs nothing any more.
    return (fields[0], fields[19]) if len(fields) > 19 and fields[0] != "Z" else ("", "")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
