"""The tables in the server: makes them, and tells whether they are there and their version.

A job has one wide row, which is found by id only, and one narrow row that says where the job is: in the open line, in a
lane, scheduled, running, finished. In the open line late jobs and jobs on time are apart, so that a claim finds the
first of both, however many there are of the other.
"""

from tarry import errors
from tarry.errors import ConfigError
from tarry.model.job import LONGEST_LABEL_NAME, LONGEST_LABEL_VALUE
from tarry.store.mysql.link.address import parse
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.mysql_errors import Conflict, Denied
from tarry.store.mysql.sql import COLUMN_OF
from tarry.store.shared.columns import ColumnKind
from tarry.store.shared.schema_steps import (
    SchemaStep,
    SchemaVersion,
    ServerSchema,
    oldest_allowed,
    refuse_newer,
    unreleased,
)
from tarry.store.sql.columns import ColumnTypes, column_definitions

_TABLE = "CREATE TABLE IF NOT EXISTS tarry_{} ({}) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4"
# Names are bytes (VARBINARY), which compare as the memory store compares text: exactly, by code point, with trailing
# spaces. MySQL and MariaDB have no collation of the same name that does that.
_NAME, _LANE, _TIME = "VARBINARY(500) NOT NULL", "VARBINARY(700)", "BIGINT NOT NULL DEFAULT 0"
_ID = "id BINARY(16) NOT NULL"
_FLOW = "BINARY(16) NOT NULL"
_COUNT = "BIGINT NOT NULL"
_ADDRESS = "name VARBINARY(1000) NOT NULL, `key` VARBINARY(1000) NOT NULL"
_TYPES: ColumnTypes = {
    ColumnKind.ID: "BINARY(16) NOT NULL PRIMARY KEY",
    ColumnKind.STATE: "TINYINT NOT NULL DEFAULT 0",
    ColumnKind.COUNT: "INT NOT NULL DEFAULT 0",
    ColumnKind.NUMBER: _TIME,
    # By which settings its lane was chosen.
    "settings": "BIGINT NOT NULL DEFAULT 0",
    ColumnKind.NAME: f"{_NAME} DEFAULT ''",
    "lane": _LANE,
    ColumnKind.OPTIONAL: "MEDIUMBLOB",
    # In `tarry_running`.
    "owner": None,
    ColumnKind.BLOB: "LONGBLOB",
}
# A narrow row for the place: a claim reads the front of a table that is in the order of the claim and has nothing else,
# and finished jobs are in nobody's way. One table with indexes over columns that are NULL elsewhere costs half as much
# again: MySQL's indexes hold the NULLs too.
TABLES = {
    "about": "name VARBINARY(32) NOT NULL PRIMARY KEY, value BIGINT NOT NULL",
    "job": ", ".join(column_definitions(_TYPES, COLUMN_OF)),
    "ready": f"""queue {_NAME}, late TINYINT NOT NULL, claim_order BIGINT NOT NULL, due BIGINT NOT NULL, {_ID},
        token BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (queue, late, claim_order, due, id)""",
    "laned": f"""queue {_NAME}, band TINYINT NOT NULL, task {_NAME}, lane {_LANE} NOT NULL, claim_order BIGINT NOT NULL,
        due BIGINT NOT NULL, {_ID}, late TINYINT NOT NULL,
        PRIMARY KEY (queue, band, task, lane, claim_order, due, id)""",
    "scheduled": f"due BIGINT NOT NULL, {_ID}, PRIMARY KEY (due, id)",
    "running": f"{_ID} PRIMARY KEY, owner {_NAME}, epoch INT NOT NULL",
    "finished": f"keep_until BIGINT NOT NULL, {_ID}, queue {_NAME}, size BIGINT NOT NULL, PRIMARY KEY (keep_until, id)",
    "key": f"digest BINARY(32) NOT NULL PRIMARY KEY, {_ID}, key_held_until BIGINT NOT NULL",
    "owner": f"""name {_NAME} PRIMARY KEY, until BIGINT NOT NULL, guard BIGINT NOT NULL DEFAULT 0,
        server VARBINARY(700) NOT NULL DEFAULT '', started BIGINT NOT NULL DEFAULT 0""",
    "hold": f"name {_NAME} PRIMARY KEY, owner {_NAME}, until BIGINT NOT NULL",
    "paused": f"queue {_NAME} PRIMARY KEY",
    "cell": "name VARBINARY(1500) NOT NULL PRIMARY KEY, value LONGBLOB NOT NULL",
    "limit": "name VARBINARY(600) NOT NULL PRIMARY KEY, value BLOB NOT NULL, number BIGINT NOT NULL",
    "level": f"name VARBINARY(1300) NOT NULL PRIMARY KEY, running {_TIME}, next {_TIME}, turn {_LANE}",
    "open": f"""queue {_NAME}, band TINYINT NOT NULL, task {_NAME}, lane {_LANE} NOT NULL, {_ID},
        PRIMARY KEY (queue, band, task, lane, id)""",
    "closed": f"""task {_NAME}, lane {_LANE} NOT NULL, queue {_NAME}, band TINYINT NOT NULL, again {_TIME},
        PRIMARY KEY (task, lane, queue, band), KEY (again)""",
    "board": "name VARBINARY(64) NOT NULL PRIMARY KEY, seen BIGINT NOT NULL",
    "news": "n BIGINT NOT NULL PRIMARY KEY, work BIGINT NOT NULL, result BIGINT NOT NULL, follow BIGINT NOT NULL,"
    " recall BIGINT NOT NULL, at BIGINT NOT NULL",
    "journal": "n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, record LONGBLOB NOT NULL",
    "history": f"""resolution INT NOT NULL, start BIGINT NOT NULL, queue {_NAME}, task {_NAME},
        value LONGBLOB NOT NULL, PRIMARY KEY (resolution, start, queue, task)""",
    "flow": f"""id {_FLOW} PRIMARY KEY, phase TINYINT NOT NULL, at {_COUNT}, size {_COUNT}, active {_COUNT},
        blocked {_COUNT}, failed {_COUNT}, armed {_COUNT}, ends TINYINT NOT NULL, `undo` {_COUNT},
        keep_done {_COUNT}, keep_dead {_COUNT}, note LONGBLOB NOT NULL, KEY (phase, at)""",
    "gate": f"""flow {_FLOW}, first {_COUNT}, count {_COUNT}, waits {_COUNT}, next {_COUNT},
        PRIMARY KEY (flow, first), KEY (next, flow)""",
    "signal": f"""{_ADDRESS}, n {_COUNT}, id VARBINARY(16) NOT NULL, value LONGBLOB NOT NULL,
        until {_COUNT}, newest {_COUNT}, PRIMARY KEY (name, `key`, n), KEY (until)""",
    "awaiting": f"""job {_FLOW} PRIMARY KEY, {_ADDRESS}, epoch INT NOT NULL, seen {_COUNT},
        KEY (name, `key`, job)""",
    "label": f"""name VARBINARY({LONGEST_LABEL_NAME}) NOT NULL, value VARBINARY({LONGEST_LABEL_VALUE}) NOT NULL,
        job {_FLOW}, PRIMARY KEY (name, value, job), KEY job (job)""",
}
STEPS = (
    SchemaStep(
        f"makes tarry's tables, {', '.join(f'tarry_{name}' for name in TABLES)}",
        [
            *(_TABLE.format(name, columns) for name, columns in TABLES.items()),
            "INSERT IGNORE INTO tarry_about VALUES ('settings', 0), ('turn', 0)",
            "INSERT IGNORE INTO tarry_history VALUES (-1, 0, '', '', '')",
        ],
    ),
)
_WITHIN = 20
"""Seconds that a starting process waits for another one that makes the tables."""


