"""Why a job does not run: an answer in words, made of what is known of it and of what could hold it back."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from tarry.model.duration import SECOND, format_duration
from tarry.model.flow.node_ids import flow_of, is_root
from tarry.model.flow.own_queues import is_own_queue, owner_of
from tarry.model.job import Job, State
from tarry.model.lifecycle import is_near_poison
from tarry.model.limit import EACH, TASK, Level, Limit
from tarry.store.queries.hosts import Host, PoolFigures, serving_pools
from tarry.store.rules.waiting import CappedCount

EVERY_QUEUE = "*"
MOST_COUNTED = 10_000
"""Jobs before it that are counted; of more it is said that there are more."""

SENTENCES: Mapping[str, str] = {
    "running": "Worker %(worker)s has run it for %(time)s.",
    "ended": "It is %(state)s: it does not start again by itself.",
    "flow": "It is a flow: `tarry flows show %(flow)s` tells where it is.",
    "blocked": "It waits for other jobs of its flow: see `tarry flows show %(flow)s`.",
    "retry": "Attempt %(attempt)s failed. The next one is due in %(time)s.",
    "due": "It is due in %(time)s.",
    "paused": "Queue %(queue)s is paused.",
    "disabled": "HTTP task %(task)s is disabled.",
    "circuit": "The endpoint of %(task)s gets no requests now: %(trouble)s.",
    "unknown": "The worker that took it last does not know task %(task)s.",
    "no_key": "The worker that took it last does not have the key with which it is sealed.",
    "payload_away": "The worker that took it last could not read its arguments: %(trouble)s",
    "unlisted": "The app of this process has no task %(task)s.",
    "key_paused": "%(limit)s is paused: no job of this key starts.",
    "stopped": "Limit %(limit)s is 0: no job starts.",
    "limit": "Limit %(limit)s is reached: %(running)s of %(most)s run.",
    "key": "Limit %(limit)s is reached for its key: %(running)s of %(most)s run.",
    "share": "The part of limit %(limit)s that its shard has now is used: %(running)s of %(most)s run there.",
    "no_share": "Its shard has no part of limit %(limit)s now. It gets one once others can spare it.",
    "share_ended": "The part of limit %(limit)s that its shard had has ended. A master that runs gives it a new one.",
    "rate": "Limit %(limit)s allows the next start in %(time)s.",
    "external": "Other programs take jobs of queue %(queue)s. Pools that serve all queues leave it to them.",
    "gone": "It is of a broadcast, for %(name)s, which does not run any more: it will be cancelled.",
    "no_host": "No master is known to run.",
    "unserved": "No pool of a master that runs serves queue %(queue)s.",
    "no_worker": "No worker of the pools that serve queue %(queue)s is ready.",
    "busy": "All workers that serve queue %(queue)s run jobs: %(count)s.",
    "follows": "Job %(job)s had its key before, was cancelled for it, and has not ended yet on worker %(worker)s.",
    "order": "Job %(job)s of its key was enqueued before it and comes first. It is %(state)s.",
    "order_dead": "Job %(job)s of its key is dead and holds the others back: retry it, or delete it.",
    "suspect": "Workers died while it ran: %(count)s. It does not run beside another such job.",
    "before": "%(count)s jobs of this queue run before it.",
    "one_before": "One job of this queue runs before it.",
    "many_before": "More than %(count)s jobs of this queue run before it.",
    "away": "A part of the store cannot be asked: %(trouble)s",
    "free": "Nothing is known to hold it back: the next free worker takes it.",
}
"""What each kind of reason says, with what is filled in."""


class LimitHolder(Struct, frozen=True):
    """A job that runs, and so takes a place of a limit."""

    id: str
    task: str
    queue: str
    worker: str
    since: float
    """When it began; seconds since the epoch."""


class WaitingReason(Struct, frozen=True):
    """One reason why a job does not run."""

    kind: str
    text: str
    """For people, in English."""
    until: float | None = None
    """When it ends by itself, if that is known; seconds since the epoch."""
    holders: Sequence[LimitHolder] = ()
    """Of a limit that is reached: jobs that take its places; not all of them if there are many."""
    values: Mapping[str, str] = {}
    """What the sentence of its kind is filled with."""


class LimitUse(Struct, frozen=True):
    """A limit that concerns a job, how far it is used, and by which jobs. Of a limit for each key: by those of its
    key."""

    name: str
    limit: Limit
    level: Level
    holders: Sequence[LimitHolder] = ()
    is_paused: bool = False
    """The key of the job is."""
    share: tuple[Limit, Level] | None = None
    """Of several stores: the part of the limit that the one has where the job is, and how far that is used."""


class EndpointState(Struct, frozen=True):
    """Of a job of an HTTP task: whether its endpoint gets requests. opens: microseconds since the epoch; 0: not known.
    trouble: why it gets none now; empty: it gets them."""

    enabled: bool = True
    trouble: str = ""
    opens: int = 0


class WaitingFacts(Struct, frozen=True):
    """What is known of a job and of what could hold it back. now: by the store's clock, in microseconds."""

    job: Job
    now: int
    is_paused: bool = False
    is_external: bool = False
    """Other programs take the jobs of its queue."""
    limits: Sequence[LimitUse] = ()
    hosts: Sequence[Host] = ()
    before: CappedCount = CappedCount(0)
    """Ready jobs of its queue that run before it."""
    is_listed: bool = True
    """Whether the app of whoever asks has its task."""
    was_unknown: bool = False
    was_sealed: bool = False
    """The worker that took it last could not open it."""
    """Whether the worker that claimed it last did not know its task."""
    endpoint: EndpointState = EndpointState()
    followed: Sequence[tuple[bytes, int, str]] = ()
    """Attempts (job id, epoch, owner) that have to end first."""
    ahead: Job | None = None
    """The job of its key that comes first, if its task is ordered."""
    away: str = ""
    """Why some of several stores could not be asked; empty: all were."""
    unread: str = ""
    """Why the worker that took it last could not read its arguments; empty: it could."""


