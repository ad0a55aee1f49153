"""`python -m bench`: runs the measures and prints the table. Progress and complaints go to stderr."""

import argparse
import gc
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import bench.measures  # noqa: F401 - fills MEASURES
from bench import machine
from bench.crew import LAUNCHERS
from bench.measure import MEASURES, Figure, Measure, limited
from bench.place import Bench
from bench.table import Table, shown
from tarry import TarryError, __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 1 if a measure failed. A missed target is told in the table and fails nothing."""
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        with tempfile.TemporaryDirectory(prefix="tarry-bench-", dir=args.directory) as directory:
            bench = Bench(Path(directory), args.url, args.quick, args.launcher)
            bench.check()
            about = _about(args, bench.directory)
            table = _measured(bench, [MEASURES[name] for name in args.only or MEASURES], args.runs)
    except TarryError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(table.json(about) if args.json else table.markdown(about))
    return 1 if table.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description="Measures tarry on this machine.")
    parser.add_argument("--url", default="", help="the store; else a SQLite file in a temporary directory")
    parser.add_argument("--directory", help="where that temporary directory is made: on a disk, not in memory")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=MEASURES, help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs and of the time")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="how often each is measured (3)")
    parser.add_argument("--launcher", choices=LAUNCHERS, default="master", help="lone: workers without a master")
    parser.add_argument("--json", action="store_true", help="print facts as JSON")
    return parser


def _measured(bench: Bench, measures: Sequence[Measure], runs: int) -> Table:
    """Round by round, so that a disturbance spoils one run of several figures and not all runs of one."""
    table = Table()
    for run in range(runs):
        for place, measure in enumerate(measures):
            _tell(f"[run {run + 1}/{runs}, {place + 1}/{len(measures)}] {measure.name}")
            _measure_once(bench, measure, table)
    return table


def _measure_once(bench: Bench, measure: Measure, table: Table) -> None:
    gc.collect()
    begin, busy, own = time.monotonic(), machine.busy(), machine.own()
    figures: list[Figure] = []
    try:
        with limited(measure.limit):
            figures += measure.run(bench)
    except Exception as error:
        failure = f"{measure.name}: {type(error).__name__}: {error}"
        table.failures.append(failure)
        _tell(f"    failed: {failure}")
    seconds = time.monotonic() - begin
    noise = max(0.0, machine.busy() - busy - (machine.own() - own)) / seconds
    for figure in figures:
        table.add(figure, noise)
        _tell(f"    {figure.name}: {shown(float(figure.value))} {figure.unit}")
    _tell(f"    {seconds:.1f} s; others used {noise:.2f} cores")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _about(args: argparse.Namespace, directory: Path) -> Mapping[str, str]:
    found = machine.described(directory)
    load = ", ".join(f"{part:.2f}" for part in os.getloadavg())
    settings = f"{args.launcher}, {args.runs} run{'s' if args.runs > 1 else ''}{', quick' if args.quick else ''}"
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "tarry": __version__,
        "store": args.url or "sqlite, a file for each measure",
        "machine": "; ".join(f"{name} {value}" for name, value in found.items()),
        "settings": settings,
        "load before": load,
    }


if __name__ == "__main__":
    sys.exit(main())
