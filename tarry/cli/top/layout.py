"""Which columns and lines of a table are shown: those that fit, and those that a filter leaves, in order."""

from collections.abc import Iterable, Sequence
from typing import Any

from tarry.cli.top.tables import Column, Table

GAP = 2
EXTRA = 5
_WIDEST_NAME = 44
_NAME, _NARROWEST_NAME = 24, 14  # The wanted and the smallest width of the column that takes the remaining cells.


def fit_columns(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """The columns that fit, in order, each with its width."""
    shown = list(columns)
    while True:
        last = max(shown, key=lambda column: column.rank)
        name = _NAME if last.rank >= EXTRA else _NARROWEST_NAME
        wanted = sum(column.short or column.width or name for column in shown) + GAP * (len(shown) - 1)
        if wanted <= width or not last.rank:
            return _widths(shown, width)
        shown.remove(last)


def _widths(shown: list[Column], width: int) -> list[tuple[Column, int]]:
    """Gives the remaining cells first to columns that can be short, then to the one with width 0."""
    spare = width - sum(column.short or column.width for column in shown) - GAP * (len(shown) - 1) - _NARROWEST_NAME
    widths = []
    for column in shown:
        more = min(max(spare, 0), column.width - column.short) if column.short else 0
        spare -= more
        widths.append((column.short or column.width) + more)
    for place, column in enumerate(shown):
        if not column.width:
            # As the last column it may be as wide as it likes: nothing stands on its right.
            most = width if column is shown[-1] else _WIDEST_NAME
            widths[place] = max(min(_NARROWEST_NAME + spare, most), 1)
    return list(zip(shown, widths, strict=True))


def filter_and_sort(table: Table, facts: Iterable[Any], text: str, sort: int, descending: bool) -> list[Any]:
    """The facts that contain the text, sorted by a column; facts without a value come last in both directions."""
    wanted = text.casefold()
    found = [fact for fact in facts if not wanted or any(wanted in word.casefold() for word in table.words(fact))]
    if sort < 0:
        return found[::-1] if descending else found
    order = table.columns[sort].order
    # Apart, since None cannot be compared.
    known = [fact for fact in found if order(fact) is not None]
    known.sort(key=order, reverse=descending)
    return known + [fact for fact in found if order(fact) is None]
