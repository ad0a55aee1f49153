"""Sets the worker counts of the pools: by hand, or from the backlogs that the keeper reports."""

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tarry.model.checks.decoders import convert_to
from tarry.model.quantity import jobs_wait, quantity
from tarry.runtime.autoscaler import FULL, MAX_WAIT, Autoscaler, PoolLoad, Range
from tarry.runtime.board.master_status import PoolStatus
from tarry.runtime.board.reader import SERVER
from tarry.runtime.process_group import ProcessGroup
from tarry.runtime.request_files import take_request

_SOONEST = 0.2  # Seconds between two measurements, at least: a shorter time says nothing about the load.
_SERVERS_EVERY = 1.0

_log = logging.getLogger("tarry.master")


class PoolScaler:
    """The scaling of all pools of one master. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._autoscalers: dict[str, Autoscaler] = {}
        self._measured_at: dict[str, float] = {}
        self._busy: dict[int, float] = {}
        """By pid: seconds of full use at the last measurement."""

    def change_by_hand(self, groups: Iterable[ProcessGroup], by: int, request: Path, now: float) -> None:
        """Scales the pool that a request in that file names; without such a file, the first pool by `by`."""
        named = {group.role.pool: group for group in groups}
        pool, wanted = take_request(request) or (next(iter(named), ""), None)
        if pool in named:
            self.set_by_hand(named[pool], by, wanted, now)

    def set_by_hand(self, group: ProcessGroup, by: int, wanted: int | None, now: float) -> None:
        """Sets a pool to `wanted`, or changes it by `by` if that is None. A pool with bounds stays within them."""
        pool, range = group.role.pool, group.role.range
        # A signal never takes a pool's last worker; that needs `tarry scale` with a number.
        count = max(1, group.wanted + by) if wanted is None else wanted
        if range is not None and range.clamp(count) != count:
            _log.warning(
                "pool %s: %s wanted; it has from %d to %d", pool, quantity(count, "worker"), range.least, range.most
            )
            return
        group.wanted = count
        if range is not None:
            self._autoscaler(pool).hold(now)
        _log.info("pool %s: %s wanted", pool, quantity(group.wanted, "worker"))

    def follow_backlogs(self, report: object, groups: Iterable[ProcessGroup], now: float) -> None:
        """Applies the keeper's report, `{pool: [waiting, seconds that the oldest has waited]}`; ignores others."""
        try:
            backlogs = convert_to(dict[str, tuple[int, float]], report)
        except msgspec.ValidationError:
            return
        for group in groups:
            pool, range = group.role.pool, group.role.range
            if range is not None and pool in backlogs and now - self._measured_at.get(pool, 0.0) >= _SOONEST:
                self._follow(group, range, self._measure(group, *backlogs[pool], now), now)

    def follow_servers(self, groups: Iterable[ProcessGroup], now: float) -> None:
        """Adds servers when all are full, of connections or of work, and takes one away when fewer will do."""
        for group in groups:
            range, last = group.role.range, self._measured_at.get(group.role.pool, 0.0)
            if group.role.name == SERVER and range is not None and now - last >= _SERVERS_EVERY:
                load = self._measure(group, 0, 0.0, now)
                if load.fill >= FULL:
                    # As many as there are could be needed: how many connections are still to come is not known.
                    load = replace(load, waiting=max(1, load.held), oldest=MAX_WAIT)
                self._follow(group, range, load, now)

    def _follow(self, group: ProcessGroup, range: Range, load: PoolLoad, now: float) -> None:
        wanted = self._autoscaler(group.role.pool).decide(now, group.wanted, range, load)
        if group.role.name == SERVER:
            why = "all are full" if wanted > group.wanted else "fewer will do"
        elif wanted > group.wanted:
            why = f"{jobs_wait(load.waiting)}, the first for {load.oldest:.1f} s"
        else:
            why = "fewer will do"
        if wanted != group.wanted:
            _log.info(
                "%s: %s wanted instead of %d: %s",
                *(_title(group), quantity(wanted, group.role.name), group.wanted, why),
            )
        group.wanted = wanted

    def _measure(self, group: ProcessGroup, waiting: int, oldest: float, now: float) -> PoolLoad:
        # A process that finishes its last jobs takes no waiting one.
        children = [child for child in group.children if child.pid and child.is_ready and not child.stopping_since]
        loaded = {child.pid: child.slot.load_figures(now) for child in children}
        since = self._measured_at.get(group.role.pool)
        self._measured_at[group.role.pool] = now
        fills = sum(fill for _, fill, _ in loaded.values())
        used = sum(busy - self._busy.get(pid, 0.0) for pid, (busy, _, _) in loaded.items())
        load = fills if since is None else max(0.0, min(float(len(children)), used / (now - since)))
        ours = {child.pid for child in group.children}
        self._busy = {pid: busy for pid, busy in self._busy.items() if pid not in ours}
        self._busy |= {pid: busy for pid, (busy, _, _) in loaded.items()}
        held = sum(held for _, _, held in loaded.values())
        return PoolLoad(len(children), fills / max(1, len(children)), load, held, waiting, oldest)

    def _autoscaler(self, pool: str) -> Autoscaler:
        return self._autoscalers.setdefault(pool, Autoscaler())


def _title(group: ProcessGroup) -> str:
    return f"pool {group.role.pool}" if group.role.pool else group.role.name


def pool_status(group: ProcessGroup) -> PoolStatus:
    """The group's pool as the scoreboard shows it."""
    range = group.role.range
    bounds = (0, 0) if range is None else (range.least, range.most)
    return PoolStatus(group.role.pool, group.wanted, group.failure, *bounds, dict(group.ends))
