"""The master opens the sockets, and its servers accept at them: over reloads and deaths nobody is refused."""

import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.errors import MasterError
from tarry.model.values.listen_address import listen_address
from tarry.runtime.sockets.activation import ActivationSockets
from tarry.runtime.sockets.listeners import Listeners, listened_at, open_socket
from tests.runtime.master_harness import KEEPER, MasterHarness, until
from tests.servers.server import free_port

TELLS = ("server", "", 2, "tells_pid")


def ask(address: str, limit: float = 20.0) -> str:
    """What the server at that address tells: its door and pid."""
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(limit)
        connection.connect(address.removeprefix("unix:"))
    else:
        host, port = address.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), timeout=limit)
    with connection:
        return connection.recv(100).decode()


def wait_for_reload(harness: MasterHarness, count: int = 1) -> None:
    until(lambda: harness.board().notice.done >= count)


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


class Caller:
    """Asks all the time, in a thread, until it is told to stop."""

    def __init__(self, address: str) -> None:
        self.answers: list[str] = []
        self.trouble: list[BaseException] = []
        self._address, self._over = address, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.answers.append(ask(self._address))
            except OSError as error:
                self.trouble.append(error)
            # Some hundred a second, and not all of the processor.
            time.sleep(0.002)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def test_nobody_is_refused_over_many_reloads(harness: MasterHarness, address: str) -> None:
    master = harness.serve(TELLS, KEEPER, listens={"http": [address]})
    caller = Caller(address)
    try:
        for number in range(1, 21):
            master.send_signal(signal.SIGHUP)
            wait_for_reload(harness, number)
    finally:
        caller.close()
    assert harness.board().notice.trouble == ""
    assert (caller.trouble, set(caller.answers) & {""}) == ([], set())
    assert len(set(caller.answers)) > 10
    master.send_signal(signal.SIGINT)
    assert harness.wait_for_exit(master) == (0, "")
    with pytest.raises(ConnectionRefusedError):
        ask(address)


def test_who_connects_while_no_server_lives_is_answered_by_the_next(harness: MasterHarness, address: str) -> None:
    harness.serve(("server", "", 1, "tells_pid"), KEEPER, listens={"http": [address]})
    for _ in range(3):
        (before,) = until(lambda: harness.ready("server"))
        os.kill(before, signal.SIGKILL)
        assert ask(address) != f"http {before}"


def test_each_door_has_its_own_sockets_and_others_have_none(harness: MasterHarness, address: str) -> None:
    second, third = f"127.0.0.1:{free_port()}", f"[::1]:{free_port()}"
    nosy = ("worker", "default", 1, "notes_descriptors")
    harness.serve(TELLS, nosy, KEEPER, listens={"http": [address, third], "beanstalk": [second]})
    assert [ask(one).split()[0] for one in (address, second, third.replace("[::1]", "::1"))] == [
        "http",
        "beanstalk",
        "http",
    ]
    assert [child.name for child in harness.children("server")] == ["server 1", "server 2"]
    (noted,) = harness.facts("notes_descriptors")
    assert len([link for link in noted["fds"] if "socket" in link]) == 1  # its line to the master


def test_a_reload_moves_to_another_address(harness: MasterHarness, address: str) -> None:
    master = harness.serve(TELLS, KEEPER, listens={"http": [address]})
    other = f"127.0.0.1:{free_port()}"
    harness.next(TELLS, KEEPER, listens={"http": [other]})
    master.send_signal(signal.SIGHUP)
    wait_for_reload(harness)
    assert ask(other).startswith("http ")
    until(lambda: refuses(address))


def refuses(address: str) -> bool:
    try:
        ask(address)
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it ended at this moment
        return False
    return False


def test_a_reload_that_cannot_listen_leaves_all_as_it_was(harness: MasterHarness, address: str) -> None:
    master = harness.serve(TELLS, KEEPER, listens={"http": [address]})
    before, free = harness.ready("server"), f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        there = f"127.0.0.1:{taken.getsockname()[1]}"
        harness.next(TELLS, KEEPER, listens={"http": [free, there]})
        master.send_signal(signal.SIGHUP)
        wait_for_reload(harness)
    assert f"http cannot listen at {there} (Address already in use)" in harness.board().notice.trouble
    assert harness.ready("server") == before
    assert ask(address).startswith("http ")
    assert refuses(free)


