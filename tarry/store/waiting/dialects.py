"""How each SQL store finds the jobs that wait, for the statements of `tarry.store.waiting.sql`.

Everything after FROM, so that an index is read in its order and a LIMIT ends that early.
"""

from msgspec import Struct

from tarry.store.postgres.constants import LINE


class WaitingDialect(Struct, frozen=True, kw_only=True):
    """The parts of one store's statements. In {} stand: {late}: 0 or 1; {sign}: of `claim_order`; {line}: both
    as one number; {range}: that sign as a comparison."""

    ready: tuple[str, ...]
    """Ready jobs without a lane of the queue ?1, of that lateness and band; each of them is read apart."""
    laned: str
    """Ready jobs in lanes of the queue ?1, of that band."""
    scheduled: tuple[str, ...]
    """Scheduled jobs; conditions on `due` follow."""
    scheduled_with_queue: tuple[str, ...]
    """The same where `{queue}` can be read."""
    queue: str = "queue"
    """The column of the queue there, as text."""
    id: str = "?4"
    """An id as a value of a statement."""


_SQLITE_DUE = "tarry_job INDEXED BY tarry_scheduled WHERE state = 0"
SQLITE = WaitingDialect(
    ready=(
        """tarry_job INDEXED BY tarry_ready
            WHERE state = 1 AND lane IS NULL AND queue = ?1 AND (state_since > due) = {late} AND claim_order {range}""",
    ),
    laned="""tarry_job INDEXED BY tarry_laned
        WHERE state = 1 AND lane IS NOT NULL AND queue = ?1 AND (claim_order > 0) - (claim_order < 0) = {sign}""",
    scheduled=(_SQLITE_DUE,),
    scheduled_with_queue=(_SQLITE_DUE,),
)
# `out_of_order` comes early in the indexes: jobs that are out of order are read apart.
_ORDERS = ("NOT out_of_order", "out_of_order")
_POSTGRES_DUE = tuple(f"{{s}}.job WHERE state = 0 AND {order}" for order in _ORDERS)
POSTGRES = WaitingDialect(
    ready=tuple(
        f"{{{{s}}}}.job WHERE state = 1 AND lane IS NULL AND queue = $1 AND {order} AND {LINE} = {{line}}"
        for order in _ORDERS
    ),
    laned="""{{s}}.job WHERE state = 1 AND lane IS NOT NULL AND queue = $1
        AND (claim_order > 0)::int - (claim_order < 0)::int = {sign}""",
    scheduled=_POSTGRES_DUE,
    scheduled_with_queue=_POSTGRES_DUE,
    id="encode(?4, 'hex')::uuid",
)
MYSQL = WaitingDialect(
    ready=("tarry_ready FORCE INDEX (PRIMARY) WHERE queue = ?1 AND late = {late} AND claim_order {range}",),
    laned="tarry_laned FORCE INDEX (PRIMARY) WHERE queue = ?1 AND band = {sign}",
    scheduled=("tarry_scheduled FORCE INDEX (PRIMARY) WHERE 1 = 1",),
    scheduled_with_queue=(
        """(SELECT s.due, j.queue FROM tarry_scheduled s STRAIGHT_JOIN tarry_job j FORCE INDEX (PRIMARY)
            ON j.id = s.id) d WHERE 1 = 1""",
    ),
    queue="CONVERT(queue USING utf8mb4)",
)
