"""`tarry store`: repairs the file of a SQLite store."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tarry.alert.stores import shards_of
from tarry.cli.printing import print_json, print_table
from tarry.errors import UsageError
from tarry.process.loading import CommandContext
from tarry.store.opening import sqlite_files
from tarry.store.shards.identity import StoreMemory
from tarry.terminal import say

if TYPE_CHECKING:
    from tarry.store.sqlite.damage.repair import RepairReport


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    store = commands.add_parser(
        "store",
        help="repair a damaged SQLite file; accept a store that is not as it was",
        description="""repair: looks at the whole file. If it is damaged, all rows that can be read go into a new file,
        with new indexes; the old file is kept beside it. Stop all that use the file first. accept: a store that came
        back empty or older than it was is right as it is; `tarry check` and alerts no longer tell of it.""",
    )
    store.add_argument("action", choices=("repair", "accept"))
    store.add_argument("--file", metavar="PATH", help="this one; else the SQLite files of the settings")
    store.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 1 if rows are lost, or may be."""
    setup = CommandContext.of(args)
    if args.action == "accept":
        return _accept(setup)
    paths = [Path(args.file)] if args.file else [path for path, _ in sqlite_files(setup.config.stores)]
    if not paths:
        raise UsageError("no store of the settings is a SQLite file; other stores are repaired by their server's means")
    return max(_repair(path, args.json) for path in paths)


def _accept(setup: CommandContext) -> int:
    memory, store = StoreMemory.beside(setup.config.master.pid_file), setup.client.store
    for shard in shards_of(store):
        memory.accept(shard, shard.ask(lambda one: one.time()))
        say(f"{shard.url} is accepted as it is.")
    return 0


def _repair(path: Path, json: bool) -> int:
    # It opens a store, and most commands of this module's parser do not.
    from tarry.store.sqlite.damage.repair import repair  # noqa: PLC0415

    report = repair(path)
    is_lossy = any(table.lost != 0 for table in report.tables)
    if json:
        print_json({"file": str(path), **_facts(report)})
        return int(is_lossy)
    if not report.kept:
        say(f"{path} is whole.")
        return 0
    say(f"{path}: damaged were {', '.join(tree.name for tree in report.damaged)}")
    rows = [
        (table.table, table.saved, "not known" if table.lost is None else table.lost)
        for table in report.tables
        if table.saved or table.lost != 0
    ]
    print_table(("table", "saved", "lost"), rows)
    lost = "some rows may be lost" if is_lossy else "nothing is lost"
    say(f"{path} is a new file: {lost}. The old one is kept: {report.kept}")
    return int(is_lossy)


def _facts(report: "RepairReport") -> dict[str, object]:
    return {
        "damaged": [tree.name for tree in report.damaged],
        "tables": report.tables,
        "kept": report.kept or None,
    }
