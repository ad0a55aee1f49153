"""What the operating system tells, by both twins: each answers for real processes, files and sockets."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import pytest

from tarry import platform
from tarry.platform import linux, portable
from tests.worker.bench import until

LIMIT = 60

both = pytest.mark.parametrize("twin", [linux, portable], ids=["linux", "portable"])


@contextmanager
def child(*words: str) -> Iterator["subprocess.Popen[bytes]"]:
    code = words or ("import time; time.sleep(600)",)
    with subprocess.Popen([sys.executable, "-c", *code]) as process:
        try:
            yield process
        finally:
            process.kill()


@both
def test_a_process_that_runs_is_stopped_and_dies(twin: ModuleType) -> None:
    with child() as process:
        state, started = twin.process_state(process.pid)
        assert state in "RSD"
        assert started
        assert started != twin.process_state(os.getppid())[1]
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: twin.process_state(process.pid) == ("T", started))
        os.kill(process.pid, signal.SIGKILL)
        # It is a zombie then, until its parent takes note.
        until(lambda: twin.process_state(process.pid) == (platform.ZOMBIE, ""))
    assert twin.process_state(process.pid) == ("", "")
    assert twin.cpu_seconds(process.pid) == 0.0


@both
def test_a_process_has_ended_before_its_parent_takes_note(twin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "process_state", twin.process_state)
    with child() as process:
        assert not platform.has_ended(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: platform.has_ended(process.pid))
        # Where nothing is known of processes, a zombie may be one that runs.
        monkeypatch.setattr(platform, "process_state", lambda _pid: ("", ""))
        assert not platform.has_ended(process.pid)
    assert platform.has_ended(process.pid)
    assert not platform.has_ended(2**70)


@both
def test_a_process_began_at_the_same_time_whoever_asks_and_whenever(twin: ModuleType) -> None:
    started = {twin.process_state(os.getpid())[1] for _ in range(20)}
    name = twin.__name__.rpartition(".")[2]
    asks = f"from tarry.platform import {name} as twin; print(twin.process_state({os.getpid()})[1])"
    told = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert started == {told.stdout.strip()}


@both
def test_what_this_process_uses(twin: ModuleType) -> None:
    before = twin.cpu_seconds(os.getpid())
    until(lambda: bool(sum(range(100_000))) and twin.cpu_seconds(os.getpid()) > before)
    assert 2**20 < twin.resident_bytes() < 2**40


@both
def test_the_machine_started_before_now_and_before_this_process(twin: ModuleType) -> None:
    assert 0 < twin.machine_started() < time.time()
    assert len(twin.boot()) in (0, 8)


@both
def test_which_files_a_process_has_open(twin: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "held"
    file.touch()
    with file.open() as held:
        assert twin.has_open(os.getpid(), file)
        assert held.fileno()
    assert not twin.has_open(os.getpid(), file)
    file.unlink()
    with pytest.raises(ProcessLookupError):
        twin.has_open(os.getpid(), file)


@both
def test_a_signal_is_sent_to_the_process_that_is_meant(twin: ModuleType) -> None:
    with child() as process:
        assert not twin.send_signal(process.pid, signal.SIGKILL, lambda: False)
        assert process.poll() is None
        assert twin.send_signal(process.pid, signal.SIGTERM, lambda: True)
        assert process.wait(LIMIT) == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        twin.send_signal(process.pid, signal.SIGTERM, lambda: True)


@both
def test_children_are_reaped_and_the_groups_of_ours_killed(twin: ModuleType) -> None:
    # In a process of its own: it takes whatever dies.
    name = twin.__name__.rpartition(".")[2]
    code = f"""
import os, time
from tarry.platform import {name} as twin
first, second = (os.fork() or os._exit(number) for number in (3, 4))
killed, seen, end = [], {{}}, time.monotonic() + {LIMIT}
while len(seen) < 2 and time.monotonic() < end:
    seen.update(twin.reap_children({{first}}, killed.append))
print(os.waitstatus_to_exitcode(seen[first]), os.waitstatus_to_exitcode(seen[second]), killed == [first])
print(list(twin.reap_children({{first}}, killed.append)))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=2 * LIMIT, check=True)
    assert told.stdout.splitlines() == ["3 4 True", "[]"]


@both
def test_sockets_in_a_folder_however_deep_it_is(twin: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("deep" * 20)
    folder.mkdir(parents=True)
    near, give_up = twin.near_folder(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"{near}/0.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", f"{near}/0.sock")
        assert bound.recv(9) == b"x"
    assert [file.name for file in folder.iterdir()] == ["0.sock"]
    give_up()
    assert not os.path.exists(f"{near}/0.sock")
    assert [file.name for file in folder.iterdir()] == ["0.sock"]


@both
def test_a_peer_is_watched(twin: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connected:
        twin.watch_peer(connected, 30, 60)
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


@both
def test_the_addresses_of_this_host(twin: ModuleType) -> None:
    assert "127.0.0.1" in twin.local_addresses()
    assert twin.local_addresses() == platform.local_addresses()


def test_the_addresses_in_the_files_of_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(linux, "IPV4", trie := tmp_path / "fib_trie")
    monkeypatch.setattr(linux, "IPV6", inet6 := tmp_path / "if_inet6")
    trie.write_text("Local:\n  |-- 1.2.3.4\n     /32 host LOCAL\n  |-- 1.2.3.255\n     /32 link BROADCAST\n")
    inet6.write_text("26064700000000000000000000000007 02 40 00 80 eth0\n")
    assert linux.local_addresses() == {"1.2.3.4", "2606:4700::7"}


@both
def test_a_file_gets_its_blocks_and_keeps_what_it_has(twin: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"kept")
    fd = os.open(file, os.O_RDWR)
    try:
        for _ in range(2):
            twin.allocate(fd, 3_000_000)
            assert os.fstat(fd).st_size == 3_000_000
        os.fsync(fd)
        assert os.fstat(fd).st_blocks * 512 >= 3_000_000 - 4096
    finally:
        os.close(fd)
    assert file.read_bytes() == b"kept".ljust(3_000_000, b"\0")


@both
def test_a_file_without_a_name(twin: ModuleType) -> None:
    fd = twin.anonymous_file()
    try:
        os.write(fd, b"text")
        assert os.pread(fd, 9, 0) == b"text"
        assert os.fstat(fd).st_nlink == 0
    finally:
        os.close(fd)


@pytest.mark.parametrize("missing", [True, False])
def test_without_psutil_and_for_a_pid_that_is_none_nothing_is_known(
    missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, "psutil", None)
    pid = os.getpid() if missing else 2**22 + 1
    assert portable.process_state(pid) == ("", "")
    assert portable.cpu_seconds(pid) == 0.0
    assert portable.has_open(pid, Path(__file__))
    with suppress(ProcessLookupError):
        assert portable.resident_bytes() == 0 or not missing
    assert portable.local_addresses()


def test_a_variable_takes_the_portable_twin() -> None:
    asks = "from tarry import platform; print(platform.process_state.__module__)"
    for value, module in (("portable", "tarry.platform.portable"), ("", "tarry.platform.linux")):
        told = subprocess.run(
            [sys.executable, "-c", asks],
            env={**os.environ, "TARRY_PLATFORM": value},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
        )
        assert told.stdout.strip() == module
