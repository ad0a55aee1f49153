"""Tries all points, or a sample: `python -m tests.kill_points [--sample N] [--story NAME] [--fault NAME] [--point P]`.

Prints a line for each story and fault: how many points, how many seconds, how many failed; and each failure. Its exit
status is 1 if any failed. P is a point as a failure names it, such as `file:523:killed:1`.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.kill_points.points import FAULTS, STORIES, Point, Tries, fast_directory, trying
from tests.seeds import seed, seeded_random

LONG = 5
"""Calls in a row that fail; a worker that fails pauses longer each time."""


class Part(NamedTuple):
    """The points of one story with one fault."""

    story: str
    fault: int

    def points(self, tries: Tries, most: int | None, dice: random.Random) -> Iterator[Point]:
        """As many points as there are calls that the fault may strike, or so many of them at most, drawn."""
        count = tries.count(self.story, self.fault)
        numbers = range(1, count + 1)
        chosen = numbers if most is None else sorted(dice.sample(numbers, min(most, count)))
        return (Point(self.story, at, self.fault, self._span(dice)) for at in chosen)

    def _span(self, dice: random.Random) -> int:
        """A disk may fail once, or for a while."""
        return dice.choice((1, LONG)) if FAULTS[self.fault] in ("EIO", "ENOSPC") else 1

    def wrong(self, tries: Tries, most: int | None, dice: random.Random) -> tuple[int, list[str]]:
        """How many points were tried, and what was wrong."""
        points = list(self.points(tries, most, dice))
        return len(points), [one for point in points for one in tries.wrong(point)]


def main() -> int:
    """See the top of the file."""
    options = _options()
    with fast_directory() as directory, trying(directory) as tries:
        if options.point:
            wrong = tries.wrong(Point.parse(options.point))
            print(*wrong, sep="\n")
            return bool(wrong)
        dice, failed = seeded_random(), False
        print(f"seed {seed()}" if options.sample else "all points", flush=True)
        for part in (Part(story, FAULTS.index(fault)) for story in options.story for fault in options.fault):
            began = time.monotonic()
            count, wrong = part.wrong(tries, options.sample, dice)
            seconds = time.monotonic() - began
            print(f"{part.story}, {FAULTS[part.fault]}: {count:,} points, {seconds:.0f} s, {len(wrong)} failed")
            print(*wrong, sep="\n", end="\n" if wrong else "", flush=True)
            failed = failed or bool(wrong)
    return failed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kill_points")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many points of each story and fault")
    parser.add_argument("--story", action="append", choices=STORIES)
    parser.add_argument("--fault", action="append", choices=FAULTS[1:])
    parser.add_argument("--point", metavar="P", help="only this one")
    options = parser.parse_args()
    options.story, options.fault = options.story or STORIES, options.fault or FAULTS[1:]
    return options


if __name__ == "__main__":
    sys.exit(main())
