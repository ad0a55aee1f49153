"""Prints facts: as tables, as JSON, and progress bars for long work. Reads arguments that are written as JSON."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from tarry.errors import TarryError, UsageError
from tarry.model.duration import SECOND, format_duration
from tarry.store.rules.partial_result import partial_result as _partly
from tarry.terminal import escape_control, escape_control_json, print_line

T = TypeVar("T")


class NotConfirmed(TarryError):
    """The user did not say yes; that was told already."""


def print_json(facts: Any) -> None:
    """Prints one JSON document on one line."""
    print(escape_control_json(msgspec.json.encode(facts).decode()))


def print_result(as_json: bool, facts: Any, line: str) -> None:
    """Prints what became of an act: as JSON, or in one line."""
    if as_json:
        print_json(facts)
    else:
        print_line(line)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints a table; columns of numbers are aligned to the right."""
    # Task names, queues and keys come from clients, and may hold characters that a terminal acts on.
    lines = [[escape_control(_text(cell)) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = [all(isinstance(row[i], int | float) for row in rows) and bool(rows) for i in range(len(heads))]
    for line in lines:
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)]
        print("  ".join(cells).rstrip())


def _text(cell: Any) -> str:
    # A bool is an int, too.
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def partial_answer(ask: Callable[[], T]) -> T:
    """Returns the answer; if only some shards could give it, warns on stderr, once for each reason."""
    answer, away = _partly(ask)
    if away and str(away) not in _warned_of:
        print_line(f"tarry: {away}; what follows is without it", file=sys.stderr)
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
        print_line(f"{question} Not asked, since this is no terminal: add --yes.", file=sys.stderr)
        return False
    return input(escape_control(f"{question} [y/N] ")).strip().lower() in ("y", "yes")


def format_ago(moment: int, now: int) -> str:
    """`3m20s ago`, `in 5m`."""
    return f"{format_duration(now - moment)} ago" if moment <= now else f"in {format_duration(moment - now)}"


_split_time: Callable[[float], time.struct_time] = time.localtime
"""From seconds since the epoch to the parts of a time, in the zone of all that is printed."""


@contextlib.contextmanager
def in_utc() -> Iterator[None]:
    """Inside, all times are printed in UTC; else in the local zone."""
    global _split_time
    _split_time = time.gmtime
    try:
        yield
    finally:
        _split_time = time.localtime


def format_clock(moment: int) -> str:
    """The time to the second, with its zone: `2026-11-27 20:37:02 +09:00`, `2026-11-27 11:37:02 UTC`; 0: `-`."""
    return f"{format_moment(moment / SECOND, '%Y-%m-%d %H:%M:%S')} {zone_at(moment / SECOND)}" if moment else "-"


def format_moment(seconds: float, form: str) -> str:
    """The time in a form of strftime, for where the zone is named elsewhere."""
    return time.strftime(form, _split_time(seconds))


def zone_at(seconds: float) -> str:
    """The zone of printed times at that moment: `+09:00`, or `UTC`."""
    # No abbreviation: CST is a zone of China, and one of America.
    offset = time.strftime("%z", _split_time(seconds))
    return "UTC" if offset in ("+0000", "-0000") else f"{offset[:3]}:{offset[3:]}"


def read_arguments(texts: list[str]) -> list[Any] | dict[str, Any]:
    """The arguments that somebody wrote as JSON; UsageError."""
    values = [read_json(text) for text in texts]
    return values[0] if len(values) == 1 and isinstance(values[0], list | dict) else values


def read_json(text: str) -> Any:
    """A value that is written as JSON; UsageError."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        is_text = not text.lstrip().startswith(("[", "{"))
        way_out = "quote text twice, as in '\"ann@example.org\"'" if is_text else """write it as in '["ann", 3]'"""
        raise UsageError(f"{text!r} is no JSON ({error}); {way_out}") from None
