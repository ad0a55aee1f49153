"""The demo's account: what became of every job, read from the ledger that the tasks wrote, not from the store."""

from collections import defaultdict
from pathlib import Path

import msgspec


class LedgerEntry(msgspec.Struct):
    """What the ledger says of one job; times in seconds of the monotonic clock."""

    began: list[float] = []
    ended: list[float] = []
    failed: list[float] = []


class Account(msgspec.Struct):
    """What became of all jobs."""

    put: int
    done: int
    retried: int
    dead: int
    run_twice: int
    lost: int
    per_second: float
    work: float
    """Seconds that the tasks themselves took, all attempts together."""
    start_ms: tuple[float, float, float]
    """From when a job was due to its first start, in milliseconds: median, 99th percentile, worst."""


def read(ledger: Path) -> dict[int, LedgerEntry]:
    """The jobs in the ledger, by number."""
    jobs: dict[int, LedgerEntry] = defaultdict(LedgerEntry)
    if ledger.exists():
        for line in ledger.read_text().splitlines():
            number, what, moment, _ = line.split()
            getattr(jobs[int(number)], what).append(float(moment))
    return jobs


def has_ended(job: LedgerEntry, attempts: int) -> bool:
    """It ended well, or failed as often as it may."""
    return bool(job.ended) or len(job.failed) >= attempts


def make_account(due: dict[int, float], jobs: dict[int, LedgerEntry], attempts: int) -> Account:
    """due: every job that was put, by number, and when it was due. attempts: how often a job may fail."""
    seen = [jobs.get(number, LedgerEntry()) for number in due]
    done = [job for job in seen if job.ended]
    dead = [job for job in seen if not job.ended and len(job.failed) >= attempts]
    ends = sorted(job.ended[0] for job in done)
    began = {number for number, job in jobs.items() if job.began}
    waits = sorted(max(0.0, jobs[number].began[0] - due[number]) for number in due if number in began)
    return Account(
        put=len(due),
        done=len(done),
        retried=sum(1 for job in seen if job.failed and len(job.began) > 1),
        dead=len(dead),
        run_twice=sum(1 for job in done if len(job.ended) > 1),
        lost=len(due) - len(done) - len(dead),
        per_second=len(done) / (ends[-1] - min(due.values())) if ends else 0.0,
        work=sum(map(_work_seconds, seen)),
        start_ms=(_percentile(waits, 0.5), _percentile(waits, 0.99), _percentile(waits, 1.0)),
    )


def _work_seconds(job: LedgerEntry) -> float:
    """An attempt that was killed has no end, and is left out."""
    ends = sorted(job.ended + job.failed)
    return sum(end - max(start for start in job.began if start <= end) for end in ends)


def _percentile(sorted_seconds: list[float], part: float) -> float:
    if not sorted_seconds:
        return 0.0
    return 1000 * sorted_seconds[min(len(sorted_seconds) - 1, int(part * len(sorted_seconds)))]
