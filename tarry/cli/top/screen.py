"""Draws the dashboard as styled lines: exactly as many as the terminal has, and none wider."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from tarry.cli.shared.printing import format_moment, zone_at
from tarry.cli.top.layout import GAP, fit_columns
from tarry.cli.top.tables import Table
from tarry.cli.top.text import fit, make_printable
from tarry.cli.top.view_state import CONFIRMING, FILTERING, HELPING, ViewState

Piece = tuple[str, str]
ScreenLine = list[Piece]
Cells = Callable[[str], int]

LEAST_WIDTH, LEAST_HEIGHT = 40, 8
CHART_WIDTH, CHART_HEIGHT = 60, 30
"""The least size at which there is room for the charts."""
_FEWEST_LINES = 2  # The fewest lines of a table that is not focused.

KEYS = (
    "q quit", "? help", "Tab next table", "/ filter", "s sort", "p pause", "r resume", "c cancel", "↑↓ choose",
)  # fmt: skip
HELP = (
    ("↑ ↓  j k", "choose a line; PgUp PgDn Home End move further"),
    ("Tab  1-5", "the next table, or one by its number"),
    ("/", "show only what has a text in it: queue, task, worker, id"),
    ("s  S", "sort by the next column (▲ ▼ shows which); turn it round"),
    ("p  r", "pause the chosen queue (it takes jobs, gives none); resume it"),
    ("c", "cancel the chosen job; asks first"),
    ("Ctrl-L", "draw anew      Ctrl-Z  suspend      q  quit"),
    ("", ""),
    ("in/s out/s", "what came and left, by counting; ≥: records were forgotten"),
    ("fail", "attempts that failed, also the last of a dead job; /min: of 5 minutes"),
    ("oldest", "for how long the first ready job has been due"),
    ("wait  ran", "from due to start, and how long attempts ran: the median, p99"),
    ("job", "of async jobs, a worker shows only the one whose step it is"),
)


class Header(Struct, frozen=True):
    """The lines above the tables, each with its style."""

    left: str
    lines: tuple[Piece, ...]
    charts: tuple[Piece, ...] = ()
    """Further lines, where there is room for them."""


def draw(head: Header, view: ViewState, width: int, height: int, now: float, cells: Cells) -> list[ScreenLine]:
    """Draws the whole screen. now: seconds since the epoch. cells: the width of a character in terminal cells."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        text = f"{LEAST_WIDTH} x {LEAST_HEIGHT} at least; q quits"
        return [[("", fit(text, width, False, cells))]] + [[("", "")]] * (height - 1)
    writer = LineWriter(width, cells)
    clock = f"{format_moment(now, '%H:%M:%S')} {zone_at(now)}"
    top = [writer.ends("class:title", head.left, clock), *(writer.line(*line) for line in head.lines)]
    if width >= CHART_WIDTH and height >= CHART_HEIGHT:
        top += [writer.line(*line) for line in head.charts]
    # However long the header is, three lines are left for a table.
    top = [*top[: height - 5], writer.line("", "")]
    room = height - len(top) - 1
    body = writer.help(room) if view.mode == HELPING else writer.tables(view, room)
    body += [writer.line("", "")] * (room - len(body))
    return [*top, *body[:room], writer.foot(view)]


