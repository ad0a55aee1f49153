"""The hot verbs of the PostgreSQL store, as functions in the database: one round trip each, planned once a session.

They work behind any pooler, since they need no state of a session. A later version of the schema adds functions under
new names and leaves these, so that older workers go on.

`aside`: a ready job that may stand before others that were claimed already (it came late, or has a rank of its own) has
this mark and a part of the index to itself. All others of a rank come later than what was claimed lately, so a claim
begins to look where the last one of this process saw the first that waits (its *floor*), and passes by none of the rows
that are gone; while a snapshot is held open somewhere, these pile up, since nothing may clear them away. `ON_TIME` and
`SEEN_WITHIN`: a job is on time if it is due at most so long before it is stored, and a floor stays so far behind the
clock that a job on time cannot come below it, unless to store it took as long as their difference; then the mark is
set afterwards.
"""

ON_TIME = 1_000_000
SEEN_WITHIN = 2_000_000
"""Microseconds."""

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


def ready(which: str, queue: str, band: str, floor: str = "") -> str:
    """The ready jobs of a queue and band that are on time, from a floor on, or those aside. All but the floor are the
    first columns of their index, in its order."""
    line = f"FROM {{s}}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = {queue}"
    if which == "on time":
        return f"{line} AND NOT r.aside AND r.rank = -{band} AND r.due >= {floor}"
    low = f"CASE {band} WHEN 1 THEN -4611686018427387904 WHEN 0 THEN 0 ELSE 1 END"
    high = f"CASE {band} WHEN 1 THEN -1 WHEN 0 THEN 0 ELSE 4611686018427387904 END"
    return f"{line} AND r.aside AND r.rank BETWEEN {low} AND {high}"
