"""The Redis store's scripts write no globals."""

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


def test_each_definition_is_part_of_a_script() -> None:
    found = [script for script in vars(scripts).values() if isinstance(script, Script)]
    assert len(found) > 15
    assert set(lua_sources.DEFINITIONS) == {name for script in found for name in lua_sources.NAME.findall(script.text)}