class MysqlSchema(ServerSchema):
    """The tables in the database of the connection."""

    def __init__(self, link: MysqlConnection) -> None:
        super().__init__(link.address.shown, STEPS)
        self._link = link

    def version(self) -> int:
        tables = {str(name) for (name,) in self._link.rows(
            "SELECT CONVERT(TABLE_NAME USING utf8mb4) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
            " AND TABLE_NAME IN ('tarry_about', 'tarry_job')"
        )}  # fmt: skip
        if "tarry_about" not in tables:
            if tables:
                raise errors.StoreForeign(f"{self.where} has a tarry_job that is not ours: use another database")
            return 0
        rows = self._link.rows("SELECT name, value FROM tarry_about WHERE name IN ('schema', 'oldest')")
        facts = {bytes(name): int(value) for name, value in rows}
        found = facts.get(b"schema", 0)
        if found:
            if b"oldest" not in facts:
                raise unreleased(self.where)
            refuse_newer(SchemaVersion(found, facts[b"oldest"]), len(self.steps), self.where)
        return found

    def create(self) -> None:
        with _alone(self._link):
            if self.version() == 0:
                self._do(range(1, len(self.steps) + 1))

    def make(self, number: int) -> bool:
        with _alone(self._link):
            if self.version() >= number:
                return False
            self._do(range(number, number + 1))
        return True

    def _do(self, numbers: range) -> None:
        for number in numbers:
            self._link.run(*self.steps[number - 1].statements)
        # The version comes last: if a process dies before it, the next one makes all of it again.
        last = numbers[-1]
        facts = f"('oldest', {oldest_allowed(self.steps[:last])}), ('schema', {last})"
        self._link.run(f"INSERT INTO tarry_about VALUES {facts} ON DUPLICATE KEY UPDATE value = VALUES(value)")


class _alone:  # noqa: N801 -- used as a function is
    """One process at a time, over all hosts."""

    def __init__(self, link: MysqlConnection) -> None:
        self._link = link

    def __enter__(self) -> None:
        # A lock's name is valid for the whole server, so it has the database in it; it has 64 characters at most. The
        # wait ends before the connection gives up on the answer.
        wait = min(_WITHIN, max(1, int(self._link.address.timeout * 0.8)))
        ((got,),) = self._link.rows(f"SELECT GET_LOCK(CONCAT('tarry:', LEFT(SHA1(DATABASE()), 40)), {wait})")
        if not got:
            raise errors.StoreUnavailable(f"{self._link.address.shown}: another host is making the tables; try again")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After other exceptions the connection may be amid an answer; the server frees the lock when it closes.
        if kind is None or issubclass(kind, errors.TarryError | Conflict):
            self._link.run("DO RELEASE_LOCK(CONCAT('tarry:', LEFT(SHA1(DATABASE()), 40)))")


# A step may have to write a large table anew.
PATIENCE = 3600.0
"""Seconds that one statement may take."""


def pending(url: str) -> list[str]:
    """The steps that are left to do, one line each; raises what opening the store raises."""
    link = _connect(url)
    try:
        return MysqlSchema(link).pending_steps()
    finally:
        link.close()


def migrate(url: str) -> list[str]:
    """Makes the steps that are left, one host at a time; answers those that this call made."""
    link = _connect(url)
    try:
        return MysqlSchema(link).migrate()
    finally:
        link.close()


def _connect(url: str) -> MysqlConnection:
    try:
        return MysqlConnection(parse(url), PATIENCE)
    except Denied as denied:
        # As when a store is opened: only the configuration can help, not another try.
        raise ConfigError(str(denied)) from None
