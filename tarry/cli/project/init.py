"""`tarry init`: the files of a new project."""

import argparse
from pathlib import Path
from typing import NamedTuple

from tarry.cli.printing import print_json
from tarry.config import template
from tarry.errors import TarryError
from tarry.terminal import say


class Starter(NamedTuple):
    """A kind of project. files: those beside tarry.toml; next: what to type then, a line each."""

    files: tuple[str, ...]
    next: tuple[str, ...]


STARTERS = {
    "plain": Starter(("app.py",), ("tarry start", "tarry enqueue app.hello '[\"Ann\"]'")),
    "fastapi": Starter(
        ("app.py", "web.py"),
        ("pip install fastapi uvicorn", "uvicorn web:web", "curl -X POST 'localhost:8000/hello?name=Ann'"),
    ),
}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    init = commands.add_parser("init", help="write a commented tarry.toml and an app.py to start from")
    kind = init.add_mutually_exclusive_group()
    kind.add_argument("--plain", dest="kind", action="store_const", const="plain", help="these two (the default)")
    kind.add_argument(
        "--fastapi", dest="kind", action="store_const", const="fastapi", help="and web.py, an application of FastAPI"
    )
    init.set_defaults(run=run_init, kind="plain")


def run_init(args: argparse.Namespace) -> int:
    """Writes all files; writes nothing if one of them exists."""
    starter = STARTERS[args.kind]
    files = {Path("tarry.toml"): template()} | {Path(name): _read(name) for name in starter.files}
    existing = [str(path) for path in files if path.exists()]
    if existing:
        raise TarryError(f"already there: {' and '.join(existing)}; nothing was written")
    for path, content in files.items():
        _write(path, content)
    written = [str(path) for path in files]
    if args.json:
        print_json({"written": written})
        return 0
    say(f"Wrote {', '.join(written[:-1])} and {written[-1]}. Next:")
    say("\n".join(f"  {line}" for line in starter.next))
    return 0


def _read(name: str) -> str:
    return (Path(__file__).parent / "starters" / name).read_text(encoding="utf-8")


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        reason = f"{path.absolute()} cannot be written ({error.strerror}): run it where you may write"
        raise TarryError(reason) from None
