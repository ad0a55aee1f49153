"""`tarry passwords`: a password is asked for, the file keeps its hash, and a removed one is gone."""

import io
import os
import pty
import select
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tarry.cli.identity.passwords import _password
from tarry.errors import NotAuthenticated, TarryError
from tarry.operate.access import Scope
from tarry.server.identity.passwords import PasswordAccess
from tests.cli.project import Project

SETTINGS = '[server]\npasswords = "run/passwords.toml"\n'
LIMIT = 30.0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, settings=SETTINGS)


@pytest.fixture
def file(project: Project) -> Path:
    return project.directory / "run/passwords.toml"


def test_a_password_is_added_listed_changed_and_removed(project: Project, file: Path) -> None:
    rights = ("--scope", "read", "--scope", "operate", "--queue", "mail")
    assert project.said("passwords", "add", "ann", *rights, "--stdin", stdin="correct horse\n") == "ann added"
    project.said("passwords", "add", "bob", "--scope", "admin", "--stdin", stdin="battery staple")
    assert "correct horse" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    caller = PasswordAccess(file).sign_in("ann", "correct horse", "")
    caller.check(Scope.OPERATE, "mail")
    assert not caller.allows(Scope.READ, "other")
    assert project.facts("passwords")["passwords"] == [
        {"name": "ann", "scopes": ["operate", "read"], "queues": ["mail"], "tasks": []},
        {"name": "bob", "scopes": ["admin"], "queues": ["*"], "tasks": []},
    ]
    assert "operate read" in project.said("passwords", "list")
    assert project.said("passwords", "change", "ann", "--stdin", stdin="something else\n") == "ann changed"
    access = PasswordAccess(file)
    with pytest.raises(NotAuthenticated):
        access.sign_in("ann", "correct horse", "")
    access.sign_in("ann", "something else", "").check(Scope.OPERATE, "mail")
    access.sign_in("bob", "battery staple", "")
    assert project.said("passwords", "remove", "ann") == "ann removed"
    with pytest.raises(NotAuthenticated):
        PasswordAccess(file).sign_in("ann", "something else", "")


def test_what_is_wrong_is_told_and_changes_nothing(project: Project, file: Path) -> None:
    add = ("passwords", "add", "ann", "--scope", "read")
    assert "does not exist: `tarry passwords add NAME --scope read` writes it" in project.refused("passwords")
    assert "what is the password for?" in project.misused("passwords", "add", "ann")
    assert "add takes names of letters" in project.misused("passwords", "add", "a b", "--scope", "read")
    assert "there is no terminal to ask for the password: use --stdin" in project.misused(*add)
    assert "8 characters at least" in project.refused(*add, "--stdin", stdin="short\n")
    assert "8 characters at least" in project.refused(*add, "--stdin", stdin="x" * 1025)
    assert not file.exists()
    project.said(*add, "--stdin", stdin="correct horse\n")
    before = file.read_text()
    assert "there is a password ann already" in project.refused(*add, "--stdin", stdin="correct horse\n")
    assert "no password 'anna' in" in project.refused("passwords", "remove", "anna")
    assert "no password 'anna' in" in project.refused("passwords", "change", "anna", "--stdin")
    assert "change takes no --scope" in project.misused("passwords", "change", "ann", "--scope", "put")
    assert file.read_text() == before
    project.settings("")
    assert project.refused("passwords").startswith("there is no file of passwords: set [server] passwords")


def ask(project: Project, *answers: str) -> tuple[int, str]:
    """Adds ann, whose password is typed at a terminal; returns the status, and what stands on the terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tarry", "passwords", "add", "ann", "--scope", "read"]
    process = subprocess.Popen(
        command, cwd=project.directory, env=project.environ, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    seen, asked, end = b"", 0, time.monotonic() + LIMIT
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.05)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:
                break
        if asked < len(answers) and seen.count(b": ") > asked:
            os.write(ours, f"{answers[asked]}\n".encode())
            asked += 1
    os.close(ours)
    return process.wait(LIMIT), seen.decode()


def test_a_password_is_typed_twice_and_never_shown(project: Project, file: Path) -> None:
    status, seen = ask(project, "correct horse", "correct horse")
    assert (status, "ann added" in seen, "correct horse" in seen) == (0, True, False), seen
    PasswordAccess(file).sign_in("ann", "correct horse", "")


def test_two_passwords_that_differ_are_refused(project: Project, file: Path) -> None:
    status, seen = ask(project, "correct horse", "correct house")
    assert (status, "the two passwords differ" in seen) == (1, True), seen
    assert not file.exists()


def test_a_password_that_no_browser_can_send_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct \udce9 horse\n"))
    with pytest.raises(TarryError, match="no UTF-8"):
        _password(True)
