"""The disk whose power is cut: what was synced stays, and of the rest some is lost."""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw

from tests.kill_points.points import ROOT

PROGRAM = """
import random, sys
import apsw
from tests.kill_points.power_cut import PowerCut

path, at, synchronous = sys.argv[1:]
disk = PowerCut(int(at), random.Random(at))
database = apsw.Connection(path)
database.execute(f"PRAGMA synchronous={synchronous}")
for number in range(30):
    database.execute("INSERT INTO row VALUES (?)", (number,))
    print(number, flush=True)
"""
POINTS = (25, 45)


def _lost(path: Path, at: int, synchronous: str) -> int:
    """How many rows that were acknowledged are not found."""
    with closing(apsw.Connection(str(path))) as database:
        assert database.execute("PRAGMA journal_mode=WAL").get == "wal"
        database.execute("CREATE TABLE row (number)")
    command = [sys.executable, "-c", PROGRAM, str(path), str(at), synchronous]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    acknowledged = len(ran.stdout.splitlines())
    assert acknowledged
    with closing(apsw.Connection(str(path))) as database:
        assert database.execute("PRAGMA integrity_check").get == "ok"
        found: int = database.execute("SELECT count(*) FROM row").get
        return acknowledged - min(acknowledged, found)


def test_what_was_synced_is_found(tmp_path: Path) -> None:
    assert [_lost(tmp_path / f"{at}.db", at, "FULL") for at in POINTS] == [0] * len(POINTS)


def test_of_what_was_not_synced_some_is_lost(tmp_path: Path) -> None:
    assert sum(_lost(tmp_path / f"{at}.db", at, "NORMAL") for at in POINTS) > 0
