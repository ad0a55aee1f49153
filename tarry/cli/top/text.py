"""Makes foreign text safe to draw: no control characters, and never wider than its column."""

import unicodedata
from collections.abc import Callable

from tarry.runtime import master_report
from tarry.store.queries.history_reading import Percentiles
from tarry.store.queries.history_recent import RecentHistory
from tarry.terminal import escape_char, is_hidden, sparkline

_MARKS = frozenset({"Mn", "Me"})
_MOST_MARKS = 2  # The most combining marks on one character; more would overlap the lines around.
_VARIATIONS = range(0xFE00, 0xFE10)  # Variation selectors: terminals disagree on the width of a character before one.
_LONGEST = 500
_ELLIPSIS = "…"


def make_printable(text: str) -> str:
    r"""The text on one line, cut at 500 characters, with invisible characters escaped, as in `\x1b`."""
    shown: list[str] = []
    marks = 0
    for char in unicodedata.normalize("NFC", text[:_LONGEST]):
        kind = unicodedata.category(char)
        marks = marks + 1 if kind in _MARKS else 0
        # A mark at the start would join the character on its left, which is another column's.
        if marks > _MOST_MARKS or (marks and not shown) or ord(char) in _VARIATIONS:
            continue
        shown.append(escape_char(char) if is_hidden(char) else " " if kind == "Zs" else char)
    return "".join(shown)


def fit(text: str, width: int, right: bool, cells: Callable[[str], int]) -> str:
    """The text in exactly `width` cells: cut with an ellipsis, or padded. cells: the width of a character in cells."""
    taken = sum(map(cells, text))
    if taken > width:
        text, taken = _cut(text, width, cells)
    blank = " " * (width - taken)
    return blank + text if right else text + blank


def _cut(text: str, width: int, cells: Callable[[str], int]) -> tuple[str, int]:
    taken, end = 0, 0
    for char in text:
        if taken + cells(char) > width - 1:
            break
        taken, end = taken + cells(char), end + 1
    return (text[:end] + _ELLIPSIS, taken + 1) if width > 0 else ("", 0)


def number(n: int) -> str:
    """A number in at most six cells: `0`, `99,999`, `123k`, `1.23M`."""
    if n < 100_000:
        return f"{n:,}"
    for size, sign in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if n >= size:
            return f"{n / size:.4g}"[:5].rstrip(".") + sign
    return f"{n // 1000}k"


def rate(each_second: float | None) -> str:
    """A rate: `-` if not known, `0`, `0.4`, `12`, `3,400`."""
    if each_second is None:
        return "-"
    if 0 < each_second < 10:
        return f"{each_second:.1f}" if each_second >= 0.05 else "<0.1"
    return number(round(each_second))


def span(seconds: float | None) -> str:
    """A duration as in the log; `-` for None."""
    return "-" if seconds is None else master_report.format_span(seconds)


def size(octets: int) -> str:
    """A number of bytes: `51 MB`, `1.2 GB`."""
    return f"{octets / 2**30:.1f} GB" if octets >= 2**30 else f"{octets / 2**20:.0f} MB"


def p50(times: Percentiles | None) -> float | None:
    """The median in seconds; None: there is none."""
    return None if times is None else times.p50


def p99(times: Percentiles | None) -> float | None:
    """Of a hundred, 99 took no longer, in seconds; None: not known."""
    return None if times is None else times.p99


def recent_line(recent: RecentHistory) -> str:
    """The last minutes of all queues: numbers per minute, and times."""
    total = recent.total
    flow = f"{rate(total.put)}/min in, {rate(total.ended)} out, {rate(total.failed)} failed attempts"
    return "   ".join([flow, *_times("waited", total.waited), *_times("ran", total.ran)])


def _times(what: str, times: Percentiles | None) -> list[str]:
    return [] if times is None else [f"{what} {span(times.p50)}, p99 {span(times.p99)}"]


def chart_lines(recent: RecentHistory) -> list[str]:
    """What came, left and failed in each of the last minutes; a kind of which there was nothing has no line."""
    lines = []
    for title, name in (("in/min", "put"), ("out/min", "ended"), ("fail/min", "failed")):
        numbers = [getattr(minute, name) for minute in recent.minutes]
        if any(numbers):
            most = f"{number(sum(numbers))} in {len(numbers)} min, at most {number(max(numbers))} in one"
            lines.append(f"{title:8} {sparkline(numbers)}   {most}")
    return lines
