"""The process that forks the others: each order on its standard input is a point, and its answer a line of JSON.

    python -m tests.kill_points.process DIRECTORY

It runs with the library of `calls.c`. A process that is forked has all modules, and nothing open.
"""

import ctypes
import faulthandler
import gc
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tarry.embedded.service  # noqa: F401 - so that no process that is forked has to import it
from tests.cli import forked
from tests.kill_points import masters, workload
from tests.kill_points.points import FAULTS, KINDS, POWER, Point
from tests.kill_points.power_cut import PowerCut
from tests.kill_points.taking_over import take_over
from tests.kill_points.workload import urls_of

LIMIT = 200
"""Seconds that a process has: on a machine that does much else, too."""


def main(directory: str) -> None:
    """Until the input ends."""
    logging.disable(logging.CRITICAL)
    os.environ[forked.MODULES] = masters.MODULES
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        fields, server = json.loads(line)
        point, place = Point(*fields), Path(tempfile.mkdtemp(dir=directory))
        print(json.dumps(_answer(point, place, server)), flush=True)
        shutil.rmtree(place)


def _answer(point: Point, place: Path, server: str) -> dict[str, Any]:
    if point.story in masters.SCENES:
        return masters.answer(point, place)
    urls = [server] if server else urls_of(point.story, place)
    ended = _forked(lambda: _tell(point, place, urls))
    if "failed" in ended:
        return ended
    return ended | _forked(lambda: {"wrong": take_over(place, urls, point.fault == POWER)})


def _tell(point: Point, place: Path, urls: list[str]) -> dict[str, Any]:
    """The workload, with its calls counted, and struck at that point."""
    ledger = os.open(place / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    if point.fault == POWER:
        workload.has_own_work_store = True
        disk = PowerCut(point.at, random.Random(str(point)))
        workload.story_on(urls)(place, urls, ledger)
        return {"calls": disk.calls}
    calls = ctypes.CDLL(None)
    calls.kill_points_arm(ctypes.c_long(point.at), point.fault, ctypes.c_long(point.span), ledger)
    try:
        workload.story_on(urls)(place, urls, ledger)
    finally:
        calls.kill_points_stop()
    kinds = {kind: calls.kill_points_kind(number) for number, kind in enumerate(KINDS)}
    counts = {fault: calls.kill_points_count_for(number) for number, fault in enumerate(FAULTS[:POWER])}
    return {"calls": calls.kill_points_count(), "kinds": kinds, "counts": counts}


def _forked(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it returns, in a process of its own; or that it was killed."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        # Its end is a failure, see below.
        signal.alarm(LIMIT)
        faulthandler.dump_traceback_later(LIMIT - 5)
        try:
            answer = run()
        except BaseException:
            answer = {"failed": traceback.format_exc()}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if text:
        return dict(json.loads(text))
    ended = os.waitstatus_to_exitcode(status)
    if ended == -signal.SIGALRM:
        return {"failed": f"did not end within {LIMIT} s"}
    return {"killed": True} if ended == -signal.SIGKILL else {"failed": f"ended with {ended}"}


if __name__ == "__main__":
    main(sys.argv[1])
