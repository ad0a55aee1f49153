"""The state of the view, and what each key does to it. Does no drawing and no I/O."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from tarry.cli.top.facts import QueueRow, RunningJob
from tarry.cli.top.layout import filter_and_sort
from tarry.cli.top.tables import HOSTS, HTTP, JOBS, QUEUES, WORKERS, Table, WorkerLine

WATCHING, FILTERING, CONFIRMING, HELPING = "watching", "filtering", "confirming", "helping"

TABLES = (QUEUES, WORKERS, JOBS, HTTP, HOSTS)
_LONGEST_FILTER = 60
_PAGE = 10
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_PAGE, "pagedown": _PAGE, "home": -(10**9), "end": 10**9}


class Action(Struct, frozen=True):
    """A change in the store: `pause` or `resume` of the queue named `what`, or `cancel` of the job with that id."""

    verb: str
    what: str
    shown: str


class TableState(Struct):
    """The selected line and the sort order of one table."""

    key: str = ""
    place: int = 0
    """The index of the selected line: when the line disappears, the next one is selected."""
    top: int = 0
    """The first line that is shown."""
    sort: int = -1
    descending: bool = False
    columns: tuple[int, ...] = ()
    """Indexes of the columns that are shown."""


class ViewState:
    """The state of one session.

    The dashboard sets `facts` before each drawing. `press` returns an action, "quit", or None.
    """

    def __init__(self) -> None:
        self.facts: dict[str, Sequence[Any]] = {table.name: () for table in TABLES}
        self.shown: tuple[Table, ...] = (QUEUES, WORKERS, JOBS)
        self.focus = QUEUES.name
        self.filter = ""
        self.mode = WATCHING
        self.pending: Action | None = None
        self.message = ""
        self._tables = {table.name: TableState(sort=table.sort, descending=table.descending) for table in TABLES}
        self._handlers: dict[str, Callable[[], None]] = {
            "?": partial(self._set_mode, HELPING),
            "h": partial(self._set_mode, HELPING),
            "/": partial(self._set_mode, FILTERING),
            "escape": self._show_all,
            "tab": partial(self._focus_next, 1),
            "shift-tab": partial(self._focus_next, -1),
            **{str(n + 1): partial(self._focus_table, n) for n in range(len(TABLES))},
            "s": self._sort_by_next,
            "S": self._reverse_sort,
            "c": self._ask_to_cancel,
        }

    def state_of(self, table: Table) -> TableState:
        """The state of that table."""
        return self._tables[table.name]

    def lines(self, table: Table) -> list[Any]:
        """The lines of that table, filtered and sorted."""
        state = self._tables[table.name]
        return filter_and_sort(table, self.facts[table.name], self.filter, state.sort, state.descending)

    def find(self, table: Table, lines: Sequence[Any]) -> int:
        """The index of the selected line; -1 if there are no lines."""
        state = self._tables[table.name]
        for place, line in enumerate(lines):
            if table.key(line) == state.key:
                state.place = place
                return place
        state.place = max(min(state.place, len(lines) - 1), 0)
        return state.place if lines else -1

    def press(self, key: str) -> Action | str | None:
        """Handles a key: a printable character, or a name such as up, enter, escape, tab, backspace."""
        match self.mode:
            case "filtering":
                return self._press_filtering(key)
            case "confirming":
                return self._press_confirming(key)
            case "helping":
                self.mode = WATCHING
                return None
        return self._press_watching(key)

    def _press_watching(self, key: str) -> Action | str | None:
        self.message = ""
        if key in ("q", "ctrl-c"):
            return "quit"
        if key in ("p", "r"):
            return self._queue_action("pause" if key == "p" else "resume")
        if key in _MOVES:
            self._move(_MOVES[key])
        elif key in self._handlers:
            self._handlers[key]()
        return None

    def _set_mode(self, mode: str) -> None:
        self.mode = mode

    def _show_all(self) -> None:
        self.filter = ""

    def _reverse_sort(self) -> None:
        state = self.state_of(self.table)
        state.descending = not state.descending

    def _press_filtering(self, key: str) -> str | None:
        match key:
            case "ctrl-c":
                return "quit"
            case "enter":
                self.mode = WATCHING
            case "escape":
                self.mode, self.filter = WATCHING, ""
            case "backspace":
                self.filter = self.filter[:-1]
            case "ctrl-u":
                self.filter = ""
            case _ if len(key) == 1 and key.isprintable() and len(self.filter) < _LONGEST_FILTER:
                self.filter += key
        return None

    def _press_confirming(self, key: str) -> Action | str | None:
        """Any key but y means no."""
        self.mode, pending, self.pending = WATCHING, self.pending, None
        if key == "ctrl-c":
            return "quit"
        if key in ("y", "Y"):
            return pending
        self.message = "not cancelled"
        return None

    @property
    def table(self) -> Table:
        """The focused table."""
        return next((table for table in self.shown if table.name == self.focus), self.shown[0])

    def selected(self) -> Any | None:
        """The selected line of the focused table."""
        lines = self.lines(self.table)
        place = self.find(self.table, lines)
        return lines[place] if place >= 0 else None

    def _move(self, by: int) -> None:
        lines = self.lines(self.table)
        if lines:
            state = self.state_of(self.table)
            state.place = min(max(self.find(self.table, lines) + by, 0), len(lines) - 1)
            state.key = self.table.key(lines[state.place])

    def _focus_next(self, by: int) -> None:
        self._focus_table((self.shown.index(self.table) + by) % len(self.shown))

    def _focus_table(self, number: int) -> None:
        if number < len(self.shown):
            self.focus = self.shown[number].name

    def _sort_by_next(self) -> None:
        """Sorts by the next column that is shown; after the last one the table has its own order again."""
        state = self.state_of(self.table)
        state.sort = next((place for place in state.columns if place > state.sort), -1)
        # Numbers stand on the right, and the largest ones come first.
        state.descending = state.sort >= 0 and self.table.columns[state.sort].right

    def _queue_action(self, verb: str) -> Action | None:
        line = self.selected()
        name = line.queue if isinstance(line, QueueRow | RunningJob) else ""
        if not name:
            self.message = f"choose a queue to {verb}: Tab goes to the queues, arrows choose one"
            return None
        return Action(verb, name, name)

    def _ask_to_cancel(self) -> None:
        line = self.selected()
        job = line.job if isinstance(line, WorkerLine) else line if isinstance(line, RunningJob) else None
        if job is None:
            self.message = "choose a job to cancel: Tab goes to workers and jobs, arrows choose one"
            return
        # Kept, since another job may be on this line before the user confirms.
        self.pending = Action("cancel", job.id, f"{job.task} {job.id}")
        self.mode = CONFIRMING
