"""Checks what a system did against what was promised, from ledgers outside of it: `check(history)`, or by command

    python -m tarry.testing.history_check LEDGER...

which prints a line for each violation, and ends with status 1 if there is one. Only what the history says is judged:
without ends nothing overlaps, without `StoreRead` nothing is missing. docs/proof.md shows how to write a ledger.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path

import msgspec

from tarry.errors import TarryError
from tarry.model.checks.decoders import json_decoder
from tarry.model.duration import microseconds
from tarry.store.opening import open_store
from tarry.terminal import print_line
from tarry.testing.history_events import (
    Died,
    Ended,
    FinalState,
    FlowEnded,
    HistoryEvent,
    HistorySum,
    LeaseEnded,
    Leftover,
    LimitSet,
    NodeOf,
    Put,
    PutUnknown,
    Rescheduled,
    RunAgain,
    Started,
    StepRan,
    StepRecorded,
    StoreDied,
    StoreRead,
    Withdrawn,
)
from tarry.testing.history_forgotten import Excuses
from tarry.testing.history_group_rules import GROUP_RULES
from tarry.testing.history_rules import JOB_RULES, Violation
from tarry.testing.job_history import HistoryIndex
from tarry.testing.ledger import read_end
from tarry.testing.leftovers import leftovers

__all__ = [
    "Died",
    "Ended",
    "FinalState",
    "FlowEnded",
    "HistoryEvent",
    "HistorySum",
    "LeaseEnded",
    "Leftover",
    "LimitSet",
    "NodeOf",
    "Put",
    "PutUnknown",
    "Rescheduled",
    "RunAgain",
    "Started",
    "StepRan",
    "StepRecorded",
    "StoreDied",
    "StoreRead",
    "Violation",
    "Withdrawn",
    "check",
    "read_ledgers",
]

MOST_OF_A_RULE = 100
"""How many violations of one rule are told at most."""
LONGEST_LINE = 1 << 20


def check(
    history: Iterable[HistoryEvent], *, tolerance: int = 0, excused: list[Violation] | None = None
) -> list[Violation]:
    """The violations of a history; none if it is as promised. The events may come in any order; at most MOST_OF_A_RULE
    of each rule are returned.

    tolerance: by how many microseconds the clocks of those who wrote the events may differ.
    excused: gets what is none only since a server died that forgets (`StoreDied`).
    """
    events = list(history)
    return list(_violations(events, HistoryIndex(events), tolerance, [] if excused is None else excused))


def _violations(
    events: Sequence[HistoryEvent], index: HistoryIndex, tolerance: int, excused: list[Violation]
) -> Iterator[Violation]:
    excuses = Excuses(events, tolerance, lambda life: chain.from_iterable(_by_rule(HistoryIndex(life), tolerance)))

    def is_left(violation: Violation) -> bool:
        if is_excused := excuses.cover(violation):
            excused.append(violation)
        return not is_excused

    for found in _by_rule(index, tolerance):
        yield from islice(filter(is_left, found), MOST_OF_A_RULE)


def _by_rule(index: HistoryIndex, tolerance: int) -> Iterator[Iterator[Violation]]:
    """All violations of each rule."""
    for rule in JOB_RULES:
        yield (one for job in index.jobs.values() for one in rule(job, index, tolerance))
    for group_rule in GROUP_RULES:
        yield group_rule(index, tolerance)


def read_ledgers(paths: Iterable[Path], skipped: list[str]) -> Iterator[HistoryEvent]:
    """The events of some files, one JSON object a line. What cannot be read, as the last line of a process that was
    killed, is left out; `skipped` gets `FILE:LINE` of it. OSError if a file cannot be read."""
    decode = json_decoder(HistoryEvent).decode
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                try:
                    # A line that was not ended may be the beginning of another one.
                    if not line.endswith(b"\n"):
                        raise msgspec.DecodeError
                    yield decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    skipped.append(f"{path}:{number}")


def main(words: Sequence[str]) -> int:
    """The command; returns its exit status: 1 if something was violated, 2 if a file cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m tarry.testing.history_check", description="Checks ledgers.")
    parser.add_argument("ledger", nargs="+", type=Path, help="files of events, a JSON object a line")
    parser.add_argument("--store", help="the URL of a store that is read at the end: its jobs, and what is left over")
    parser.add_argument("--tolerance", default="0s", help="by how much the clocks may differ, such as 5ms")
    options = parser.parse_args(words)
    skipped: list[str] = []
    try:
        tolerance = microseconds(options.tolerance)
        events = [*read_ledgers(options.ledger, skipped), *_end_of(options.store)]
    except (OSError, ValueError, TarryError) as error:
        print_line(f"history_check: {error}", file=sys.stderr)
        return 2
    index, excused = HistoryIndex(events), list[Violation]()
    found = list(_violations(events, index, tolerance, excused))
    for violation in found:
        print_line(violation)
    print_line(_summary(index, found, excused, skipped))
    return 1 if found else 0


def _end_of(url: str | None) -> Iterator[HistoryEvent]:
    if url is not None:
        with closing(open_store(url)) as store:
            yield from read_end(store)
            yield from leftovers(store)


def _summary(
    index: HistoryIndex, found: Sequence[Violation], excused: Sequence[Violation], skipped: Sequence[str]
) -> str:
    attempts = sum(len(job.attempts) for job in index.jobs.values())
    told = f"{index.count} events, {len(index.jobs)} jobs, {attempts} attempts: {len(found)} violations"
    forgotten = f"; {len(excused)} excused ({_by_count(excused)}): a server that died forgot them" if excused else ""
    lines = f"; {len(skipped)} lines skipped, the first at {skipped[0]}" if skipped else ""
    return told + (f" ({_by_count(found)})" if found else "") + forgotten + lines


def _by_count(found: Iterable[Violation]) -> str:
    return ", ".join(f"{rule} {count}" for rule, count in Counter(one.rule for one in found).items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
