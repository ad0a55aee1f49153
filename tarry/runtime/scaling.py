"""The counts of the pools: set by hand, or following the backlog that the keeper tells of."""

import logging
from collections.abc import Iterable

import msgspec

from tarry.model.quantity import jobs_wait, quantity
from tarry.runtime.autoscaler import Demand, Look, Range
from tarry.runtime.master_status import PoolStatus
from tarry.runtime.process_group import Crew

_SOONEST = 0.2
"""Seconds between two looks at least: over less than that nothing can be said of the load."""

_log = logging.getLogger("tarry.master")


class Scaling:
    """Of all pools of one master. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._demands: dict[str, Demand] = {}
        self._looked: dict[str, float] = {}
        self._busy: dict[int, float] = {}
        """By pid, seconds of full use at the last look."""

    def change(self, crew: Crew, by: int, wanted: int | None, now: float) -> None:
        """By hand: to that count, or else by so many; a pool that follows its backlog stays within its bounds."""
        pool, range = crew.role.pool, crew.role.range
        count = max(1, crew.wanted + by) if wanted is None else wanted
        if range is not None and range.nearest(count) != count:
            _log.warning(
                "pool %s: %s wanted; it has from %d to %d", pool, quantity(count, "worker"), range.least, range.most
            )
            return
        crew.wanted = count
        if range is not None:
            self._demand(pool).set_by_hand(now)
        _log.info("pool %s: %s wanted", pool, quantity(crew.wanted, "worker"))

    def heard(self, told: object, crews: Iterable[Crew], now: float) -> None:
        """What the keeper says: `{pool: [waiting, seconds that the oldest has waited]}`. Anything else says nothing."""
        try:
            backlogs = msgspec.convert(told, dict[str, tuple[int, float]])
        except msgspec.ValidationError:
            return
        for crew in crews:
            pool, range = crew.role.pool, crew.role.range
            if range is not None and pool in backlogs and now - self._looked.get(pool, 0.0) >= _SOONEST:
                self._follow(crew, range, self._look(crew, *backlogs[pool], now), now)

    def _follow(self, crew: Crew, range: Range, look: Look, now: float) -> None:
        wanted = self._demand(crew.role.pool).wanted(now, crew.wanted, range, look)
        if wanted > crew.wanted:
            why = f"{jobs_wait(look.waiting)}, the first for {look.oldest:.1f} s"
        else:
            why = "fewer will do"
        if wanted != crew.wanted:
            _log.info(
                "pool %s: %s wanted instead of %d: %s", crew.role.pool, quantity(wanted, "worker"), crew.wanted, why
            )
        crew.wanted = wanted

    def _look(self, crew: Crew, waiting: int, oldest: float, now: float) -> Look:
        seats = [seat for seat in crew.seats if seat.pid and seat.ready and not seat.asked]
        loaded = {seat.pid: seat.slot.loaded(now) for seat in seats}
        since = self._looked.get(crew.role.pool)
        self._looked[crew.role.pool] = now
        fills = sum(fill for _, fill, _ in loaded.values())
        used = sum(busy - self._busy.get(pid, 0.0) for pid, (busy, _, _) in loaded.items())
        load = fills if since is None else max(0.0, min(float(len(seats)), used / (now - since)))
        ours = {seat.pid for seat in crew.seats}
        self._busy = {pid: busy for pid, busy in self._busy.items() if pid not in ours}
        self._busy |= {pid: busy for pid, (busy, _, _) in loaded.items()}
        held = sum(held for _, _, held in loaded.values())
        return Look(len(seats), fills / max(1, len(seats)), load, held, waiting, oldest)

    def _demand(self, pool: str) -> Demand:
        return self._demands.setdefault(pool, Demand())


def pool_status(crew: Crew) -> PoolStatus:
    """As others see it."""
    range = crew.role.range
    bounds = (0, 0) if range is None else (range.least, range.most)
    return PoolStatus(crew.role.pool, crew.wanted, crew.failed, *bounds)
