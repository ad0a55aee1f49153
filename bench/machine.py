"""What the machine is, and what its processes use: all from /proc, and empty or zero where there is none."""

import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

import apsw

_TICK = os.sysconf("SC_CLK_TCK")


def busy() -> float:
    """Seconds of CPU that all processes, and the host beneath, have used of this machine's cores so far."""
    fields = _read("/proc/stat").partition("\n")[0].split()[1:]
    ticks = [int(field) for field in fields]
    # user, nice, system, irq, softirq, steal
    return (sum(ticks[0:3]) + sum(ticks[5:8])) / _TICK if len(ticks) >= 8 else 0.0


def own() -> float:
    """Seconds of CPU that this process, and every child that has ended, have used so far."""
    return sum(os.times()[:4])


def cpu(pid: int) -> float:
    """Seconds of CPU of a living process: to the nanosecond where the kernel says so, else to the tick."""
    tasks = [_read(str(path)) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    exact = sum(int(text.split()[0]) for text in tasks if text) / 1e9
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    counted = (int(fields[11]) + int(fields[12])) / _TICK if fields else 0.0
    # A kernel without the statistics shows zeros.
    return exact or counted


def memory(pid: int) -> tuple[int, int]:
    """Bytes resident, and bytes with what is shared divided among those who share it (RSS, PSS)."""
    lines = dict(line.split(":", 1) for line in _read(f"/proc/{pid}/smaps_rollup").splitlines()[1:])
    rss, pss = (int(lines.get(name, "0").split()[0]) * 1024 for name in ("Rss", "Pss"))
    return rss, pss


def tree(pid: int) -> list[int]:
    """The process and all that descend from it, parents first."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _read(str(path)).rpartition(")")[2].split()
        if fields:
            parents[int(path.parent.name)] = int(fields[1])
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found


def described(directory: Path) -> dict[str, str]:
    """What a reader must know to compare figures with those of another machine."""
    model = next((line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")), "")
    return {
        "cores": str(os.cpu_count()),
        "model": model.partition(":")[2].strip() or platform.processor() or platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "filesystem": _filesystem(directory),
    }


def _filesystem(directory: Path) -> str:
    found = subprocess.run(["df", "-PT", str(directory)], capture_output=True, text=True, check=False)
    rows = found.stdout.splitlines()
    return rows[1].split()[1] if found.returncode == 0 and len(rows) > 1 else "unknown"


def alive(pids: Iterable[int]) -> list[int]:
    """Those that still run; a zombie does not."""
    return [pid for pid in pids if _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] not in ([], ["Z"])]


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
