"""`python -m tests.release [NAME...]`: see the package."""

import argparse
import sys
import time

from tests.release.check import CannotRun, CheckFailed
from tests.release.checklist import CHECKS


def main(names: list[str]) -> int:
    """1 if a check failed."""
    results: list[tuple[str, str, str]] = []
    for name in names or CHECKS:
        began = time.monotonic()
        print(f"== {name}: {CHECKS[name].__doc__}", flush=True)
        try:
            verdict, said = "passed", CHECKS[name]()
        except CannotRun as missing:
            verdict, said = "not run", str(missing)
        except CheckFailed as failed:
            verdict, said = "FAILED", str(failed)
        print(f"{verdict} after {time.monotonic() - began:.0f} s: {said}\n", flush=True)
        results.append((verdict, name, said.partition("\n")[0]))
    for verdict, name, said in results:
        print(f"{verdict:8} {name:12} {said}")
    return int(any(verdict == "FAILED" for verdict, *_ in results))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.release")
    # No `choices`: with `*` an empty list would be refused.
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CHECKS)}; all of them without one")
    chosen = parser.parse_args().names
    if unknown := sorted(set(chosen) - CHECKS.keys()):
        parser.error(f"there is no check {unknown[0]!r}; there are: {', '.join(CHECKS)}")
    sys.exit(main(chosen))
