"""The embedded store's tables: making them, telling whether they are there, bringing older ones up to date.

In a file of tarry's own the header says whose it is and which version. In a file that is shared with another program
the header is that program's, and a table of ours says the version.
"""

import re
from pathlib import Path

from tarry import errors
from tarry.store.sqlite.database import Database

APPLICATION_ID = 0x74617279  # "tary": how `file` and we tell our databases from others
SCHEMA_VERSION = 3

SCHEMA = """
CREATE TABLE tarry_job (
    n          INTEGER PRIMARY KEY,
    id         BLOB NOT NULL UNIQUE,
    state      INTEGER NOT NULL,
    queue      TEXT NOT NULL,
    rank       INTEGER NOT NULL,
    due        INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    failures   INTEGER NOT NULL,
    losses     INTEGER NOT NULL,
    owner      TEXT,
    since      INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    expires    INTEGER NOT NULL,
    key        TEXT,
    unique_for INTEGER NOT NULL,
    holds      INTEGER NOT NULL,
    lane       TEXT,
    task       TEXT NOT NULL,
    body       BLOB NOT NULL,
    note       BLOB NOT NULL,
    headers    BLOB NOT NULL,
    progress   BLOB NOT NULL
) STRICT;
CREATE INDEX tarry_ready     ON tarry_job (queue, (since > due), rank, due, id) WHERE state = 1 AND lane IS NULL;
CREATE INDEX tarry_laned     ON tarry_job (queue, (rank > 0) - (rank < 0), task, lane, rank, due, id)
    WHERE state = 1 AND lane IS NOT NULL;
CREATE INDEX tarry_scheduled ON tarry_job (due, id)              WHERE state = 0;
CREATE INDEX tarry_running   ON tarry_job (owner)                WHERE state = 2;
CREATE INDEX tarry_finished  ON tarry_job (until, id)            WHERE state >= 3;
CREATE UNIQUE INDEX tarry_key ON tarry_job (task, key)           WHERE key IS NOT NULL AND holds > 0;
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
"""
ABOUT = "CREATE TABLE tarry_about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID"
"""Only in shared files."""

FROM_1 = """
ALTER TABLE job RENAME TO tarry_job;
ALTER TABLE owner RENAME TO tarry_owner;
ALTER TABLE hold RENAME TO tarry_hold;
ALTER TABLE paused RENAME TO tarry_paused;
DROP INDEX ready;
DROP INDEX scheduled;
DROP INDEX running;
DROP INDEX finished;
DROP INDEX key;
ALTER TABLE tarry_job ADD COLUMN unique_for INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tarry_job ADD COLUMN holds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tarry_job ADD COLUMN lane TEXT;
ALTER TABLE tarry_job ADD COLUMN headers BLOB NOT NULL DEFAULT x'';
ALTER TABLE tarry_job ADD COLUMN progress BLOB NOT NULL DEFAULT x'';
UPDATE tarry_job SET holds = 4611686018427387904 WHERE key IS NOT NULL AND state < 3;
"""
"""2^62 is model.job.HELD; what is new beside the job's table is made by SCHEMA."""
FROM_2 = """
INSERT INTO tarry_lane (queue, band, task, lane)
    SELECT DISTINCT queue, -((rank > 0) - (rank < 0)), task, lane FROM tarry_job
    WHERE state = 1 AND lane IS NOT NULL AND 'each:' || task IN (SELECT name FROM tarry_limit);
"""
"""After SCHEMA."""
BEFORE_3 = "DROP INDEX tarry_ready"
"""It did not know of late jobs."""


def version(database: Database, path: Path, shared: bool) -> int:
    """The version of the tables that are there; 0: none are, and they may be made. Anything else is an error that
    changes nothing."""
    application = database.pragma("application_id")
    if application == APPLICATION_ID:
        found = int(database.pragma("user_version"))
    elif _has(database, "tarry_about"):
        if not shared:
            raise errors.StoreForeign(f"{path} is shared with another program: open it as sqlite:///{path}?shared=yes")
        found = int(database.execute("SELECT value FROM tarry_about WHERE name = 'schema'").get)
    elif shared or not (application or database.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get):
        return 0
    else:
        raise errors.StoreForeign(
            f"{path} is a database of another program; give tarry a file of its own, or share this one:"
            f" sqlite:///{path}?shared=yes"
        )
    if found > SCHEMA_VERSION:
        raise errors.StoreNewer(
            f"{path} has schema {found}, this tarry knows {SCHEMA_VERSION}: upgrade tarry on this host"
        )
    return found


def bring_up(database: Database, found: int, shared: bool) -> None:
    """Makes the tables, or brings those of version `found` up to date; within a transaction of the caller."""
    if found == SCHEMA_VERSION:
        return
    if found:
        _run(database, FROM_1 if found == 1 else BEFORE_3)
    _run(database, re.sub(r"CREATE (\w+ )?(TABLE|INDEX) ", r"\g<0>IF NOT EXISTS ", SCHEMA) if found else SCHEMA)
    if found == 2:
        _run(database, FROM_2)
    if shared and database.pragma("application_id") != APPLICATION_ID:
        database.execute(ABOUT)
        database.execute("INSERT INTO tarry_about VALUES ('schema', ?)", (SCHEMA_VERSION,))
    else:
        database.execute(f"PRAGMA application_id={APPLICATION_ID}")
        database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def has_statistics(database: Database) -> bool:
    """Whether somebody has run ANALYZE, so that SQLite has an idea of how many rows there are."""
    return _has(database, "sqlite_stat1") and bool(database.execute(f"SELECT 1 FROM {_STATISTICS} LIMIT 1").get)


def drop_statistics(database: Database) -> None:
    """Without any idea SQLite takes the index; told of a few jobs, it would go on reading all of them later, when they
    are many. Within a transaction of the caller."""
    database.execute(f"DELETE FROM {_STATISTICS}")
    database.execute("ANALYZE sqlite_schema")


_STATISTICS = "sqlite_stat1 WHERE tbl BETWEEN 'tarry_' AND 'tarry_z'"


def _run(database: Database, script: str) -> None:
    for statement in script.split(";"):
        if statement.strip():
            database.execute(statement)


def _has(database: Database, name: str) -> bool:
    return bool(database.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).get)
