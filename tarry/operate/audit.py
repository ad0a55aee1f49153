"""Who did what: the store's log of acts."""

from typing import Annotated

from msgspec import Meta, Struct

from tarry.client.audit.log import Act, ActFilter, ActLog
from tarry.model.duration import SECOND
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.operate.problem import checking
from tarry.store.queries.job_search import parse_moment
from tarry.store.rules import ids
from tarry.store.rules.ids import IdText
from tarry.tasks.arguments.options import Name


class AuditQuery(Struct, forbid_unknown_fields=True):
    """Which acts to list; what is left out matches all."""

    job: IdText | None = None
    """The id of a job that the act names."""
    who: Name | None = None
    """The name of the token, or the user of a command."""
    act: Name | None = None
    """The name of the method: `cancel_job`."""
    queue: Name | None = None
    """The queue that it concerns."""
    since: float | Short | None = None
    """Then or later: how long ago, such as "2h" or seconds, or a time such as 2026-11-24T16:00Z."""
    until: float | Short | None = None
    """Before then."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Short | None = None
    """`next` of the page before."""


class ActRecord(Struct, frozen=True):
    """What somebody did, or was refused. Times are seconds since the epoch."""

    id: str
    at: float
    """By the clock of the host that acted."""
    who: str
    """The name of a token or of the user of a command; empty: not known, or no token was needed."""
    address: str
    """Of the client, or the host of a command; empty: not known."""
    via: str
    """`http`, `console` or `command`."""
    act: str
    """As the method of this API is called."""
    subject: str
    """On which."""
    queue: str | None
    """The queue that it concerns; null: none, or several."""
    jobs: list[str]
    """The jobs that it names."""
    outcome: str
    """`done`, or why it was refused or failed."""


class ActList(Struct, frozen=True):
    """Acts, the newest first."""

    acts: list[ActRecord]
    next: str | None
    """The cursor of the page before; null: there is none."""


@method("GET /v1/audit", Scope.READ, command="audit list")
def list_acts(call: MethodCall, query: AuditQuery) -> ActList:
    """Lists who did what: retries, cancels and deletions of jobs, what was done to queues, limits, schedules, tasks and
    tokens, sign-ins to the console; also what was refused.

    Callers with the scope `admin` for all queues see all acts, others those that concern a queue that they may read,
    and their own that concern none. Of each caller the last 2,000 acts are kept and the last 200 that were
    refused or failed, for 90 days at most. An act is in the log once its outcome is known, within a second; one whose
    server dies in that second is only in its log lines (`tarry.audit`).
    What was done to a job is also kept with the job, as long as that."""
    call.flush_acts()
    client = call.client
    now = client.clock.now()
    with checking("cursor"):
        found = ActLog(client.store).read(_act_filter(call, query, now), query.limit, query.cursor or "", now)
    return ActList([act_record(one) for one in found.acts], found.next or None)


def act_record(act: Act) -> ActRecord:
    """The record of an act."""
    return ActRecord(
        act.id,
        act.at / SECOND,
        act.who,
        act.address,
        act.via,
        act.act,
        act.subject,
        act.queue or None,
        list(act.jobs),
        act.outcome,
    )


def _act_filter(call: MethodCall, query: AuditQuery, now: int) -> ActFilter:
    since, until, job = 0, 0, ""
    if query.job is not None:
        with checking("job"):
            job = ids.text(ids.parse(query.job))
    if query.since is not None:
        with checking("since"):
            since = parse_moment(query.since, now)
    if query.until is not None:
        with checking("until"):
            until = parse_moment(query.until, now)
    # Its own acts only as far as it may still see their queue: the token may have been narrowed since.
    queues = None if call.caller.allows(Scope.ADMIN, EVERY_QUEUE) else call.queues or (EVERY_QUEUE,)
    return ActFilter(job, query.who or "", query.act or "", query.queue or "", since, until, queues, call.caller.name)


METHODS = methods_of(__name__)
