"""A request for a number of workers in a pool: a file beside the pid file, followed by a signal to the master."""

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