def waiting_reasons(facts: WaitingFacts) -> list[WaitingReason]:
    """Why the job does not run, what matters most first; never empty."""
    job = facts.job
    if job.state.finished:
        return [_reason("ended", state=str(job.state))]
    if job.state is State.RUNNING:
        return [_reason("running", worker=job.owner, time=_span(facts.now - job.state_since))]
    if job.state is State.BLOCKED:
        return [_reason("flow" if is_root(job.id) else "blocked", flow=str(UUID(bytes=flow_of(job.id))))]
    is_due = job.state is State.READY or job.due <= facts.now
    # Between two looks at what it follows it is scheduled.
    is_held_back = facts.followed or facts.ahead is not None
    found = [*_follows(facts)] if is_due or is_held_back else [_due(facts)]
    found += _lasting_reasons(facts)
    if is_due:
        found += _passing_reasons(facts)
    away = [_reason("away", trouble=facts.away)] if facts.away else []
    return [*(found or [_reason("free")]), *away]


def _follows(facts: WaitingFacts) -> Iterator[WaitingReason]:
    for id, _, owner in facts.followed:
        yield _reason("follows", job=str(UUID(bytes=id)), worker=owner)
    if facts.ahead is not None:
        kind = "order_dead" if facts.ahead.state is State.DEAD else "order"
        yield _reason(kind, job=str(UUID(bytes=facts.ahead.id)), state=str(facts.ahead.state))


def _due(facts: WaitingFacts) -> WaitingReason:
    job, time = facts.job, _span(facts.job.due - facts.now)
    if job.failures:
        return _reason("retry", job.due, attempt=str(job.failures), time=time)
    return _reason("due", job.due, time=time)


def _lasting_reasons(facts: WaitingFacts) -> Iterator[WaitingReason]:
    """What holds it back until somebody acts."""
    job, endpoint = facts.job, facts.endpoint
    if facts.is_paused:
        yield _reason("paused", queue=job.queue)
    if not endpoint.enabled:
        yield _reason("disabled", task=job.task)
    elif endpoint.trouble:
        yield _reason("circuit", endpoint.opens, task=job.task, trouble=endpoint.trouble)
    if facts.was_unknown:
        yield _reason("unknown", task=job.task)
    elif facts.was_sealed:
        yield _reason("no_key")
    elif facts.unread:
        yield _reason("payload_away", trouble=facts.unread)
    elif not facts.is_listed and not facts.is_external:
        yield _reason("unlisted", task=job.task)
    # While an endpoint gets no requests, its task has the limit 0: that says the same.
    is_told = bool(endpoint.trouble) or not endpoint.enabled
    yield from (
        _reason("key_paused" if use.is_paused else "stopped", limit=use.name)
        for use in facts.limits
        if use.limit.most == 0 and not (is_told and use.name.startswith(TASK))
    )
    yield from _service_reasons(facts)


