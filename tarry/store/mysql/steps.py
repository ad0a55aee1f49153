"""The different values of a column in the order of a key, each found by a step from the one before.

Neither server does that by itself: for DISTINCT both read every row. A variable takes the value from one step to the
next, so that many steps are one round trip, and each of them is one look into the key.
"""

from collections.abc import Sequence

from msgspec import Struct

from tarry.store.mysql.link import Link

FIRST, FACTOR, MOST = 2, 8, 256
"""Steps in the first packet, how their number grows, and up to what."""
_STEP = "SET @tarry{0} = (SELECT {1} FROM {2} FORCE INDEX (PRIMARY) WHERE {3} AND {1} {4} ORDER BY {1} LIMIT 1)"
"""Not MIN: beside a variable MariaDB reads all the rest for that."""


class Walk(Struct):
    """What is asked for, and what of it is found."""

    table: str
    column: str
    where: str
    """Gives all columns of the key that come before that one."""
    most: int
    after: str | None = None
    """A literal; None: from the beginning."""

    def steps(self, start: int, count: int, found: Sequence[bytes]) -> list[str]:
        """The statements that find so many more."""
        beyond = f"> X'{found[-1].hex()}'" if found else ">= ''" if self.after is None else f"> {self.after}"
        statements = []
        for number in range(start, start + count):
            statements.append(_STEP.format(number, self.column, self.table, self.where, beyond))
            beyond = f"> @tarry{number}"
        return [*statements, "SELECT " + ", ".join(f"@tarry{number}" for number in range(start, start + count))]


def walked(link: Link, walks: Sequence[Walk]) -> list[list[bytes]]:
    """The values of each, at most so many."""
    found: list[list[bytes]] = [[] for _ in walks]
    going = [number for number, walk in enumerate(walks) if walk.most > 0]
    size = FIRST
    while going:
        statements: list[str] = []
        ends: list[int] = []
        for number in going:
            count = min(size, walks[number].most - len(found[number]))
            statements += walks[number].steps(len(statements), count, found[number])
            ends.append(len(statements) - 1)
        answers = link.run(*statements)
        going = [number for number, end in zip(going, ends, strict=True)
                 if _took(found[number], answers[end].rows[0], walks[number].most)]  # fmt: skip
        size = min(MOST, size * FACTOR)
    return found


def _took(found: list[bytes], values: Sequence[bytes | None], most: int) -> bool:
    """Adds them; whether there may be more."""
    there = [value for value in values if value is not None]
    found += there
    return len(there) == len(values) and len(found) < most
