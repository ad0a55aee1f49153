"""The PostgreSQL store's tables, in a schema of their own: making them, telling their version, bringing them up to
date.

Versions only go forward. Each step of `STEPS` may be made while workers of the version before it run: it adds what they
do not know and takes away nothing that they use.
"""

from msgspec import Struct

from tarry import errors
from tarry.store.postgres import changing, claiming, inserting
from tarry.store.postgres.functions import LINE
from tarry.store.postgres.link import Link

TABLES = """
CREATE TABLE {s}.job (
    id         uuid PRIMARY KEY,
    rank       bigint NOT NULL,
    due        bigint NOT NULL,
    since      bigint NOT NULL,
    until      bigint NOT NULL,
    expires    bigint NOT NULL,
    unique_for bigint NOT NULL,
    holds      bigint NOT NULL,
    epoch      integer NOT NULL,
    failures   integer NOT NULL,
    losses     integer NOT NULL,
    state      smallint NOT NULL,
    aside      boolean NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    task       text COLLATE "C" NOT NULL,
    owner      text COLLATE "C",
    key        text COLLATE "C",
    lane       text COLLATE "C",
    body       bytea NOT NULL,
    note       bytea NOT NULL,
    headers    bytea NOT NULL,
    progress   bytea NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1,
    autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_insert_threshold = 100000, vacuum_truncate = off,
    toast.autovacuum_vacuum_scale_factor = 0.05, toast.vacuum_truncate = off
);
CREATE INDEX job_ready     ON {s}.job (queue, aside, ({line}), rank, due, id) WHERE state = 1 AND lane IS NULL;
CREATE INDEX job_laned     ON {s}.job (queue, ((rank > 0)::int - (rank < 0)::int), task, lane, rank, due, id)
    WHERE state = 1 AND lane IS NOT NULL;
CREATE INDEX job_scheduled ON {s}.job (aside, due, id) WHERE state = 0;
CREATE INDEX job_running   ON {s}.job (owner) WHERE state = 2;
CREATE INDEX job_finished  ON {s}.job (until, id) WHERE state >= 3;
CREATE UNIQUE INDEX job_key ON {s}.job (task, key) WHERE key IS NOT NULL AND holds > 0;
CREATE TABLE {s}.owner  (name text COLLATE "C" PRIMARY KEY, until bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE {s}.hold   (name text COLLATE "C" PRIMARY KEY, owner text NOT NULL, until bigint NOT NULL)
    WITH (fillfactor = 50);
CREATE TABLE {s}.paused (queue text COLLATE "C" PRIMARY KEY);
CREATE TABLE {s}.cell   (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE {s}.limits (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE {s}.level  (name text COLLATE "C" PRIMARY KEY, running bigint NOT NULL, next bigint NOT NULL,
    turn text COLLATE "C") WITH (fillfactor = 50);
CREATE TABLE {s}.lane   (queue text COLLATE "C" NOT NULL, band smallint NOT NULL, task text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL, again bigint)
    WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX lane_open   ON {s}.lane (queue, band, task, lane) WHERE again IS NULL;
CREATE INDEX lane_closed ON {s}.lane (task, lane) WHERE again IS NOT NULL;
CREATE INDEX lane_again  ON {s}.lane (again) WHERE again IS NOT NULL;
CREATE TABLE {s}.about  (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);
INSERT INTO {s}.about VALUES ('schema', '0'), ('identity', gen_random_uuid()::text);
""".replace("{line}", LINE)
FUNCTIONS = (
    inserting.INSERT, changing.ENDED, changing.APPLY, claiming.PROMOTE,
    claiming.EXCHANGE, claiming.QUEUES,
)  # fmt: skip


class Step(Struct, frozen=True):
    """The way from one version to the next: what it does, for people, and its statements. `{s}` is the schema."""

    says: str
    statements: tuple[str, ...]


STEPS: tuple[Step, ...] = (
    Step(
        "makes the tables, indexes and functions of version 1",
        (*(part for part in TABLES.split(";\n") if part.strip()), *FUNCTIONS),
    ),
)
"""The n-th makes version n."""
SCHEMA_VERSION = len(STEPS)

_LOCK = "SELECT pg_advisory_xact_lock(hashtext('tarry'), hashtext($1))"
_TABLES = """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname IN ('about', 'job')"""
_SCHEMA = "SELECT 1 FROM pg_namespace WHERE nspname = $1"
"""Read as tables: what to_regclass() answers may be older than the lock."""


def version(link: Link, schema: str, url: str, newest: int = SCHEMA_VERSION) -> int:
    """The version of the tables that are there; 0: none are, and they may be made. Anything else is an error that
    changes nothing."""
    there = {name for (name,) in link.rows(_TABLES, (schema,))}
    if "about" not in there:
        if "job" in there:
            raise errors.StoreForeign(
                f"{url}: the schema {schema} has a table job that is not tarry's; name another with ?schema=NAME"
            )
        return 0
    rows = link.rows(f"SELECT value FROM {schema}.about WHERE name = 'schema'")
    if not rows or not rows[0][0].isdigit():
        raise errors.StoreForeign(
            f"{url}: the schema {schema} has a table about that is not tarry's; name another with ?schema=NAME"
        )
    found = int(rows[0][0])
    if found > newest:
        raise errors.StoreNewer(f"{url} has schema {found}, this tarry knows {newest}: upgrade tarry on this host")
    return found


def make_step(link: Link, schema: str, url: str, number: int, steps: tuple[Step, ...]) -> bool:
    """Makes version `number` of the one before it; False if somebody else has. Within a transaction of its own."""
    link.rows(_LOCK, (schema,))
    found = version(link, schema, url, len(steps))
    if found >= number:
        return False
    if not found and not link.rows(_SCHEMA, (schema,)):
        link.run(f"CREATE SCHEMA {schema}")
    for statement in steps[number - 1].statements:
        link.run(statement.replace("{s}", schema))
    link.run(f"UPDATE {schema}.about SET value = $1 WHERE name = 'schema'", (str(number),))
    return True
