import os
import shutil
import signal
import subprocess
import sys

import pytest

from tarry.store.rules import owner
from tests.worker.bench import until


def parts(name: str) -> list[str]:
    return name.partition("|")[2].split(":")


def renamed(name: str, *, host: str | None = None, boot: str | None = None, pid: int | None = None) -> str:
    told, _, rest = name.partition("|")
    place, number, start, n = rest.split(":")
    return f"{host or told}|{boot or place}:{pid or number}:{start}:{n}"


def test_names_are_unique_and_this_process_lives() -> None:
    names = [owner.new_name() for _ in range(3)]
    assert len(set(names)) == 3
    assert not any(map(owner.is_dead, names))
    assert parts(names[0])[1] == str(os.getpid())


def test_a_process_is_dead_when_it_is_gone_and_also_before_its_parent_reaps_it() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, owner.new_name().encode())
        signal.pause()
        os._exit(0)
    name = os.read(reading, 1000).decode()
    assert parts(name)[1] == str(child)
    assert not owner.is_dead(name)
    os.kill(child, signal.SIGKILL)
    until(lambda: owner.is_dead(name))
    os.waitpid(child, 0)
    assert owner.is_dead(name)
    os.close(reading)
    os.close(writing)


def as_nobody(*words: str) -> "subprocess.CompletedProcess[str]":
    """The command, as a user who sees no process of others: as under ProtectProc=invisible of systemd."""
    hide = "mount -t proc -o hidepid=invisible proc /proc"
    become = 'exec setpriv --reuid 65534 --regid 65534 --clear-groups "$0" "$@"'
    command = ["unshare", "-m", "sh", "-c", f"{hide} && {become}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_who_may_not_see_a_process_does_not_take_it_for_dead() -> None:
    if shutil.which("unshare") is None or as_nobody(sys.executable, "-c", "import tarry").returncode:
        pytest.skip("this user may hide no processes, or another one cannot read what is installed")
    asks = "import sys; from tarry.store.rules import owner; print(*map(owner.is_dead, sys.argv[1:]))"
    told = as_nobody(sys.executable, "-c", asks, owner.new_name(), renamed(owner.new_name(), pid=2**22 + 1))
    assert told.stdout.split() == ["False", "True"], told.stderr


def test_a_recycled_pid_is_another_process() -> None:
    assert owner.is_dead(renamed(owner.new_name(), pid=1)), "pid 1 lives, but began at another time"


def test_of_another_host_boot_or_namespace_nothing_is_known() -> None:
    gone = renamed(owner.new_name(), pid=2**22 + 1)
    assert owner.is_dead(gone)
    boot, _, namespace = parts(gone)[0].partition(".")
    assert not owner.is_dead(renamed(gone, host="elsewhere"))
    assert not owner.is_dead(renamed(gone, boot=f"00000000.{namespace}"))
    assert not owner.is_dead(renamed(gone, boot=f"{boot}.1"))


def test_a_name_that_is_none_of_ours_is_not_dead() -> None:
    for name in ("", "x", "a:b:c", "beanstalk 5", owner.new_name().replace(":", "|"), ":::::"):
        assert not owner.is_dead(name)


def test_who_is_stopped_lives_and_is_not_at_work() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    name = f"{owner.process_owner(child)}:1"
    assert owner.is_running(name)
    os.kill(child, signal.SIGSTOP)
    until(lambda: not owner.is_running(name))
    assert owner.is_local(name)
    assert not owner.is_dead(name)
    os.kill(child, signal.SIGCONT)
    until(lambda: owner.is_running(name))
    os.kill(child, signal.SIGKILL)
    until(lambda: not owner.is_running(name))
    os.waitpid(child, 0)
    assert not owner.is_running(name)
    assert not owner.is_running(renamed(owner.new_name(), host="elsewhere"))
    assert not owner.is_local(renamed(owner.new_name(), host="elsewhere"))


def test_a_program_outside_is_never_known_to_be_dead() -> None:
    name, gone = owner.outside_name(), f"outside:{renamed(owner.new_name(), pid=2**22 + 1)}"
    assert owner.is_outside(name)
    assert name != owner.outside_name()
    assert not owner.is_outside(owner.new_name())
    assert not any(ask(one) for ask in (owner.is_dead, owner.is_running, owner.is_local) for one in (name, gone))


def test_a_door_is_dead_when_its_process_is() -> None:
    name = owner.door_name()
    assert owner.is_door(name)
    assert owner.is_running(name)
    assert owner.is_dead(renamed(name, pid=2**22 + 1))
    assert not any(map(owner.is_door, (owner.new_name(), owner.outside_name(), "ann", "")))
