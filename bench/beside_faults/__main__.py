"""`python -m bench.beside_faults [PROJECT...] [--fault NAME]`: prints the table. Progress goes to stderr."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.beside_faults.cell import open_cell
from bench.beside_faults.environment import python_of, version_of
from bench.beside_faults.faults import FAULTS, Fault, NotHere
from bench.beside_faults.judge import judge
from bench.beside_faults.projects import PROJECTS, SETTINGS, Setting
from bench.beside_faults.table import markdown, tell


def main(words: Sequence[str]) -> int:
    """Exit status: 0, or 1 if a cell could not be run."""
    args = _parser().parse_args(words)
    settings = [one for one in SETTINGS if one.project in (args.project or PROJECTS)]
    settings = [one for one in settings if not args.setting or one.name == args.setting]
    faults = [fault for fault in FAULTS if not args.fault or fault.name in args.fault]
    with tempfile.TemporaryDirectory(prefix="beside-faults-") as temporary:
        environments = Path(args.environments or temporary)
        pythons = {one.project: python_of(one.project, environments) for one in settings}
        versions = {project: version_of(project, python) for project, python in pythons.items()}
        cells: dict[tuple[str, str], str] = {}
        for fault in faults:
            for setting in settings:
                directory = Path(args.keep or temporary, f"{setting.project}-{setting.name}-{fault.name}")
                cells[setting.key, fault.name] = _run(fault, setting, pythons[setting.project], directory)
                print(f"{setting.key} {fault.name}: {cells[setting.key, fault.name]}", file=sys.stderr, flush=True)
    print(markdown(settings, versions, cells))
    return 1 if any(text.startswith("failed") for text in cells.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.beside_faults", description="Job queues under faults.")
    parser.add_argument("project", nargs="*", choices=[[], *PROJECTS], help="all of them unless given")
    parser.add_argument("--fault", action="append", choices=[fault.name for fault in FAULTS], help="may be repeated")
    parser.add_argument("--setting", choices=["default", "reliable"], help="only the columns of this name")
    parser.add_argument("--environments", help="a directory for the projects' environments, to use them again")
    parser.add_argument("--keep", help="a directory for ledgers and logs; else they are deleted")
    return parser


def _run(fault: Fault, setting: Setting, python: Path, directory: Path) -> str:
    try:
        with open_cell(setting, python, directory) as cell:
            fault.run(cell)
            return tell(judge(cell.events(), cell.since, fault.schedules))
    except NotHere as error:
        return f"not tested: {error}"
    except Exception as error:
        print(f"{setting.key} {fault.name}: {error!r}", file=sys.stderr)
        return f"failed: {type(error).__name__}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
