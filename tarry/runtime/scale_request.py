"""How many workers somebody wants of a pool: left in a file beside the pid file, and the master told to look."""

import os
from pathlib import Path

import msgspec

from tarry import files


def scale_path(pid_file: Path) -> Path:
    """Where it is left."""
    return pid_file.with_name(pid_file.name + ".scale")


def write_request(pid_file: Path, pool: str, workers: int) -> Path:
    """Leaves it there, whole; a signal is to follow. OSError."""
    path = scale_path(pid_file)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(files.opened(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, files.OURS), "wb") as file:
        file.write(msgspec.json.encode((pool, workers)))
    os.replace(draft, path)
    return path


def take_request(path: Path) -> tuple[str, int] | None:
    """What was left there, which is taken; None if nothing was. Of what makes no sense: a pool without a name."""
    try:
        text = path.read_bytes()
        path.unlink()
        pool, workers = msgspec.json.decode(text, type=tuple[str, int])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        return "", 0
    return (pool, workers) if workers >= 0 else ("", 0)
