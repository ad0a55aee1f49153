"""The layers of docs/architecture.md: an arrow is an import, and there is no other arrow than those listed here.

Imports inside functions and those that only type checkers follow count too.
"""

import ast
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "tarry"

ROOT = "tarry"
"""The layer of tarry/__init__.py."""

_BELOW = "errors platform files forks terminal tracebacks model config store tasks client"
_ALL = f"{_BELOW} worker keeper embedded push app metrics operate alert server remote runtime"

ROOMS: Mapping[str, tuple[str, str]] = {
    "errors": ("what may go wrong, by name", ""),
    "platform": ("what only the operating system knows or does", ""),
    "files": ("files that only their owner may read", "platform"),
    "forks": ("signal handlers of forked children", "platform"),
    "terminal": ("text that is harmless on a terminal", ""),
    "tracebacks": ("tracebacks that begin in the code of the app", ""),
    "model": ("what a job is and becomes", "platform"),
    "config": ("all settings: tarry.toml and the environment", "errors platform model"),
    "store": ("the verbs, on each engine", "errors platform files model config"),
    "tasks": ("what a task is, its arguments, its hooks", "errors platform model config store"),
    "client": ("enqueue, look, wait", "errors platform model config store tasks"),
    "worker": (
        "claims and settles, and runs each attempt",
        "errors platform forks tracebacks model config store tasks client",
    ),
    "keeper": ("a host's chores", "errors platform model config store tasks client worker"),
    "embedded": ("workers without a master", "errors forks model config store tasks client worker keeper"),
    "push": ("HTTP tasks: endpoints, their rules, deliveries", f"{_BELOW} worker keeper embedded"),
    "app": ("App: all of the above, as users have it", f"{_BELOW} worker keeper embedded push"),
    "compat": (
        "the names of other libraries on top of tarry",
        "errors model tracebacks config store tasks client keeper app",
    ),
    "metrics": ("figures for Prometheus and OpenTelemetry", f"{_BELOW} keeper push app"),
    "operate": (
        "what people and programs may do, each once for every way in",
        f"{_BELOW} keeper push app metrics",
    ),
    "alert": ("messages to people when something is wrong", f"{_BELOW} worker keeper push"),
    "server": (
        "ways in for other programs",
        f"files {_BELOW} worker keeper embedded push app metrics operate",
    ),
    "remote": ("a client of the HTTP API", "errors model config store tasks operate"),
    "instrument": ("what observers add to an app", f"{_BELOW} worker app metrics"),
    "web": ("apps within web applications: their lifespan, progress as events", f"{_BELOW} embedded app"),
    # Not even by way of the app: a master must be able to live without a store and without anybody's code.
    "runtime": ("the master and its processes", "errors platform files forks terminal model"),
    "process": ("what the master's children do", f"{_ALL} {ROOT}"),
    "testing": ("the fixture `jobs`", f"{_ALL}"),
    ROOT: ("what `import tarry` has", f"{_ALL}"),
    "demo": ("`tarry demo`", f"errors config {ROOT}"),
    "cli": ("the commands", f"{_ALL} web process testing demo {ROOT}"),
    "django": ("a backend for the tasks of Django", f"{_BELOW} embedded app cli"),
    "__main__": ("python -m tarry", "cli"),
}
"""What each room is for, and what it may import. docs/architecture.md has the same lines."""

ALLOWED: Mapping[str, set[str]] = {room: set(may.split()) for room, (_, may) in ROOMS.items()}

STORE_ROOMS: Mapping[str, tuple[str, str]] = {
    "rules": ("the verbs of a store, and the rules that all stores keep", ""),
    "shared": ("what all stores need besides: pauses, pools, wake-ups", "rules"),
    "queries": ("what is asked of any store, by its verbs", "rules"),
    "sql": ("what the stores in SQL databases share", "rules shared"),
    "shards": ("several stores as one", "rules shared"),
    "sealing": ("seals what jobs say before a store sees it", "rules shared store"),
    "payloads": ("keeps large arguments and results outside of the store", "rules shared"),
    "memory": ("the store in memory", "rules shared"),
    "sqlite": ("the store in a file", "rules shared sql"),
    "postgres": ("the store in PostgreSQL", "rules shared sql"),
    "mysql": ("the store in MySQL and MariaDB", "rules shared sql"),
    # A store in a cluster is one of several parts.
    "redis": ("the store in Redis", "rules shared shards"),
    "store": (
        "opens them, and keeps jobs while they are away",
        "rules shared shards memory sqlite postgres mysql redis",
    ),
    "conformance": ("what every store promises, as tests", "rules shared store"),
}
"""The rooms of `store/`, and what each may import of the others; "store": the modules of `store/` itself."""

