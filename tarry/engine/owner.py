"""The name under which a worker claims: it says enough to tell, on its own host, whether it still lives."""

import itertools
import os
import socket
from pathlib import Path

_numbers = itertools.count(1)


def new_name() -> str:
    """`host|boot.namespace:pid:start:n`: unique for ever, also when pids and host names come again."""
    return f"{_host()}:{os.getpid()}:{_started(os.getpid())}:{next(_numbers)}"


def is_dead(name: str) -> bool:
    """True if that owner was a process of this host and is gone; False if it lives, or may live elsewhere."""
    host, _, rest = name.rpartition(":")[0].partition("|")
    parts = rest.split(":")
    if f"{host}|{parts[0]}" != _host() or len(parts) != 3 or not parts[1].isdigit():
        return False
    return _started(int(parts[1])) != parts[2]


def _host() -> str:
    """The host's name, this boot of it, and the pid namespace: two containers of one host share the first two."""
    boot = _read(Path("/proc/sys/kernel/random/boot_id"))[:8]
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return f"{socket.gethostname()}|{boot}.{namespace}"


def _started(pid: int) -> str:
    """When the process began, in the kernel's ticks; empty if there is none (or no /proc to ask)."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    # A zombie runs nothing any more.
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
