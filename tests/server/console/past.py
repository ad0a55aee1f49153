"""A plausible month, written into a store's history as a keeper would have."""

import math
import random
from collections import Counter
from collections.abc import Mapping

from tarry.model.change import DEAD, DONE, FAILED, PUT
from tarry.model.duration import SECOND
from tarry.model.history.buckets import bucket_of
from tarry.store.rules.base import Store
from tarry.store.rules.history.gauges import QueueSample, sampled_cells
from tarry.store.rules.history.history import JournalHistory, Taken
from tarry.store.rules.history.sums import DAYS, KEPT, LENGTH, TOTALS, Place, Sums, merge

_TRIES = 10_000
_DAY = 86400


def _buckets(mean: float, deviation: float) -> tuple[list[int], list[int]]:
    """Those of durations as they usually are, and of six times as long ones: of millions, drawn one by one, most of the
    time would go into logarithms."""
    dice = random.Random(3)
    durations = [dice.lognormvariate(mean, deviation) for _ in range(2000)]
    usual, slow = ([bucket_of(round(each * times * SECOND)) for each in durations] for times in (1, 6))
    return usual, slow


_WAITED, _RAN = _buckets(-3.5, 0.9), _buckets(-1.2, 0.7)


def write_sums(store: Store, added: Mapping[Place, Sums]) -> None:
    """Adds these sums, whoever sums up the journal meanwhile."""
    history = store.history
    assert isinstance(history, JournalHistory)
    there: dict[Place, bytes] = {}
    for resolution, start in {place[:2] for place in added}:
        there |= history.read(resolution, start, start + 1)
    _fold(history, merge(added, there))


def _fold(history: JournalHistory, cells: Mapping[Place, bytes]) -> None:
    assert any(history.fold(Taken(number, (), ()), cells) for number in range(_TRIES))


def write_samples(store: Store, queues: Mapping[str, int], now: int, days: int = 30) -> None:
    """So many ready jobs of each queue at the worst, sampled each minute of the last day and each hour before."""
    history = store.history
    assert isinstance(history, JournalHistory)
    latest = now // 60 * 60
    times = [*range(latest - days * _DAY, latest - _DAY, 3600), *range(latest - _DAY + 60, latest + 1, 60)]
    cells = {place: cell for resolution in LENGTH for place, cell in history.read(resolution, 0, now + 1).items()}
    found: dict[tuple[int, int], dict[Place, bytes]] = {}
    for place, cell in cells.items():
        found.setdefault(place[:2], {})[place] = cell
    dice = random.Random(2)
    for second in times:
        there: dict[Place, bytes] = {}
        for resolution, length in LENGTH.items():
            there |= found.get((resolution, second // length * length), {})
        for place, cell in sampled_cells(_samples(dice, queues, second), second, there).items():
            found.setdefault(place[:2], {})[place] = cell
    _fold(history, {place: cell for each in found.values() for place, cell in each.items()})


def _samples(dice: random.Random, queues: Mapping[str, int], second: int) -> dict[str, QueueSample]:
    """Twice an hour a queue fills, and empties again."""
    height = max(0.0, 1 - abs(second // 60 % 30 - 9) / 7)
    sizes = {queue: round(most * height * dice.uniform(0.7, 1)) for queue, most in queues.items()}
    return {queue: QueueSample(size, round(height * 240 * SECOND)) for queue, size in sizes.items() if size}


def write_month(store: Store, tasks: Mapping[tuple[str, str], float], now: int, days: int = 30) -> None:
    """So many jobs a minute of each queue and task, at noon; fewer at night. now: seconds since the epoch."""
    dice = random.Random(1)
    sums: dict[Place, Sums] = {}
    for (queue, task), rate in tasks.items():
        for resolution, length in LENGTH.items():
            latest = now // length * length
            for start in range(max(latest - days * _DAY, latest - KEPT[resolution] + length), latest + 1, length):
                share = (now - start) / length if start == latest else 1
                sums[Place(resolution, start, queue, task)] = _sums(dice, rate * length / 60 * share, start, length)
    for place, day in list(sums.items()):
        if place.resolution == DAYS:
            sums.setdefault(Place(TOTALS, 0, place.queue, place.task), Sums()).add(day)
    write_sums(store, sums)


def _sums(dice: random.Random, usual: float, start: int, length: int) -> Sums:
    # A day has the mean of its hours.
    daily = 0.675 if length == _DAY else 0.35 + 0.65 * math.sin(math.pi * (start % _DAY) / _DAY) ** 2
    put = max(0, round(dice.gauss(usual * daily, (usual * daily) ** 0.5)))
    # Twice an hour something is slow, and some attempts fail.
    is_bad = start // 60 % 30 in (7, 8)
    failed, dead = round(put * (0.12 if is_bad else 0.01)), round(put * (0.02 if is_bad else 0.001))
    done = max(0, put - dead)
    found = Sums({PUT: put, DONE: done, FAILED: failed, DEAD: dead})
    count = min(60, done + failed + dead)
    found.waited |= Counter(dice.choices(_WAITED[is_bad], k=count))
    found.ran |= Counter(dice.choices(_RAN[is_bad], k=count))
    found.statuses |= {200: done, 503: failed + dead}
    return found
