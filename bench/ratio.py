"""`python -m bench.ratio REVISION`: is this tree slower than that one? For a pull request, on whatever machine runs it.

Both are measured in turn, in the same minutes, so what disturbs one disturbs the other. What counts is the ratio of a
pair of runs, above 1 where this tree is better. Exit status 1 if a figure's ratio is below --bound in every pair.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MEASURES = ("enqueue-bulk", "enqueue-100-tasks", "drain-sync-1", "drain-async-1")
HIGHER_IS_BETTER = {"/s"}
LOWER_IS_BETTER = {"µs", "ms", "s"}
"""By the unit of a figure. Others, as MB and jobs, are not compared."""

Figures = Mapping[str, tuple[float, str]]
"""Of one run: value and unit, by name."""


def main(argv: Sequence[str] | None = None) -> int:
    """See the top of the file."""
    parser = argparse.ArgumentParser("python -m bench.ratio")
    parser.add_argument("revision", help="of git, to compare with: origin/main")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=MEASURES, help="measures of `python -m bench`")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how many pairs of runs (5)")
    parser.add_argument("--bound", type=float, default=0.8, help="below it in every pair is slower (0.8)")
    args = parser.parse_args(argv)
    with checked_out(args.revision) as other:
        pairs = [(measure(other, args.only), measure(ROOT, args.only)) for _ in range(args.rounds)]
    found = ratios(pairs)
    print(table(found, args.bound))
    return int(any(is_slower(each, args.bound) for each in found.values()))


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A directory with the files of that revision."""
    with tempfile.TemporaryDirectory(prefix="tarry-ratio-") as directory:
        files = subprocess.run(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE, check=False)
        if files.returncode:
            sys.exit(f"bench.ratio: git has no {revision} here")
        subprocess.run(["tar", "-x", "-C", directory], input=files.stdout, check=True)
        yield Path(directory)


def measure(tree: Path, names: Sequence[str]) -> Figures:
    """One quick run of these measures by the code there."""
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "--only", *names, "--quick", "--runs", "1", "--json"],
        cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        sys.exit(f"bench.ratio: the measures of {tree} failed")
    return figures_of(json.loads(ran.stdout))


def figures_of(answer: Mapping[str, Any]) -> Figures:
    """Those of what `python -m bench --json` prints."""
    return {one["name"]: (one["median"], one["unit"]) for one in answer["figures"]}


def ratios(pairs: Sequence[tuple[Figures, Figures]]) -> Mapping[str, Sequence[float]]:
    """By figure that both trees have: how much better the second was, in each pair."""
    found = defaultdict[str, list[float]](list)
    for theirs, ours in pairs:
        for name in theirs.keys() & ours.keys():
            (before, unit), (after, _) = theirs[name], ours[name]
            if before > 0 and after > 0 and (compare := _comparison(unit)):
                found[name].append(compare(before, after))
    return dict(sorted(found.items()))


def _comparison(unit: str) -> Callable[[float, float], float] | None:
    if unit in HIGHER_IS_BETTER:
        return lambda before, after: after / before
    return (lambda before, after: before / after) if unit in LOWER_IS_BETTER else None


def is_slower(each: Sequence[float], bound: float) -> bool:
    """One pair may have been disturbed; all of them were not."""
    return max(each) < bound


def table(found: Mapping[str, Sequence[float]], bound: float) -> str:
    """As Markdown: the median of each figure's ratios, the least and the greatest."""
    rows = ["| above 1: better than before | median | min – max |", "|---|--:|--:|"]
    for name, each in found.items():
        said = " **slower**" if is_slower(each, bound) else ""
        rows.append(f"| {name} | {median(each):.2f}{said} | {min(each):.2f} – {max(each):.2f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
