"""The Redis store's scripts write no globals."""

import re
import shutil
from pathlib import Path

import pytest

from tarry.store.redis import lua_sources, scripts
from tarry.store.redis.link.base import Script
from tests.lua_scripts import SCRIPTS, check, main

there = pytest.mark.skipif(not shutil.which("luacheck"), reason="luacheck is not installed (Debian: lua-check)")


@there
def test_the_scripts_pass() -> None:
    found = check(SCRIPTS, capture_output=True)
    assert found.returncode == 0, found.stdout


@there
@pytest.mark.parametrize("text", ["again = 0", "local x = lib.again + agian", "lib.call('GET', KEY[1])", "if then"])
def test_a_global_and_a_misspelt_name_are_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "script.lua").write_text(f"lib.first()\n{text}\n")
    assert check(tmp_path, capture_output=True).returncode > 0


def test_without_luacheck_one_line_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main() == 0
    assert capsys.readouterr().err == "no luacheck (Debian's lua-check), so the Lua scripts are not checked\n"


def test_no_name_is_defined_twice() -> None:
    """The second definition would hold for all: files share their names."""
    margin = re.compile(r"^(?:function (lib\.\w+)|((?:lib\.\w+, )*lib\.\w+) = )", re.M)
    found = [match for file in SCRIPTS.glob("*.lua") for match in margin.findall(file.read_text())]
    names = [name for function, list in found for name in lua_sources.NAME.findall(function or list)]
    assert len(names) > 300
    assert {name for name in names if names.count(name) > 1} == set()


def test_each_definition_is_part_of_a_script() -> None:
    found = [script for script in vars(scripts).values() if isinstance(script, Script)]
    assert len(found) > 15
    assert set(lua_sources.DEFINITIONS) == {name for script in found for name in lua_sources.NAME.findall(script.text)}


_WHOLE = re.compile(
    r"\('((?:HGETALL|HKEYS|HVALS|SMEMBERS|ZRANGEBY\w+|ZREVRANGEBY\w+)', [^\n]*|ZRANGE', [^\n]*, '?0'?, '?-1'?\b)"
)
BOUNDED = {
    "HGETALL lib.COUNTS": "a field for each state, queue and task",
    "HGETALL lib.P .. 'sum:' .. start": "a field for each queue and task of a span of time",
    "HKEYS lib.COUNTS": "a field for each state, queue and task",
    "HKEYS lib.HELD": "a field for each worker",
    "ZRANGEBYLEX lib.CELL_NAMES": "those with a prefix: what is asked for",
    "SMEMBERS lib.FINISHED": "queues",
    "SMEMBERS lib.QUEUES": "queues",
    "SMEMBERS lib.PAUSED": "queues",
    "SMEMBERS lib.MIGRATING": "tasks whose lanes are made",
    "ZRANGE lib.P .. 'kinds'": "kinds of workers that wait",
    "ZRANGE lib.tasks_key(want.queue, want.band)": "tasks of a line",
    "ZRANGE lib.tasks_key(queue, band)": "tasks of a line",
    "ZRANGEBYSCORE lib.numbers_key(ARGV[1])": "the signals of an address, of which MOST_KEPT are kept",
    "ZRANGE numbers": "the signals of an address beyond those that are kept: mostly one",
    "HKEYS lib.RUN": "the jobs that run: a place for each slot of all workers; when a limit is set, and in lists",
    "HGETALL lib.RUN": "the same, once in a while, when levels are counted anew",
    "HKEYS lib.LEVELS": "the same, and lanes whose rate is not over yet",
    "HKEYS lib.CLOSED": "lanes that are full, when a limit is set or levels are counted anew",
}
"""What scripts read whole, and how many that are: no jobs that wait, and nothing that grows with them."""


def test_no_script_reads_without_a_bound() -> None:
    """One that goes through all who wait holds up everybody, and a large one is broken off by nobody."""
    calls = [found for path in SCRIPTS.glob("*.lua") for found in _WHOLE.findall(path.read_text())]
    unbounded = {_call_of(call) for call in calls if "'LIMIT'" not in call}
    assert unbounded == set(BOUNDED)


def _call_of(call: str) -> str:
    """The command and its key."""
    command, rest = call.split("', ", 1)
    depth, end = 0, len(rest)
    for at, letter in enumerate(rest):
        depth += (letter in "([") - (letter in ")]")
        if depth < 0 or (letter == "," and depth == 0):
            end = at
            break
    return f"{command} {rest[:end]}"
