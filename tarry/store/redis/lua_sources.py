"""Makes scripts, and a library of functions, of what the files in `lua/` define.

Redis knows no modules. A definition is what a file defines at its left margin, as `function lib.NAME` or `lib.NAME =`.
A script has the definitions that its verb uses, each after the definitions that it uses itself. The server makes them
anew at each run, which takes longer than running them. It makes a library's once.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

from tarry.store.redis.link.base import FunctionLibrary, Script
from tarry.store.shared.columns import TAIL, ColumnKind, JobColumn

_COMMENT = re.compile(r"^ *--.*\n", re.M)
_BEGINS = re.compile(r"^(?=(?:function )?lib\.)", re.M)
NAME = re.compile(r"\blib\.(\w+)")
# Names in capital letters are constants, or what a library remembers of a store. All others may change during a call.
_OF_STORE = re.compile(r"lib\.[A-Z](?:.*(?:\bKEYS\b|\blib\.P\b)|.* = \{\})")
_LASTING = re.compile(r"function |lib\.[A-Z]|.*= (?:redis|string|struct)\.")

PREFIX = "tarry_"
"""What the names of all libraries of tarry begin with."""
_LIBRARY = """\
#!lua name={name}
local lib, KEYS, ARGV, lasting
local stores, count = {{}}, 0
local function define()
{lasting}end
local function name_keys()
{store}end
local function begin()
{state}end
local function open()
  if not lasting then
    lib = {{}}
    define()
    lasting = lib
  end
  lib = {{}}
  for name, value in pairs(lasting) do lib[name] = value end
  name_keys()
  if count > 100 then stores, count = {{}}, 0 end
  stores[KEYS[1]], count = lib, count + 1
end
local function register(verb, flags, shortcut)
  local function call(keys, args)
    KEYS, ARGV = keys, args
    lib = stores[keys[1]]
    if not lib then open() end
    local answer = shortcut and lib[shortcut]()
    if not answer then
      begin()
      answer = lib[verb]()
    end
    ARGV = nil
    return answer
  end
  redis.register_function{{function_name = '{name}_' .. verb, callback = call, flags = flags}}
end
{verbs}"""


class Definition(NamedTuple):
    """What a file defines: names, and which names that uses."""

    names: list[str]
    text: str
    uses: list[str]

    @property
    def kind(self) -> str:
        """What a library does with it: `lasting` is made once, `store` once for each store, `state` for each call."""
        return "store" if _OF_STORE.match(self.text) else "lasting" if _LASTING.match(self.text) else "state"


class Verb(NamedTuple):
    """What can be called. shortcut: a function that may answer for it; the rest begins only if it answers nil.
    repeatable: see `Script`."""

    name: str
    flags: str = "allow-oom"
    repeatable: bool = True
    shortcut: str = ""


_PARSE = """function lib.parse_tail(record, at)
  local tail, flags, size = {usual}, lib.byte(record, at), nil
  at = at + 1
{parts}
  local rest = lib.sub(record, at)
  local queue, task, body = lib.split_names(rest)
  tail.queue, tail.task, tail.names, tail.body = queue, task, lib.sub(rest, 1, body - 1), lib.sub(rest, body)
  return tail
