"""Each case in a process of its own, whose descriptors 3, 4, ... are what a service manager left there."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.runtime.master_harness import KEEPER, MasterHarness, until
from tests.runtime.scripted_roles import MasterScript

TELLS = """
import os, sys, msgspec
from tarry.errors import MasterError
from tarry.runtime.sockets.activation import ActivationSockets
environ = dict(os.environ)
try:
    found = ActivationSockets(environ)
except MasterError as error:
    sys.exit(str(error))
told = {name: [[one.fileno(), one.getsockname()[1], one.get_inheritable()] for one in sockets]
        for name, sockets in found.by_name.items()}
left = [name for name in environ if name.startswith("LISTEN_")]
found.close()
sys.stdout.buffer.write(msgspec.json.encode({"told": told, "left": left, "again": ActivationSockets(environ).by_name}))
"""
OURS = "$$"
"""As LISTEN_PID: the pid of the process that is started."""


@pytest.fixture
def listeners() -> Iterator[list[socket.socket]]:
    """Two sockets that listen."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    yield listeners
    for listener in listeners:
        listener.close()


def start(fds: list[int], variables: dict[str, str], *command: str, pid: str = OURS) -> "subprocess.Popen[str]":
    """The command, with these descriptors as its 3, 4, ..."""
    high = [os.dup2(fd, 200 + n) for n, fd in enumerate(fds)]
    places = " ".join(f"{3 + n}<&{fd}-" for n, fd in enumerate(high))
    try:
        return subprocess.Popen(
            ["bash", "-c", f'export LISTEN_PID={pid}; exec "$@" {places}', "bash", *command],
            pass_fds=high,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        for fd in high:
            os.close(fd)


def run_and_read(fds: list[int], variables: dict[str, str], pid: str = OURS) -> Any:
    out, err = start(fds, variables, sys.executable, "-c", TELLS, pid=pid).communicate(timeout=250)
    return msgspec.json.decode(out) if out else err.strip()


def port(listener: socket.socket) -> int:
    number: int = listener.getsockname()[1]
    return number


def test_sockets_have_the_names_of_their_units(listeners: list[socket.socket]) -> None:
    first, second = listeners
    facts = run_and_read([first.fileno(), second.fileno()], {"LISTEN_FDS": "2", "LISTEN_FDNAMES": "http:beanstalk"})
    assert facts["told"] == {"http": [[3, port(first), False]], "beanstalk": [[4, port(second), False]]}
    assert (facts["left"], facts["again"]) == ([], {})


def test_two_of_one_name_keep_their_order(listeners: list[socket.socket]) -> None:
    facts = run_and_read(
        [listener.fileno() for listener in listeners], {"LISTEN_FDS": "2", "LISTEN_FDNAMES": "http:http"}
    )
    assert facts["told"] == {"http": [[3, port(listeners[0]), False], [4, port(listeners[1]), False]]}


def test_sockets_without_a_name(listeners: list[socket.socket]) -> None:
    facts = run_and_read([listeners[0].fileno()], {"LISTEN_FDS": "1"})
    assert facts["told"] == {"unknown": [[3, port(listeners[0]), False]]}


def test_what_is_meant_for_another_process_is_not_taken(listeners: list[socket.socket]) -> None:
    assert run_and_read([listeners[0].fileno()], {"LISTEN_FDS": "1"}, pid="1") == {"told": {}, "left": [], "again": {}}


def test_nothing_was_left_to_us() -> None:
    assert run_and_read([], {}) == {"told": {}, "left": [], "again": {}}
    assert run_and_read([], {"LISTEN_FDS": "0"})["told"] == {}


@pytest.mark.parametrize(("count", "names"), [("many", ""), ("-1", ""), ("1", "http:beanstalk")])
def test_variables_that_contradict_themselves(listeners: list[socket.socket], count: str, names: str) -> None:
    said = run_and_read([listeners[0].fileno()], {"LISTEN_FDS": count, "LISTEN_FDNAMES": names})
    assert said == f"LISTEN_FDS={count} with LISTEN_FDNAMES={names}: the service manager does not mean this"


def test_a_descriptor_that_is_no_socket(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        said = run_and_read([file.fileno()], {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "http"})
    assert said.startswith("descriptor 3 (http) from the service manager is no socket (Socket operation on non-socket)")


def test_a_descriptor_that_is_not_there() -> None:
    assert "no socket (Bad file descriptor)" in run_and_read([], {"LISTEN_FDS": "1000000000"})


def test_the_master_keeps_them_over_a_hangup_and_its_children_have_none(harness: MasterHarness) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    script = msgspec.json.encode(MasterScript([("worker", "default", 1, "notes_descriptors"), KEEPER])).decode()
    variables = {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "http", "TARRY_TEST_MASTER": str(harness.directory)}
    with listener:
        master = start(
            [listener.fileno()],
            variables,
            sys.executable,
            "-m",
            "tests.runtime.scripted_roles",
            str(harness.directory),
            script,
        )
    until(lambda: harness.facts("serving"))
    socket.create_connection(address, timeout=15).close()
    master.send_signal(signal.SIGHUP)
    master.send_signal(signal.SIGUSR1)
    until(lambda: "master pid" in harness.log())
    socket.create_connection(address, timeout=15).close()
    (nosy,) = harness.facts("notes_descriptors")
    assert len([link for link in nosy["fds"] if "socket" in link]) == 1  # its line to the master
    master.send_signal(signal.SIGINT)
    assert harness.wait_for_exit(master) == (0, "")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=15)
