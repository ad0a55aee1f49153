"""The demo's app: real work on real files, and a ledger of it that no store ever sees."""

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
    """What there is to say of a file."""

    sha256: str
    compressed: int
    tokens: int


@app.task(retry=Retry(3, backoff="exponential", base=0.2, jitter=0.2), timeout=30)
def study(number: int, path: str, stumbles: bool = False) -> Study:
    """Hashes, compresses and counts the tokens of one file. With `stumbles`, the first attempt fails."""
    write(number, "began")
    try:
        if stumbles and current_job().attempt == 1:
            raise ConnectionError("the first attempt fails on purpose")
        found = studied(Path(path))
    except Exception:
        write(number, "failed")
        raise
    write(number, "ended")
    return found


@app.task(queue="empty")
def nothing() -> None:
    """What is left of such a job is what the queue costs."""


def studied(path: Path) -> Study:
    """The work itself."""
    content = path.read_bytes()
    with tokenize.open(path) as lines:
        tokens = sum(1 for _ in tokenize.generate_tokens(lines.readline))
    return Study(hashlib.sha256(content).hexdigest(), len(zlib.compress(content, 6)), tokens)


def write(number: int, what: str) -> None:
    """One line, whole: appended by one write, it cannot be torn nor lost when the process is killed."""
    line = f"{number} {what} {time.monotonic():.6f} {os.getpid()}\n"
    fd = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)
