"""Which files are looked at, and when a change is told."""

import os
import sys
import types
from pathlib import Path

import pytest

from tarry.process.file_watcher import (
    DEBOUNCE,
    LOOK_EVERY,
    MAX_DELAY,
    ChangeDebouncer,
    FileTimes,
    SourceFiles,
    _format_paths,
    changed_between,
    changed_paths,
)


def wrote(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def looked(sources: SourceFiles, home: Path) -> set[str]:
    return {os.path.relpath(path, home) for path in sources.scan()}


def test_the_configuration_and_the_code_below_home(tmp_path: Path) -> None:
    for name in (
        *("tarry.toml", "app.py", "shop/mail.py", "shop/a/b.py", "notes.txt", "shop/mail.pyc", "other.toml"),
        *(".git/hook.py", ".venv/x.py", "env/pyvenv.cfg", "env/lib/y.py", "node_modules/z.py", "__pycache__/app.py"),
        "lib/site-packages/w.py",
    ):
        wrote(tmp_path / name)
    (tmp_path / "loop").symlink_to(tmp_path)
    sources = SourceFiles([tmp_path / "tarry.toml", tmp_path / "none.toml"], tmp_path, {})
    assert looked(sources, tmp_path) == {"tarry.toml", "app.py", "shop/mail.py", "shop/a/b.py"}


def test_modules_that_are_loaded_from_elsewhere_with_what_is_beside_them(tmp_path: Path) -> None:
    home, there = tmp_path / "home", tmp_path / "there"
    home.mkdir()
    loaded = {
        "single": wrote(there / "single.py"),
        "package": wrote(there / "package/__init__.py"),
        "package.deep": wrote(there / "package/deep.py"),
        "installed": wrote(there / "site-packages/installed.py"),
    }
    wrote(there / "beside.py")
    wrote(there / "below/not_loaded.py")
    wrote(there / "package/inner/new.py")
    modules = {"tarry": sys.modules["tarry"], "os": os, "pytest": pytest}
    for name, path in loaded.items():
        module = types.ModuleType(name)
        module.__file__ = str(path)
        if path.name == "__init__.py":
            module.__path__ = [str(path.parent)]
        modules[name] = module
    found = looked(SourceFiles([], home, modules), there)
    assert found == {"single.py", "beside.py", *(f"package/{name}.py" for name in ("__init__", "deep", "inner/new"))}


def test_a_folder_with_more_than_can_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        wrote(tmp_path / f"m{number}.py")
    config = wrote(tmp_path / "tarry.toml")
    sources = SourceFiles([config], tmp_path, {})
    sources.scan()
    assert not sources.is_truncated
    monkeypatch.setattr("tarry.process.file_watcher.MAX_FILES", 10)
    assert str(config) in sources.scan()
    assert (len(sources.scan()), sources.is_truncated) == (10, True)


def test_what_comes_goes_and_changes(tmp_path: Path) -> None:
    one, two = wrote(tmp_path / "one.py"), wrote(tmp_path / "two.py")
    sources = SourceFiles([], tmp_path, {})
    before = sources.scan()
    assert changed_paths(before, sources.scan()) == []
    os.utime(one, ns=(1, 1))
    two.unlink()
    three = wrote(tmp_path / "three.py")
    assert changed_paths(before, sources.scan()) == sorted(map(str, (one, two, three)))


def test_later_than_one_moment_and_not_after_another() -> None:
    assert changed_between({"a": (5, 0), "b": (6, 0), "c": (9, 0), "d": (10, 0)}, 6, 9) == ["b", "c"]


class Eye:
    """Looks at a clock that the test moves."""

    def __init__(self, told: FileTimes) -> None:
        self.changes = ChangeDebouncer(told)
        self.now = 100.0

    def look(self, **seen: int) -> list[str]:
        self.now += self.changes.pause
        return self.changes.update({name: (time, 0) for name, time in seen.items()}, self.now)


def test_a_change_is_told_once_and_when_it_has_settled() -> None:
    eye = Eye({"a": (1, 0), "b": (1, 0)})
    assert eye.look(a=1, b=1) == []
    assert eye.changes.pause == LOOK_EVERY
    assert [eye.look(a=2, b=1), eye.look(a=3, b=1), eye.look(a=3, b=2)] == [[], [], []]
    assert eye.changes.pause == DEBOUNCE
    assert eye.look(a=3, b=2) == ["a", "b"]
    assert [eye.look(a=3, b=2), eye.look(a=3, b=2)] == [[], []]
    assert eye.changes.pause == LOOK_EVERY


def test_a_change_that_was_taken_back_is_none() -> None:
    eye = Eye({"a": (1, 0)})
    assert [eye.look(), eye.look(a=1), eye.look(a=1)] == [[], [], []]
    assert eye.changes.pause == LOOK_EVERY


def test_what_never_settles_is_told_all_the_same() -> None:
    eye = Eye({"a": (0, 0)})
    times = [eye.now for number in range(1, 100) if eye.look(a=number)]
    assert len(times) >= 5
    assert times[1] - times[0] == pytest.approx(MAX_DELAY, abs=2 * LOOK_EVERY)


def test_how_it_is_spoken() -> None:
    home = Path("/home/shop")
    assert _format_paths(["/home/shop/a/b.py", "/home/shopping/c.py"], home) == "a/b.py, /home/shopping/c.py"
    assert _format_paths([f"/home/shop/{n}.py" for n in range(8)], home) == "0.py, 1.py, 2.py, 3.py, 4.py and 3 more"
