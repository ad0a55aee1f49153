"""The examples, as a newcomer runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def environ(**more: str) -> dict[str, str]:
    ours = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
    return ours | {"PYTHONPATH": str(ROOT)} | more


def script(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "examples.script", *words]
    return subprocess.run(command, cwd=cwd, env=environ(), capture_output=True, text=True, timeout=250, check=False)


def test_the_script_tells_what_came_of_each_job(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    ran = script("a", "missing", cwd=tmp_path)
    good, bad, account = ran.stdout.splitlines()
    assert good == "ca978112ca1bbdca  a"
    assert bad.startswith("failed            missing: ")
    assert "No such file or directory: 'missing'" in bad
    assert (account, ran.returncode) == ("2 jobs, 5 attempts, 1 failed", 1)


def test_the_script_needs_nothing(tmp_path: Path) -> None:
    ran = script(cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].endswith(" 0 failed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "words", "told"),
    [
        ("yes\n", (), "We are sorry. order 7: 42 euro go back"),
        (" Y \n", (), "We are sorry. order 7: 42 euro go back"),
        ("no\n", (), "A colleague will write to you."),
        ("", (), "nobody is here to decide: say --yes or --no"),
        ("", ("--yes",), "We are sorry. order 7: 42 euro go back"),
    ],
)
def test_the_assistant_asks_a_person(tmp_path: Path, said: str, words: tuple[str, ...], told: str) -> None:
    command = [sys.executable, "-m", "examples.assistant", *words]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environ(), input=said, capture_output=True, text=True, timeout=250, check=False
    )
    assert told in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.returncode == (1 if "nobody" in told else 0)


FOLDERS = sorted(file.parent for file in (ROOT / "examples").glob("*/__main__.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_example_has_a_test_and_a_page_of_a_screen(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 45
    assert f"python -m examples.{folder.name}" in text
    named = set(re.findall(r"`(\w+\.(?:py|toml|html))`", text))
    assert named
    assert [name for name in named if not (folder / name).exists() and not (ROOT / "tests" / name).exists()] == []
    assert any(name.startswith("test_") for name in named)
    links = re.findall(r"\]\(([^)#]+)", text)
    assert [link for link in links if not (folder / link).exists()] == []
    assert f"`{folder.name}`" in (ROOT / "examples/README.md").read_text(encoding="utf-8")
