"""A loose index scan: finds each distinct value of a column by one look into the key, after the value before.

Neither server does that for DISTINCT: both read every row.
"""

from collections.abc import Sequence

from msgspec import Struct

from tarry.store.mysql.link.connection import MysqlConnection

# Few steps first: each step after the last value is in vain.
FIRST, FACTOR, MOST = 2, 8, 256
"""Steps in the first packet, the factor by which they grow, and their maximum."""
# A session variable carries the value from one step to the next, so that many steps need one round trip. ORDER BY and
# LIMIT instead of MIN: next to a variable MariaDB reads all remaining rows for MIN.
_STEP = "SET @tarry{0} = (SELECT {1} FROM {2} FORCE INDEX (PRIMARY) WHERE {3} AND {1} {4} ORDER BY {1} LIMIT 1)"


class DistinctScan(Struct):
    """A table and a column to scan."""

    table: str
    column: str
    where: str
    """A condition on all columns of the key before that column."""
    most: int
    after: str | None = None
    """A literal; None: from the start."""

    def steps(self, start: int, count: int, found: Sequence[bytes]) -> list[str]:
        """The statements that find `count` more values; they use the variables from number `start` on."""
        condition = f"> X'{found[-1].hex()}'" if found else ">= ''" if self.after is None else f"> {self.after}"
        statements = []
        for number in range(start, start + count):
            statements.append(_STEP.format(number, self.column, self.table, self.where, condition))
            condition = f"> @tarry{number}"
        return [*statements, "SELECT " + ", ".join(f"@tarry{number}" for number in range(start, start + count))]


def scan_distinct(link: MysqlConnection, scans: Sequence[DistinctScan]) -> list[list[bytes]]:
    """The values of each scan, up to its `most`."""
    found: list[list[bytes]] = [[] for _ in scans]
    going = [number for number, scan in enumerate(scans) if scan.most > 0]
    size = FIRST
    while going:
        statements: list[str] = []
        ends: list[int] = []
        for number in going:
            count = min(size, scans[number].most - len(found[number]))
            statements += scans[number].steps(len(statements), count, found[number])
            ends.append(len(statements) - 1)
        answers = link.run(*statements)
        going = [number for number, end in zip(going, ends, strict=True)
                 if _add_values(found[number], answers[end].rows[0], scans[number].most)]  # fmt: skip
        size = min(MOST, size * FACTOR)
    return found


def _add_values(found: list[bytes], values: Sequence[bytes | None], most: int) -> bool:
    """Adds the values that are not NULL; answers whether there may be more."""
    # After the last value every further step finds NULL.
    more = [value for value in values if value is not None]
    found += more
    return len(more) == len(values) and len(found) < most
