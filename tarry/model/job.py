"""The nouns: what a job is, and the states it can be in."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from tarry.model.checks.decoders import json_decoder

DEFAULT_QUEUE = "default"
MAX_PRIORITY = 2**40
MOST_EPOCH = 2**31 - 1
"""A claim raises no epoch beyond it: some stores keep no larger numbers, and then only the owner is a fence."""

# Anybody who can write to a store may have written what is read there besides jobs. Numbers in these bounds can be
# shown, added up and stored again.
StoredCount = Annotated[int, Meta(ge=0, le=2**62)]
StoredTime = Annotated[int, Meta(ge=0, le=2**57)]
"""Microseconds since the epoch; in a year that a calendar has."""

RELATIVE = 2**50
"""Times of a blocked job below this one count from its release: it is a moment of the year 2005."""

WAITING, UNFINISHED = -1, 0
"""Values of `Job.key_ttl`: the job holds its key until a worker claims it; until it has finished."""
LEADING = "leading:"
"""What stands before the key in that of the first job of a burst (`leading=True`): it holds this name beside the job at
the end, which holds the key. Both are on the shard of the key."""
# Later than any time, so that one comparison with the clock (`lifecycle.holds_key`) serves this case too.
HELD = 2**62
"""`Job.key_held_until` of a job that holds its key as long as it is unfinished."""


class State(StrEnum):
    """Where a job is in its life; `docs/lifecycle.md` draws the transitions."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    """A node of a flow, or its root, that waits for other nodes. It is in no line, and no queue's backlog."""

    # An enum's own hash is a Python function, which is slow; every job looks up states as keys.
    __hash__ = str.__hash__

    @property
    def finished(self) -> bool:
        """Whether no attempt follows unless somebody asks for one."""
        return self in FINISHED


FINISHED = frozenset({State.DONE, State.DEAD, State.CANCELLED})
States = Annotated[list[State], Meta(max_length=len(State))]
"""Those that somebody asks for."""


class Job(Struct, frozen=True, gc=False):
    """One call of a task, as the store keeps it. Times are microseconds since the epoch; 0 means *none*."""

    # Made by the client and not by the store: so the same insert sent twice is one job.
    id: bytes
    """UUIDv7, 16 bytes; of a node of a flow UUIDv8 (`model/flow/node_ids.py`)."""
    task: str
    body: bytes
    """The arguments; opaque to every store."""
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    """Within +-2^40, higher first. Above 0: the high band; 0: the normal one; below 0: the low one."""
    due: int = 0
    """It does not start before this time. While ready: also its place among the jobs that are equally late. While
    blocked, below RELATIVE: a delay that begins when it is released."""
    state: State = State.READY
    # The fence against a worker that lost its lease: it reports an older epoch.
    epoch: int = 0
    """How many times it was claimed."""
    failures: int = 0
    """Attempts that failed. A worker's death while the job was running counts; an interruption by us does not."""
    crashes: int = 0
    """How many workers died while this job was running."""
    owner: str = ""
    """The worker that claimed it, while it is running."""
    state_since: int = 0
    """When it came into its present state."""
    keep_until: int = 0
    """Once finished: when it may be deleted."""
    expires: int = 0
    """It must not start at or after this time. While blocked, below RELATIVE: so long after `due`."""
    key: str | None = None
    """At most one job of the task holds it at a time."""
    note: bytes = b""
    """JSON: the result when done, else how the last attempt ended (`{"type", "message", "traceback"}`)."""
    key_ttl: int = UNFINISHED
    """How long it holds its key: WAITING, UNFINISHED, or this many microseconds after it has finished."""
    key_held_until: int = 0
    """Until when it holds its key: HELD while it is unfinished, a time once it has finished, 0 if it does not."""
    lane: str | None = None
    """Its line among the jobs of a task that is limited or fair between keys; None: it waits in the open line."""
    headers: bytes = b""
    """JSON object of text by name, or empty: what travels beside the arguments, such as a trace."""
    progress: bytes = b""
    """JSON `[fraction, message]` as the task reported it; `[fraction or null, message, attempt, lines left out, text]`
    if the attempt printed or logged something; or empty."""
    attempts: bytes = b""
    """JSON: its attempts but those that ended in the ordinary way (`model/attempts.py`); or empty."""

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs or comes next, from 1; of a dead job, of the last one."""
        # The failures of a dead job count its last attempt already, and no other follows.
        return max(1, self.failures) if self.state is State.DEAD else self.failures + 1

    @property
    def labels(self) -> dict[str, str]:
        """Its labels by name. They are headers, and never change."""
        return labels_of(self.headers)

    @property
    def size(self) -> int:
        """Bytes that count against the limit of what a queue may keep."""
        return len(self.body) + len(self.note) + len(self.headers) + len(self.progress) + len(self.attempts)

    @property
    def created(self) -> int:
        """When the client made the id, by the client's clock, to the millisecond."""
        # A UUIDv7 begins with 48 bits of milliseconds.
        return int.from_bytes(self.id[:6], "big") * 1000


