"""The jobs of the last runs of a schedule: how they ended.

The state of the schedule has its runs. It is written at each tick anyway, so a tick takes no call more. How a job ended
is read from the job while it is kept, and the keeper adds it to the state before the job goes.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from tarry.model.attempts import attempts_of
from tarry.model.job import Job
from tarry.model.schedules.schedule import ScheduledRun
from tarry.store.rules import ids
from tarry.store.rules.base import Store

_READ_AT_ONCE = 500


def job_id(run: ScheduledRun) -> bytes | None:
    """The id of its job; None: it has none, or somebody wrote something else."""
    try:
        return ids.parse(run.job) if run.job else None
    except ValueError:
        return None


def read_jobs(store: Store, runs: Iterable[ScheduledRun]) -> dict[bytes, Job]:
    """The jobs of these runs that are still kept, by id; StoreError."""
    wanted = iter({id for run in runs if (id := job_id(run)) is not None})
    found: dict[bytes, Job] = {}
    while some := list(islice(wanted, _READ_AT_ONCE)):
        found |= {job.id: job for job in store.get(some) if job is not None}
    return found


def with_ends(runs: Sequence[ScheduledRun], jobs: Mapping[bytes, Job]) -> list[ScheduledRun]:
    """The runs, with the ends of those whose jobs have finished."""
    return [seen_in(run, job) if run.is_open and (job := _finished_job(run, jobs)) else run for run in runs]


def _finished_job(run: ScheduledRun, jobs: Mapping[bytes, Job]) -> Job | None:
    job = jobs.get(job_id(run) or b"")
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