OUTSIDE: Mapping[str, set[str]] = {
    "errors": set(),
    "platform": {"psutil"},
    "files": set(),
    "forks": set(),
    "terminal": set(),
    "model": {"msgspec", "cronsim"},
    "runtime": {"msgspec"},
}
"""What a layer may import besides Python's own library, where that is part of its promise."""


def layer_of(module: str) -> str:
    """tarry.store.sqlite.store -> store, tarry -> tarry."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ROOT


def modules(package: Path) -> Iterator[tuple[str, Path]]:
    """Every module of the package: its dotted name, and its file."""
    for file in sorted(package.rglob("*.py")):
        parts = (package.name, *file.relative_to(package).with_suffix("").parts)
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


def outline(file: Path) -> tuple[ast.AST, ...]:
    """Its imports and calls, which may import, and its functions, without their bodies."""
    return _read(file, file.stat().st_mtime_ns)[0]


def statements(file: Path) -> list[ast.stmt]:
    """Those of the module itself; functions in them have no body."""
    return _read(file, file.stat().st_mtime_ns)[1]


@functools.cache
def _read(file: Path, _changed: int) -> tuple[tuple[ast.AST, ...], list[ast.stmt]]:
    """To parse and walk all files takes two seconds, and several tests want the same of them."""
    wanted = ast.Import | ast.ImportFrom | ast.Call | ast.FunctionDef | ast.AsyncFunctionDef
    module = ast.parse(file.read_text(encoding="utf-8"))
    found = [node for node in ast.walk(module) if isinstance(node, wanted)]
    for node in found:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = []
    return tuple(node for node in found if not isinstance(node, ast.Call) or _called_for(node)), module.body


def imports(module: str, file: Path, names: set[str]) -> Iterator[tuple[str, int]]:
    """What the file imports, wherever in it, as dotted names with lines; `names`: all modules there are."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in outline(file):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = _absolute(package, node)
            inner = (f"{start}.{alias.name}" for alias in node.names)
            yield from ((name if name in names else start, node.lineno) for name in inner)
        elif isinstance(node, ast.Call) and (called := _called_for(node)):
            yield called, node.lineno


def _absolute(package: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    outer = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*outer, node.module] if node.module else outer)