def test_a_reload_whose_canary_fails_closes_what_it_opened(harness: MasterHarness, address: str) -> None:
    master = harness.serve(TELLS, KEEPER, listens={"http": [address]})
    other = f"127.0.0.1:{free_port()}"
    harness.next(TELLS, KEEPER, listens={"http": [other]}, canary="canary_fails")
    master.send_signal(signal.SIGHUP)
    wait_for_reload(harness)
    assert refuses(other)
    assert ask(address).startswith("http ")


def test_a_start_that_cannot_listen_fails_with_one_line(harness: MasterHarness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        there = f"127.0.0.1:{taken.getsockname()[1]}"
        master = harness.start(TELLS, KEEPER, listens={"beanstalk": [there]})
        status, said = harness.wait_for_exit(master)
    assert status == 1
    assert said == (
        f"beanstalk cannot listen at {there} (Address already in use): set server.beanstalk to another address, or end"
        " what is there\n"
    )
    assert not harness.facts("ready")
    assert not harness.pid_file.exists()


def test_a_unix_socket_is_for_the_group_and_goes_with_the_master(harness: MasterHarness, tmp_path: Path) -> None:
    path = tmp_path / "new" / "tarry.sock"
    master = harness.serve(TELLS, KEEPER, listens={"http": [f"unix:{path}"]})
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert ask(f"unix:{path}").startswith("http ")
    master.send_signal(signal.SIGHUP)
    wait_for_reload(harness)
    assert ask(f"unix:{path}").startswith("http ")
    master.send_signal(signal.SIGINT)
    assert harness.wait_for_exit(master) == (0, "")
    assert not path.exists()


def test_a_unix_socket_that_a_dead_master_left_is_taken_over(harness: MasterHarness, tmp_path: Path) -> None:
    path = tmp_path / "tarry.sock"
    master = harness.serve(TELLS, KEEPER, listens={"http": [f"unix:{path}"]})
    master.kill()
    harness.wait_for_exit(master)
    until(lambda: not harness.ready("server") or path.exists())
    harness.close()
    assert path.exists()
    harness.serve(TELLS, KEEPER, listens={"http": [f"unix:{path}"]})
    assert ask(f"unix:{path}").startswith("http ")


def test_a_unix_socket_of_a_living_program_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(MasterError, match=r"^http cannot listen at unix:.*another program listens there"):
            open_socket("http", listen_address(f"unix:{path}"), 10)
    assert path.exists()


def test_a_file_is_never_removed_for_a_socket(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MasterError, match="a file is there, and no socket"):
        open_socket("http", listen_address(f"unix:{tmp_path}/file"), 10)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", ""])
def test_a_socket_tells_where_it_listens(host: str) -> None:
    address = listen_address(f"{host}:{free_port()}")
    with open_socket("http", address, 10) as listener:
        assert listened_at(listener) == address
        assert not listener.getblocking()
        assert not listener.get_inheritable()


@pytest.fixture
def given() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as given:
        yield given


def activated(given: socket.socket, name: str) -> ActivationSockets:
    found = ActivationSockets({})
    found.by_name[name] = [given]
    return found


def test_the_service_managers_socket_is_used_where_it_is_the_one_that_is_wanted(given: socket.socket) -> None:
    address = listened_at(given)
    listeners = Listeners(activated(given, "http"))
    listeners.open({"http": [address]}, 10)
    assert listeners.sockets_for({"http": [address]}) == {"http": [given]}
    listeners.keep_only({})
    # It stays open for a reload that wants it again.
    listeners.open({"http": [address]}, 10)
    listeners.close()
    assert given.fileno() == -1


def test_one_of_another_name_or_place_is_not_used(given: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    listeners = Listeners(activated(given, "beanstalk"))
    with pytest.raises(MasterError, match="http cannot listen at"):
        listeners.open({"http": [listened_at(given)]}, 10)
    wanted = {"beanstalk": [listen_address(f"127.0.0.1:{free_port()}")]}
    listeners.open(wanted, 10)
    assert given not in listeners.sockets_for(wanted)["beanstalk"]
    assert f"the service manager's beanstalk at {listened_at(given)} is not used: server.beanstalk" in caplog.text
    listeners.close()


def test_what_cannot_be_opened_whole_is_not_opened_in_part(given: socket.socket) -> None:
    listeners, free = Listeners(ActivationSockets({})), listen_address(f"127.0.0.1:{free_port()}")
    with pytest.raises(MasterError):
        listeners.open({"http": [free, listened_at(given)]}, 10)
    open_socket("http", free, 10).close()
