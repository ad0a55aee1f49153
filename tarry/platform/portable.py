"""Any system that Python runs on, by psutil, which base installs have where the system is not Linux; without it less is
known, as on Linux without /proc.
"""

import contextlib
import functools
import importlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType
from typing import Any

_SHORT = 50
"""Bytes of a folder's path with which each of its sockets has a path that every system takes: macOS takes 103."""
_LOOKS = 3
_HALTED = {"stopped": "T", "tracing-stop": "t"}
_GONE = {"zombie", "dead"}


def boot() -> str:
    """As in `linux`."""
    if sys.platform == "darwin":
        return _boot_session()
    return ""


def pid_namespace() -> int:
    """As in `linux`."""
    return 0


def machine_started() -> float | None:
    """As in `linux`."""
    with _unknown():
        return float(_psutil().boot_time())
    return None


def process_state(pid: int) -> tuple[str, str]:
    """As in `linux`."""
    with _unknown():
        process = _psutil().Process(pid)
        state = process.status()
        if state in _GONE:
            return "Z", ""
        return _HALTED.get(state, "R"), str(round(process.create_time() * 1e6))
    return "", ""


def cpu_seconds(pid: int) -> float:
    """As in `linux`."""
    with _unknown():
        used = _psutil().Process(pid).cpu_times()
        return float(used.user + used.system)
    return 0.0


def resident_bytes() -> int:
    """As in `linux`."""
    with _unknown():
        return int(_psutil().Process().memory_info().rss)
    return 0


def has_open(pid: int, path: Path) -> bool:
    """As in `linux`."""
    if not path.exists():
        raise ProcessLookupError
    with _unknown():
        # A look at a process that opens and closes others may miss one.
        return any(_opens(_psutil().Process(pid).open_files(), path) for _ in range(_LOOKS))
    return True


def _opens(files: Iterable[Any], path: Path) -> bool:
    found = path.stat()
    for file in files:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(file.path), found):
                return True
    return False


def send_signal(pid: int, number: int, is_meant: Callable[[], bool]) -> bool:
    """As in `linux`."""
    # Between the two the number may pass to another process, for an instant: there is no handle of a process here.
    if meant := is_meant():
        os.kill(pid, number)
    return meant


def reap_children(is_ours: Container[int], kill_group: Callable[[int], object]) -> Iterator[tuple[int, int]]:
    """As in `linux`."""
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            # Here the pid is free already, for an instant: macOS before Python 3.13 gives no other way.
            if dead[0] in is_ours:
                kill_group(dead[0])
            yield dead


def near_folder(folder: Path) -> tuple[str, Callable[[], object]]:
    """As in `linux`."""
    if len(os.fsencode(folder)) <= _SHORT:
        return str(folder), int
    # Its folder is this user's alone, so nobody else can put another link there.
    alias = tempfile.mkdtemp(prefix="tarry-")
    os.symlink(folder, near := os.path.join(alias, "s"))
    return near, partial(shutil.rmtree, alias, ignore_errors=True)


def watch_peer(connected: socket.socket, idle: int, unanswered: int) -> None:
    """As in `linux`."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # macOS has its own name for the first, and no limit for what is not taken.
    for name, value in (("TCP_KEEPALIVE", idle), ("TCP_KEEPIDLE", idle), ("TCP_KEEPINTVL", idle // 3)):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def local_addresses() -> frozenset[str]:
    """As in `linux`."""
    found = set()
    with _unknown():
        for interface in _psutil().net_if_addrs().values():
            for one in interface:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    # A link-local address has its interface behind it: fe80::1%eth0.
                    found.add(str(ip_address(one.address.partition("%")[0])))
    return frozenset(found or _addresses_by_name())


def allocate(fd: int, size: int) -> None:
    """As in `linux`."""
    missing = size - os.fstat(fd).st_size
    while missing > 0:
        os.lseek(fd, 0, os.SEEK_END)
        missing -= os.write(fd, bytes(min(missing, 1 << 20)))


def anonymous_file() -> int:
    """As in `linux`."""
    with tempfile.TemporaryFile() as file:
        # The file is deleted at the end of this block; the duplicate keeps it open.
        return os.dup(file.fileno())


def _addresses_by_name() -> set[str]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return set()
    return {str(address[0]).partition("%")[0] for *_, address in found}


@functools.cache
def _boot_session() -> str:
    # Not the time of the boot, which follows the clock.
    asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True).stdout.strip()[:8]
    return ""


def _psutil() -> ModuleType:
    # On Linux nobody needs it, and it may not be installed.
    return importlib.import_module("psutil")


@contextlib.contextmanager
def _unknown() -> Iterator[None]:
    """What psutil raises for a process that is gone or another user's, and where psutil is missing: it is not known."""
    try:
        yield
    except ImportError:
        return
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "psutil" and not isinstance(error, OSError):
            raise
