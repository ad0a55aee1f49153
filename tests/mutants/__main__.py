"""Puts each mistake into a copy of the tree and runs the tests that are to see it: `make mutants`.

    python -m tests.mutants [WORD...]     only those whose name or file has one of the words
    python -m tests.mutants --quick       without the runs that show that the tests pass where there is no mistake

Ends with status 1 if one survives or cannot be tried. A test that fails without any mistake proves nothing, so each
selection of tests runs once as it is, before its first mutant.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import TREE, Mutant, complaints, mutants

KILLED, SURVIVED, BROKEN = "killed", "survived", "broken"
WITHIN = 900
"""Seconds for the tests of one mutant; one that makes them hang is killed by that."""
COPIED = ("tarry", "tests", "bench", "examples", "docs", "deploy", "pyproject.toml", "README.md", "CHANGELOG.md")


class Bench:
    """A copy of the tree, in which mutants are tried."""

    def __init__(self, directory: Path, quick: bool) -> None:
        self.directory, self._quick = directory, quick
        for name in COPIED:
            source = TREE / name
            if source.is_dir():
                shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, directory / name)
        self._sound: dict[tuple[str, ...], str] = {}

    def tried(self, mutant: Mutant) -> tuple[str, str]:
        """What came of it, and the last lines of the tests where that is no kill."""
        if trouble := "" if self._quick else self._trouble(mutant.selection):
            return BROKEN, f"the tests fail without it:\n{trouble}"
        path = self.directory / mutant.file
        text = path.read_text()
        path.write_text(mutant.applied(text))
        try:
            status, said = self._tested(mutant.selection)
        finally:
            path.write_text(text)
        # 2 and up: pytest itself could not do it, or the tests could not be imported.
        return (KILLED if status == 1 else SURVIVED if status == 0 else BROKEN), "" if status == 1 else said

    def _trouble(self, selection: tuple[str, ...]) -> str:
        if selection not in self._sound:
            status, said = self._tested(selection)
            self._sound[selection] = "" if status == 0 else said
        return self._sound[selection]

    def _tested(self, selection: Sequence[str]) -> tuple[int, str]:
        # PYTHONPATH comes before what the environment has installed, which is the tree itself.
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *selection]
        environment = os.environ | {"PYTHONPATH": str(self.directory), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ran = subprocess.run(
                command,
                cwd=self.directory,
                env=environment,
                capture_output=True,
                text=True,
                timeout=WITHIN,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, f"not over after {WITHIN} s"
        return ran.returncode, "\n".join((ran.stdout + ran.stderr).splitlines()[-6:])


def main() -> int:
    """Status 0: all were killed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    words: list[str] = asked.words
    listed = mutants()
    wrong = list(complaints(listed))
    if wrong:
        print("\n".join(wrong))
        return 1
    chosen = [one for one in listed if not words or any(word in f"{one.name} {one.file}" for word in words)]
    with tempfile.TemporaryDirectory(prefix="tarry-mutants-") as directory:
        counts = _tried_all(chosen, Bench(Path(directory), asked.quick))
    print(f"{counts[KILLED]} of {len(chosen)} killed ({100 * counts[KILLED] / max(1, len(chosen)):.0f} %)")
    return 0 if counts[KILLED] == len(chosen) else 1


def _tried_all(chosen: Sequence[Mutant], bench: Bench) -> dict[str, int]:
    counts = {KILLED: 0, SURVIVED: 0, BROKEN: 0}
    for mutant in chosen:
        began = time.monotonic()
        state, said = bench.tried(mutant)
        counts[state] += 1
        print(f"{state:8} {time.monotonic() - began:5.0f} s  {mutant.file}: {mutant.name}", flush=True)
        if said:
            print("    " + said.replace("\n", "\n    "), flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main())