def _called_for(call: ast.Call) -> str | None:
    """The module of `import_module("...")` and `__import__("...")` where it is written out."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = call.args[0] if call.args else None
    if name in ("import_module", "__import__") and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None


def violations(package: Path) -> list[str]:
    """A line for each import that is no allowed arrow, and for each module that belongs to no layer."""
    found = list(modules(package))
    names = {module.rsplit(".", cut)[0] for module, _ in found for cut in range(module.count(".") + 1)}
    return [
        f"{file.relative_to(package.parent)}:{line}: {layer_of(module)} may not import {imported}"
        for module, file in found
        for imported, line in [("", 0), *imports(module, file, names)]
        if not _allowed(layer_of(module), imported)
    ]


def store_room(module: str, file: Path) -> str:
    """tarry.store.sqlite.link.wal -> sqlite, tarry.store.opening -> store"""
    parts = module.split(".")
    return parts[2] if len(parts) > 3 or (file.name == "__init__.py" and len(parts) > 2) else "store"


def store_violations(package: Path) -> list[str]:
    """A line for each import between rooms of `store/` that is no allowed arrow."""
    found = [(module, file) for module, file in modules(package) if layer_of(module) == "store"]
    rooms = {module: store_room(module, file) for module, file in found}
    return [
        f"{file.relative_to(package.parent)}:{line}: {rooms[module]} may not import {imported}"
        for module, file in found
        for imported, line in imports(module, file, set(rooms))
        if imported in rooms
        and rooms[imported] not in {rooms[module], *STORE_ROOMS.get(rooms[module], ("", ""))[1].split()}
    ]


def _allowed(layer: str, imported: str) -> bool:
    if layer not in ALLOWED:
        return False
    first = imported.partition(".")[0]
    if first == ROOT:
        return layer_of(imported) in ALLOWED[layer] | {layer}
    return layer not in OUTSIDE or not first or first in OUTSIDE[layer] | set(sys.stdlib_module_names)


def test_there_is_no_other_arrow() -> None:
    assert violations(PACKAGE) == []


def test_the_package_is_seen() -> None:
    layers = {layer_of(module) for module, _ in modules(PACKAGE)}
    assert layers >= {"errors", "model", "config", "store"}


MADE_UP = {
    "model/job.py": "import os\nimport msgspec\nfrom tarry.model import change\n",
    "model/change.py": "",
    "errors.py": "",
    "store/base.py": "from tarry.model.job import Job\nfrom . import sqlite\nfrom ..errors import X\nimport apsw\n",
    "store/sqlite.py": "",
    "runtime/master.py": "import signal\nfrom tarry.errors import MasterError\n",
    "server/http.py": "import tarry.app\n",
    "push/deliver.py": "",
    "app.py": "from tarry.store import base\n",
    "worker/pump.py": "from tarry import errors\n",
    "testing.py": "from tarry.app import App\n",
    "cli/main.py": "import tarry\nfrom tarry import App, testing\n",
    "__init__.py": "from tarry.app import App as App\n",
    "__main__.py": "from tarry.cli.main import main\n",
}


def build(directory: Path, files: Mapping[str, str]) -> Path:
    """A package `tarry` of these files."""
    for name, text in files.items():
        file = directory / ROOT / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return directory / ROOT


def test_a_package_that_keeps_to_the_arrows_is_found_innocent(tmp_path: Path) -> None:
    assert violations(build(tmp_path, MADE_UP)) == []


@pytest.mark.parametrize(
    ("name", "text", "line", "told"),
    [
        ("model/job.py", "from tarry.store.base import Store", 1, "model may not import tarry.store.base"),
        ("model/job.py", "from tarry.errors import X", 1, "model may not import tarry.errors"),
        ("model/job.py", "import apsw", 1, "model may not import apsw"),
        ("errors.py", "from tarry import model", 1, "errors may not import tarry.model"),
        (
            "store/base.py",
            "def f():\n    from tarry.worker import pump",
            2,
            "store may not import tarry.worker.pump",
        ),
        (
            "store/base.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tarry.worker.pump import P",
            3,
            "store may not import tarry.worker.pump",
        ),
        ("store/base.py", "from ..worker import pump", 1, "store may not import tarry.worker.pump"),
        ("store/base.py", "from .. import worker", 1, "store may not import tarry.worker"),
        ("store/base.py", "import tarry.app as a", 1, "store may not import tarry.app"),
        ("worker/pump.py", "from tarry import app", 1, "worker may not import tarry.app"),
        ("worker/pump.py", "from tarry import App", 1, "worker may not import tarry"),
        ("app.py", "import tarry.runtime.master", 1, "app may not import tarry.runtime.master"),
        ("push/deliver.py", "from tarry.server.http import h", 1, "push may not import tarry.server.http"),
        ("server/http.py", "import tarry.runtime.master", 1, "server may not import tarry.runtime.master"),
        ("server/http.py", "import tarry.alert.monitor", 1, "server may not import tarry.alert.monitor"),
        ("runtime/master.py", "import tarry.store.base", 1, "runtime may not import tarry.store.base"),
        ("runtime/master.py", "import tarry.worker.pump", 1, "runtime may not import tarry.worker.pump"),
        ("runtime/master.py", "from tarry.app import App", 1, "runtime may not import tarry.app"),
        ("runtime/master.py", "import apsw", 1, "runtime may not import apsw"),
        ("testing.py", "from tarry.cli.main import main", 1, "testing may not import tarry.cli.main"),
        ("__init__.py", "from .cli import main", 1, "tarry may not import tarry.cli.main"),
        ("app.py", "import importlib\nimportlib.import_module('tarry.cli')", 2, "app may not import tarry.cli"),
        ("app.py", "__import__('tarry.server')", 1, "app may not import tarry.server"),
        ("stray.py", "", 0, "stray may not import "),
    ],
)
def test_a_made_up_violation_is_caught(tmp_path: Path, name: str, text: str, line: int, told: str) -> None:
    assert violations(build(tmp_path, MADE_UP | {name: text})) == [f"tarry/{name}:{line}: {told}"]


def folder_of(module: str, file: Path) -> str:
    """The folder of a module; a module of the root counts for itself."""
    folder = module if file.name == "__init__.py" else module.rpartition(".")[0]
    return folder if "." in folder else module


def module_of(module: str, file: Path) -> str:
    """The module itself, for `circles`."""
    return module


def circles(package: Path, unit: Callable[[str, Path], str] = module_of) -> list[set[str]]:
    """Modules that import each other, directly or by way of others; those that only type checkers follow count too.
    unit: what a module and its file count for, as its folder."""
    found = list(modules(package))
    units = {module: unit(module, file) for module, file in found}
    after: dict[str, set[str]] = {}
    for module, file in found:
        arrows = {units[to] for to, _ in imports(module, file, set(units)) if to in units}
        after.setdefault(units[module], set()).update(arrows - {units[module]})
    reached = {module: _reached(module, after) for module in after}
    grown = [{module} | {other for other in reached[module] if module in reached[other]} for module in after]
    return [one for at, one in enumerate(grown) if len(one) > 1 and one not in grown[:at]]


def _reached(start: str, after: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        new = after[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen


def test_the_rooms_of_the_store_keep_to_their_arrows() -> None:
    assert store_violations(PACKAGE) == []


def test_no_folders_import_each_other() -> None:
    assert [sorted(one) for one in circles(PACKAGE, folder_of)] == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("store/rules/base.py", "from tarry.store.shared import pool", "rules may not import tarry.store.shared.pool"),
        ("store/sql/flows.py", "from tarry.store.sqlite import sql", "sql may not import tarry.store.sqlite.sql"),
        ("store/shared/pool.py", "from tarry.store import opening", "shared may not import tarry.store.opening"),
        ("store/sqlite/sql.py", "from tarry.store import opening", "sqlite may not import tarry.store.opening"),
        (
            "store/strange/one.py",
            "from tarry.store.shared import pool",
            "strange may not import tarry.store.shared.pool",
        ),
        ("store/opening.py", "from tarry.store.sqlite import sql", None),
        ("store/sqlite/sql.py", "from tarry.store.shared import pool", None),
    ],
)
def test_a_made_up_arrow_within_the_store_is_caught(tmp_path: Path, name: str, text: str, told: str | None) -> None:
    rooms = {"store/shared/pool.py": "", "store/sqlite/sql.py": "", "store/opening.py": ""}
    found = store_violations(build(tmp_path, MADE_UP | rooms | {name: text}))
    assert found == ([] if told is None else [f"tarry/{name}:1: {told}"])


def test_no_modules_import_each_other() -> None:
    assert [sorted(one) for one in circles(PACKAGE)] == []


def test_a_made_up_circle_is_found(tmp_path: Path) -> None:
    made_up = {
        "model/job.py": "import typing as t\nif t.TYPE_CHECKING:\n    from tarry.model.change import Change\n",
        "model/change.py": "from tarry.model import outcome\n",
        "model/outcome.py": "def f():\n    from tarry.model.job import Job\n",
        "model/lone.py": "from tarry.model import job\n",
    }
    assert circles(build(tmp_path, MADE_UP)) == []
    assert circles(build(tmp_path, MADE_UP | made_up)) == [
        {"tarry.model.job", "tarry.model.change", "tarry.model.outcome"}
    ]