# Each label is a header: so it needs no column, and travels wherever the job does. A store keeps an index beside.

LABEL_PREFIX = "tarry-label:"
"""What the names of headers begin with that are labels; the name of the label follows."""
LABEL_MARK = b'"tarry-label:'
"""What the headers of each job with labels have in them."""
MOST_LABELS, LONGEST_LABEL_NAME, LONGEST_LABEL_VALUE = 16, 64, 256
"""How many a job may have, and how many bytes of UTF-8 a name and a value may take."""

JobLabel = tuple[str, str]
"""A name and a value."""
ORDER_LABEL = "tarry-order"
"""The name of the entry in the index of labels by which the jobs of one key of an ordered task are found. Nobody else
can give it to a job, and it is not shown among its labels."""
MOST_INDEXED = MOST_LABELS + 1
"""Entries of a job in the index of labels: its labels, and its order."""
_ORDER_MARK = f'"{LABEL_PREFIX}{ORDER_LABEL}"'.encode()
LabelText = Annotated[str, Meta(max_length=LONGEST_LABEL_NAME + 1 + LONGEST_LABEL_VALUE)]
"""A label such as `customer=7`, by which somebody looks for jobs."""

_decoder = json_decoder(dict[str, str])


def check_labels(labels: object) -> dict[str, str]:
    """A copy of the labels, which their owner may go on to change; ValueError if a job cannot have them."""
    if not isinstance(labels, Mapping):
        raise ValueError(f'labels=: a dict of text by name, such as {{"customer": "7"}}, not {type(labels).__name__}')
    if len(labels) > MOST_LABELS:
        raise ValueError(f"labels=: a job has at most {MOST_LABELS} labels, not {len(labels)}")
    for name, value in labels.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            kinds = f"{type(name).__name__} and {type(value).__name__}"
            raise ValueError(f"labels=: a name and a value are text, not {kinds}")
        if why := _why_not(name, value):
            raise ValueError(f"labels=: {why}")
    return dict(labels)


