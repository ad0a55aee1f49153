"""`tarry jobs edit` and `tarry jobs clone`."""

import sys
from pathlib import Path

import msgspec
import pytest

from tests.cli.project import Project

EDITOR = """
import pathlib, sys
path = pathlib.Path(sys.argv[-1])
text = path.read_text()
pathlib.Path(sys.argv[1]).write_text(text)
path.write_text(text.replace('"Ann"', sys.argv[2]))
"""


@pytest.fixture
def edit_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the editor leaves what it was given; it writes what REPLACEMENT says in place of "Ann"."""
    (tmp_path / "editor.py").write_text(EDITOR)
    monkeypatch.delenv("VISUAL", raising=False)
    return tmp_path / "given"


def editor(seen: Path, replacement: str) -> str:
    return f"{sys.executable} {seen.with_name('editor.py')} {seen} '{replacement}'"


def test_arguments_are_given_on_the_line(project: Project) -> None:
    (id,) = project.put("app.greet", "Ann", delay="1h")
    said = project.said("jobs", "edit", id, "--args", '["Bob"]')
    assert said == f"{id} has other arguments; it is scheduled"
    (job,) = project.facts("jobs", "edit", id, "--args", '{"name": "Carol"}', "--retry")
    assert (job["args"], job["state"]) == ({"name": "Carol"}, "ready")
    shown = project.said("jobs", "show", id)
    assert "edited by" in shown
    assert ', before: ["Ann"]' in shown
    assert "edit_job" in project.said("audit", "list")


def test_arguments_are_edited_in_an_editor(project: Project, edit_with: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (id,) = project.put("app.greet", "Ann", delay="1h")
    monkeypatch.setenv("EDITOR", editor(edit_with, '"Bob"'))
    assert "has other arguments" in project.said("jobs", "edit", id)
    assert edit_with.read_text() == '[\n  "Ann"\n]\n'
    assert project.facts("jobs", "show", id)[0]["args"] == ["Bob"]
    assert "the arguments are as they were" in project.misused("jobs", "edit", id)


def test_what_was_typed_is_not_lost(project: Project, edit_with: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (id,) = project.put("app.greet", "Ann", delay="1h")
    for replacement, why in (("7", "name"), ("oops", "no JSON")):
        monkeypatch.setenv("EDITOR", editor(edit_with, replacement))
        ran = project.tarry("jobs", "edit", id)
        assert (ran.status, why in ran.err) == (2, True), ran.err
        (kept,) = [line.rpartition(" in ")[2] for line in ran.err.splitlines() if "what you wrote is in" in line]
        assert replacement in Path(kept).read_text()
        assert Path(kept).parent.stat().st_mode & 0o077 == 0
    assert project.facts("jobs", "show", id)[0]["args"] == ["Ann"]


def test_large_arguments_are_edited_in_an_editor(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "large").mkdir()
    project.settings(f'[payloads]\nto = "file://{tmp_path}/large"\nover = "1KB"\n')
    id = project.enqueue("app.greet", msgspec.json.encode(["Ann" + "x" * 2000]).decode(), "--delay", "1h")
    monkeypatch.setenv("EDITOR", "sed -i s/Ann/Bob/")
    assert "has other arguments" in project.said("jobs", "edit", id)
    assert ', before: "2.0 kB at file://' in project.said("jobs", "show", id)
    for path in (tmp_path / "large").rglob("*-arguments-*"):
        path.unlink()
    assert "any more; give it others: --args" in project.misused("jobs", "edit", id)
    assert "has other arguments" in project.said("jobs", "edit", id, "--args", '["Carol"]')


def test_errors_name_the_way_out(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EDITOR", "VISUAL"):
        monkeypatch.delenv(name, raising=False)
    (id,) = project.put("app.greet", "Ann", delay="1h")
    assert "Set EDITOR, or give the arguments" in project.misused("jobs", "edit", id)
    monkeypatch.setenv("EDITOR", "false")
    assert "ended with status 1" in project.misused("jobs", "edit", id)
    assert "edit which job?" in project.misused("jobs", "edit")
    assert "one at a time" in project.misused("jobs", "edit", id, id)
    assert "no JSON" in project.misused("jobs", "edit", id, "--args", "Ann")
    assert "it has changed since" in project.tarry("jobs", "edit", id, "--args", "[1]", "--version", "old").err
    assert "retry takes no --args" in project.misused("jobs", "retry", id, "--args", "[1]")
    assert "clone which job?" in project.misused("jobs", "clone")


def test_a_clone(project: Project) -> None:
    (id,) = project.put("app.greet", "Ann", delay="1h", queue="mail")
    (clone,) = project.facts("jobs", "clone", id)
    assert (clone["args"], clone["queue"], clone["state"]) == (["Ann"], "mail", "ready")
    assert f", of {id}" in project.said("jobs", "show", clone["id"])
    said = project.said("jobs", "clone", id, "--args", '["Bob"]')
    assert f"is a clone of {id}; it is ready" in said
