"""The statistics of the protocol. What beanstalkd counts and a store does not is counted by each process for itself."""

import os
import resource
from collections.abc import Mapping
from importlib.metadata import version

from tarry.model.job import Job
from tarry.server.beanstalk import job_mapping, replies
from tarry.server.beanstalk.pauses import Pause
from tarry.server.beanstalk.shared import BeanstalkDoor
from tarry.server.beanstalk.tubes import TubeJobs

_COUNTED = (
    *("put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout", "delete"),
    *("release", "use", "watch", "ignore", "bury", "kick", "touch", "stats", "stats-job", "stats-tube"),
    *("list-tubes", "list-tube-used", "list-tubes-watched", "pause-tube"),
)


def job_stats(door: BeanstalkDoor, number: int, job: Job, now: int) -> bytes:
    """The answer to `stats-job`."""
    history = job_mapping.history_of(job)
    return replies.mapping(
        {
            "id": number,
            "tube": f'"{job.queue}"',
            "state": job_mapping.state_of(job, now),
            "pri": job_mapping.priority_of(job),
            "age": max(0, (now - job.created) // 1_000_000),
            "delay": job_mapping.delay_of(job),
            "ttr": job_mapping.ttr_of(job, door.timeout(job)),
            "time-left": door.seconds_left(number, job),
            "file": 0,
            "reserves": job.epoch,
            "timeouts": history.timeouts,
            "releases": history.releases,
            "buries": history.buries,
            "kicks": history.kicks,
        }
    )


def tube_stats(door: BeanstalkDoor, tube: str, jobs: TubeJobs, pause: Pause | None, now: int) -> bytes:
    """The answer to `stats-tube`; NOT_FOUND if there is no such tube."""
    if not jobs.total and not door.is_known(tube):
        return replies.NOT_FOUND
    counts = door.tube(tube)
    return replies.mapping(
        {
            "name": f'"{tube}"',
            **_jobs(jobs),
            "total-jobs": counts.jobs,
            "current-using": door.uses[tube],
            "current-watching": door.watches[tube],
            "current-waiting": door.waits[tube],
            "cmd-delete": counts.deletes,
            "cmd-pause-tube": counts.pauses,
            "pause": 0 if pause is None else pause.seconds,
            "pause-time-left": 0 if pause is None else pause.left(now),
        }
    )


def server_stats(door: BeanstalkDoor, jobs: TubeJobs, tubes: int) -> bytes:
    """The answer to `stats`. tubes: how many there are."""
    used, names = resource.getrusage(resource.RUSAGE_SELF), os.uname()
    counts = door.counts
    return replies.mapping(
        {
            **_jobs(jobs),
            **{f"cmd-{verb}": counts[verb] for verb in _COUNTED},
            "job-timeouts": counts["timeouts"],
            "total-jobs": counts["jobs"],
            "max-job-size": door.max_job_size,
            "current-tubes": tubes,
            "current-connections": counts["connections"],
            "current-producers": counts["producers"],
            "current-workers": counts["workers"],
            "current-waiting": counts["waiting"],
            "total-connections": counts["total-connections"],
            "pid": os.getpid(),
            "version": f'"tarry {version("tarry")}"',
            "rusage-utime": f"{used.ru_utime:.6f}",
            "rusage-stime": f"{used.ru_stime:.6f}",
            "uptime": int(door.loop.time() - door.started),
            "binlog-oldest-index": 0,
            "binlog-current-index": 0,
            "binlog-records-migrated": 0,
            "binlog-records-written": 0,
            "binlog-max-size": 0,
            "draining": str(door.is_draining).lower(),
            "id": door.instance,
            "hostname": f'"{names.nodename}"',
            "os": f'"{names.version}"',
            "platform": f'"{names.machine}"',
        }
    )


def _jobs(jobs: TubeJobs) -> Mapping[str, int]:
    return {
        "current-jobs-urgent": jobs.urgent,
        "current-jobs-ready": jobs.ready,
        "current-jobs-reserved": jobs.reserved,
        "current-jobs-delayed": jobs.delayed,
        "current-jobs-buried": jobs.buried,
    }