def parse_label(text: str) -> JobLabel:
    """The label of a text such as `customer=7`; ValueError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"label {text[:LONGEST_LABEL_NAME]!r}: write NAME=VALUE, such as customer=7")
    if why := _why_not(name, value):
        raise ValueError(why)
    return name, value


def parse_labels(texts: Iterable[str]) -> tuple[JobLabel, ...]:
    """The labels of such texts; ValueError."""
    return tuple(map(parse_label, texts))


def label_headers(labels: Mapping[str, str]) -> dict[str, str]:
    """The headers of these labels."""
    return {LABEL_PREFIX + name: value for name, value in labels.items()}


def labels_of(headers: bytes) -> dict[str, str]:
    """The labels among the headers of a job, by name."""
    # A search for bytes is much faster than decoding, and many jobs have no labels.
    if LABEL_MARK not in headers:
        return {}
    from tarry.model.checks.unreadable import UNREADABLE  # noqa: PLC0415 - most jobs have none

    try:
        decoded = _decoder.decode(headers)
    # Bad headers are reported where the task's own headers are decoded.
    except UNREADABLE:
        return {}
    named = ((name[len(LABEL_PREFIX) :], value) for name, value in decoded.items() if name.startswith(LABEL_PREFIX))
    # Other programs may have written the headers, and an index keeps no longer ones.
    fit = [(name, value) for name, value in named if _why_not(name, value) is None]
    return dict(fit[:MOST_LABELS])


def order_label(headers: bytes) -> JobLabel | None:
    """What the jobs of its key have in common in the index of labels, if its task is ordered; None: it is not."""
    # A search for bytes is much faster than decoding, and few tasks are ordered.
    if _ORDER_MARK not in headers:
        return None
    from tarry.model.checks.unreadable import UNREADABLE  # noqa: PLC0415 - as above

    try:
        value = _decoder.decode(headers).get(LABEL_PREFIX + ORDER_LABEL)
    except UNREADABLE:
        return None
    return None if value is None or _why_no_value(ORDER_LABEL, value) else (ORDER_LABEL, value)


def indexed_labels(headers: bytes) -> dict[str, str]:
    """What the index of labels has of a job: its labels, and its order."""
    found = labels_of(headers)
    order = order_label(headers)
    return found if order is None else {**found, order[0]: order[1]}


def has_labels(headers: bytes, labels: Iterable[JobLabel]) -> bool:
    """Whether the index has all of these for a job with such headers."""
    return indexed_labels(headers).items() >= set(labels)


def label_rows(jobs: Iterable[Job]) -> Sequence[tuple[str, str, bytes]]:
    """Name and value of each entry of these jobs in the index of labels, and the id of the job that has it: what a
    store keeps as long as it keeps the job."""
    # Most jobs have no headers, and then this is all that labels cost them.
    labelled = [job for job in jobs if job.headers and LABEL_MARK in job.headers]
    return [(name, value, job.id) for job in labelled for name, value in indexed_labels(job.headers).items()]


def with_inherited(own: Mapping[str, str] | None, given: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The labels of a job that gets some: its own, and as many of those as it has room for."""
    if not given or not own:
        return own or given
    more = [(name, value) for name, value in given.items() if name not in own]
    return {**own, **dict(more[: MOST_LABELS - len(own)])}


def _why_not(name: str, value: str) -> str | None:
    """Why this cannot be a label; None: it can."""
    try:
        size, _ = len(name.encode()), value.encode()
    except UnicodeEncodeError:
        return f"label {name[:LONGEST_LABEL_NAME]!r}: no store can hold half of a character"
    if not 0 < size <= LONGEST_LABEL_NAME:
        shown, most = name[:LONGEST_LABEL_NAME], LONGEST_LABEL_NAME
        return f"label {shown!r}: a name takes 1 to {most} bytes of UTF-8, not {size}"
    if name == ORDER_LABEL:
        return f"label {name}: tarry itself keeps the order of a key by this name"
    # `=` stands between a name and its value where people write them, and `:` in a line of search.
    if not name.isprintable() or any(sign in name for sign in "=: "):
        return f"label {name[:LONGEST_LABEL_NAME]!r}: a name has no `=`, `:`, blank or control character"
    return _why_no_value(name, value)


def _why_no_value(name: str, value: str) -> str | None:
    """Why a label of that name cannot have this value, which is text without halves of characters; None: it can."""
    size = len(value.encode("utf-8", "replace"))
    if size > LONGEST_LABEL_VALUE:
        return f"label {name}: a value takes at most {LONGEST_LABEL_VALUE} bytes of UTF-8, not {size}"
    return f"label {name}: no store can hold a NUL" if "\0" in value else None
