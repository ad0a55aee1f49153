import itertools
import os
import signal
import struct
import time
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.errors import MasterError
from tarry.runtime.board.master_status import MasterStatus, PoolStatus
from tarry.runtime.board.reader import Board, BoardJob, read
from tarry.runtime.board.scoreboard import Scoreboard, board_path
from tarry.runtime.board.slot import BoardSlot
from tests.runtime.master_harness import until

ID, OTHER = bytes(range(16)), bytes(range(1, 17))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "board"


def start_slot(board: Scoreboard, number: int = 1, cells: int = 1) -> BoardSlot:
    slot = board.allocate(cells)
    slot.prepare("worker", "default", number, 1)
    return slot


def read_board(path: Path) -> Board:
    board = read(path)
    assert board is not None
    return board


def test_what_is_written_is_read(path: Path) -> None:
    board = Scoreboard(path, [2])
    board.allocate(1)
    slot = start_slot(board, 2, cells=2)
    slot.set_pid(77)
    slot.set_owner("host:77:ünïcode")
    slot.count(2**40, 5)
    slot.beat(2**33)
    slot.set_boot_state("ready")
    slot.on(1, ID, 2**35, b"shop.send", time.monotonic() + 5)
    board.set_state("serving")
    whole = read_board(path)
    (child,) = whole.children
    assert (whole.pid, whole.state) == (os.getpid(), "serving")
    assert abs(whole.started - time.time()) < 60
    assert (child.role, child.pool, child.number, child.generation, child.pid) == ("worker", "default", 2, 1, 77)
    assert (child.owner, child.processed, child.failed, child.rss) == ("host:77:ünïcode", 2**40, 5, 2**33)
    assert (child.boot, child.last_exit, child.name) == ("ready", "", "worker default.2")
    assert child.running == [BoardJob(str(UUID(bytes=ID)), "shop.send", child.running[0].seconds, 2**35)]
    assert 0 <= child.running[0].seconds < 60
    assert slot.owner() == "host:77:ünïcode"


def test_off_ends_a_job_and_only_that(path: Path) -> None:
    slot = start_slot(Scoreboard(path), cells=2)
    slot.on(0, ID, 1, b"one", 0.0)
    slot.on(1, OTHER, 1, b"two", 0.0)
    slot.off(0)
    assert [cell.id for cell in slot.cells()] == [OTHER]
    slot.on(1, ID, 2, b"three", 0.0)
    assert [(cell.id, cell.task) for cell in slot.cells()] == [(ID, "three")]


def test_slots_do_not_touch_each_other(path: Path) -> None:
    board = Scoreboard(path)
    slots = [start_slot(board, n) for n in range(3)]
    for n, slot in enumerate(slots):
        slot.set_owner("o" * 120)
        slot.on(0, ID, n, b"t" * 500, 0.0)
        slot.count(n, n)
        slot.beat(n)
    slots[1].mark_exited("e" * 500)
    first, middle, last = read_board(path).children
    assert [child.owner for child in (first, middle, last)] == ["o" * 120] * 3
    assert [len(child.running) for child in (first, middle, last)] == [1, 0, 1]
    assert [child.processed for child in (first, middle, last)] == [0, 1, 2]
    assert (middle.boot, middle.last_exit, last.last_exit) == ("gone", "e" * 120, "")


def test_the_next_process_begins_anew_and_keeps_how_the_last_one_ended(path: Path) -> None:
    slot = start_slot(Scoreboard(path))
    slot.set_owner("first")
    slot.count(9, 9)
    slot.on(0, ID, 1, b"one", 0.0)
    slot.mark_exited("signal 9")
    slot.prepare("worker", "default", 1, 1)
    (child,) = read_board(path).children
    assert (child.boot, child.owner, child.processed, child.running) == ("starting", "", 0, [])
    assert (child.last_exit, child.heartbeat) == ("signal 9", -1.0)


def test_a_name_that_is_cut_inside_a_letter_still_reads(path: Path) -> None:
    slot = start_slot(Scoreboard(path))
    slot.on(0, ID, 1, ("ü" * 100).encode()[1:], 0.0)
    assert slot.cells()[0].task == "ü" * 39


