"""The examples, as a newcomer runs them."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.bench import until

ROOT = Path(__file__).resolve().parents[1]


def environ(**more: str) -> dict[str, str]:
    ours = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
    return ours | {"PYTHONPATH": str(ROOT)} | more


def script(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "examples.script", *words]
    return subprocess.run(command, cwd=cwd, env=environ(), capture_output=True, text=True, timeout=250, check=False)


def test_the_script_tells_what_came_of_each_job(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    ran = script("a", "missing", cwd=tmp_path)
    good, bad, account = ran.stdout.splitlines()
    assert good == "ca978112ca1bbdca  a"
    assert bad.startswith("failed            missing: ")
    assert "No such file or directory: 'missing'" in bad
    assert (account, ran.returncode) == ("2 jobs, 5 attempts, 1 failed", 1)


def test_the_script_needs_nothing(tmp_path: Path) -> None:
    ran = script(cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].endswith(" 0 failed")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.web"], cwd=tmp_path, env=environ(PORT=port), stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: answer(f"http://127.0.0.1:{port}/openapi.json"), 30)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)
        process.wait(30)
    finally:
        process.kill()
        process.wait()


def answer(url: str, method: str = "GET") -> Any:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as told:
            return json.loads(told.read())
    except urllib.error.HTTPError as error:
        error.close()
    except (urllib.error.URLError, ConnectionError):
        pass
    return None


def test_the_web_application_answers_at_once_and_works_later(web: str) -> None:
    ordered = answer(f"{web}/reports?customer=ann", "POST")
    assert answer(f"{web}/reports?customer=ann", "POST") == ordered, "the same while it is not done"
    until(lambda: answer(f"{web}/reports/{ordered['id']}")["state"] == "done")
    told = answer(f"{web}/reports/{ordered['id']}")
    assert told["result"] == {"pages": 1500}
    assert told["progress"] == {"fraction": 0.8, "message": "page 5"}
