"""The arguments of the script `insert`."""

from collections.abc import Iterator, Mapping, Sequence

from tarry.model.bound import Bound, KeyBounds
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.lifecycle import is_late
from tarry.store.redis.changes import pack_changes
from tarry.store.redis.link.base import Word
from tarry.store.redis.record import STATE_BYTE, is_plain, join_names, line_entries, line_name, pack_job, size_of
from tarry.store.rules.history.journal import record_of_new
from tarry.store.rules.kept_places import name_for, place_of

_WIDTH = {"h": 30, "n": 24, "l": 30, "H": 30, "N": 24, "L": 30, "d": 24}
"""Bytes of an entry, by the first letter of its line: due 8, id 16; before them `claim_order` of 6 where priorities
differ."""


def split_jobs(jobs: Sequence[Job], most: int, size: int) -> Iterator[Sequence[Job]]:
    """The jobs in parts of at most so many jobs and about so many bytes of arguments; a part has at least one job."""
    start = weight = 0
    for number, job in enumerate(jobs):
        weight += len(job.body)
        if number > start and (number - start == most or weight > size):
            yield jobs[start:number]
            start, weight = number, len(job.body)
    if start < len(jobs):
        yield jobs[start:]


def insert_arguments(jobs: Sequence[Job]) -> list[Word]:
    """The jobs; if all are plain also the sums that the script writes if they are all new."""
    if len(jobs) == 1 and is_plain(jobs[0]) and jobs[0].state is not State.BLOCKED:
        return _single(jobs[0])
    stored: list[Word] = []
    for job in jobs:
        stored += (job.id, pack_job(job))
    # An id that comes twice is one job, and the sums would count it twice.
    plain = all(map(is_plain, jobs)) and len({job.id for job in jobs}) == len(jobs)
    return [int(plain), len(jobs), *stored, *(_sums(jobs) if plain else ()), record_of_new(jobs)]


def bounded_arguments(jobs: Sequence[Job], bounds: Mapping[str, Bound], key_bounds: KeyBounds) -> list[Word]:
    """The jobs, and of each bounded queue and key how many of its jobs may wait."""
    stored: list[Word] = []
    for job in jobs:
        stored += (job.id, pack_job(job))
    used = sorted({job.queue for job in jobs} & bounds.keys())
    most = [word for name in used if bounds[name].most for word in (name, bounds[name].most)]
    keys = sorted({(job.queue, job.task, job.lane) for job in jobs if job.lane is not None} if key_bounds else ())
    of_keys = [word for key in keys if (bound := key_bounds.get(key[1:])) is not None for word in (*key, bound)]
    return [0, len(jobs), *stored, len(most) // 2, *most, *of_keys, record_of_new(jobs)]


def supersede_arguments(change: Change, job: Job, now: int) -> list[Word]:
    """The arguments of the script `supersede`."""
    packed = pack_changes([change])
    ended: list[Word] = [now, *packed.descriptions, change.id, packed.record]
    place = name_for(change) if change.keeps_places else "", change.owner, place_of(change, now).names
    return [*ended, *place, job.id, pack_job(job), record_of_new((job,))]


def _single(job: Job) -> list[Word]:
    (entry,) = line_entries([job])
    return [2, 1, job.id, pack_job(job), line_name(job), entry, _tally_field(job), size_of(job), record_of_new((job,))]


def _tally_field(job: Job) -> bytes:
    return b"%d%b" % (STATE_BYTE[job.state], join_names(job.queue, job.task))


def _sums(jobs: Sequence[Job]) -> Iterator[Word]:
    # Computed here, since the server does nothing else while a script runs.
    alike: dict[tuple[str, int, str, str, bool], list[Job]] = {}
    for job in jobs:
        late = is_late(job.due, job.state_since)
        alike.setdefault((job.state, job.priority, job.queue, job.task, late), []).append(job)
    lines: dict[str, list[bytes]] = {}
    tallies: dict[bytes, tuple[int, int]] = {}
    for group in alike.values():
        first = group[0]
        if first.state is not State.BLOCKED:
            lines.setdefault(line_name(first), []).extend(line_entries(group))
        field = _tally_field(first)
        count, size = tallies.get(field, (0, 0))
        tallies[field] = count + len(group), size + sum(map(size_of, group))
    yield len(lines)
    for name, places in lines.items():
        yield from (name, _WIDTH[name[0]], b"".join(sorted(places)))
    yield b"".join(sorted([job.id for job in jobs]))
    yield len(tallies)
    for field, (count, size) in tallies.items():
        yield from (field, count, size)
