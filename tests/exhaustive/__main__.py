"""Explores the models and prints how far it came: `make exhaustive`.

    python -m tests.exhaustive                   as deep as `make test` does
    python -m tests.exhaustive --deep            each to its deep bound
    python -m tests.exhaustive --depth 10 keyed  these models to this depth
    python -m tests.exhaustive --mistakes        the shortest way to each seeded mistake

Ends with status 1 if anything is violated, or a mistake is not seen.
"""

import argparse
import sys

from tests.exhaustive.flow_mistakes import FLOW_MISTAKES
from tests.exhaustive.mistakes import JOB_MISTAKES
from tests.exhaustive.models import MODELS

HEAD = f"{'model':<38} {'states':>9} {'steps':>10} {'depth':>5} {'':<4} {'seconds':>7}"


def run_models(names: list[str], deep: bool, depth: int | None) -> bool:
    """Whether nothing is violated."""
    print(HEAD)
    fine = True
    for name in names or MODELS:
        entry = MODELS[name]
        explored = entry.run(depth if depth is not None else entry.deep if deep else entry.quick)
        print(explored, flush=True)
        if explored.violation:
            fine = False
            print(explored.violation, flush=True)
    return fine


def run_mistakes() -> bool:
    """Whether each mistake is seen."""
    fine = True
    for mistake in (*JOB_MISTAKES, *FLOW_MISTAKES):
        violation = mistake.explore().violation
        fine = fine and violation is not None
        print(f"{mistake.name}: {violation or 'not seen'}", flush=True)
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; none: all")
    parser.add_argument("--deep", action="store_true", help="to the deep bound of each model")
    parser.add_argument("--depth", type=int, help="to this depth")
    parser.add_argument("--mistakes", action="store_true", help="show how each seeded mistake is found")
    chosen = parser.parse_args()
    return 0 if (run_mistakes() if chosen.mistakes else run_models(chosen.models, chosen.deep, chosen.depth)) else 1


if __name__ == "__main__":
    sys.exit(main())
