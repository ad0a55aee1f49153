"""`tarry store`: tells how stores are; repairs the file of a SQLite store."""

from functools import partial
from pathlib import Path

from msgspec import Struct

from tarry.alert.stores import shards_of
from tarry.cli.operate.method_command import CommandCall, Subject, add_methods, command_method
from tarry.cli.shared.printing import print_table
from tarry.errors import UsageError
from tarry.model.quantity import Short
from tarry.operate.stores import StoreList, StoreRecord, list_stores
from tarry.store.opening import sqlite_files
from tarry.store.shards.identity import StoreMemory
from tarry.store.sqlite.damage.salvage import SavedTable
from tarry.terminal import print_line


class RepairOptions(Struct, frozen=True):
    """What to repair."""

    file: Short | None = None
    """This one; else the SQLite files of the settings."""


class FileRepair(Struct, frozen=True):
    """What was done to a file."""

    file: str
    damaged: list[str]
    tables: list[SavedTable]
    kept: str | None
    """The old file; null: it was whole."""

    @property
    def is_lossy(self) -> bool:
        """Whether rows are lost, or may be."""
        return any(table.lost != 0 for table in self.tables)


class StoreRepair(Struct, frozen=True):
    """What was done."""

    files: list[FileRepair]


class AcceptedStores(Struct, frozen=True):
    """Stores that are right as they are."""

    stores: list[str]


@command_method("store repair")
def repair_store(call: CommandCall, body: RepairOptions) -> StoreRepair:
    """Makes a new file of what can be read of a damaged one."""
    paths = [Path(body.file)] if body.file else [path for path, _ in sqlite_files(call.setup.config.stores)]
    if not paths:
        raise UsageError("no store of the settings is a SQLite file; other stores are repaired by their server's means")
    call.subject = " ".join(map(str, paths))
    return StoreRepair([_repair(path) for path in paths])


def _repair(path: Path) -> FileRepair:
    # It opens a store, and most commands of this module's parser do not.
    from tarry.store.sqlite.damage.repair import repair  # noqa: PLC0415

    report = repair(path)
    return FileRepair(str(path), [tree.name for tree in report.damaged], report.tables, report.kept or None)


@command_method("store accept")
def accept_store(call: CommandCall) -> AcceptedStores:
    """Takes a store as it is that came back empty or older than it was."""
    memory, shards = StoreMemory.beside(call.setup.config.master.pid_file), shards_of(call.client.store)
    for shard in shards:
        memory.accept(shard, shard.ask(lambda one: one.time()))
    return AcceptedStores([shard.url for shard in shards])


def _print_list(_: CommandCall, found: StoreList) -> None:
    print_table(("store", "is", "latency"), [(one.url, _state(one), _latency(one)) for one in found.stores])
    for one in found.stores:
        if one.facts:
            print_line(f"\n{one.url}")
            print_table(("fact", "value", "change"), [(fact.name, fact.value, fact.advice) for fact in one.facts])


def _state(one: StoreRecord) -> str:
    return one.trouble or ("draining" if one.draining else "up")


def _latency(one: StoreRecord) -> str:
    return "-" if one.latency is None else f"{one.latency * 1000:.1f} ms"


def _print_repair(_: CommandCall, found: StoreRepair) -> None:
    for one in found.files:
        if not one.kept:
            print_line(f"{one.file} is whole.")
            continue
        print_line(f"{one.file}: damaged were {', '.join(one.damaged)}")
        rows = [
            (table.table, table.saved, "not known" if table.lost is None else table.lost)
            for table in one.tables
            if table.saved or table.lost != 0
        ]
        print_table(("table", "saved", "lost"), rows)
        lost = "some rows may be lost" if one.is_lossy else "nothing is lost"
        print_line(f"{one.file} is a new file: {lost}. The old one is kept: {one.kept}")


def _print_accepted(_: CommandCall, found: AcceptedStores) -> None:
    for url in found.stores:
        print_line(f"{url} is accepted as it is.")


def _is_done(found: StoreList | StoreRepair | AcceptedStores) -> bool:
    if isinstance(found, StoreList):
        return not any(one.trouble for one in found.stores)
    return isinstance(found, AcceptedStores) or not any(one.is_lossy for one in found.files)


SUBJECT = Subject(
    (list_stores, repair_store, accept_store),
    {"list": _print_list, "repair": _print_repair, "accept": _print_accepted},
    "tell how stores are; repair a damaged SQLite file; accept a store that is not as it was",
    """list: whether each store answers, how fast, and what an operator should know of it. repair: looks at the whole
    file. If it is damaged, all rows that can be read go into a new file, with new indexes; the old file is kept beside
    it. Stop all that use the file first. accept: a store that came back empty or
    older than it was is right as it is; `tarry check` and alerts no longer tell of it.""",
    is_done=_is_done,
    warns=False,
)
add = partial(add_methods, "store", SUBJECT)
