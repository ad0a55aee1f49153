"""Makes a new file of what can be read of a damaged one, with all indexes anew, and keeps the old one beside it."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
from msgspec import Struct

from tarry import errors, files
from tarry.platform import CLOEXEC
from tarry.store.sqlite.damage.pages import Pages
from tarry.store.sqlite.damage.salvage import Salvage, SavedTable
from tarry.store.sqlite.damage.trees import DamagedTree, damaged_trees
from tarry.store.sqlite.file import take_alone, transaction, translate_errors
from tarry.store.sqlite.link import wal, wal_index
from tarry.store.sqlite.link.damage_mark import DamageMark
from tarry.store.sqlite.link.database import ApswDatabase
from tarry.store.sqlite.schema import APPLICATION_ID, STEPS, SqliteSchema
from tarry.store.sqlite.store import SqliteStore


class RepairReport(Struct, frozen=True):
    """What was done. kept: the old file, as it was; empty if there was nothing to repair."""

    damaged: list[DamagedTree]
    tables: list[SavedTable]
    kept: str = ""


def repair(path: Path) -> RepairReport:
    """Repairs the file at this path, if it is damaged. Nothing changes in it until all that can be read is in the new
    one.

    StoreBusy: a process has it open. StoreForeign: nothing of it can be read, or it is no file of tarry's own.
    StoreCorrupt: its log is lost. StoreFull: the disk has no room for another one.
    """
    path = path.resolve()
    if not path.exists():
        raise errors.StoreMissing(f"sqlite:///{path}")
    wal.refuse_emptied(path)
    wal_index.refuse_cut(path)
    with translate_errors(path), _alone(path) as database:
        damaged = damaged_trees(database, "integrity_check")
        report = _build(database, path, damaged) if damaged else RepairReport([], [])
        DamageMark(path).clear()
    if report.kept:
        _recount(path)
    return report


@contextmanager
def _alone(path: Path) -> Iterator[ApswDatabase]:
    """A connection while no other process has the file open, with the log merged into the file."""
    database = ApswDatabase(path)
    try:
        with suppress(apsw.CorruptError):
            # Without a log nothing beside the new file is the old one's.
            take_alone(database)
            database.execute("BEGIN EXCLUSIVE")
            database.execute("ROLLBACK")
            # What a killed process left: without its log it would be taken for the sign of a loss.
            if not wal.log_of(path).exists():
                path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
        yield database
    except apsw.BusyError:
        raise errors.StoreBusy(
            f"{path} is in use: stop all that use it first (`tarry quit`, and who enqueues); see `fuser {path}`"
        ) from None
    except apsw.NotADBError:
        raise _not_ours(path) from None
    finally:
        database.close(True)


def _build(database: ApswDatabase, path: Path, damaged: list[DamagedTree]) -> RepairReport:
    _check_room(path)
    fresh = path.with_name(f"{path.name}-repaired")
    # Open until the end: closing it would end SQLite's lock on the file.
    descriptor = os.open(path, os.O_RDONLY | CLOEXEC)
    try:
        pages = Pages(descriptor)
        _check_ours(pages, path)
        with closing(_make(fresh)) as new, transaction(new):
            tables = Salvage(database, pages, damaged, new).save()
        return RepairReport(damaged, tables, str(_put_in_place(fresh, path)))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(fresh)
        os.close(descriptor)


def _make(fresh: Path) -> ApswDatabase:
    for leftover in (fresh, fresh.with_name(f"{fresh.name}-journal")):
        leftover.unlink(missing_ok=True)
    files.make(fresh)
    database = ApswDatabase(fresh)
    with transaction(database):
        SqliteSchema(database, fresh, shared=False).bring_up()
    return database


def _check_room(path: Path) -> None:
    size = path.stat().st_size
    if shutil.disk_usage(path.parent).free < size:
        raise errors.StoreFull(f"{path}: a new file beside it needs {size / 1e6:,.0f} MB of free disk; make room first")


def _check_ours(pages: Pages, path: Path) -> None:
    if pages.application != APPLICATION_ID:
        raise _not_ours(path)
    if pages.user_version != len(STEPS):
        raise errors.StoreError(
            f"{path} is of another version of tarry (schema {pages.user_version}, here {len(STEPS)}); nothing was"
            " changed. Repair it with that version"
        )


def _not_ours(path: Path) -> errors.StoreForeign:
    return errors.StoreForeign(
        f"{path} is no file of tarry's own, or its first page is lost; nothing was changed. Restore a backup, or try"
        f" sqlite3 {path} .recover"
    )


def _put_in_place(fresh: Path, path: Path) -> Path:
    """Puts the new file in the place of the old one; answers where that is now."""
    kept = path.with_name(f"{path.name}-before-repair-{time.strftime('%Y%m%dT%H%M%S')}")
    old = path.stat()
    os.chmod(fresh, old.st_mode & 0o777)
    with suppress(PermissionError):
        os.chown(fresh, old.st_uid, old.st_gid)
    # A second name, and then one step: at each moment there is a file, and never an empty one.
    os.link(path, kept)
    os.replace(fresh, path)
    return kept


def _recount(path: Path) -> None:
    store = SqliteStore(path)
    try:
        store.recount(store.time())
    finally:
        store.close()
