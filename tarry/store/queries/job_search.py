"""Finds jobs for people by more than stores know: by the time of their put, and by text in their arguments and errors.
What a search looks at is bounded; where it stopped, the next page goes on."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.errors import PartlyUnavailable
from tarry.model.duration import SECOND, microseconds
from tarry.model.flow.node_ids import flow_of, is_node, node_id
from tarry.model.job import Job, JobLabel, State
from tarry.model.quantity import MAX_SHORT, shorten
from tarry.store.rules.base import Query, Store
from tarry.store.rules.partial_result import partial_result, reachable_part

if TYPE_CHECKING:
    from tarry.model.flow.wiring import NodeLinks

PAGE = 500
"""Jobs that are read at once."""
STRETCH = 20_000
"""Jobs that a store looks at in one call."""
MOST_EXAMINED = 50_000
"""Jobs whose arguments one search looks at."""
LONGEST = 0.25
"""Seconds after which a search asks the store no further."""
MOST_LINE = 2000
"""Characters of a line that says which jobs."""
SearchLine = Annotated[str, Meta(max_length=MOST_LINE)]
SearchText = Annotated[str, Meta(max_length=200)]
MOST_TEXTS = 8
"""Texts that one error may have to have."""
_YEARS_MS = 2**47
HAVE_ERRORS = (State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)
"""The states in which a job may have failed last: jobs in others need not be looked at for an error."""


class JobSearch(Struct, frozen=True):
    """What to look for. query: what a store knows of it. text: in the arguments; empty: any. until: only ids up to this
    one; empty: all. other_keys: keys that will do as well as that of the query. end: hexadecimal digits with which the
    ids end. since: in their state from this time on, in microseconds; 0: any. error: the fingerprint of the error
    that they had last; empty: any. error_text: texts that this error has, all of them. node: what people call it in
    its flow. ranges: the first and the last id of each range of ids; empty: all."""

    query: Query
    text: str = ""
    until: bytes = b""
    other_keys: tuple[str, ...] = ()
    end: str = ""
    since: int = 0
    error: str = ""
    error_text: tuple[str, ...] = ()
    node: str = ""
    ranges: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def is_scan(self) -> bool:
        """Whether it looks for what no store knows, and so reads jobs that do not match."""
        return bool(self.text or self.end or self.since or self.error or self.error_text or self.node or self.ranges)


class SearchResult(Struct, frozen=True):
    """Jobs that were found, in the order of ids. next: the id after which the next page begins; None: there is none.
    examined: how many jobs were looked at. away: why some stores were not asked."""

    jobs: Sequence[Job]
    next: bytes | None
    examined: int
    away: PartlyUnavailable | None = None


def search_jobs(
    store: Store, search: JobSearch, clock: Callable[[], float] = time.monotonic, is_whole: bool = False
) -> SearchResult:
    """The first jobs that match, as many as the query's limit; StoreError. is_whole: it goes on until it has these,
    however many it has to look at."""
    began, query, found, examined = clock(), search.query, list[Job](), 0
    size = PAGE if search.is_scan else query.limit
    while True:
        end = search.until if is_whole else _end_of_stretch(store, query, search.until)
        stretch = replace(query, limit=size, until=end)
        page, away = partial_result(partial(find_with_keys, store, stretch, search.other_keys))
        examined += len(page)
        found += [job for job in page if is_found(job, search)]
        is_last = len(page) < size and end == search.until
        if is_last and len(found) <= search.query.limit:
            return SearchResult(found, None, examined, away)
        if len(found) >= search.query.limit:
            found = found[: search.query.limit]
            return SearchResult(found, found[-1].id, examined, away)
        seen = end if len(page) < size else page[-1].id
        if not is_whole and (examined >= MOST_EXAMINED or clock() - began > LONGEST):
            return SearchResult(found, _shown_cursor(seen, search, found), examined, away)
        query = replace(query, after=seen)


def find_with_keys(store: Store, query: Query, other_keys: Sequence[str]) -> list[Job]:
    """`Store.find`, of jobs with any of these keys too."""
    found = store.find(query)
    for key in other_keys:
        found += store.find(replace(query, key=key))
    return sorted(found, key=lambda job: job.id)[: query.limit] if other_keys else found


def _shown_cursor(seen: bytes, search: JobSearch, found: Sequence[Job]) -> bytes:
    """Where a search that was ended goes on: after `seen`, which may be a job that the reader may not see."""
    if not search.query.queues:
        return seen
    # Its time alone, unless a reader would then get a job twice, or stay where it is.
    cursor = max(seen[:6] + bytes(10), found[-1].id if found else b"")
    return cursor if cursor > search.query.after else seen


def _end_of_stretch(store: Store, query: Query, until: bytes) -> bytes:
    """Up to which id to look at once. A store reads all jobs up to there, if only few of them match."""
    if query == Query(after=query.after, limit=query.limit, labels=query.labels[:1]):
        return until
    end = reachable_part(lambda: store.id_behind(query.after, STRETCH, first_label(query)))
    return until if end is None or (until and until < end) else end


def first_label(query: Query) -> JobLabel | None:
    """The label by which a store looks for the jobs; None: it looks at all."""
    return query.labels[0] if query.labels else None


def is_found(job: Job, search: JobSearch) -> bool:
    """Whether a job that the store found has what no store knows of."""
    if job.state_since < search.since or (search.end and not job.id.hex().endswith(search.end)):
        return False
    if search.ranges and not any(first <= job.id <= last for first, last in search.ranges):
        return False
    if search.node and not is_called(job, search.node):
        return False
    if search.error and not has_error(job, search.error):
        return False
    if search.error_text and not has_error_text(job, search.error_text):
        return False
    return not search.text or has_text(job, search.text)


def has_error(job: Job, fingerprint: str) -> bool:
    """Whether the last attempt of the job failed by an error of this kind, and it has not been done since."""
    from tarry.model.history.error_kind import error_kind  # noqa: PLC0415 - few look for errors

    return job.state in HAVE_ERRORS and bool(job.note) and error_kind(job.task, job.note).fingerprint == fingerprint


def has_error_text(job: Job, texts: Sequence[str]) -> bool:
    """Whether the last attempt of the job failed by an error whose class and message have these texts, in small or
    capital letters, and it has not been done since. Of a delivery: the reason."""
    from tarry.model.attempts import read_note  # noqa: PLC0415 - as above

    if job.state not in HAVE_ERRORS or not job.note:
        return False
    note = read_note(job.note)
    said = f"{note.type}: {note.message}\n{note.reason}".casefold()
    return all(text.casefold() in said for text in texts)


def is_called(job: Job, name: str) -> bool:
    """Whether the job is a node of a flow, and people call it so: by its label, or else by its task."""
    return is_node(job.id) and (links_of(job).label or job.task) == name


def links_of(job: Job) -> "NodeLinks":
    """How the job is tied to others of its flow; to none, if it is no node or its body cannot be read."""
    from tarry.model.checks.unreadable import UNREADABLE  # noqa: PLC0415 - as above
    from tarry.model.flow import wiring  # noqa: PLC0415 - as above

    try:
        return (wiring.unwrap(job.body)[0] if is_node(job.id) else None) or wiring.NodeLinks()
    except UNREADABLE:
        return wiring.NodeLinks()


def ranges_after(job: Job) -> tuple[tuple[bytes, bytes], ...]:
    """The ids of the jobs that come right after this one in its flow: the first and the last of each range."""
    gates = ((gate.first, gate.first + gate.count - 1) for gate in links_of(job).tells if gate.count)
    return tuple((node_id(job.id, first), node_id(job.id, last)) for first, last in gates)


def has_text(job: Job, text: str) -> bool:
    """Whether the arguments have this text, in small or capital letters; also as JSON writes it."""
    from tarry.model.checks.unreadable import APART  # noqa: PLC0415 - as above

    if APART in job.body:
        # A search reads nothing that is kept elsewhere.
        return False
    wanted = text.casefold()
    body = job.body.decode("utf-8", "replace").casefold()
    # JSON may write other letters than ASCII as \uXXXX.
    return wanted in body or (not wanted.isascii() and json.dumps(wanted)[1:-1] in body)


def id_of_moment(moment: int) -> bytes:
    """The id before all those that are made at this time or later; microseconds since the epoch. Compares as ids do,
    and is none itself."""
    # An id begins with 48 bits of milliseconds, by the clock of its client.
    milliseconds = min(max(0, moment // 1000), _YEARS_MS)
    return (milliseconds << 80).to_bytes(16, "big")


def id_range(digits: str) -> tuple[bytes, bytes]:
    """The ids that begin with these hexadecimal digits, up to 32: after which, and up to which."""
    first, last = (bytes.fromhex(digits.ljust(32, fill)) for fill in "0f")
    return id_before(first), last


def id_before(id: bytes) -> bytes:
    """The greatest id that is less than this one."""
    return max(0, int.from_bytes(id, "big") - 1).to_bytes(16, "big")


def flow_range(id: bytes) -> tuple[bytes, bytes]:
    """The ids of the jobs of the flow that this job is of: after which, and up to which."""
    flow = flow_of(id)
    return id_before(flow), flow[:12] + b"\xff" * 4


def parse_moment(value: float | str, now: int) -> int:
    """A time in microseconds since the epoch: from how long ago it was, such as "2h" or seconds, or from a time such as
    2026-11-24T16:00Z; in UTC where no zone is said. ValueError. now: microseconds since the epoch."""
    try:
        return now - microseconds(value)
    except ValueError:
        if not isinstance(value, str):
            raise
    try:
        found = datetime.fromisoformat(value[:MAX_SHORT])
        return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * SECOND)
    except (ValueError, OverflowError):
        raise ValueError(f'{shorten(value)} is no time: write how long ago, as in "2h", or 2026-11-24T16:00Z') from None
