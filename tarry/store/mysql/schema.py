"""The tables in the server: making them, telling whether they are there and of which version.

A job has one wide row, which is found by id only, and one narrow row that says where it is: in the open line, in a
lane, scheduled, running, finished. So a claim reads the front of a table that is in the order of the claim and holds
nothing else, and what has finished is in nobody's way. (The same as one table with indexes over columns that are NULL
elsewhere costs half as much again: MySQL's indexes hold the NULLs too.) In the open line late jobs and those on time
stand apart, so that a claim finds the first of both, however many there are of the other.

Names are bytes (VARBINARY), which compare as the reference compares them: exactly, trailing spaces included, by code
point. MySQL and MariaDB have no collation of one name that does that.
"""

from collections.abc import Sequence

from msgspec import Struct

from tarry import errors
from tarry.store.mysql.errors import Conflict
from tarry.store.mysql.link import Link

SCHEMA_VERSION = 1
_TABLE = "CREATE TABLE IF NOT EXISTS tarry_{} ({}) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4"
_NAME, _LANE, _TIME = "VARBINARY(500) NOT NULL", "VARBINARY(700)", "BIGINT NOT NULL DEFAULT 0"
_ID = "id BINARY(16) NOT NULL"
TABLES = {
    "about": "name VARBINARY(32) NOT NULL PRIMARY KEY, value BIGINT NOT NULL",
    "job": f"""{_ID} PRIMARY KEY, state TINYINT NOT NULL DEFAULT 0, epoch INT NOT NULL DEFAULT 0,
        failures INT NOT NULL DEFAULT 0, losses INT NOT NULL DEFAULT 0, grade {_TIME}, due {_TIME}, since {_TIME},
        until {_TIME}, expires {_TIME}, unique_for {_TIME}, holds {_TIME},
        settings BIGINT NOT NULL DEFAULT 0, queue {_NAME} DEFAULT '',
        task {_NAME} DEFAULT '', lane {_LANE}, job_key MEDIUMBLOB, body LONGBLOB, note LONGBLOB, headers LONGBLOB,
        progress LONGBLOB""",
    "ready": f"""queue {_NAME}, late TINYINT NOT NULL, grade BIGINT NOT NULL, due BIGINT NOT NULL, {_ID},
        token BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (queue, late, grade, due, id)""",
    "laned": f"""queue {_NAME}, band TINYINT NOT NULL, task {_NAME}, lane {_LANE} NOT NULL, grade BIGINT NOT NULL,
        due BIGINT NOT NULL, {_ID}, late TINYINT NOT NULL,
        PRIMARY KEY (queue, band, task, lane, grade, due, id)""",
    "scheduled": f"due BIGINT NOT NULL, {_ID}, PRIMARY KEY (due, id)",
    "running": f"{_ID} PRIMARY KEY, owner {_NAME}, epoch INT NOT NULL",
    "finished": f"until BIGINT NOT NULL, {_ID}, queue {_NAME}, size BIGINT NOT NULL, PRIMARY KEY (until, id)",
    "key": f"digest BINARY(32) NOT NULL PRIMARY KEY, {_ID}, holds BIGINT NOT NULL",
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
}
MADE = f"makes tarry's tables, {', '.join(f'tarry_{name}' for name in TABLES)}"


class Step(Struct, frozen=True):
    """What brings the tables from one version to the next; such that an older tarry may go on beside it."""

    says: str
    statements: Sequence[str]


STEPS: dict[int, Step] = {}
"""By the version that they start from."""
_WITHIN = 20
"""Seconds that one who starts waits for another who makes the tables."""


def ensure(link: Link) -> None:
    """Makes the tables if there are none; StoreNewer, before anything is written, if they are a newer tarry's;
    StoreError if they are an older one's."""
    found = version(link)
    if found == 0:
        with _alone(link):
            if version(link) == 0:
                _make(link)
        found = version(link)
    if found < SCHEMA_VERSION:
        raise errors.StoreError(
            f"{link.address.shown} has schema {found}, this tarry knows {SCHEMA_VERSION}: run `tarry migrate`"
        )


def version(link: Link) -> int:
    """Of the tables that are there, 0 for none."""
    tables = {str(name) for (name,) in link.rows(
        "SELECT CONVERT(TABLE_NAME USING utf8mb4) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
        " AND TABLE_NAME IN ('tarry_about', 'tarry_job')"
    )}  # fmt: skip
    if "tarry_about" not in tables:
        if tables:
            raise errors.StoreForeign(f"{link.address.shown} has a tarry_job that is not ours: use another database")
        return 0
    rows = link.rows("SELECT value FROM tarry_about WHERE name = 'schema'")
    found = int(rows[0][0]) if rows else 0
    if found > SCHEMA_VERSION:
        raise errors.StoreNewer(
            f"{link.address.shown} has schema {found}, this tarry knows {SCHEMA_VERSION}: upgrade tarry on this host"
        )
    return found


def pending(link: Link) -> list[str]:
    """What `migrate` would do, a line for each step."""
    found = version(link)
    return [STEPS[step].says for step in range(found, SCHEMA_VERSION)] if found else [MADE]


def migrate(link: Link) -> list[str]:
    """Brings the tables up to date, or makes them; what was done here."""
    with _alone(link):
        plan, found = pending(link), version(link)
        if not found:
            _make(link)
        for step in range(found, SCHEMA_VERSION) if found else ():
            link.run(*STEPS[step].statements, f"UPDATE tarry_about SET value = {step + 1} WHERE name = 'schema'")
    return plan


def _make(link: Link) -> None:
    """The version comes last: tables that are there without it were left by one who died, and are made to the end."""
    link.run(*(_TABLE.format(name, columns) for name, columns in TABLES.items()))
    link.run(f"INSERT IGNORE INTO tarry_about VALUES ('settings', 0), ('turn', 0), ('schema', {SCHEMA_VERSION})")


class _alone:  # noqa: N801 -- used as a function is
    """One at a time, over all hosts."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def __enter__(self) -> None:
        # A lock's name is the whole server's and takes 64 characters.
        wait = min(_WITHIN, max(1, int(self._link.address.timeout * 0.8)))
        ((got,),) = self._link.rows(f"SELECT GET_LOCK(CONCAT('tarry:', LEFT(SHA1(DATABASE()), 40)), {wait})")
        if not got:
            raise errors.StoreUnavailable(f"{self._link.address.shown}: another host is making the tables; try again")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, errors.TarryError | Conflict):
            self._link.run("DO RELEASE_LOCK(CONCAT('tarry:', LEFT(SHA1(DATABASE()), 40)))")
