"""`tarry init`: the files of a new project."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tarry.cli.project import django_project
from tarry.cli.shared.printing import print_json
from tarry.config.config import template
from tarry.errors import TarryError
from tarry.terminal import print_line


class Starter(NamedTuple):
    """A kind of project. files: those beside tarry.toml, by where they are in `starters`; next: what to type then, a
    line each."""

    files: tuple[str, ...]
    next: tuple[str, ...]


STARTERS = {
    "plain": Starter(("app.py",), ("tarry start", "tarry enqueue app.hello '[\"Ann\"]'")),
    "fastapi": Starter(
        ("fastapi/app.py", "fastapi/web.py"),
        (
            "pip install fastapi uvicorn",
            "uvicorn web:web --timeout-graceful-shutdown 5",
            "then open http://localhost:8000 in a browser",
        ),
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
    kind.add_argument(
        "--django",
        dest="kind",
        action="store_const",
        const="django",
        help="add tarry to the Django project that is here",
    )
    init.set_defaults(run=run_init, kind="plain")


def run_init(args: argparse.Namespace) -> int:
    """Writes all files; writes nothing if one of them exists. In a Django project, what is there stays as it is."""
    if args.kind == "django":
        return _run_django(args.json)
    starter = STARTERS[args.kind]
    files = {Path("tarry.toml"): template()} | {Path(Path(name).name): _read(name) for name in starter.files}
    existing = [str(path) for path in files if path.exists()]
    if existing:
        raise TarryError(f"already there: {' and '.join(existing)}; nothing was written")
    for path, content in files.items():
        django_project.write_new(path, content)
    written = [str(path) for path in files]
    if args.json:
        print_json({"written": written})
        return 0
    print_line(f"Wrote {', '.join(written[:-1])} and {written[-1]}. Next:")
    print_line("\n".join(f"  {line}" for line in starter.next))
    return 0


def _run_django(is_json: bool) -> int:
    project = django_project.find_project()
    toml = template().replace('app = "app:app"', 'app = "tarry.django.worker:app"')
    files = {Path("tarry.toml"): toml}
    if project.tasks_file is not None:
        files[project.tasks_file] = django_project.TASKS
    done = django_project.add_to_project(project, files)
    if is_json:
        print_json(done)
    else:
        print_line("\n".join(_describe(done)))
    return 0


def _describe(done: django_project.DjangoFiles) -> Iterator[str]:
    if done.written:
        yield f"Wrote {' and '.join(done.written)}."
    if done.kept:
        yield f"Left as it was: {' and '.join(done.kept)}."
    for path in done.appended:
        yield f"Added tarry at the end of {path}."
    if done.to_add:
        yield f"Add to {done.settings}:"
        yield from (f"  {line}" for line in done.to_add.splitlines())
    yield "Next:"
    yield from (f"  {line}" for line in done.next)


def _read(name: str) -> str:
    return (Path(__file__).parent / "starters" / name).read_text(encoding="utf-8")
