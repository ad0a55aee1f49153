"""Constants that Python and SQL share in the PostgreSQL store. `functions/exchange.sql` explains lines and orders."""

from tarry.model.duration import DAY
from tarry.model.job import HELD, LABEL_PREFIX, LONGEST_LABEL_NAME, LONGEST_LABEL_VALUE, MOST_INDEXED, RELATIVE
from tarry.model.limit import LONGEST_DEBT, UNLIMITED
from tarry.model.overrides import COST_MARK
from tarry.store.postgres import job_columns
from tarry.store.rules.lanes import UNTIL_AN_END
from tarry.store.sql.lane_scan import EXAMINED, FEW_FULL

STORED_WITHIN = 1_000_000
"""Microseconds: a job is in order if it is stored at most this long after it was due."""
SEEN_WITHIN = 2_000_000
"""Microseconds: a scan start stays this far behind the clock."""
CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# One number, so that one look finds both lines of a band. The index cannot hold the bare condition
# `state_since > due`: where it must be false the planner rewrites it, and does not use the index.
LINE = "((claim_order > 0)::int - (claim_order < 0)::int) * 2 + (state_since > due)::int"
"""The band and the line of a ready job."""

_IN_SQL = {
    "{clock}": CLOCK,
    "{line}": LINE,
    "{stored_within}": str(STORED_WITHIN),
    "{seen_within}": str(SEEN_WITHIN),
    "{until_an_end}": str(UNTIL_AN_END),
    "{relative}": str(RELATIVE),
    "{held}": str(HELD),
    "{day}": str(DAY),
    "{label}": LABEL_PREFIX,
    "{after_label}": str(len(LABEL_PREFIX) + 1),
    "{longest_key}": str(len(LABEL_PREFIX) + LONGEST_LABEL_NAME),
    "{longest_value}": str(LONGEST_LABEL_VALUE),
    "{most_indexed}": str(MOST_INDEXED),
    "{band}": "((claim_order > 0)::int - (claim_order < 0)::int)",
    "{unlimited}": str(UNLIMITED),
    "{longest_debt}": str(LONGEST_DEBT),
    "{cost_mark}": f"\\x{COST_MARK.hex()}",
    "{weighted}": r"^\d+ \d+ \d+ \d+\x1f",
    "{few_full}": str(FEW_FULL),
    "{examined}": str(EXAMINED),
}


def with_constants(text: str) -> str:
    """The SQL with its constants in place; `{s}`, the schema, stays."""
    for name, value in (job_columns.IN_SQL | _IN_SQL).items():
        text = text.replace(name, value)
    return text


def in_schema(text: str, schema: str) -> str:
    """The SQL with the name of the schema in place of `{s}`."""
    # In quotes: the name may be a word of SQL, such as `full` or `user`.
    return text.replace("{s}", f'"{schema}"')