def test_too_long_an_owner_is_refused(path: Path) -> None:
    slot = start_slot(Scoreboard(path))
    with pytest.raises(MasterError, match="longer than 120 bytes"):
        slot.set_owner("ü" * 61)


def test_the_next_master_does_not_share_the_file(path: Path) -> None:
    orphan = start_slot(Scoreboard(path))
    Scoreboard(path)
    orphan.on(0, ID, 1, b"one", 0.0)
    orphan.set_boot_state("ready")
    assert read_board(path).children == []


def test_removed_it_is_gone(path: Path) -> None:
    Scoreboard(path).remove()
    assert read(path) is None
    assert list(path.parent.iterdir()) == []


def test_a_job_is_never_seen_with_the_facts_of_another(path: Path) -> None:
    slot = start_slot(Scoreboard(path))
    writer = os.fork()
    if writer == 0:
        while True:
            slot.on(0, ID, 1, b"one" * 26, 0.0)
            slot.on(0, OTHER, 2, b"two" * 26, 0.0)
            slot.off(0)
    met: set[tuple[bytes, int, str]] = set()

    def both_met() -> bool:
        met.update((cell.id, cell.epoch, cell.task) for _ in range(20_000) for cell in slot.cells())
        return len(met) > 1

    try:
        until(both_met)
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    assert met == {(ID, 1, "one" * 26), (OTHER, 2, "two" * 26)}


def test_where_there_is_no_board_none_is_read(path: Path) -> None:
    assert read(path) is None
    assert read(path.parent) is None
    assert read(path / "below") is None
    assert board_path(Path("run/tarry.pid")) == Path("run/tarry.pid.board")


@settings(deadline=None)
@given(size=st.integers(0, 16384 + 512 + 127))
def test_a_truncated_board_is_none(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.mktemp("boards") / "board"
    start_slot(Scoreboard(path, [1, 1]))
    whole = path.read_bytes()
    path.write_bytes(whole[: min(size, len(whole) - 1)])
    assert read(path) is None


@settings(deadline=None)
@given(garbage=st.binary(max_size=3000), keep=st.integers(0, 200) | st.integers(16300, 17000))
def test_garbage_is_survived(tmp_path_factory: pytest.TempPathFactory, garbage: bytes, keep: int) -> None:
    path = tmp_path_factory.mktemp("boards") / "board"
    start_slot(Scoreboard(path, [1, 1]))
    whole = path.read_bytes()
    path.write_bytes((whole[:keep] + garbage).ljust(len(whole), b"\xff")[: len(whole)])
    try:
        board = read(path)
    except MasterError:
        return
    assert board is None or len(board.children) <= 2


def test_another_release_is_named(path: Path) -> None:
    Scoreboard(path)
    whole = bytearray(path.read_bytes())
    struct.pack_into("=I", whole, 8, 1)
    path.write_bytes(whole)
    with pytest.raises(MasterError, match="another release of tarry"):
        read(path)


def write_forever(path: Path) -> None:
    """Two that stay and count, one that comes and goes, and what the master tells."""
    board = Scoreboard(path, [2])
    stay = [start_slot(board, number) for number in (1, 2)]
    board.publish(MasterStatus(pools=[PoolStatus("default", 2)]))
    for turn in itertools.count(1):
        for slot in stay:
            slot.set_pid(turn)
            slot.count(turn, turn)
            slot.beat(turn)
        guest = board.allocate(1 + turn % 3)
        guest.prepare("guest", "", 1, 1)
        board.release(guest)
        board.publish(MasterStatus(turn, pools=[PoolStatus("default", 2)]))
        board.set_state("serving")


def test_a_reader_never_meets_what_was_not_so(path: Path) -> None:
    writer = os.fork()
    if writer == 0:
        try:
            write_forever(path)
        finally:
            os._exit(1)
    try:
        until(lambda: (board := read(path)) and board.state == "serving")
        for _ in range(3000):
            board = read_board(path)
            first, second = [child for child in board.children if child.role == "worker"]
            assert min(first.pid, first.processed, first.failed, first.rss, second.pid) > 0
            assert min(first.heartbeat, second.heartbeat) >= 0
            assert board.notice.pools == [PoolStatus("default", 2)]
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
