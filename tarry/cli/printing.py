"""Prints facts: as tables, as JSON, and progress bars for long work."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from tarry.model.duration import SECOND, format_duration
from tarry.store.shared.partial_result import partial_result as _partly
from tarry.terminal import harmless, harmless_json, say

T = TypeVar("T")


def print_json(facts: Any) -> None:
    """Prints one JSON document on one line."""
    print(harmless_json(msgspec.json.encode(facts).decode()))


def print_result(as_json: bool, facts: Any, line: str) -> None:
    """Prints what became of an act: as JSON, or in one line."""
    if as_json:
        print_json(facts)
    else:
        say(line)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints a table; columns of numbers are aligned to the right."""
    # Task names, queues and keys come from clients, and may hold characters that a terminal acts on.
    texts = [[harmless(_text(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    right = [all(isinstance(row[i], int | float) for row in rows) and bool(rows) for i in range(len(heads))]
    for line in ([*heads], *texts):
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)]
        print("  ".join(cells).rstrip())


def _text(cell: Any) -> str:
    # A bool is an int, too.
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def partial_answer(ask: Callable[[], T]) -> T:
    """Returns the answer; if only some shards could give it, warns on stderr, once for each reason."""
    answer, away = _partly(ask)
    if away and str(away) not in _warned_of:
        say(f"tarry: {away}; what follows is without it", file=sys.stderr)
        _warned_of.add(str(away))
    return answer


_warned_of: set[str] = set()


def progress_bar(things: Iterable[T], total: int | None, what: str) -> Iterator[T]:
    """Iterates over the things, with a progress bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        return iter(things)
    # The import takes a sixth of the time of a short command, so only where a bar is drawn.
    from tqdm import tqdm  # noqa: PLC0415

    return iter(tqdm(things, total=total, unit=what, leave=False))


def confirm(question: str, yes: bool) -> bool:
    """Asks for confirmation; without a terminal and without --yes the answer is no."""
    if yes:
        return True
    if not sys.stdin.isatty():
        say(f"{question} Not asked, since this is no terminal: add --yes.", file=sys.stderr)
        return False
    return input(harmless(f"{question} [y/N] ")).strip().lower() in ("y", "yes")


def format_ago(moment: int, now: int) -> str:
    """`3m20s ago`, `in 5m`."""
    return f"{format_duration(now - moment)} ago" if moment <= now else f"in {format_duration(moment - now)}"


def format_clock(moment: int) -> str:
    """The time in the local zone, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment / SECOND)) if moment else "-"
