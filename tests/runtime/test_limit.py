"""Another process sets the time after which a job's process is killed."""

from pathlib import Path

from tarry.model.killing import LEASE_LOST
from tarry.runtime.board.scoreboard import Scoreboard, set_kill_time

ID, OTHER = bytes(range(16)), bytes(range(1, 17))


def test_only_that_attempt_of_that_owner_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "board"
    board = Scoreboard(path)
    mine, others = board.allocate(2), board.allocate(2)
    for slot, owner in ((mine, "me"), (others, "them")):
        slot.prepare("worker", "default", 1, 1)
        slot.set_owner(owner)
        slot.on(0, ID, 3, b"task", 0.0)
        slot.on(1, OTHER, 3, b"task", 50.0)
    assert set_kill_time(path, "me", ID, 3, 100.0, LEASE_LOST)
    assert [cell.kill_at for cell in mine.cells()] == [100.0, 50.0]
    assert [cell.why for cell in mine.cells()] == ["though its lease was lost", "past its timeout"]
    assert set_kill_time(path, "me", ID, 3, 200.0)
    assert set_kill_time(path, "me", OTHER, 3, 100.0)
    assert [cell.kill_at for cell in mine.cells()] == [100.0, 50.0], "an earlier time stands"
    assert not set_kill_time(path, "me", ID, 4, 100.0)
    assert not set_kill_time(path, "nobody", ID, 3, 100.0)
    assert [cell.kill_at for cell in others.cells()] == [0.0, 50.0]
    board.remove()
    assert not set_kill_time(path, "me", ID, 3, 100.0)


def test_what_is_no_board_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "board"
    for content in (b"", b"x" * 100):
        path.write_bytes(content)
        assert not set_kill_time(path, "me", ID, 3, 100.0)
        assert path.read_bytes() == content
