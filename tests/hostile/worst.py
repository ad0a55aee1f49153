"""A megabyte of the worst text for each kind of parser, and what reading it may cost."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from typing import Any

SIZE = 1_000_000
CPU, MEMORY = 0.1, 10_000_000
"""Seconds of the thread, on a machine that does `_unit` in _UNIT seconds; and bytes beside the text."""
_UNIT = 0.012
SHOWN = 2000
"""Characters that the error about a text may have."""

_REPEATED = (
    "1",
    " ",
    "a",
    "n",
    "é",
    "\U0001f600",
    "[",
    "(",
    "{",
    "[]",
    '"',
    '"[',
    "\\",
    '\\\\"',
    "1s",
    "1s ",
    "1h1",
    "1.",
    "1 ",
    " 1",
    "n+",
    "1n+1 ",
    "/",
    "1/",
    "://",
    "@",
    "a@",
    ":",
    "*",
    "*,",
    "* ",
    "*/1,",
    "1-2,",
    "0-",
    "a.",
    ".",
    "..",
    "/../",
    "%",
    "%4",
    "%41",
    "{{",
    "}}",
    "{a}",
    "{a.",
    "?",
    "?a=",
    "&a=",
    "a&",
    "#",
    ";",
    ", ",
    "a,b ",
    "'",
    "''",
    "!",
    "!(",
    "-",
    "--",
    "- ",
    "=",
    "==",
    "&&",
    "a==1&&",
    "{res.a}",
    "{ res .",
    "\\p{",
    "\\$",
    "\r\n",
    "\n",
    "\t",
    "\0",
    "\x1b[",
    "\x1b]",
    "é[",
    "<",
    "$",
    "|",
    "||",
    "0",
    "01:",
    "password=",
    "\ud800",
    "+",
    "%%",
    "T",
    "2026-",
)
_BEGUN = (
    ("1", " "),
    ("1n", " "),
    ("1n + ", "1"),
    ("n ", "\t"),
    ("1/", "1"),
    ("1/ ", " "),
    ("1 /", "1."),
    ("http://", "a"),
    ("http://a/", "{"),
    ("http://a/?", "é"),
    ("https://", "a."),
    ("redis://u:p", "@"),
    ("postgresql://a,", "b,"),
    ("sqlite://", "/"),
    ("unix:", "a"),
    ("cron:", ":1"),
    ("@every ", "1"),
    ("@every ", "1s"),
    ("* * * * ", "*,1"),
    ("env:", "A"),
    ("file:/", "a"),
    ('"', "\\a"),
    ("'", "\\"),
    ("res.code == ", "("),
    ("{res.a} == '", "\\\\"),
    ("put ", "0 "),
    ("put 0 0 0 ", "1"),
    ("wait=", "1"),
    (",", " "),
    ("a", " -"),
    ("200", " "),
    ("[[[", "],["),
    ('{"a":', '{"a":'),
    ('["', '\\"'),
)


@cache
def worst_texts() -> tuple[str, ...]:
    """Texts of about a megabyte: one thing again and again, and what nearly fits a form."""
    whole = [_fill(part) for part in _REPEATED]
    begun = [start + _fill(part) + "x" for start, part in _BEGUN]
    return (*whole, *begun)


def _fill(part: str) -> str:
    return part * (SIZE // len(part.encode("utf-8", "surrogatepass")))


def name_of(text: str) -> str:
    """A worst text for people."""
    return f"{text[:14]!r}..."


def costs(read: Callable[[Any], object], text: Any) -> Iterator[str]:
    """What is wrong with how `read` takes the text: its time, its memory, or its error."""
    trouble, seconds = _timed(read, text)
    if seconds > CPU and (seconds := least_time(read, text)) > CPU:
        yield f"{seconds * 1000:.0f} ms"
    if len(trouble) > SHOWN:
        yield f"an error of {len(trouble)} characters"
    # So much memory is not taken in less time; and most answer in less.
    if seconds > CPU / 100 and (taken := _memory(read, text)) > MEMORY:
        yield f"{taken / 1e6:.0f} MB"


def _timed(read: Callable[[Any], object], text: Any) -> tuple[str, float]:
    trouble, start = "", time.thread_time()
    try:
        read(text)
    except Exception as error:
        trouble = str(error)
    return trouble, time.thread_time() - start


def is_slower(read: Callable[[Any], object], text: Any, seconds: float) -> bool:
    """Whether it takes so long on a machine that does `_unit` in _UNIT seconds."""
    return _timed(read, text)[1] > seconds and least_time(read, text) > seconds


def least_time(read: Callable[[Any], object], text: Any) -> float:
    """The least of some seconds, each by how slow the machine is at that moment: a first call imports, and another
    process may have the other half of the core, or its caches."""
    return min(_timed(read, text)[1] / slowness() for _ in range(8))


def slowness() -> float:
    """How many times slower than expected this machine is at this moment; 1.0 or more."""
    return max(1.0, _unit() / _UNIT)


def _memory(read: Callable[[Any], object], text: Any) -> int:
    tracemalloc.start()
    try:
        _timed(read, text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _unit() -> float:
    start = time.thread_time()
    sum(accumulate(b"\1" * 200_000))
    return time.thread_time() - start
