"""The last runs of a schedule: which ticks became which jobs, and how those ended.

The state of the schedule has them. It is written at each tick anyway, so a tick takes no call more. How a job ended is
read from the job while it is kept, and the keeper adds it to the state before the job goes.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.model.attempts import attempts_of
from tarry.model.job import Job, State, StoredCount, StoredTime
from tarry.store.rules import ids
from tarry.store.rules.base import Store

MOST_RUNS = 20
"""Runs of a schedule, the newest ones."""
LEFT_OUT, REFUSED = "left_out", "refused"
"""Ends of ticks without a job: nobody made up for them; the call could not be enqueued."""
_READ_AT_ONCE = 500
_LONGEST = max(map(len, [*State, LEFT_OUT, REFUSED]))


class ScheduledRun(Struct, frozen=True, array_like=True):
    """What became of a tick. Times are microseconds since the epoch; 0: not known, or not yet."""

    tick: StoredTime
    job: Annotated[str, Meta(max_length=36)] = ""
    """The id of its job; empty: it has none."""
    end: Annotated[str, Meta(max_length=_LONGEST)] = ""
    """The state in which its job ended, LEFT_OUT or REFUSED; empty: not known yet."""
    started: StoredTime = 0
    """When the first attempt began."""
    ended: StoredTime = 0
    ticks: StoredCount = 1
    """How many ticks it stands for, of which this is the last: those that were left out together."""

    @property
    def is_open(self) -> bool:
        """Whether the end of its job is not known."""
        return bool(self.job) and not self.end

    @property
    def is_missed(self) -> bool:
        """Whether the tick became no job."""
        return self.end in (LEFT_OUT, REFUSED)

    @property
    def job_id(self) -> bytes | None:
        """None: it has no job, or somebody wrote something else."""
        try:
            return ids.parse(self.job) if self.job else None
        except ValueError:
            return None


StoredRuns = Annotated[list[ScheduledRun], Meta(max_length=10 * MOST_RUNS)]


def left_out(ticks: Sequence[int]) -> ScheduledRun:
    """The run of ticks, one or more, that nobody makes up for."""
    return ScheduledRun(ticks[-1], end=LEFT_OUT, ticks=len(ticks))


def newest(runs: Sequence[ScheduledRun]) -> list[ScheduledRun]:
    """Those that are kept."""
    return list(runs[-MOST_RUNS:])


def read_jobs(store: Store, runs: Iterable[ScheduledRun]) -> dict[bytes, Job]:
    """The jobs of these runs that are still kept, by id; StoreError."""
    wanted = iter({id for run in runs if (id := run.job_id) is not None})
    found: dict[bytes, Job] = {}
    while some := list(islice(wanted, _READ_AT_ONCE)):
        found |= {job.id: job for job in store.get(some) if job is not None}
    return found


def with_ends(runs: Sequence[ScheduledRun], jobs: Mapping[bytes, Job]) -> list[ScheduledRun]:
    """The runs, with the ends of those whose jobs have finished."""
    return [seen_in(run, job) if run.is_open and (job := _finished_job(run, jobs)) else run for run in runs]


def _finished_job(run: ScheduledRun, jobs: Mapping[bytes, Job]) -> Job | None:
    job = jobs.get(run.job_id or b"")
    return job if job is not None and job.state.finished else None


def seen_in(run: ScheduledRun, job: Job | None) -> ScheduledRun:
    """The run, as its job tells of it; unchanged if the job is None, has not started, or tells nothing new."""
    if job is None:
        return run
    known = attempts_of(job)
    # The first of many attempts may be left out: the start is not known then, unless it was seen before.
    first = known.attempts[0].started if known.attempts and not known.left_out else 0
    is_over = job.state.finished
    return replace(
        run,
        end=str(job.state) if is_over else "",
        started=first or run.started,
        ended=job.state_since if is_over else 0,
    )
