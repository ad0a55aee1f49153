"""Makes the PostgreSQL store's tables in a schema of their own, reads their version, and brings them up to date.

Versions only go forward. A migration may be made while workers of the version before it run, unless it says otherwise.
"""

from tarry import errors
from tarry.model.job import LABEL_MARK
from tarry.store.postgres.constants import in_schema, with_constants
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.link.url import PostgresUrl
from tarry.store.postgres.stored_functions import FUNCTIONS, FunctionSet, creating, is_outdated, replace_functions
from tarry.store.shared.columns import ColumnKind
from tarry.store.shared.schema_steps import SchemaStep, SchemaVersion, oldest_allowed, refuse_newer
from tarry.store.sql.columns import ColumnTypes, column_definitions

# The widest first, so that no column is padded.
_TYPES: ColumnTypes = {
    ColumnKind.ID: "uuid PRIMARY KEY",
    ColumnKind.NUMBER: "bigint NOT NULL",
    ColumnKind.COUNT: "integer NOT NULL",
    ColumnKind.STATE: "smallint NOT NULL",
    "out_of_order": "boolean NOT NULL",
    ColumnKind.NAME: 'text COLLATE "C" NOT NULL',
    ColumnKind.OPTIONAL: 'text COLLATE "C"',
    ColumnKind.BLOB: "bytea NOT NULL",
}
# out_of_order: see functions/exchange.sql. The journal grows and shrinks all the time: each record lives for a second
# or two.
TABLES = with_constants("""
CREATE TABLE {s}.job ({columns}) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1,
    autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_insert_threshold = 100000, vacuum_truncate = off,
    toast.autovacuum_vacuum_scale_factor = 0.05, toast.vacuum_truncate = off
);
CREATE INDEX job_ready     ON {s}.job (queue, out_of_order, ({line}), claim_order, due, id)
    WHERE state = 1 AND lane IS NULL;
CREATE INDEX job_laned     ON {s}.job
    (queue, ((claim_order > 0)::int - (claim_order < 0)::int), task, lane, claim_order, due, id)
    WHERE state = 1 AND lane IS NOT NULL;
CREATE INDEX job_scheduled ON {s}.job (out_of_order, due, id) WHERE state = 0;
CREATE INDEX job_running   ON {s}.job (owner) WHERE state = 2;
CREATE INDEX job_finished  ON {s}.job (keep_until, id) WHERE state >= 3;
CREATE UNIQUE INDEX job_key ON {s}.job (task, key) WHERE key IS NOT NULL AND key_held_until > 0;
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
CREATE TABLE {s}.journal (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, record bytea NOT NULL)
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1);
CREATE TABLE {s}.history (resolution integer NOT NULL, start bigint NOT NULL, queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL, value bytea NOT NULL, PRIMARY KEY (resolution, start, queue, task))
    WITH (fillfactor = 50);
INSERT INTO {s}.history VALUES (-1, 0, '', '', '');
CREATE TABLE {s}.flow (id uuid PRIMARY KEY, phase smallint NOT NULL, at bigint NOT NULL, size bigint NOT NULL,
    active bigint NOT NULL, blocked bigint NOT NULL, failed bigint NOT NULL, armed bigint NOT NULL,
    ends smallint NOT NULL, undo bigint NOT NULL, keep_done bigint NOT NULL, keep_dead bigint NOT NULL,
    note bytea NOT NULL) WITH (fillfactor = 50);
CREATE INDEX flow_at ON {s}.flow (phase, at, id);
CREATE TABLE {s}.gate (flow uuid NOT NULL, first bigint NOT NULL, count bigint NOT NULL, waits bigint NOT NULL,
    next bigint NOT NULL, PRIMARY KEY (flow, first)) WITH (fillfactor = 50);
CREATE INDEX gate_open ON {s}.gate (flow, first) WHERE next >= 0;
CREATE TABLE {s}.signal (name text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, n bigint NOT NULL,
    id bytea NOT NULL, value bytea NOT NULL, until bigint NOT NULL, newest bigint NOT NULL,
    PRIMARY KEY (name, key, n));
CREATE INDEX signal_until ON {s}.signal (until);
CREATE TABLE {s}.awaiting (job uuid PRIMARY KEY, name text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
    epoch integer NOT NULL, seen bigint NOT NULL);
CREATE INDEX awaiting_of ON {s}.awaiting (name, key, job);
CREATE TABLE {s}.label (name text COLLATE "C" NOT NULL, value text COLLATE "C" NOT NULL, job uuid NOT NULL,
    PRIMARY KEY (name, value, job));
CREATE INDEX label_of ON {s}.label (job);
CREATE TABLE {s}.about  (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);
INSERT INTO {s}.about VALUES ('schema', '0'), ('oldest', '1'), ('identity', gen_random_uuid()::text);
""").replace("{columns}", ", ".join(column_definitions(_TYPES)))
# Triggers, since jobs are stored and deleted in many places, and few have labels: the others cost no statement.
_HAS_LABELS = f"octet_length({{row}}.headers) > 0 AND position('\\x{LABEL_MARK.hex()}'::bytea IN {{row}}.headers) > 0"
TRIGGERS = tuple(
    f"CREATE TRIGGER job_{name} AFTER {event} ON {{s}}.job FOR EACH ROW"
    f" WHEN ({_HAS_LABELS.format(row=row)}) EXECUTE FUNCTION {{s}}.{name}_v1()"
    for name, event, row in (("label", "INSERT", "NEW"), ("unlabel", "DELETE", "OLD"))
)

