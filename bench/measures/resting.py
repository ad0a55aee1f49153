"""What workers with nothing to do take: CPU and memory."""

import time
from collections.abc import Iterator

from bench import machine
from bench.measure import Figure, below, measure
from bench.place import Bench


@measure("idle", limit=90)
def idle(bench: Bench) -> Iterator[Figure]:
    seconds = bench.scaled(30)
    with bench.place() as place, place.workers(2) as crew:
        time.sleep(1)  # idle is a while after the last job
        others = [pid for pid in crew.everybody if pid not in crew.pids]
        before = {pid: machine.cpu(pid) for pid in crew.everybody}
        begin = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - begin
        used = {pid: (machine.cpu(pid) - cpu) / passed * 100 for pid, cpu in before.items()}
        most = max(used[pid] for pid in crew.pids)
        yield Figure("idle: CPU of a worker", most, "% of a core", target=below(1))
        yield Figure("idle: CPU of master and keeper", sum(used[pid] for pid in others), "% of a core")
        yield Figure("idle: RSS of a worker", max(machine.memory(pid)[0] for pid in crew.pids) / 1e6, "MB")
        yield Figure("idle: PSS of all processes", sum(machine.memory(pid)[1] for pid in used) / 1e6, "MB")
