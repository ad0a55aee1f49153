"""What the checklist says of what passes, fails and cannot be done here."""

import pytest

from tests.release import __main__ as checklist
from tests.release.check import CannotRun, CheckFailed, run
from tests.release.checklist import CHECKS


def test_each_check_says_what_it_does() -> None:
    assert [name for name, check in CHECKS.items() if not check.__doc__] == []


def test_what_fails_is_the_exit_status_and_what_cannot_be_done_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> str:
        """Needs something."""
        raise CannotRun("docker is not installed")

    def wrong() -> str:
        """Goes wrong."""
        raise CheckFailed("lost 1\nand more")

    monkeypatch.setattr(checklist, "CHECKS", {"missing": missing, "wrong": wrong})
    assert checklist.main(["missing"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=3) == [
        "not", "run", "missing", "docker is not installed",
    ]  # fmt: skip
    assert checklist.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=2) == ["FAILED", "wrong", "lost 1"]


def test_a_program_that_fails_or_is_not_there_is_named() -> None:
    with pytest.raises(CheckFailed, match=r"sh -c .*: exit status 3\nwhy"):
        run("sh", "-c", "echo why; exit 3")
    with pytest.raises(CheckFailed, match=r"test_a failed(\nwarning){12}$"):
        run("sh", "-c", "echo test_a failed; yes warning | head -30 >&2; exit 3")
    with pytest.raises(CannotRun, match="no-such-program is not installed"):
        run("no-such-program")
