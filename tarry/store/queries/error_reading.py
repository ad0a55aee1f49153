"""Groups of errors as people and programs see them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.store.queries.deploy_records import DeployRecord, deploy_record
from tarry.store.queries.deploys import Deploy, deploy_of
from tarry.store.rules import ids
from tarry.store.rules.history.error_groups import ErrorGroup, decode_group, sum_queues
from tarry.store.rules.history.history import StoreHistory
from tarry.store.rules.history.journal import read_record
from tarry.store.rules.history.sums import ERRORS, HOURS, LENGTH, OTHERS, Place
from tarry.store.rules.owner import without_door
from tarry.store.rules.partial_result import made_of, partial_result

SHOWN_HOURS = 24
_MOST_UNSUMMED = 1000


class ErrorGroupRecord(Struct, frozen=True, kw_only=True):
    """Errors of one kind: of the same class and place, with the same message but for numbers, ids and quoted parts."""

    id: str
    """16 hexadecimal digits; empty: all errors that were too many to be counted by kind."""
    type: str
    """The class; of a delivery `HTTP` and the status."""
    message: str
    """With … in the place of what differs."""
    place: str
    """The file and function of your code where it was raised; of a delivery the task."""
    count: int
    first: float
    """When the first one was seen, in seconds since the epoch; 0: not known."""
    last: float
    began_on: str
    """The host of the worker where the first one happened; empty: not known."""
    deploy: DeployRecord | None
    """The generation of workers in which the first one happened; null: not known."""
    tasks: dict[str, int]
    """How many each task had; an empty name: all further tasks."""
    queues: dict[str, int]
    job: str | None
    """A job that had it lately; it may be deleted by now."""
    is_muted: bool
    """Nobody is alerted about it, in any of these queues."""
    hours: list[int]
    """How many there were in each of the last 24 hours, the present one last."""


def read_groups(
    history: StoreHistory,
    now: int,
    is_wanted: Callable[[str, Mapping[str, int]], bool],
    deploys: Sequence[Deploy] = (),
) -> dict[str, ErrorGroupRecord]:
    """The groups by id, the one seen last first. is_wanted: tells by queue and tasks which errors count. now:
    microseconds. deploys: the newest first. StoreError; PartlyUnavailable, with those of the others, if one is away."""

    def records_of(cells: Mapping[Place, bytes]) -> dict[str, ErrorGroupRecord]:
        found: dict[str, dict[str, ErrorGroup]] = {}
        for place, cell in cells.items():
            group = decode_group(cell)
            if is_wanted(place.queue, group.tasks):
                found.setdefault(place.task, {})[place.queue] = group
        records = [_record(id, queues, now, deploys) for id, queues in found.items()]
        return {record.id: record for record in sorted(records, key=lambda one: one.last, reverse=True)}

    return made_of(lambda: history.read(ERRORS, 0, 1), records_of)


def unsummed_places(history: StoreHistory, id: str) -> set[tuple[str, str]] | None:
    """In which queues and tasks such an error was seen, of those that are not summed up yet; None: they are too many to
    look through, or some cannot be reached. StoreError."""
    records, away = partial_result(lambda: history.unsummed(_MOST_UNSUMMED))
    if away is not None or len(records) == _MOST_UNSUMMED:
        return None
    seen = (error for record in records for error, _ in read_record(record).errors)
    return {(error.queue, error.task) for error in seen if error.fingerprint == id}


def _record(id: str, queues: Mapping[str, ErrorGroup], now: int, deploys: Sequence[Deploy]) -> ErrorGroupRecord:
    counts = {queue: group.count for queue, group in queues.items() if queue != OTHERS}
    group = sum_queues(queues.values())
    began = deploy_of(group.began, deploys)
    return ErrorGroupRecord(
        id=id,
        type=group.type,
        message=group.message,
        place=group.place,
        count=group.count,
        first=group.first / SECOND,
        last=group.last / SECOND,
        began_on=without_door(group.began).partition("|")[0],
        deploy=None if began is None else deploy_record(began),
        tasks=dict(Counter(group.tasks).most_common()),
        queues=dict(Counter(counts).most_common()),
        job=ids.text(group.job) if len(group.job) == 16 else None,
        is_muted=group.is_muted,
        hours=_last_hours(group, now),
    )


def _last_hours(group: ErrorGroup, now: int) -> list[int]:
    length = LENGTH[HOURS]
    present = now // SECOND // length * length
    return [group.hours.get(present - back * length, 0) for back in reversed(range(SHOWN_HOURS))]
