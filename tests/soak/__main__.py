"""All features at once for hours, amid troubles: `python -m tests.soak STORE [--hours H] [--seed N]`.

Prints what was violated, and a table of what was sampled, as docs/proof.md has it. Its exit status is 1 if something
was violated, or if a series surely and materially rises.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.seeds import seed
from tests.servers.server import Missing
from tests.soak.report import report
from tests.soak.running import STORES, Plan, soak

SLOWNESS = 6.0
"""Some 5 puts a second."""


def main() -> int:
    """See the top of the file."""
    options = _options()
    plan = Plan(options.store, options.hours * 3600, options.seed, options.slowness)
    # So that what was started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = Path(tempfile.mkdtemp(prefix="tarry-soak-"))
    directory.chmod(0o755)
    print(f"{plan.store}, seed {plan.seed}, {plan.seconds:.0f} s, in {directory}", flush=True)
    try:
        lines, status = report(plan, soak(plan, directory))
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    print(*lines, sep="\n")
    if not status:
        shutil.rmtree(directory, ignore_errors=True)
    return status


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("store", choices=STORES)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=seed())
    parser.add_argument("--slowness", type=float, default=SLOWNESS, help="how far apart the producer's acts are")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