class LineWriter:
    """Builds lines of a fixed width."""

    def __init__(self, width: int, cells: Cells) -> None:
        self._width, self._cells = width, cells

    def line(self, style: str, text: str) -> ScreenLine:
        """A line with one piece, indented by one cell."""
        return [(style, fit(f" {make_printable(text)}", self._width, False, self._cells))]

    def ends(self, style: str, left: str, right: str) -> ScreenLine:
        """A line with a text on the left, and one on the right that is never cut."""
        room = self._width - len(right) - 2
        return [(style, f"{fit(' ' + make_printable(left), room, False, self._cells)} {right} ")]

    def help(self, room: int) -> list[ScreenLine]:
        """The help: the keys and the columns."""
        found = [
            [("class:key", f"  {keys:12}"), ("", fit(text_shown, self._width - 14, False, self._cells))]
            for keys, text_shown in HELP
        ]
        return [*found[: room - 1], self.line("class:quiet", "any key goes back")]

    def foot(self, view: ViewState) -> ScreenLine:
        """The last line: keys, a question, or a message."""
        if view.mode == CONFIRMING and view.pending is not None:
            return self.line("class:ask", f"cancel, y or n?  {view.pending.shown}")
        if view.mode == FILTERING:
            return self.line("class:ask", f"show only: {view.filter}_   Enter keeps it, Esc shows all")
        if view.message:
            return self.line("class:message", view.message)
        shown = f"only {view.filter!r} (Esc: all)   " if view.filter else ""
        for key in KEYS:
            if len(shown) + len(key) < self._width - 2:
                shown += key + "   "
        return self.line("class:foot", shown.rstrip())

    def tables(self, view: ViewState, room: int) -> list[ScreenLine]:
        """The tables, one below the other; the focused one gets the most lines."""
        sets = [view.lines(table) for table in view.shown]
        sizes = _share_lines([max(len(lines), 1) for lines in sets], view.shown.index(view.table), room)
        rows: list[ScreenLine] = []
        for table, lines, size in zip(view.shown, sets, sizes, strict=True):
            if size > 0:
                rows += [*self.table(view, table, lines, size), self.line("", "")]
        return rows[:-1]

    def table(self, view: ViewState, table: Table, lines: Sequence[Any], size: int) -> list[ScreenLine]:
        """The heading, and `size` lines around the selected one."""
        focused = table is view.table
        columns = fit_columns(table.columns, self._width - 2)
        place, state = view.find(table, lines), view.state_of(table)
        # `s` goes through the columns that are shown.
        state.columns = tuple(table.columns.index(column) for column, _ in columns)
        # The selected line stays in sight, and no line stays empty while there are more.
        state.top = max(min(state.top, place, len(lines) - size), place - size + 1, 0)
        heading = self._draw_heading(view, table, columns, len(lines), size)
        shown = [
            self._row(table, columns, line, focused and number == place)
            for number, line in enumerate(lines[state.top : state.top + size], state.top)
        ]
        nothing = "nothing here" + (f" has {view.filter!r} in it" if view.filter else "")
        return [heading, *(shown or [self.line("class:quiet", " " + nothing)])]

    def _draw_heading(self, view: ViewState, table: Table, columns: Any, total: int, size: int) -> ScreenLine:
        focused, state = table is view.table, view.state_of(table)
        titles = []
        for column, width in columns:
            title = column.title
            if column is table.columns[0] and total > size:
                title += f" {state.top + 1}-{min(state.top + size, total)}/{total}"
            if state.sort >= 0 and column is table.columns[state.sort]:
                # A title on the right fills its column, so it gives up a cell to the sign.
                title = (title[: width - 1] if column.right else title) + ("▼" if state.descending else "▲")
            titles.append(fit(title, width, column.right, self._cells))
        text = ("▸ " if focused else "  ") + (" " * GAP).join(titles)
        return [("class:head" if focused else "class:other-head", fit(text, self._width, False, self._cells))]

    def _row(self, table: Table, columns: Any, fact: Any, selected: bool) -> ScreenLine:
        base = "class:selected " if selected else ""
        pieces: ScreenLine = [(base, "› " if selected else "  ")]
        for number, (column, width) in enumerate(columns):
            text = fit(make_printable(column.text(fact)), width, column.right, self._cells)
            style = column.style(fact) or ("class:quiet" if text.strip() in ("·", "-") else "")
            pieces += [(base + style, text), (base, " " * GAP if number < len(columns) - 1 else "")]
        left = self._width - 2 - sum(width for _, width in columns) - GAP * (len(columns) - 1)
        return [*pieces, (base, " " * max(left, 0))]


def _share_lines(wanted: list[int], focus: int, room: int) -> list[int]:
    """How many lines each table gets; `room` also contains a heading for each and a blank line between two."""
    left = room - len(wanted) - (len(wanted) - 1)
    sizes = [min(want, _FEWEST_LINES) for want in wanted]
    while sum(sizes) > max(left, 1) and any(size for place, size in enumerate(sizes) if place != focus):
        # The last table gives up its lines first.
        last = max(place for place, size in enumerate(sizes) if size and place != focus)
        left += 2 * (sizes[last] == 1)  # its heading goes too
        sizes[last] -= 1
    for place in (focus, *(place for place in range(len(wanted)) if place != focus)):
        if sizes[place]:
            sizes[place] += min(wanted[place] - sizes[place], max(left - sum(sizes), 0))
    return sizes
