"""The projects, their settings, and how each is started."""

from dataclasses import dataclass, field
from typing import Any

PROJECTS = {"celery": "Celery", "rq": "RQ", "dramatiq": "Dramatiq", "huey": "Huey", "tarry": "tarry"}
"""As their packages are called, and as they call themselves."""
HERE = "bench.beside_faults.peers"


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    project: str
    name: str
    words: str
    """How it differs from what comes by itself, with the names that its documentation uses."""
    link: str
    worker: tuple[str, ...]
    """The arguments of Python that start workers: four jobs at once together."""
    workers: int = 1
    app: dict[str, Any] = field(default_factory=dict)
    """What the app's module sets."""
    environment: dict[str, str] = field(default_factory=dict)
    schedulers: tuple[tuple[str, ...], ...] = ()
    """Two of them, where workers do not have one in them."""
    without_ticks: tuple[str, ...] = ()
    """More arguments of a worker whose schedules are to rest."""

    @property
    def key(self) -> str:
        return f"{self.project}:{self.name}"


_CELERY = ("-m", "celery", "-A", f"{HERE}.celery_app", "worker", "-c", "4", "-l", "WARNING")
_BEAT = ("-m", "celery", "-A", f"{HERE}.celery_app", "beat", "-l", "WARNING", "--pidfile=")
_RQ = ("-m", "rq.cli", "worker", "beside", "--with-scheduler", "-u", "{broker}")
_RQ_CRON = ("-m", "rq.cli", "cron", "{here}/peers/rq_schedules.py", "-u", "{broker}", "-P", "{root}")
_DRAMATIQ = ("-m", "dramatiq", f"{HERE}.dramatiq_app", "--processes", "2", "--threads", "2")
_HUEY = ("-m", "huey.bin.huey_consumer", f"{HERE}.huey_app.huey", "-w", "4")
_TARRY = ("-m", "tarry", "-a", f"{HERE}.tarry_app:app", "start")

SETTINGS = (
    Setting(
        "celery",
        "default",
        "`celery worker -c 4`; visibility timeout 1 h; schedules by `celery beat`",
        "https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/redis.html#visibility-timeout",
        _CELERY,
        schedulers=tuple((*_BEAT, "-s", f"{{directory}}/beat-{number}") for number in "ab"),
    ),
    Setting(
        "celery",
        "reliable",
        "`task_acks_late`, `task_reject_on_worker_lost`, `worker_prefetch_multiplier=1`, `visibility_timeout=30`, "
        "`unacked_restore_throttle=1`, `worker_max_memory_per_child=200000`; schedules by RedBeat",
        "https://docs.celeryq.dev/en/stable/userguide/configuration.html#task-reject-on-worker-lost",
        _CELERY,
        app={
            "task_acks_late": True,
            "task_reject_on_worker_lost": True,
            "worker_prefetch_multiplier": 1,
            "worker_max_memory_per_child": 200_000,
            "broker_transport_options": {"visibility_timeout": 30, "unacked_restore_throttle": 1},
        },
        schedulers=((*_BEAT, "-S", "redbeat.RedBeatScheduler"),) * 2,
    ),
    Setting(
        "rq",
        "default",
        "four times `rq worker --with-scheduler`; schedules by `rq cron`",
        "https://python-rq.org/docs/workers/",
        _RQ,
        workers=4,
        schedulers=(_RQ_CRON,) * 2,
    ),
    Setting(
        "rq",
        "reliable",
        "`Retry(max=3)` for each job; "
        "`rq worker --worker-ttl 30 --maintenance-interval 10 --job-monitoring-interval 5`",
        "https://python-rq.org/docs/exceptions/#retrying-failed-jobs",
        (*_RQ, "--worker-ttl", "30", "--maintenance-interval", "10", "--job-monitoring-interval", "5"),
        workers=4,
        app={"retry": 3},
        schedulers=(_RQ_CRON,) * 2,
    ),
    Setting(
        "dramatiq",
        "default",
        "`dramatiq --processes 2 --threads 2`; schedules by APScheduler",
        "https://dramatiq.io/guide.html",
        _DRAMATIQ,
        schedulers=(("-m", f"{HERE}.dramatiq_app", "schedule"),) * 2,
    ),
    Setting(
        "dramatiq",
        "reliable",
        "`RedisBroker(heartbeat_timeout=15000, maintenance_chance=1000000)`: looks for dead workers at each command",
        "https://dramatiq.io/reference.html#dramatiq.brokers.redis.RedisBroker",
        _DRAMATIQ,
        app={"heartbeat_timeout": 15_000, "maintenance_chance": 1_000_000},
        schedulers=(("-m", f"{HERE}.dramatiq_app", "schedule"),) * 2,
    ),
    Setting(
        "huey",
        "default",
        "`RedisHuey(results=False)`, `huey_consumer -w 4` (threads)",
        "https://huey.readthedocs.io/en/latest/consumer.html",
        _HUEY,
        without_ticks=("-n",),
    ),
    Setting(
        "huey",
        "reliable",
        "the same with `-k process -g TERM`: TERM lets running tasks end; a handler of `SIGNAL_INTERRUPTED` enqueues "
        "again what was interrupted",
        "https://huey.readthedocs.io/en/latest/deployment.html",
        (*_HUEY, "-k", "process", "-g", "TERM"),
        app={"enqueue_interrupted": True},
        without_ticks=("-n",),
    ),
    Setting(
        "tarry",
        "default",
        "`workers = 2, threads = 2`; lease 15 s",
        "operations.md",
        _TARRY,
        environment={
            "TARRY_POOLS__DEFAULT__WORKERS": "2",
            "TARRY_POOLS__DEFAULT__THREADS": "2",
            "TARRY_MASTER__PID_FILE": "{directory}/tarry-{number}.pid",
        },
    ),
)
