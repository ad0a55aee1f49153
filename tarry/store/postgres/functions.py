"""The hot verbs of the PostgreSQL store, as functions in the database: one round trip each, planned once a session.

They work behind any pooler, since they need no state of a session. A later version of the schema adds functions under
new names and leaves these, so that older workers go on.

Late jobs and those on time (`lifecycle.is_late`) wait in two lines, from which a claim takes in turn. Each line has a
part of the index to itself: however many jobs wait in one, a claim finds the first of the other at once.

`aside`: a ready job that may stand before others that were claimed already (it was stored long after it was due, or has
a rank of its own) has this mark, and again a part of the index to itself. All others of a line and rank come later than
what was claimed lately, so a claim begins to look where the last one of this process saw the first that waits (its
*floor*), and passes by none of the rows that are gone; while a snapshot is held open somewhere, these pile up, since
nothing may clear them away. `STORED_WITHIN` and `SEEN_WITHIN`: a job stands in line, not aside, if it is due at most so
long before it is stored, and a floor stays so far behind the clock that such a job cannot come below it, unless to
store it took as long as their difference; then the mark is set afterwards. All of this is about when a job is due, and
so it holds for the late line too: a job that falls due is made ready in a moment, else it is put aside.
"""

STORED_WITHIN = 1_000_000
SEEN_WITHIN = 2_000_000
"""Microseconds."""
LINE = "((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int"
"""The band and the line of a ready job as one number: so one look tells of both lines of a band. Nor could the index
hold the bare condition: where it is to be false the planner turns it into another one, and misses the index."""

CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
LIMITED = "SELECT l.name FROM {s}.limits l"

UNTIL_AN_END = 2**62
"""When a lane is to be opened that is closed until one of its attempts ends: `postgres.open_lanes`."""
EACH_LIMITED = "EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || %s)"
"""Whether that task has a limit for each key."""


def lanes_of(rows: str, alias: str) -> str:
    """Notes for claims that these ready jobs wait in lanes. rows: what follows FROM, up to a condition."""
    return f"""INSERT INTO {{s}}.lane (queue, band, task, lane)
            SELECT DISTINCT {alias}.queue, ({alias}.rank < 0)::int - ({alias}.rank > 0)::int, {alias}.task,
                coalesce({alias}.lane, '')
            FROM {rows} AND {EACH_LIMITED % f"{alias}.task"}"""


SETTINGS = """
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
"""
"""What a plan is good for must not depend on when the tables were last analysed: each statement has its index."""


def in_line(late: bool, queue: str, band: str, floor: str) -> str:
    """The ready jobs of a queue and band that are late, or on time, and not aside; from a floor on. Here and below, all
    but the floor are the first columns of their index, in its order."""
    return (
        f"{_ready(queue)} AND NOT r.aside AND {LINE} = {_number(late, band)} AND r.rank = -{band} AND r.due >= {floor}"
    )


def put_aside(late: bool, queue: str, band: str) -> str:
    """Those aside."""
    return f"{_ready(queue)} AND r.aside AND {LINE} = {_number(late, band)}"


def any_aside(queue: str, band: str) -> str:
    """Those aside, late or on time."""
    return f"{_ready(queue)} AND r.aside AND {LINE} BETWEEN {_number(False, band)} AND {_number(True, band)}"


def _ready(queue: str) -> str:
    return f"FROM {{s}}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = {queue}"


def _number(late: bool, band: str) -> str:
    return f"{int(late)} - 2 * {band}"
