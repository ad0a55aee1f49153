"""What is asked of a master by files beside its pid file: whatever stands there, the master goes on."""

import os
from pathlib import Path

import pytest

from tarry.runtime.request_files import MOST_NAME, take_name, write_name


def test_a_name_is_taken_once_and_is_short(tmp_path: Path) -> None:
    path = tmp_path / "pid.by"
    assert take_name(path) is None
    write_name(path, "ann" + "\udcff" + "x" * 500)
    assert path.stat().st_mode & 0o777 == 0o600
    name = take_name(path)
    assert name is not None
    assert (name[:4], len(name)) == ("ann?", MOST_NAME)
    assert take_name(path) is None


@pytest.mark.parametrize("content", [b"", b"\xff" * 10_000, b"\0\n\x1b[2J"])
def test_any_bytes_are_a_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pid.by"
    path.write_bytes(content)
    name = take_name(path)
    assert name is not None
    assert len(name) <= MOST_NAME
    assert not path.exists()


@pytest.mark.timeout(20)
def test_a_pipe_does_not_stop_the_master(tmp_path: Path) -> None:
    path = tmp_path / "pid.by"
    os.mkfifo(path)
    assert take_name(path) == ""
    path.mkdir()
    assert take_name(path) is None
