"""The room set aside for a full disk; what a full disk itself does is in tests/system."""

import os
from pathlib import Path

import pytest

from tarry.store.sqlite.reserve import ROOM, Reserve


@pytest.mark.parametrize("before", ["never made", "spent"])
def test_the_disk_is_never_said_to_be_full_because_the_reserve_is_being_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    reserve, said = Reserve(tmp_path / "q.db"), []
    if before == "spent":
        reserve.keep()
        assert reserve.spend()
    fill = os.posix_fallocate

    def watched(fd: int, start: int, length: int) -> None:
        said.append(Reserve(tmp_path / "q.db").spent)
        fill(fd, start, length)

    monkeypatch.setattr(os, "posix_fallocate", watched)
    reserve.keep()
    assert said == [before == "spent"], "as it was until the room is there"
    assert not reserve.spent
    assert os.stat(tmp_path / "q.db-reserve").st_blocks * 512 >= ROOM


def test_a_reserve_is_spent_once(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "q.db")
    assert not reserve.spend(), "there is none yet"
    reserve.keep()
    assert reserve.spend()
    assert reserve.spent
    assert not reserve.spend()


def test_what_a_killed_process_left_half_filled_is_used(tmp_path: Path) -> None:
    (tmp_path / "q.db-reserve-new").write_bytes(b"")
    Reserve(tmp_path / "q.db").keep()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.db-reserve"]