end
"""
_FORMAT = """function lib.format_tail(tail)
  local flags, parts = 0, {''}
{parts}
  parts[1] = string.char(flags)
  parts[#parts + 1] = tail.names
  parts[#parts + 1] = tail.body
  return lib.concat(parts)
end
"""
_SIZE_BYTES = {ColumnKind.NAME: 2, ColumnKind.OPTIONAL: 2, ColumnKind.BLOB: 4}


def _tail_functions() -> str:
    """What reads and writes the tail of a record, and tells its size, written out: a loop over a table of the columns
    would take the server twice as long."""
    usual = ", ".join(f"{column.field} = {_usual(column)}" for column in TAIL if column.default is not None)
    blobs = (f"#tail.{column.field}" for column in TAIL if column.kind is ColumnKind.BLOB)
    size = f"function lib.tail_size(tail, note) return #tail.body + {' + '.join(blobs)} + note end\n"
    return (
        _PARSE.replace("{usual}", f"{{{usual}}}").replace(
            "{parts}", _by_flag("math.floor(flags / {}) % 2 == 1", _parse)
        )
        + _FORMAT.replace("{parts}", _by_flag(None, _format))
        + size
    )


def _by_flag(condition: str | None, part: Callable[[JobColumn], str]) -> str:
    """A condition for each flag, and what to do with its columns."""
    lines: list[str] = []
    for flag, grouped in itertools.groupby(TAIL, key=lambda column: column.tail):
        columns = list(grouped)
        marked = " or ".join(f"tail.{column.field} ~= {_usual(column)}" for column in columns)
        lines.append(f"  if {condition.format(flag) if condition else marked} then")
        lines += [f"    flags = flags + {flag}"] if condition is None else []
        lines += [*map(part, columns), "  end"]
    return "\n".join(lines)


def _usual(column: JobColumn) -> str:
    if column.default is None:
        return "nil"
    return "lib.NO_TIME" if column.kind is ColumnKind.NUMBER else "''"


def _parse(column: JobColumn) -> str:
    field, before = column.field, _SIZE_BYTES.get(column.kind)
    if before is None:
        return f"    tail.{field}, at = lib.sub(record, at, at + 7), at + 8"
    return (
        f"    size = lib.parse('>I{before}', record, at)\n"
        f"    tail.{field}, at = lib.sub(record, at + {before}, at + {before - 1} + size), at + {before} + size"
    )


def _format(column: JobColumn) -> str:
    field, before = f"tail.{column.field}", _SIZE_BYTES.get(column.kind)
    value = field if before is None else f"lib.pack('>I{before}', #{field}) .. {field}"
    return f"    parts[#parts + 1] = {value}"


def _definitions() -> Iterator[Definition]:
    found = sorted((files("tarry.store.redis") / "lua").iterdir(), key=lambda file: file.name)
    for source in (_tail_functions(), *(file.read_text(encoding="utf-8") for file in found)):
        for text in _BEGINS.split(_COMMENT.sub("", source))[1:]:
            head = re.split(r"[=(]", text, maxsplit=1)[0]
            yield Definition(NAME.findall(head), text.rstrip() + "\n", NAME.findall(text))


DEFINITIONS = {name: definition for definition in _definitions() for name in definition.names}


def make_scripts(verbs: Iterable[Verb]) -> dict[str, Script]:
    """A script for each verb, by its name, and a library of all of them."""
    found = list(verbs)
    library = _library(found)
    return {
        verb.name: Script(verb.name, _script(verb), verb.repeatable, library, f"{library.name}_{verb.name}")
        for verb in found
    }


def _script(verb: Verb) -> str:
    seen: set[str] = set()
    # All functions are in one table: as locals they would be quicker to call but much slower to make.
    parts = [f"#!lua flags={verb.flags}\nlocal lib = {{}}\n" if verb.flags else "#!lua\nlocal lib = {}\n"]
    # First, so that a call that the shortcut answers makes none of the other functions.
    if verb.shortcut:
        parts += [definition.text for definition in _collect(verb.shortcut, seen)]
        parts.append(f"local answer = lib.{verb.shortcut}()\nif answer then return answer end\n")
    parts += [definition.text for definition in _collect(verb.name, seen)]
    return "".join([*parts, f"return lib.{verb.name}()\n"])


def _collect(name: str, seen: set[str]) -> Iterator[Definition]:
    """A definition and all that it uses, except those already seen."""
    if name in seen:
        return
    definition = DEFINITIONS[name]
    seen.update(definition.names)
    for used in definition.uses:
        yield from _collect(used, seen)
    yield definition


def _library(verbs: Iterable[Verb]) -> FunctionLibrary:
    seen: set[str] = set()
    parts = {"lasting": "", "store": "", "state": "", "verbs": ""}
    for verb in verbs:
        for root in filter(None, (verb.shortcut, verb.name)):
            for definition in _collect(root, seen):
                parts[definition.kind] += definition.text
        flags, shortcut = (f"'{word}'" if word else "" for word in (verb.flags, verb.shortcut))
        parts["verbs"] += f"register('{verb.name}', {{{flags}}}, {shortcut or 'nil'})\n"
    # The name says what is in it: workers of different versions each call their own.
    text = _LIBRARY.format(name=PREFIX, **parts)
    name = PREFIX + sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]
    return FunctionLibrary(name, _LIBRARY.format(name=name, **parts))
