"""How values are written in statements. Only digits, NULL, our own names and hexadecimal go into a statement, so there
is nothing to escape."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

AT_ONCE = 2**20
"""The most bytes of one statement, unless one job alone takes more."""


def raw(value: bytes) -> str:
    """Bytes as a literal."""
    return f"X'{value.hex()}'"


def text(value: str) -> str:
    """Text as a literal."""
    return f"X'{value.encode().hex()}'"


_PLACE = re.compile(r"\?([1-9][0-9]*)")


def bind(statement: str, values: Sequence[str | bytes | int]) -> str:
    """The statement with its values as literals in place of ?1, ?2 ..."""
    written = [text(value) if isinstance(value, str) else literal(value) for value in values]
    return _PLACE.sub(lambda found: written[int(found[1]) - 1], statement)


def literal(value: bytes | int) -> str:
    """Bytes or a number as a literal."""
    return raw(value) if isinstance(value, bytes) else str(value)


def blob_or_null(value: bytes) -> str:
    """Bytes as a literal; NULL for no bytes, since it takes no room."""
    return f"X'{value.hex()}'" if value else "NULL"


def text_or_null(value: str | None) -> str:
    """Text as a literal, or NULL."""
    return "NULL" if value is None else text(value)


def id_list(ids: Iterable[bytes]) -> str:
    """Ids for an IN, sorted."""
    # All transactions lock rows in the same order, so that they do not deadlock.
    return "X'" + "',X'".join([id.hex() for id in sorted(ids)]) + "'"


_TABLE = "JSON_TABLE('[{}]', '$[*]' COLUMNS ({})) v"
_ONE, _TWO = "i CHAR(64) PATH '$'", "d BIGINT PATH '$[0]', i CHAR(64) PATH '$[1]'"
_JSON_TABLE = re.compile(r"JSON_TABLE\('([^']*)', '\$\[\*\]' COLUMNS \([^']*'\$(?:\[0\]', [^']*'\$\[1\])?'\)\) v")


LANE = "UNHEX(v.i)"
"""The name in a row of `lane_table`."""


def lane_table(lanes: Iterable[str]) -> str:
    """Names of lanes, sorted, as the table v."""
    names = [lane.encode().hex() for lane in sorted(lanes)]
    return _TABLE.format('"' + '","'.join(names) + '"', "i VARCHAR(1500) PATH '$'")


def id_table(ids: Iterable[bytes]) -> str:
    """Ids, sorted, as the table v with the hexadecimal column i."""
    return _TABLE.format('"' + '","'.join([id.hex() for id in sorted(ids)]) + '"', _ONE)


def id_and_due_table(pairs: Iterable[tuple[bytes, int]]) -> str:
    """As `id_table`, and with the due time of each in the column d."""
    return _TABLE.format(",".join([f'[{due},"{id.hex()}"]' for id, due in sorted(pairs)]), _TWO)


def for_older(statement: str) -> str:
    """The same statement for a server without JSON_TABLE: with a union of rows, which is slower to read."""
    return _JSON_TABLE.sub(_union, statement)


def _union(found: "re.Match[str]") -> str:
    rows = [row if isinstance(row, list) else [row] for row in msgspec.json.decode(found[1])]
    first = [f"'{value}' AS i" if isinstance(value, str) else f"{value} AS d" for value in rows[0]]
    rest = [", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in row) for row in rows[1:]]
    return "(SELECT " + " UNION ALL SELECT ".join([", ".join(first), *rest]) + ") v"


def chunks(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The ids in parts of at most 1000, for one statement each."""
    return (ids[start : start + 1000] for start in range(0, len(ids), 1000))


def bounded_statements(head: str, values: Iterable[str], tail: str = "") -> Iterator[str]:
    """The values in as many statements as needed, each of at most AT_ONCE bytes."""
    rows: list[str] = []
    size = 0
    for row in values:
        if rows and size + len(row) > AT_ONCE:
            yield head + ",".join(rows) + tail
            rows, size = [], 0
        rows.append(row)
        size += len(row) + 1
    if rows:
        yield head + ",".join(rows) + tail
