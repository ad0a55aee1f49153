"""The demo's app: work on real files, and a ledger of it, which is apart from the store."""

import hashlib
import os
import time
import tokenize
import zlib
from pathlib import Path

import msgspec

from tarry import App, Retry, current_job

app = App()
LEDGER = os.environ.get("DEMO_LEDGER", os.devnull)


class Study(msgspec.Struct):
    """What a job finds in a file."""

    sha256: str
    compressed: int
    tokens: int


@app.task(retry=Retry(3, backoff="exponential", base=0.2, jitter=0.2), timeout=30)
def study(number: int, path: str, stumbles: bool = False) -> Study:
    """Hashes, compresses and counts the tokens of one file. With `stumbles`, the first attempt fails."""
    _write(number, "began")
    try:
        if stumbles and current_job().attempt == 1:
            raise ConnectionError("the first attempt fails on purpose")
        found = _study_file(Path(path))
    except Exception:
        _write(number, "failed")
        raise
    _write(number, "ended")
    return found


@app.task(queue="empty")
def nothing() -> None:
    """Does nothing: what such a job costs is what the queue costs."""


def _study_file(path: Path) -> Study:
    """Reads the file once for its hash and size, and once for its tokens."""
    content = path.read_bytes()
    with tokenize.open(path) as lines:
        tokens = sum(1 for _ in tokenize.generate_tokens(lines.readline))
    return Study(hashlib.sha256(content).hexdigest(), len(zlib.compress(content, 6)), tokens)


def _write(number: int, what: str) -> None:
    """Appends one line by one write, so that it is whole also if the process is killed."""
    line = f"{number} {what} {time.monotonic():.6f} {os.getpid()}\n"
    fd = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)
