"""What the script `insert` is told."""

from collections.abc import Iterator, Sequence

from tarry.model.job import Job
from tarry.model.lifecycle import is_late
from tarry.store.redis.link import Word
from tarry.store.redis.record import CODE, entries, is_plain, line, named, record, size_of

_WIDTH = {"h": 30, "n": 24, "l": 30, "H": 30, "N": 24, "L": 30, "d": 24}
"""Bytes of an entry, by the first letter of its line."""


def parts(jobs: Sequence[Job], most: int, size: int) -> Iterator[Sequence[Job]]:
    """The jobs in parts of at most so many jobs and, if more than one, about so many bytes of arguments."""
    start = weight = 0
    for number, job in enumerate(jobs):
        weight += len(job.body)
        if number > start and (number - start == most or weight > size):
            yield jobs[start:number]
            start, weight = number, len(job.body)
    if start < len(jobs):
        yield jobs[start:]


def words(jobs: Sequence[Job]) -> list[Word]:
    """The arguments: the jobs, and what they come to if they are all new."""
    stored: list[Word] = []
    for job in jobs:
        stored += (job.id, record(job))
    plain = all(map(is_plain, jobs)) and len({job.id for job in jobs}) == len(jobs)
    return [int(plain), len(jobs), *stored, *(_sums(jobs) if plain else ())]


def _sums(jobs: Sequence[Job]) -> Iterator[Word]:
    alike: dict[tuple[str, int, str, str, bool], list[Job]] = {}
    for job in jobs:
        late = is_late(job.due, job.since)
        alike.setdefault((job.state, job.priority, job.queue, job.task, late), []).append(job)
    lines: dict[str, list[bytes]] = {}
    tallies: dict[bytes, tuple[int, int]] = {}
    for group in alike.values():
        first = group[0]
        lines.setdefault(line(first), []).extend(entries(group))
        field = b"%d%b" % (CODE[first.state], named(first.queue, first.task))
        count, size = tallies.get(field, (0, 0))
        tallies[field] = count + len(group), size + sum(map(size_of, group))
    yield len(lines)
    for name, places in lines.items():
        yield from (name, _WIDTH[name[0]], b"".join(sorted(places)))
    yield b"".join(sorted([job.id for job in jobs]))
    yield len(tallies)
    for field, (count, size) in tallies.items():
        yield from (field, count, size)
