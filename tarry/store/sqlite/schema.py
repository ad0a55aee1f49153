"""The embedded store's tables: makes them, tells their version, and brings older ones up to date.

A table says the version, and which versions may use the file. In a file of tarry's own the header names tarry and the
version too, for whoever repairs a damaged one; a header of another program is left alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tarry import errors
from tarry.model.job import LABEL_MARK
from tarry.store.shared.columns import ColumnKind
from tarry.store.shared.schema_steps import (
    Schema,
    SchemaStep,
    SchemaVersion,
    oldest_allowed,
    refuse_newer,
    unreleased,
)
from tarry.store.sql.columns import ColumnTypes, column_definitions
from tarry.store.sqlite.link.database import Database

# "tary": by it `file` and the store tell tarry's databases from others.
APPLICATION_ID = 0x74617279

_TYPES: ColumnTypes = {
    "n": "INTEGER PRIMARY KEY",
    ColumnKind.ID: "BLOB NOT NULL UNIQUE",
    ColumnKind.STATE: "INTEGER NOT NULL",
    ColumnKind.NUMBER: "INTEGER NOT NULL",
    ColumnKind.COUNT: "INTEGER NOT NULL",
    ColumnKind.NAME: "TEXT NOT NULL",
    ColumnKind.OPTIONAL: "TEXT",
    # Last: what comes before them is read without their pages.
    ColumnKind.BLOB: "BLOB NOT NULL",
}
# The indexes are partial: scheduled and finished jobs, however many, cost a claim nothing. `state_since > due` splits
# late jobs from jobs on time, so that a claim finds the first of both.
SCHEMA = f"""
CREATE TABLE tarry_job ({", ".join(column_definitions(_TYPES))}) STRICT;
CREATE INDEX tarry_ready     ON tarry_job (queue, (state_since > due), claim_order, due, id)
    WHERE state = 1 AND lane IS NULL;
CREATE INDEX tarry_laned     ON tarry_job
    (queue, (claim_order > 0) - (claim_order < 0), task, lane, claim_order, due, id)
    WHERE state = 1 AND lane IS NOT NULL;
