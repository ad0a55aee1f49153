"""A disk that takes no board, or not all of it: a worker starts all the same, and finds its jobs by itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tarry import App, platform
from tarry.store.shared.wakeup.board import SLOTS, WakeupBoard, board_directory


def _a_file(board: Path) -> None:
    board.write_text("")


def _no_flags(board: Path) -> None:
    (board / "board").mkdir(parents=True)


def _no_lock(board: Path) -> None:
    (board / "0.lock").mkdir(parents=True)


def _no_socket(board: Path) -> None:
    (board / "0.sock").mkdir(parents=True)


@pytest.mark.parametrize("spoil", [_a_file, _no_flags, _no_lock, _no_socket])
def test_a_worker_runs_where_no_board_can_be_made(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    spoil(board_directory(tmp_path / "jobs.db"))
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    ran: list[int] = []
    app.task(name="note")(ran.append).enqueue(1)
    assert (app.drain(), ran) == (1, [1])
    app.close()


def test_a_sleeper_without_a_slot_hears_its_own_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(fd: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(platform, "allocate", full)
    board = WakeupBoard(tmp_path / "board")
    sleeper = board.wakeup()
    sleeper.listen("mail")
    assert not sleeper.is_listening()
    sleeper.wake()
    assert sleeper.wait(5) != b""
    sleeper.close()
    board.close()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_board_has_its_blocks_before_it_is_mapped(is_there: bool, tmp_path: Path) -> None:
    """A page without one kills whoever writes into it once the disk is full."""
    file = tmp_path / "board" / "board"
    if is_there:
        file.parent.mkdir()
        with file.open("wb") as sparse:
            sparse.truncate(SLOTS)
    board = WakeupBoard(tmp_path / "board")
    board.wakeup().close()
    assert file.stat().st_blocks * 512 >= SLOTS
    board.close()