MIGRATIONS: tuple[SchemaStep, ...] = (
    SchemaStep(
        "makes the tables, indexes and functions",
        (*(part for part in TABLES.split(";\n") if part.strip()), *creating(), *TRIGGERS),
    ),
)
"""The n-th makes version n. In its statements `{s}` is the schema."""
SCHEMA_VERSION = len(MIGRATIONS)

# Two processes that make the schema at once take turns; the second sees that it is there.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('tarry'), hashtext($1))"
# Read from the catalog's tables: to_regclass() may answer what was true before the lock.
_TABLES = """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname IN ('about', 'job')"""
_IS_FREE = "SELECT pg_try_advisory_xact_lock(hashtext('tarry'), hashtext($1))"
_VERSION = """SELECT s.value, o.value FROM {s}.about s JOIN {s}.about o ON o.name = 'oldest'
    WHERE s.name = 'schema' AND s.value ~ '^[0-9]+$' AND o.value ~ '^[0-9]+$'"""
_SET_VERSION = """UPDATE {s}.about SET value = CASE name WHEN 'schema' THEN $1 ELSE $2 END
    WHERE name IN ('schema', 'oldest')"""
_SCHEMA = "SELECT 1 FROM pg_namespace WHERE nspname = $1"


def read_version(connection: PostgresConnection, url: PostgresUrl, newest: int = SCHEMA_VERSION) -> int:
    """The version of the schema; 0: there is none, and it may be created. StoreForeign: the tables are not tarry's.
    StoreNewer: who knows only `newest` must not use it."""
    tables = {name for (name,) in connection.rows(_TABLES, (url.schema,))}
    if "about" not in tables:
        # Somebody else's table: ours always come with `about`.
        if "job" in tables:
            raise _foreign("job", url)
        return 0
    rows = connection.rows(in_schema(_VERSION, url.schema))
    if not rows:
        raise _foreign("about", url)
    version, oldest = map(int, rows[0])
    refuse_newer(SchemaVersion(version, oldest), newest, url.shown)
    return version


def _foreign(table: str, url: PostgresUrl) -> errors.StoreForeign:
    return errors.StoreForeign(
        f"{url.shown}: the schema {url.schema} has a table {table} that is not tarry's; name another with ?schema=NAME"
    )


def apply_migration(
    connection: PostgresConnection, url: PostgresUrl, number: int, migrations: tuple[SchemaStep, ...]
) -> bool:
    """Makes version `number` of the one before it; False if it is there already. To be called in a transaction."""
    connection.rows(_LOCK, (url.schema,))
    # Read again: while this waited, another process may have made the version.
    found = read_version(connection, url, len(migrations))
    if found >= number:
        return False
    # Not CREATE SCHEMA IF NOT EXISTS: that needs the right to create schemas even if an administrator has made it.
    if not found and not connection.rows(_SCHEMA, (url.schema,)):
        connection.run(in_schema("CREATE SCHEMA {s}", url.schema))
    for statement in migrations[number - 1].statements:
        connection.run(in_schema(statement, url.schema))
    oldest = oldest_allowed(migrations[:number])
    connection.run(in_schema(_SET_VERSION, url.schema), (str(number), str(oldest)))
    return True


def update_functions(connection: PostgresConnection, url: PostgresUrl, functions: FunctionSet = FUNCTIONS) -> bool:
    """Replaces the functions of the schema by these, if they are older; False if that is done already, or somebody
    else migrates the schema just now. To be called in a transaction."""
    # No waiting: whoever holds the lock may build an index for hours, and the old functions do meanwhile.
    ((is_free,),) = connection.rows(_IS_FREE, (url.schema,))
    if not is_free or not is_outdated(connection, url.schema, functions):
        return False
    replace_functions(connection, url.schema, functions)
    return True