def _service_reasons(facts: WaitingFacts) -> Iterator[WaitingReason]:
    queue = facts.job.queue
    if facts.is_external:
        yield _reason("external", queue=queue)
        return
    hosts = [host for host in facts.hosts if host.is_alive]
    if not hosts:
        # Of several stores the one that knows them may be away.
        if not facts.away:
            yield _reason("no_host")
        return
    serving = _find_pools(hosts, queue)
    if serving is None:
        return
    if not serving and is_own_queue(queue):
        yield _reason("gone", name=owner_of(queue))
        return
    if not serving:
        yield _reason("unserved", queue=queue)
    elif not any(pool.workers for pool in serving):
        yield _reason("no_worker", queue=queue)


def _find_pools(hosts: Sequence[Host], queue: str) -> Sequence[PoolFigures] | None:
    """The pools of these hosts whose workers take jobs of the queue; None: a host does not tell."""
    if is_own_queue(queue):
        return [pool for host in hosts if _has(host, owner_of(queue)) for pool in host.pools]
    return serving_pools([pool for host in hosts for pool in host.pools], queue)


def _has(host: Host, name: str) -> bool:
    """Whether this is the name of the master or of one of its workers."""
    return name in (host.instance, *host.more_workers, *(worker.owner for worker in host.workers))


def _passing_reasons(facts: WaitingFacts) -> Iterator[WaitingReason]:
    """What holds it back for now."""
    job = facts.job
    for use in facts.limits:
        yield from _limit(use, facts.now)
    if is_near_poison(job):
        yield _reason("suspect", count=str(job.crashes))
    serving = _find_pools([host for host in facts.hosts if host.is_alive], job.queue) or []
    workers = sum(pool.workers for pool in serving)
    if workers and sum(pool.busy for pool in serving) >= workers:
        yield _reason("busy", queue=job.queue, count=f"{workers:,}")
    if facts.before.count:
        yield _before(facts.before)


def _before(before: CappedCount) -> WaitingReason:
    if before.count == 1 and not before.at_least:
        return _reason("one_before")
    return _reason("many_before" if before.at_least else "before", count=f"{before.count:,}")


def _limit(use: LimitUse, now: int) -> Iterator[WaitingReason]:
    most, running = use.limit.most, use.level.running
    if most and running >= most:
        kind = "key" if use.name.startswith(EACH) else "limit"
        yield _reason(kind, holders=use.holders, limit=use.name, running=f"{running:,}", most=f"{most:,}")
    elif most != 0 and use.share is not None:
        yield from _share(use.name, *use.share, now)
    elif (again := use.level.again(use.limit, now)) is not None:
        yield _reason("rate", again, limit=use.name, time=_span(again - now))


def _share(name: str, share: Limit, level: Level, now: int) -> Iterator[WaitingReason]:
    """Of a limit that is not reached as a whole: what holds jobs back where this one is."""
    if share.is_over(now):
        yield _reason("share_ended", limit=name)
    elif share.most == 0:
        yield _reason("no_share", limit=name)
    elif share.most is not None and level.running >= share.most:
        yield _reason("share", limit=name, running=f"{level.running:,}", most=f"{share.most:,}")
    elif (again := level.again(share, now)) is not None:
        yield _reason("rate", again, limit=name, time=_span(again - now))


def _reason(kind: str, until: int = 0, holders: Sequence[LimitHolder] = (), **values: str) -> WaitingReason:
    return WaitingReason(kind, SENTENCES[kind] % values, until / SECOND or None, holders, values)


def _span(microseconds: int) -> str:
    """In whole seconds: nobody reads more of it."""
    return format_duration(max(SECOND, round(microseconds / SECOND) * SECOND))
