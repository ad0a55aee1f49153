"""The limits of the reference store, and how far each is used. Its caller has the store's lock."""

from collections.abc import Iterable, Mapping, Sequence

from tarry.model.change import Change
from tarry.model.job import Job
from tarry.model.limit import EACH, KeyLimit, Level, Limit
from tarry.model.overrides import cost_of
from tarry.store.memory.index import NamedValues
from tarry.store.rules import kept_places, key_limits, lanes
from tarry.store.rules.base import PlaceAnswer, ShareChange
from tarry.store.rules.lanes import EndedAttempt, JobKey, count_by_level, limit_name, limit_of, taken_levels
from tarry.store.shared import rate_corrections


class MemoryLimits:
    """leases: until when the lease of each owner runs. cells: have the places that attempts keep."""

    def __init__(self, leases: Mapping[str, int], cells: NamedValues) -> None:
        self.limits: dict[str, Limit] = {}
        self.levels: dict[str, Level] = {}
        self.key_limits: dict[str, Limit] = {}
        """Those that hold for single keys, by the names of their levels."""
        self._leases, self._cells = leases, cells

    def set_limit(self, name: str, limit: Limit | None) -> bool:
        """Sets or lifts a limit; whether what runs has to be counted anew."""
        prefix = key_limits.prefix_of(name.removeprefix(EACH))
        if name.startswith(EACH):
            has_key_limits = bool(self._cells.with_prefix(prefix))
            limit = key_limits.for_each(limit, has_key_limits, bool(self.weights(name.removeprefix(EACH))))
        was = self.limits.pop(name, None)
        if limit is not None:
            self.limits[name] = limit
        self.key_limits = key_limits.effective(self._cells.with_prefix(key_limits.PREFIX).items(), self.limits)
        # A limit that only changes keeps its levels: what runs is counted already.
        return was is None or limit is None

    def change_share(self, change: ShareChange, now: int) -> bool:
        """As `Store.change_shares`, for one."""
        name = change.name
        if self.limits.get(name) != change.was:
            return False
        self.limits[name] = change.limit
        self.levels[name] = self.levels.get(name, Level()).with_moved(change.limit, change.used, now)
        return True

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> bool:
        """As `Store.limit_key`; the answer is that of `set_limit`."""
        self._cells.put(key_limits.value_name(task, lane), None if limit is None else key_limits.encode(limit))
        weights = key_limits.WEIGHTS + task
        self._cells.put(weights, key_limits.changed_weights(self._cells.get(weights), lane, limit))
        each = self.limits.get(EACH + task)
        return self.set_limit(EACH + task, each and each.without_keys)

    def weights(self, task: str) -> Mapping[str, int]:
        """The weights that keys of the task have, by lane."""
        return key_limits.decode_weights(self._cells.get(key_limits.WEIGHTS + task))

    def within_rates(self, jobs: Iterable[Job], now: int) -> list[Job]:
        """Those of these jobs that rates let start in one claim."""
        rooms = rate_corrections.RateRooms(self.limits, self.key_limits, self.levels, now)
        return [job for job in jobs if rooms.take(_key(job), cost_of(job.headers))]

    def start(self, jobs: Sequence[Job], now: int) -> None:
        """Takes the places of these jobs."""
        for name, count in count_by_level(map(_key, jobs), self.limits).items():
            level = self.levels.get(name, Level())
            limit = limit_of(name, self.limits, self.key_limits) or Limit()
            self.levels[name] = level.started(limit, count, now)
        costs = rate_corrections.count_costs(((cost_of(job.headers), _key(job)) for job in jobs), self.limits)
        self.levels |= rate_corrections.correct_levels(costs, self.limits, self.key_limits, self.levels, now)

    def end(self, job: Job, change: Change, now: int) -> None:
        """Gives back the places of a job that ran; those of an attempt that goes on are kept."""
        if not change.keeps_places:
            self._lower([(change, _key(job))], now)
        else:
            kept = kept_places.places_to_keep([(change, _key(job))], self.limits, self._leases.get, now)
            for name, value in kept.items():
                self._cells.put(name, value)

    def free_kept(self, changes: Sequence[Change], valid: Sequence[bool], now: int) -> None:
        """Gives back the places of attempts that went on, and whose outcome came now."""
        given_up = kept_places.given_up(changes, valid)
        found = [(name, value) for name in given_up if (value := self._cells.get(name)) is not None]
        for name in given_up:
            self._cells.put(name, None)
        self._lower(kept_places.ended_by(given_up, found), now)

    def take_place(self, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        """As `Store.take_place`."""
        if self._cells.get(name) is not None:
            return PlaceAnswer(True)
        answer, raised = taken_levels(key, cost, self.limits, self.key_limits, self.levels, now)
        self.levels |= raised
        if answer.is_taken:
            self._cells.put(name, kept_places.KeptPlace(until, *key).encode())
        return answer

    def _lower(self, ended: Sequence[EndedAttempt], now: int) -> None:
        for name, count in count_by_level((key for _, key in ended), self.limits).items():
            self.levels[name] = self.levels.get(name, Level()).ended(count)
        corrections = rate_corrections.count_corrections(ended, self.limits)
        self.levels |= rate_corrections.correct_levels(corrections, self.limits, self.key_limits, self.levels, now)

    def count_anew(self, name: str, running: Iterable[Job]) -> None:
        """Counts what takes places under a new limit, or drops the levels of a lifted one."""
        # Without a limit nothing is counted.
        limit = self.limits.get(name)
        for level in [level for level in self.levels if limit_name(level) == name]:
            self.levels[level] = Level(0, self.levels[level].next)
            if limit is None:
                del self.levels[level]
        if limit is not None:
            self._set_running(count_by_level(self._counted_keys(running), {name: limit}))

    def recount(self, running: Iterable[Job]) -> int:
        """Counts anew what takes places; answers how many levels were wrong."""
        levels = {name: level.running for name, level in self.levels.items()}
        wrong = lanes.wrong_levels(self._counted_keys(running), self.limits, levels)
        self._set_running(wrong)
        return len(wrong)

    def _counted_keys(self, running: Iterable[Job]) -> list[JobKey]:
        return [*map(_key, running), *kept_places.job_keys(self._cells.with_prefix(kept_places.PREFIX).values())]

    def _set_running(self, counts: Mapping[str, int]) -> None:
        for name, running in counts.items():
            # Only the count: the time of a rate stays.
            self.levels[name] = Level(running, self.levels.get(name, Level()).next)


def _key(job: Job) -> JobKey:
    return job.queue, job.task, job.lane
