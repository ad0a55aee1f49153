"""Runs seeds; the first that fails is shrunk and printed, with the command that runs it again."""

import argparse
import itertools
import sys
import time

from tests.simulation.mistakes import MISTAKES, seeds_to_find
from tests.simulation.run import Outcome, run
from tests.simulation.shrink import shrink


def main() -> int:
    """0: all held; 1: a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one and print its log")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--mistakes", action="store_true", help="which seeds find each mistake")
    parser.add_argument("--whole", action="store_true", help="do not shrink what fails")
    asked = parser.parse_args()
    if asked.mistakes:
        return try_mistakes(asked.first, asked.seeds)
    if asked.seed is not None:
        return show(run(asked.seed), asked.whole)
    return try_seeds(asked.first, asked.seeds, asked.whole)


def try_seeds(first: int, count: int, whole: bool) -> int:
    """Runs so many seeds until one fails."""
    began, virtual, starts = time.process_time(), 0.0, 0
    for seed in range(first, first + count):
        if seed > first and (seed - first) % 25 == 0:
            print(f"{seed - first} seeds held, {time.process_time() - began:.0f} s", file=sys.stderr)
        outcome = run(seed)
        virtual, starts = virtual + outcome.seconds, starts + outcome.starts
        if outcome.failure:
            return show(outcome, whole)
    took = time.process_time() - began
    print(f"{count} seeds held: {virtual / 3600:.1f} hours of 1 to 3 hosts, {starts} attempts, in {took:.0f} s")
    return 0


def show(outcome: Outcome, whole: bool) -> int:
    """Prints the log of a run; of one that fails, the shortest that was found."""
    without: frozenset[str] = frozenset()
    if outcome.failure and not whole:
        outcome, without = shrink(outcome)
    print("\n".join(outcome.log))
    print(f"\nseed {outcome.seed}: {outcome.failure or 'all held'}")
    if outcome.failure:
        print(f"{len(outcome.chosen)} choices are left, {len(without)} were left out")
        print(f"again: python -m tests.simulation --seed {outcome.seed}")
    return 1 if outcome.failure else 0


def try_mistakes(first: int, count: int) -> int:
    """Prints for each mistake the first seed that finds it."""
    found = 0
    for name, mistake in MISTAKES.items():
        tried, failure = seeds_to_find(mistake, itertools.islice(itertools.count(first), count))
        found += bool(failure)
        print(
            f"{name:32} {f'seed {first + tried - 1:4}: {failure}' if failure else f'not by {tried} seeds'}", flush=True
        )
    print(f"{found} of {len(MISTAKES)} found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