CREATE INDEX tarry_scheduled ON tarry_job (due, id)              WHERE state = 0;
CREATE INDEX tarry_running   ON tarry_job (owner)                WHERE state = 2;
CREATE INDEX tarry_finished  ON tarry_job (keep_until, id)            WHERE state >= 3;
CREATE UNIQUE INDEX tarry_key ON tarry_job (task, key)           WHERE key IS NOT NULL AND key_held_until > 0;
CREATE TABLE tarry_owner  (name TEXT PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tarry_hold   (name TEXT PRIMARY KEY, owner TEXT NOT NULL, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tarry_paused (queue TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE tarry_cell   (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tarry_limit  (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tarry_level  (name TEXT PRIMARY KEY, running INTEGER NOT NULL, next INTEGER NOT NULL, turn TEXT)
    STRICT, WITHOUT ROWID;
CREATE TABLE tarry_lane   (queue TEXT NOT NULL, band INTEGER NOT NULL, task TEXT NOT NULL, lane TEXT NOT NULL,
    again INTEGER, PRIMARY KEY (queue, band, task, lane)) STRICT, WITHOUT ROWID;
CREATE INDEX tarry_open   ON tarry_lane (queue, band, task, lane) WHERE again IS NULL;
CREATE INDEX tarry_closed ON tarry_lane (task, lane)              WHERE again IS NOT NULL;
CREATE INDEX tarry_again  ON tarry_lane (again)                   WHERE again IS NOT NULL;
CREATE TABLE tarry_journal (n INTEGER PRIMARY KEY, record BLOB NOT NULL) STRICT;
CREATE TABLE tarry_history (resolution INTEGER NOT NULL, start INTEGER NOT NULL, queue TEXT NOT NULL,
    task TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (resolution, start, queue, task)) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO tarry_history VALUES (-1, 0, '', '', x'');
CREATE TABLE tarry_flow   (id BLOB PRIMARY KEY, phase INTEGER NOT NULL, at INTEGER NOT NULL, size INTEGER NOT NULL,
    active INTEGER NOT NULL, blocked INTEGER NOT NULL, failed INTEGER NOT NULL, armed INTEGER NOT NULL,
    ends INTEGER NOT NULL, undo INTEGER NOT NULL, keep_done INTEGER NOT NULL, keep_dead INTEGER NOT NULL,
    note BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX tarry_flow_at ON tarry_flow (phase, at, id, size);
CREATE TABLE tarry_gate   (flow BLOB NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, waits INTEGER NOT NULL,
    next INTEGER NOT NULL, PRIMARY KEY (flow, first)) STRICT, WITHOUT ROWID;
CREATE INDEX tarry_gate_open ON tarry_gate (flow, first)          WHERE next >= 0;
CREATE TABLE tarry_signal (name TEXT NOT NULL, key TEXT NOT NULL, n INTEGER NOT NULL, id BLOB NOT NULL,
    value BLOB NOT NULL, until INTEGER NOT NULL, newest INTEGER NOT NULL, PRIMARY KEY (name, key, n))
    STRICT, WITHOUT ROWID;
CREATE INDEX tarry_signal_until ON tarry_signal (until);
CREATE TABLE tarry_awaiting (job BLOB PRIMARY KEY, name TEXT NOT NULL, key TEXT NOT NULL, epoch INTEGER NOT NULL,
    seen INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX tarry_awaited ON tarry_awaiting (name, key, job);
CREATE TABLE tarry_label (name TEXT NOT NULL, value TEXT NOT NULL, job BLOB NOT NULL,
    PRIMARY KEY (name, value, job)) STRICT, WITHOUT ROWID;
CREATE INDEX tarry_label_job ON tarry_label (job);
CREATE TABLE tarry_about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""

# A trigger, since jobs are deleted in many places, and few have labels: the others cost no statement.
UNLABEL = f"""CREATE TRIGGER tarry_unlabel AFTER DELETE ON tarry_job WHEN instr(OLD.headers, x'{LABEL_MARK.hex()}')
    BEGIN DELETE FROM tarry_label WHERE job = OLD.id; END"""

STEPS = (SchemaStep("makes the tables and indexes", [*SCHEMA.split(";"), UNLABEL]),)
"""Step n leads from version n - 1 to version n."""


class FileSchema(Schema):
    """The tables in a file that several programs may have open. Each method needs a transaction of the caller.

    about: the name of the table that says the version.
    """

    def __init__(self, database: Database, path: Path, steps: Sequence[SchemaStep], about: str) -> None:
        super().__init__(str(path), steps)
        self._database, self._about = database, about

    def breaks_older(self) -> bool:
        """Whether a missing step stops programs that use the tables as they are now."""
        missing = self.missing_steps()
        return missing.start > 1 and not all(self.steps[number - 1].older_go_on for number in missing)

    def bring_up(self) -> list[str]:
        """Makes the tables, or brings them up to date; returns what it did, one line for each step."""
        missing, done = self.missing_steps(), self.pending_steps()
        for number in missing:
            for statement in filter(str.strip, self.steps[number - 1].statements):
                self._database.execute(statement)
        if missing:
            for name, value in (("schema", len(self.steps)), ("oldest", oldest_allowed(self.steps))):
                self._database.execute(f"INSERT OR REPLACE INTO {self._about} VALUES (?, ?)", (name, value))
        return done

    def noted_version(self) -> int:
        """The version that the tables say. StoreNewer: who knows only these steps must not use them."""
        is_noted = _has(self._database, self._about)
        rows: list[Any] = (
            self._database.execute(f"SELECT name, value FROM {self._about}").fetchall() if is_noted else []
        )
        facts = dict(rows)
        if "oldest" not in facts:
            raise unreleased(self.where)
        refuse_newer(SchemaVersion(facts["schema"], facts["oldest"]), len(self.steps), self.where)
        return int(facts["schema"])


class SqliteSchema(FileSchema):
    """The tables of a store. shared: they stand beside those of another program."""

    def __init__(self, database: Database, path: Path, shared: bool) -> None:
        super().__init__(database, path, STEPS, "tarry_about")
        self._shared = shared

    def version(self) -> int:
        if not self._is_ours():
            if not _has(self._database, self._about):
                if self._shared or not self._has_content():
                    return 0
                raise errors.StoreForeign(
                    f"{self.where} is a database of another program; give tarry a file of its own, or share this one:"
                    f" sqlite:///{self.where}?shared=yes"
                )
            if not self._shared:
                raise errors.StoreForeign(
                    f"{self.where} is shared with another program: open it as sqlite:///{self.where}?shared=yes"
                )
        return self.noted_version()

    def bring_up(self) -> list[str]:
        done = super().bring_up()
        if not self._shared or self._is_ours():
            self._database.execute(f"PRAGMA application_id={APPLICATION_ID}")
            self._database.execute(f"PRAGMA user_version={self.noted_version()}")
        return done

    def _is_ours(self) -> bool:
        return bool(self._database.pragma("application_id") == APPLICATION_ID)

    def _has_content(self) -> bool:
        application = self._database.pragma("application_id")
        return bool(application or self._database.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get)


def has_statistics(database: Database) -> bool:
    """Whether somebody has run ANALYZE, so that SQLite has row counts of our tables."""
    return _has(database, "sqlite_stat1") and bool(database.execute(f"SELECT 1 FROM {_STATISTICS} LIMIT 1").get)


def drop_statistics(database: Database) -> None:
    """Deletes the row counts of our tables. Within a transaction of the caller."""
    # Without counts SQLite uses the index. With counts from a time of few jobs it would read whole tables, later too,
    # when there are many jobs.
    database.execute(f"DELETE FROM {_STATISTICS}")
    # Makes SQLite read the counts again, which it keeps in memory.
    database.execute("ANALYZE sqlite_schema")


_STATISTICS = "sqlite_stat1 WHERE tbl BETWEEN 'tarry_' AND 'tarry_z'"


def _has(database: Database, name: str) -> bool:
    return bool(database.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).get)
