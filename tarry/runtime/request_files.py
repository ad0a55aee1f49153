"""What is asked of a master besides the signal that follows: files beside the pid file. How many workers a pool is to
have; and who asks for a reload or an upgrade, which is what somebody says of itself, and no identity."""

import os
from pathlib import Path

import msgspec

from tarry import files
from tarry.model.checks.decoders import decode_json


def scale_path(pid_file: Path) -> Path:
    """The path of the request."""
    return pid_file.with_name(pid_file.name + ".scale")


def write_request(pid_file: Path, pool: str, workers: int) -> Path:
    """Writes the request atomically and returns its path. The caller signals the master next. OSError."""
    path = scale_path(pid_file)
    # In one step: the master may look for a request at any time, and must not find half of one.
    files.replace(path, msgspec.json.encode((pool, workers)))
    return path


def take_request(path: Path) -> tuple[str, int] | None:
    """Reads and removes the request: pool and workers; None: there is none. An invalid one has an empty pool name."""
    try:
        text = path.read_bytes()
        path.unlink()
        pool, workers = decode_json(text, tuple[str, int])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        # Not None: the master would take its signal for a plain TTIN, one worker more.
        return "", 0
    return (pool, workers) if workers >= 0 else ("", 0)


MOST_NAME = 100
"""Characters of the name of who asks."""


def asker_path(pid_file: Path) -> Path:
    """The file with the name of who asks for a reload."""
    return pid_file.with_name(pid_file.name + ".by")


def write_name(path: Path, name: str) -> None:
    """Writes who asks. The caller signals the master next. OSError."""
    files.replace(path, name[:MOST_NAME].encode("utf-8", "replace"))


def take_name(path: Path) -> str | None:
    """Reads and removes it; None: nobody wrote it; empty: nobody said who."""
    try:
        name = _read_name(path)
    except OSError:
        # Another user's: it is a request all the same.
        name = ""
    try:
        path.unlink()
    except OSError:
        return None
    return name


def _read_name(path: Path) -> str:
    # Without O_NONBLOCK a pipe would stop the master.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return (file.read(4 * MOST_NAME) or b"").decode("utf-8", "replace")[:MOST_NAME]
