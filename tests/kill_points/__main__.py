"""Tries all points, or a sample: `python -m tests.kill_points [--sample N] [--story NAME] [--fault NAME] [--point P]`.

Prints lines for each story and fault: how many points, how many seconds, how many failed; and each failure. Its exit
status is 1 if any failed. P is a point as a failure names it, such as `file:523:killed:1`.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.kill_points.points import FAULTS, FAULTS_OF, STORIES, Point, Tries, fast_directory, trying
from tests.kill_points.servers import own_servers
from tests.seeds import seed, seeded_random

LONG = 5
"""Calls in a row that fail; a worker that fails pauses longer each time."""
PRINTED = 100
"""So many points have one line, with how far it is."""


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

    def run(self, tries: Tries, options: argparse.Namespace, dice: random.Random) -> bool:
        """Prints what came of each point that failed, and sums; whether all went well."""
        began, failed = time.monotonic(), 0
        points = [point for point in self.points(tries, options.sample, dice) if point.at >= options.first]
        points = points[options.part - 1 :: options.parts]
        for number, point in enumerate(points, 1):
            wrong = tries.wrong(point)
            failed += bool(wrong)
            print(*wrong, sep="\n", end="\n" if wrong else "", flush=True)
            if number % PRINTED == 0 or number == len(points):
                place = f"{number:,} of {len(points):,} points, up to {point.at}"
                print(f"{self}: {place}, {time.monotonic() - began:.0f} s, {failed} failed", flush=True)
        return not failed

    def __str__(self) -> str:
        return f"{self.story}, {FAULTS[self.fault]}"


def main() -> int:
    """See the top of the file."""
    options = _options()
    with fast_directory() as directory, own_servers(directory) as emptied, trying(directory, emptied) as tries:
        if options.point:
            wrong = tries.wrong(Point.parse(options.point))
            print(*wrong, sep="\n")
            return bool(wrong)
        dice = seeded_random()
        print(f"seed {seed()}" if options.sample else "all points", flush=True)
        # All of them, also once one has failed.
        return not all([part.run(tries, options, dice) for part in _parts(options)])  # noqa: C419


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    for story in options.story or STORIES:
        for fault in FAULTS_OF[story]:
            if not options.fault or fault in options.fault:
                yield Part(story, FAULTS.index(fault))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kill_points")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many points of each story and fault")
    parser.add_argument("--story", action="append", choices=STORIES)
    parser.add_argument("--fault", action="append", choices=FAULTS[1:])
    parser.add_argument("--point", metavar="P", help="only this one")
    parser.add_argument("--first", type=int, metavar="N", default=1, help="of those only the points from this one on")
    parser.add_argument("--part", type=int, metavar="K", default=1, help="of those, counted from K, ...")
    parser.add_argument("--parts", type=int, metavar="N", default=1, help="... each N-th, for several at a time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
