"""The room set aside for a full disk; what a full disk itself does is in tests/system."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tarry import platform
from tarry.errors import StoreFull
from tarry.model import lifecycle
from tarry.model.job import Job
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import LEASE, NOW, put, taken
from tarry.store.sqlite.link.reserve import LEAST, ROOM, Reserve
from tarry.store.sqlite.store import SqliteStore
from tests.cli.disk import MB, Disk


@pytest.mark.parametrize("before", ["never made", "spent"])
def test_the_disk_is_never_said_to_be_full_because_the_reserve_is_being_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    reserve, said = Reserve(tmp_path / "q.db"), []
    if before == "spent":
        reserve.keep()
        assert reserve.spend()
    fill = platform.allocate

    def watched(fd: int, size: int) -> None:
        said.append(Reserve(tmp_path / "q.db").spent)
        fill(fd, size)

    monkeypatch.setattr(platform, "allocate", watched)
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


def disk_of(total: int, free: int) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, total // 4096, free // 4096, free // 4096, 0, 0, 0, 0, 255))


@pytest.mark.parametrize(
    ("total", "free", "size"),
    [
        (10**12, 33 * MB, ROOM),
        (10**12, 20 * MB, 10 * MB),
        (10**12, 4 * MB, LEAST),
        (10**12, 3 * MB, 0),
        (64 * MB, 60 * MB, 8 * MB),
        (12 * MB, 10 * MB, LEAST),
        (12 * MB, 3 * MB, 0),
    ],
)
def test_the_reserve_fits_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, free: int, size: int
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk_of(total, free))
    reserve = Reserve(tmp_path / "q.db")
    assert reserve.describe().value == "none yet: the first worker sets it aside"
    reserve.keep()
    assert (tmp_path / "q.db-reserve").stat().st_size == size
    assert reserve.spent == (size == 0), "with next to nothing left, producers are refused"
    assert bool(reserve.describe().advice) == reserve.spent
    assert reserve.describe().value.startswith("in use" if reserve.spent else f"{size // MB} MB")


def test_on_a_full_disk_free_pages_of_the_database_are_room_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk_of(64 * MB, MB))
    reserve = Reserve(tmp_path / "q.db")
    reserve.keep(spare=9 * MB)
    assert not reserve.spent
    reserve.keep(spare=8 * MB)
    assert reserve.spent
    reserve.keep(spare=9 * MB)
    assert not reserve.spent


@pytest.mark.parametrize("size", [5 * MB, 8 * MB, 24 * MB])
def test_on_a_small_disk_that_is_full_all_jobs_end(tmp_path: Path, size: int) -> None:
    disk = Disk(tmp_path / "small", size)
    try:
        path = disk.path / "q.db"
        worker, producer = SqliteStore(path, durable=False), SqliteStore(path)
        stored = fill(producer)
        ended = 0
        while jobs := taken(worker, 20):
            for answer in (finish(worker, jobs[:10]), finish(worker, jobs[10:])):
                ended += sum(answer)
            with pytest.raises(StoreFull):
                put(producer, 5, body=b"x" * 20_000)
        assert ended == stored > 0
        worker.close()
        producer.close()
    finally:
        disk.close()


def fill(store: SqliteStore) -> int:
    """Stores jobs until they are refused; answers how many."""
    for count in range(1000):
        try:
            put(store, 5, body=b"x" * 20_000)
        except StoreFull:
            return 5 * count
    raise AssertionError("the disk is never full")


def finish(store: SqliteStore, jobs: list[Job]) -> Sequence[bool]:
    changes = [lifecycle.after(job, Returned(b"1"), lifecycle.DEFAULT, NOW + 1) for job in jobs]
    return store.exchange(changes, (), 0, "ann", LEASE, NOW + 1).valid
