"""Linux: /proc, pidfds, memfds. Where a build of Python lacks a call, or /proc is not mounted, less is known."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Container, Iterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path

IPV4, IPV6 = Path("/proc/net/fib_trie"), Path("/proc/net/if_inet6")


def boot() -> str:
    """What tells this boot of the machine from all others; empty where that is not known."""
    return _read(Path("/proc/sys/kernel/random/boot_id"))[:8]


def pid_namespace() -> int:
    """Where the numbers of processes count: containers of one host have one each."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def machine_started() -> float | None:
    """time.time() of the machine's start; None: not known."""
    with contextlib.suppress(ValueError, StopIteration):
        return float(
            next(line for line in _read(Path("/proc/stat")).splitlines() if line.startswith("btime ")).split()[1]
        )
    return None


def process_state(pid: int) -> tuple[str, str]:
    """The letter of the state, as `ps` shows it, and the start time in the kernel's ticks, empty for a zombie; both
    empty if there is no such process, or if that is not known: it may be another user's (`hidepid`)."""
    fields = _stat(pid)
    if len(fields) <= 19:
        return "", ""
    return fields[0], "" if fields[0] == "Z" else fields[19]


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of the process; 0.0 if it is gone, or if that is not known."""
    with contextlib.suppress(IndexError, ValueError):
        fields = _stat(pid)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def resident_bytes() -> int:
    """Resident bytes of this process; 0 if that is not known."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def has_open(pid: int, path: Path) -> bool:
    """Whether the process has the file open; also True if that is not known. ProcessLookupError: there is no such file.
    PermissionError: it is another user's process."""
    fds = Path(f"/proc/{pid}/fd")
    if not fds.exists():
        return True
    try:
        there = path.stat()
    except FileNotFoundError:
        raise ProcessLookupError from None
    for fd in fds.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(fd.stat(), there):
                return True
    return False


def send_signal(pid: int, number: int, is_meant: Callable[[], bool]) -> bool:
    """Sends the signal if `is_meant` says that the process with this number is the one; whether it did.
    ProcessLookupError: there is no such process."""
    if not hasattr(os, "pidfd_open"):
        from tarry.platform import portable  # noqa: PLC0415 -- only where this one lacks something

        return portable.send_signal(pid, number, is_meant)
    process = os.pidfd_open(pid)
    try:
        # Asked now that there is a pidfd: the number may have passed to another process, which must get no signal.
        if meant := is_meant():
            signal.pidfd_send_signal(process, number)
        return meant
    finally:
        os.close(process)


def reap_children(is_ours: Container[int], kill_group: Callable[[int], object]) -> Iterator[tuple[int, int]]:
    """Yields pid and wait status of each dead child; `kill_group` is called for each that is ours, before its number is
    free."""
    with contextlib.suppress(ChildProcessError):
        # WNOWAIT leaves a zombie, so its pid stays taken until its group is killed.
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid in is_ours:
                kill_group(found.si_pid)
            # Others, too: in a container the master is process 1, and gets what jobs leave behind.
            yield os.waitpid(found.si_pid, 0)


def near_folder(folder: Path) -> tuple[str, Callable[[], object]]:
    """A path of the folder that is short enough for Unix sockets in it, and what gives that path up. OSError."""
    # The kernel takes at most 108 bytes. The path through a descriptor is short, however deep the folder is.
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    near = f"/proc/self/fd/{fd}"
    return near if os.path.exists(near) else str(folder), partial(os.close, fd)


def watch_peer(connected: socket.socket, idle: int, unanswered: int) -> None:
    """Has the kernel find out when the peer's host is gone: by a probe after `idle` seconds without news, and when for
    `unanswered` seconds nothing takes what was sent. OSError."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, idle // 3)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unanswered * 1000)


def local_addresses() -> frozenset[str]:
    """The addresses of this host's interfaces, in the form of `str(ip_address(...))`; empty if that is not known."""
    if found := _of_fib_trie(_read(IPV4)) | _of_if_inet6(_read(IPV6)):
        return frozenset(found)
    from tarry.platform import portable  # noqa: PLC0415 -- only where this one lacks something

    return portable.local_addresses()


def allocate(fd: int, size: int) -> None:
    """Makes the file at least so long, with real blocks for what it gains. OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:
        from tarry.platform import portable  # noqa: PLC0415 -- only where this one lacks something

        portable.allocate(fd, size)


def anonymous_file() -> int:
    """The descriptor of a file that has no name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tarry")
    from tarry.platform import portable  # noqa: PLC0415 -- only where this one lacks something

    return portable.anonymous_file()


def _of_fib_trie(text: str) -> set[str]:
    """The IPv4 addresses of the routing table: a line `|-- 192.0.2.2`, then `/32 host LOCAL`."""
    found, last = set(), ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif words[1:] == ["host", "LOCAL"] and words[0] == "/32":
            found.add(last)
    return found


def _of_if_inet6(text: str) -> set[str]:
    return {str(ip_address(bytes.fromhex(line.split()[0]))) for line in text.splitlines()}


def _stat(pid: int) -> list[str]:
    # From the last bracket on: the name of the program is in brackets, and may have spaces and brackets itself.
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        # A program may have any bytes as its name.
        return path.read_text(errors="replace")
    except OSError:
        return ""
