"""The Redis store's scripts, one for each verb, each made of the functions in `lua/` that it uses.

Redis knows no modules. A definition is what a file defines at its left margin, as `function lib.NAME` or `lib.NAME =`.
A script has the definitions that its verb uses, each after the definitions that it uses itself.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from tarry.store.redis.link.base import Script

_COMMENT = re.compile(r"^ *--.*\n", re.M)
_BEGINS = re.compile(r"^(?=(?:function )?lib\.)", re.M)
_NAME = re.compile(r"\blib\.(\w+)")


class _Definition(NamedTuple):
    names: list[str]
    text: str
    uses: list[str]


def _definitions() -> Iterator[_Definition]:
    for file in sorted((files("tarry.store.redis") / "lua").iterdir(), key=lambda file: file.name):
        for text in _BEGINS.split(_COMMENT.sub("", file.read_text(encoding="utf-8")))[1:]:
            head = re.split(r"[=(]", text, maxsplit=1)[0]
            yield _Definition(_NAME.findall(head), text.rstrip() + "\n", _NAME.findall(text))


_LIBRARY = {name: definition for definition in _definitions() for name in definition.names}


def _collect(name: str, seen: set[str]) -> Iterator[str]:
    """The texts of a definition and of all that it uses, except those already seen."""
    if name in seen:
        return
    definition = _LIBRARY[name]
    seen.update(definition.names)
    for used in definition.uses:
        yield from _collect(used, seen)
    yield definition.text


def _script(name: str, flags: str = "flags=allow-oom", repeatable: bool = False, shortcut: str = "") -> Script:
    """shortcut: a function that may answer for the verb; the rest of the script begins only if it answers nil."""
    seen: set[str] = set()
    # All functions are in one table: as locals they would be quicker to call but much slower to make, and a script
    # makes them anew at each run.
    parts = [f"#!lua {flags}".rstrip() + "\nlocal lib = {}\n"]
    # First, so that a call that the shortcut answers makes none of the other functions.
    if shortcut:
        parts += _collect(shortcut, seen)
        parts.append(f"local answer = lib.{shortcut}()\nif answer then return answer end\n")
    return Script(name, "".join([*parts, *_collect(name, seen), f"return lib.{name}()\n"]), repeatable)


def _reading(name: str) -> Script:
    return _script(name, flags="flags=no-writes", repeatable=True)


# While its memory is full, Redis refuses a script that may write, unless it is flagged allow-oom. Only `insert` is not:
# workers go on with the jobs that are there, and so make room.
INSERT = _script("insert", flags="", repeatable=True, shortcut="insert_plain")
# Not repeatable: if the answer is lost, a second run claims more jobs, and nobody knows of the first ones.
EXCHANGE = _script("exchange", shortcut="exchange_nothing")
EXTEND = _script("extend", repeatable=True)
PRUNE = _script("prune", repeatable=True)
SAVE_PROGRESS = _script("save_progress", repeatable=True)
SET_LIMIT = _script("set_limit", repeatable=True)
MIGRATE = _script("migrate", repeatable=True)
RECOUNT = _script("recount", repeatable=True)
GET = _reading("get")
FIND = _reading("find")
OLDEST = _reading("oldest")
RECLAIM = _reading("reclaim")
EXPIRING = _reading("expiring")
BACKLOG = _reading("backlog")
QUEUES = _script("queues", repeatable=True)
HOLD = _script("hold", repeatable=True)
# Not repeatable: a second run compares with what the first has written.
KV_CAS = _script("kv_cas")
PAUSE = _script("pause", repeatable=True)
GET_SCHEMA = _script("get_schema", repeatable=True)
