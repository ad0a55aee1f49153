"""All figures by name. This is the one place of their names: every door, the textfile, the docs and the tests use it.

A figure of the store is about all hosts: every host that is scraped shows the same, so take the greatest of them
(`max by`). A figure of the host is about one master and its processes: add them up. A figure of the process is about
the one that answers.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

MetricKind = Literal["gauge", "counter", "histogram", "info"]

OTHER = "other"
"""The label of what has no series of its own, since there are too many."""


class Metric(Struct, frozen=True):
    """A figure. kind: as Prometheus has it. scope: what it is about."""

    kind: MetricKind
    scope: Literal["store", "host", "process"]
    about: str
    labels: tuple[str, ...] = ()


def _store(kind: MetricKind, about: str, *labels: str) -> Metric:
    return Metric(kind, "store", about, labels)


def _host(kind: MetricKind, about: str, *labels: str) -> Metric:
    return Metric(kind, "host", about, labels)


def _process(kind: MetricKind, about: str, *labels: str) -> Metric:
    return Metric(kind, "process", about, labels)


STORE: Mapping[str, Metric] = {
    "tarry_store_up": _store("gauge", "Whether the store answers", "store"),
    "tarry_store_ping_seconds": _store("gauge", "How long the smallest read took", "store"),
    "tarry_hosts": _store("gauge", "Masters that the store knows: alive, or lost within a day", "state"),
    "tarry_queue_depth": _store("gauge", "Jobs in the store", "queue", "state"),
    "tarry_oldest_seconds": _store(
        "gauge", "For how long the oldest ready job has been due; 0: none is ready", "queue"
    ),
    "tarry_queue_paused": _store("gauge", "Whether the queue is paused", "queue"),
    "tarry_queue_workers": _store("gauge", "Ready workers, on all hosts, whose pool serves the queue", "queue"),
    "tarry_queue_workers_needed": _store(
        "gauge", "Jobs that should run at once, so that what is ready is done within a minute", "queue"
    ),
    "tarry_jobs_enqueued_total": _store("counter", "New jobs", "queue", "task"),
    "tarry_jobs_total": _store(
        "counter", "Jobs that ended: done, dead, cancelled, or expired", "queue", "task", "outcome"
    ),
    "tarry_job_retries_total": _store(
        "counter", "Attempts that failed and after which their job comes again", "queue", "task"
    ),
    "tarry_errors_total": _store("counter", "Failed attempts of the 50 errors seen last, by id", "queue", "error"),
    "tarry_job_wait_seconds": _store("histogram", "From when jobs were due to the start of their attempts", "queue"),
    "tarry_job_duration_seconds": _store("histogram", "How long attempts ran", "queue", "task"),
    "tarry_schedule_last_run_timestamp_seconds": _store(
        "gauge", "When the newest tick that became a job was due; 0: none yet", "schedule"
    ),
    "tarry_schedule_next_run_timestamp_seconds": _store("gauge", "When the next tick is due; 0: never", "schedule"),
    "tarry_schedule_paused": _store("gauge", "Whether the schedule is paused", "schedule"),
    "tarry_schedule_missed_ticks": _store(
        "gauge", "Ticks that became no job, among those that the store remembers (about 20)", "schedule"
    ),
    "tarry_stored_schedules": _store("gauge", "Schedules that the store keeps"),
    "tarry_stored_schedules_missed": _store(
        "gauge", "Of these, those whose newest tick made no job or whose jobs cannot be made; 1,000 at most"
    ),
    "tarry_stored_schedules_missed_ticks_total": _store("counter", "Their ticks that became no job"),
    "tarry_stored_schedules_last_run_timestamp_seconds": _store(
        "gauge", "When the newest tick of any of them that became a job was due; 0: none yet"
    ),
    "tarry_stored_schedules_next_run_timestamp_seconds": _store(
        "gauge", "When a keeper is to look at the next of them; 0: never"
    ),
    "tarry_push_attempts_total": _store(
        "counter", "Deliveries of HTTP tasks, by the class of the answer's status, such as 2xx", "task", "status"
    ),
    "tarry_push_circuit_open": _store(
        "gauge", "Whether nothing, or one request at a time, is sent to the endpoint", "task"
    ),
}
HOST: Mapping[str, Metric] = {
    "tarry_master_start_time_seconds": _host("gauge", "When the master began"),
    "tarry_keeper_up": _host("gauge", "Whether the keeper of this host is there"),
    "tarry_reload_failed": _host("gauge", "Whether the last reload failed, so that older processes still serve"),
    "tarry_workers": _host("gauge", "Workers that are ready: busy with a job, or idle", "pool", "state"),
    "tarry_workers_wanted": _host("gauge", "Workers that the pool is to have", "pool"),
    "tarry_workers_memory_bytes": _host("gauge", "Memory of the workers that are ready", "pool"),
    "tarry_workers_replaced_total": _host(
        "counter",
        "Workers replaced since the master began, by the reason: jobs, age, memory, hang, crash, killed, signal",
        "pool",
        "reason",
    ),
    "tarry_pool_failed": _host("gauge", "Whether the processes of the pool cannot start", "pool"),
    "tarry_process_cpu_seconds_total": _host("counter", "Processor time of a process of the master", "process"),
    "tarry_process_resident_memory_bytes": _host("gauge", "Memory of a process of the master", "process"),
    "tarry_process_start_time_seconds": _host("gauge", "When a process of the master began", "process"),
}
PROCESS: Mapping[str, Metric] = {
    "tarry_build_info": _process("info", "The version of tarry", "version"),
    "tarry_keeper_chores_total": _process(
        "counter", "Chores of the keeper, each of which calls the store: done, or failed", "outcome"
    ),
    "tarry_http_requests_total": _process("counter", "Requests that were answered", "process", "method", "status"),
    "tarry_http_request_duration_seconds": _process(
        "histogram", "From a request's head to its answer's", "process", "method"
    ),
    "tarry_connections": _process("gauge", "Open connections", "process", "door"),
    "tarry_connections_accepted_total": _process("counter", "Connections so far", "process", "door"),
    "tarry_connections_refused_total": _process("counter", "Connections that were too many", "process", "door"),
    "tarry_event_streams": _process("gauge", "Streams of events that are open", "process"),
    "tarry_ring_waiting": _process("gauge", "Puts that wait for their commit", "process"),
    "tarry_puts_refused_total": _process(
        "counter", "Requests with puts that were told that the server is busy", "process"
    ),
    "tarry_calls_under_way": _process("gauge", "Blocking calls that run or wait for a thread", "process"),
}
METRICS: Mapping[str, Metric] = {**STORE, **HOST, **PROCESS}
"""All of them. A histogram's samples have further endings: `_bucket`, `_count`, `_sum`."""
