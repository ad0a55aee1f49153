"""The commit of an app's repository, which is read without git."""

import os
import subprocess
from pathlib import Path

import pytest

from tarry.process.deploy_mark import git_commit


def git(directory: Path, *words: str) -> str:
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    return subprocess.run(["git", *who, *words], cwd=directory, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "shop"
    (place / "app").mkdir(parents=True)
    git(place, "init", "-q")
    git(place, "commit", "-q", "--allow-empty", "-m", "one")
    return place


def head(place: Path) -> str:
    return git(place, "rev-parse", "HEAD").strip()[:12]


def test_it_is_that_of_the_folder_and_those_below(repository: Path) -> None:
    assert git_commit(repository) == git_commit(repository / "app") == head(repository)


@pytest.mark.parametrize(
    "words", [("pack-refs", "--all"), ("checkout", "-q", "--detach"), ("checkout", "-q", "-b", "of/ann")]
)
def test_wherever_git_keeps_it(repository: Path, words: tuple[str, ...]) -> None:
    git(repository, *words)
    assert git_commit(repository) == head(repository)


@pytest.mark.parametrize("is_packed", [False, True])
def test_of_a_worktree_it_is_its_own(repository: Path, tmp_path: Path, is_packed: bool) -> None:
    other = tmp_path / "other"
    git(repository, "worktree", "add", "-q", "-b", "next", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "two")
    if is_packed:
        git(repository, "pack-refs", "--all")
    assert git_commit(other) == head(other) != head(repository)


@pytest.mark.parametrize("text", [b"", b"ref: refs/heads/none", b"\xff" * 50, b"ref: ../../../secret", b"g" * 40])
def test_garbage_is_none(repository: Path, text: bytes) -> None:
    (repository / ".git" / "HEAD").write_bytes(text)
    assert git_commit(repository) == ""


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", ["HEAD", "commondir", "packed-refs"])
def test_a_pipe_in_its_place_is_none(repository: Path, name: str) -> None:
    """To open it would wait for ever, and the keeper with it."""
    git(repository, "pack-refs", "--all")
    (repository / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(repository / ".git" / name)
    assert git_commit(repository) == ""


def test_a_repository_may_have_very_many_branches(repository: Path) -> None:
    git(repository, "pack-refs", "--all")
    packed = repository / ".git" / "packed-refs"
    others = "".join(f"{number:040x} refs/heads/a{number}\n" for number in range(80_000))
    packed.write_text(others + packed.read_text())
    assert git_commit(repository) == head(repository)


def test_without_a_repository_there_is_none(tmp_path: Path) -> None:
    assert git_commit(tmp_path) == ""
