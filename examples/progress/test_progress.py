"""The application as a browser sees it."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environ = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.progress"],
        cwd=tmp_path, env=environ | {"PYTHONPATH": str(ROOT), "PORT": port}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: answer(f"http://127.0.0.1:{port}/openapi.json"))
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.wait(30)
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def answer(url: str, method: str = "GET") -> Any:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        error.close()
    except (urllib.error.URLError, ConnectionError):
        pass
    return None


def test_it_answers_at_once_works_later_and_tells_how_far_it_is(url: str) -> None:
    ordered = answer(f"{url}/reports?customer=ann", "POST")
    assert answer(f"{url}/reports?customer=ann", "POST") == ordered, "the same while it is not done"
    with urllib.request.urlopen(f"{url}/reports/{ordered['id']}/events", timeout=60) as stream:
        events = stream.read().decode()
    assert "page" in events
    assert events.rstrip().endswith("event: end\ndata: {}")
    report = answer(f"{url}/reports/{ordered['id']}")
    assert (report["state"], report["result"]) == ("done", {"pages": 1500})
    assert report["progress"] == {"fraction": 0.8, "message": "page 5"}
