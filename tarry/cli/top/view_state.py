"""What the person at the keyboard has chosen, and what each key does to that. Draws nothing and asks nobody."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from tarry.cli.top.facts import Queue, RunningJob
from tarry.cli.top.tables import HOSTS, HTTP, JOBS, QUEUES, WORKERS, Table, WorkerLine, arranged

WATCHING, FILTERING, CONFIRMING, HELPING = "watching", "filtering", "confirming", "helping"

TABLES = (QUEUES, WORKERS, JOBS, HTTP, HOSTS)
_LONGEST_FILTER = 60
_PAGE = 10
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_PAGE, "pagedown": _PAGE, "home": -(10**9), "end": 10**9}


class Wish(Struct, frozen=True):
    """What is to be done in the store: `pause` or `resume` a queue of that name, `cancel` a job of that id."""

    verb: str
    what: str
    shown: str


class Chosen(Struct):
    """What is chosen in one table: a line, an order."""

    key: str = ""
    place: int = 0
    """Where the line was: when it goes, the next one takes its place."""
    top: int = 0
    """The first line that is shown."""
    sort: int = -1
    falling: bool = False
    columns: tuple[int, ...] = ()
    """Those that are shown, by their places in the table."""


class Desk:
    """One person's. `facts` are put here before each picture; `press` answers a wish, "quit", or None."""

    def __init__(self) -> None:
        self.facts: dict[str, Sequence[Any]] = {table.name: () for table in TABLES}
        self.shown: tuple[Table, ...] = (QUEUES, WORKERS, JOBS)
        self.focus = QUEUES.name
        self.filter = ""
        self.mode = WATCHING
        self.asked: Wish | None = None
        self.message = ""
        self._chosen = {table.name: Chosen(sort=table.sort, falling=table.falling) for table in TABLES}
        self._acts: dict[str, Callable[[], None]] = {
            "?": partial(self._enter, HELPING),
            "h": partial(self._enter, HELPING),
            "/": partial(self._enter, FILTERING),
            "escape": self._show_all,
            "tab": partial(self._turn, 1),
            "shift-tab": partial(self._turn, -1),
            **{str(n + 1): partial(self._go, n) for n in range(len(TABLES))},
            "s": self._sort_by_the_next,
            "S": self._turn_round,
            "c": self._ask_to_cancel,
        }

    def chosen(self, table: Table) -> Chosen:
        """What is chosen in that table."""
        return self._chosen[table.name]

    def lines(self, table: Table) -> list[Any]:
        """Its facts as they are filtered and ordered."""
        chosen = self._chosen[table.name]
        return arranged(table, self.facts[table.name], self.filter, chosen.sort, chosen.falling)

    def find(self, table: Table, lines: Sequence[Any]) -> int:
        """Where the chosen line is now; -1 if there are no lines."""
        chosen = self._chosen[table.name]
        for place, line in enumerate(lines):
            if table.key(line) == chosen.key:
                chosen.place = place
                return place
        chosen.place = max(min(chosen.place, len(lines) - 1), 0)
        return chosen.place if lines else -1

    def press(self, key: str) -> Wish | str | None:
        """A printable character, or the name of a key: up, enter, escape, tab, backspace ..."""
        match self.mode:
            case "filtering":
                return self._filtering(key)
            case "confirming":
                return self._confirming(key)
            case "helping":
                self.mode = WATCHING
                return None
        return self._watching(key)

    def _watching(self, key: str) -> Wish | str | None:
        self.message = ""
        if key in ("q", "ctrl-c"):
            return "quit"
        if key in ("p", "r"):
            return self._queue_wish("pause" if key == "p" else "resume")
        if key in _MOVES:
            self._move(_MOVES[key])
        elif key in self._acts:
            self._acts[key]()
        return None

    def _enter(self, mode: str) -> None:
        self.mode = mode

    def _show_all(self) -> None:
        self.filter = ""

    def _turn_round(self) -> None:
        chosen = self.chosen(self.table)
        chosen.falling = not chosen.falling

    def _filtering(self, key: str) -> str | None:
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

    def _confirming(self, key: str) -> Wish | str | None:
        """Whatever is not a clear yes is a no."""
        self.mode, asked, self.asked = WATCHING, self.asked, None
        if key == "ctrl-c":
            return "quit"
        if key in ("y", "Y"):
            return asked
        self.message = "not cancelled"
        return None

    @property
    def table(self) -> Table:
        """The one that the keys move in."""
        return next((table for table in self.shown if table.name == self.focus), self.shown[0])

    def selected(self) -> Any | None:
        """The chosen line of that table."""
        lines = self.lines(self.table)
        place = self.find(self.table, lines)
        return lines[place] if place >= 0 else None

    def _move(self, by: int) -> None:
        lines = self.lines(self.table)
        if lines:
            chosen = self.chosen(self.table)
            chosen.place = min(max(self.find(self.table, lines) + by, 0), len(lines) - 1)
            chosen.key = self.table.key(lines[chosen.place])

    def _turn(self, by: int) -> None:
        self._go((self.shown.index(self.table) + by) % len(self.shown))

    def _go(self, number: int) -> None:
        if number < len(self.shown):
            self.focus = self.shown[number].name

    def _sort_by_the_next(self) -> None:
        """Of those that are to be seen; after the last comes the table's own order again."""
        chosen = self.chosen(self.table)
        chosen.sort = next((place for place in chosen.columns if place > chosen.sort), -1)
        chosen.falling = chosen.sort >= 0 and self.table.columns[chosen.sort].right

    def _queue_wish(self, verb: str) -> Wish | None:
        line = self.selected()
        name = line.queue if isinstance(line, Queue | RunningJob) else ""
        if not name:
            self.message = f"choose a queue to {verb}: Tab goes to the queues, arrows choose one"
            return None
        return Wish(verb, name, name)

    def _ask_to_cancel(self) -> None:
        line = self.selected()
        job = line.job if isinstance(line, WorkerLine) else line if isinstance(line, RunningJob) else None
        if job is None:
            self.message = "choose a job to cancel: Tab goes to workers and jobs, arrows choose one"
            return
        self.asked = Wish("cancel", job.id, f"{job.task} {job.id}")
        self.mode = CONFIRMING
