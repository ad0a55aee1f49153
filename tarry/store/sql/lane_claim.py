"""Chooses the jobs of a claim under limits: one algorithm for all SQL stores, over what each of them reads and writes.

First each want gets its count, then all wants share the rest of the claim. In a queue and band, the jobs without a lane
are one line and the lanes of each task are another; `merge_lines` chooses from these. A task divides its room evenly
among its lanes, beginning after the lane that was served last; where keys have weights of their own, it shares its
starts by weight (`rules.weights.weighted_turns`).
"""

# All lanes of a line are read together, so that a store behind a network needs few round trips.

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Generic

from msgspec.structs import replace

from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.store.rules.base import Want
from tarry.store.rules.lanes import (
    JobKey,
    Levels,
    count_by_level,
    earliest,
    lane_levels,
    limit_of,
    merge_lines,
    take_in_turn,
    turn_name,
    turn_order,
)
from tarry.store.rules.weights.weighted_task import WeightedTask
from tarry.store.rules.weights.weighted_turns import decode_turn, encode_lane
from tarry.store.shared.rate_corrections import RateRooms, correct_levels, count_costs
from tarry.store.sql.lane_reader import (
    Candidate,
    FoundLane,
    Lane,
    LaneRange,
    LaneReader,
    LaneState,
    LaneUse,
    Line,
    T,
    TaskLine,
)
from tarry.store.sql.lane_scan import EXAMINED, FEW_FULL, LaneScan

_FEW = 64
"""Up to so many open lanes of a task are all read, where keys have weights."""
_DEALS = 4
"""So often starts are dealt by weight; the last time each lane may have all that the others left."""


def claim_in_lanes(reader: LaneReader[T], wants: Sequence[Want], limit: int, now: int) -> int | None:
    """Claims at most `limit` jobs. If there are none: returns when a rate allows a start, 0 for at once, None for no
    rate."""
    lines = list(dict.fromkeys((want.queue, want.band) for want in wants))
    return _LaneClaim(reader, reader.look(lines), now).run(wants, limit)


class _LaneClaim(Generic[T]):
    """One claim. The jobs that it starts count for its later steps; it writes the levels at the end."""

    def __init__(self, reader: LaneReader[T], state: LaneState, now: int) -> None:
        self._reader, self._now = reader, now
        self._limits, self._known = state.limits, state.levels
        self._turns, self._next_open = state.turns, state.next_open
        self._weighted: dict[TaskLine, WeightedTask] = {}
        self._key_limits: dict[str, Limit] = {}
        self._levels = Levels(state.limits, state.levels, self._key_limits, now)
        self._use = LaneUse()
        self._exhausted: set[Line] = set()

    def run(self, wants: Sequence[Want], limit: int) -> int | None:
        started = 0
        for line, count in self._rounds(wants, limit):
            most = min(count, limit - started)
            # The second round asks the same lines again: one that gave less than asked for has no more.
            if most > 0 and line not in self._exhausted:
                started += self._take(line, most)
        self._keep_few_open()
        self._use.waits_for_ends = self._levels.again is None and not self._levels.is_rate_reached
        # Once and at the end, so that all lines need one round trip.
        self._reader.save(self._use)
        return None if started else earliest(self._levels.again, self._next_open)

    def _rounds(self, wants: Sequence[Want], limit: int) -> list[tuple[Line, int]]:
        """Whom to ask for how many: each line for its share, then all for the rest."""
        shares = [((want.queue, want.band), want.count) for want in wants]
        shares = [share for share in shares if self._reader.tasks(share[0]) is not None]
        rest = [(line, limit) for line, _ in shares]
        # A line that is alone need not be asked twice.
        return rest if len(set(rest)) == 1 else [*shares, *rest]

    def _keep_few_open(self) -> None:
        """Leaves full lanes open where a task has only a few of them."""
        # To close a lane and to open it again costs more than it does to look at it a few times.
        for place in [place for place, lanes in self._use.full.items() if len(lanes) <= FEW_FULL]:
            del self._use.full[place]

    def _take(self, line: Line, count: int) -> int:
        """Claims up to so many jobs of a line; how many it got."""
        tasks = self._reader.tasks(line)
        most = 0 if tasks is None else self._queue_room(line, tasks, count)
        chosen: list[T] = []
        if tasks is not None and most:
            lines = [*self._reader.open_fronts(line, most), *self._lane_fronts(line, tasks, most)]
            chosen = merge_lines(lines, most)
        if not most or len(chosen) < most:
            self._exhausted.add(line)
        return self._start(line, chosen) if chosen else 0

    def _queue_room(self, line: Line, tasks: Sequence[str], count: int) -> int:
        # `room` notes when the rate allows a start. Ask only where jobs wait: an empty queue must wake nobody then.
        name = QUEUE + line[0]
        if self._levels.has_room(name) or tasks or self._reader.has_open_jobs(line):
            return self._levels.room(name, count)
        return 0

    def _start(self, line: Line, chosen: Sequence[T]) -> int:
        costs = self._find_costs(line, chosen)
        got = self._reader.start(self._within_rates(chosen, costs) if costs else chosen)
        started = [self._reader.job_key(item) for item in got]
        for name, count in count_by_level(started, self._limits).items():
            limit = limit_of(name, self._limits, self._key_limits) or Limit()
            level = self._known.get(name, Level()).started(limit, count, self._now)
            self._known[name] = self._use.levels[name] = level
            self._use.started[name] += count
        self._count_costs((costs.get(id(item), 1), key) for item, key in zip(got, started, strict=True) if costs)
        self._note_turns(line, started)
        return len(started)

    def _note_turns(self, line: Line, started: Sequence[JobKey]) -> None:
        by_weight = {
            task: self._weighted[*line, task].start(lane)
            for _, task, lane in started
            if lane is not None and (*line, task) in self._weighted
        }
        # Of the others only the last lane counts.
        last = {task: lane for _, task, lane in started if lane is not None}
        for task, turn in ({task: encode_lane(lane) for task, lane in last.items()} | by_weight).items():
            self._turns[turn_name(*line, task)] = self._use.turns[turn_name(*line, task)] = turn

    def _find_costs(self, line: Line, chosen: Sequence[T]) -> dict[int, int]:
        """What jobs of a line cost, by the identity of the item, unless each costs one."""
        if not self._has_rate(line):
            return {}
        costs = self._reader.costs(chosen)
        return {} if max(costs) == 1 else {id(item): cost for item, cost in zip(chosen, costs, strict=True)}

    def _has_rate(self, line: Line) -> bool:
        names = [QUEUE + line[0], *(kind + task for task in self._reader.tasks(line) or () for kind in (TASK, EACH))]
        found = [limit for name in names if (limit := self._limits.get(name)) is not None]
        return any(limit.count or limit.has_key_limits for limit in found)

    def _within_rates(self, chosen: Sequence[T], costs: Mapping[int, int]) -> list[T]:
        """Those that rates let start in one claim."""
        rooms = RateRooms(self._limits, self._key_limits, self._known, self._now)
        return [item for item in chosen if rooms.take(self._reader.job_key(item), costs[id(item)])]

    def _count_costs(self, started: Iterable[tuple[int, JobKey]]) -> None:
        costs = count_costs(started, self._limits)
        levels = correct_levels(costs, self._limits, self._key_limits, self._known, self._now)
        self._known.update(levels)
        self._use.levels |= levels

    def _lane_fronts(self, line: Line, tasks: Sequence[str], most: int) -> list[Sequence[Candidate[T]]]:
        """For each task, as many jobs as may start, from its lanes in turn."""
        rooms = {task: room for task in tasks if (room := self._levels.room(TASK + task, most))}
        weighted = {task: room for task, room in rooms.items() if self._has_weights(line, task)}
        fronts = self._equal_fronts(line, {task: room for task, room in rooms.items() if task not in weighted})
        fronts |= {task: self._weighted_front(line, task, room) for task, room in weighted.items()}
        return [fronts[task] for task in rooms]

    def _equal_fronts(self, line: Line, rooms: Mapping[str, int]) -> dict[str, Sequence[Candidate[T]]]:
        """Of tasks whose lanes have equal turns."""
        lanes = self._lanes_with_room(line, rooms)
        # Equal shares, rounded up, so that few lanes still fill the room of the task.
        shares = {task: -(-rooms[task] // len(found)) for task, found in lanes.items() if found}
        asked = {(task, lane): min(room, shares[task]) for task, found in lanes.items() for lane, room in found}
        fronts = self._reader.lane_fronts(line, asked) if asked else {}
        short = [t for t, found in lanes.items() if sum(len(fronts[t, lane]) for lane, _ in found) < rooms[t]]
        # Lanes with few jobs leave a part of their share to the others.
        more = {(t, lane): room for t in short for lane, room in lanes[t] if len(fronts[t, lane]) == shares[t] < room}
        if more:
            fronts |= self._reader.lane_fronts(line, more)
        self._note_short(line, fronts, asked | more)
        return {t: take_in_turn([fronts[t, lane] for lane, _ in found], rooms[t]) for t, found in lanes.items()}

    def _has_weights(self, line: Line, task: str) -> bool:
        each = self._limits.get(EACH + task)
        if each is None or not each.has_weights:
            return False
        if (*line, task) not in self._weighted:
            turn = self._turns.get(turn_name(*line, task))
            self._weighted[*line, task] = WeightedTask(self._reader.weights(task), each.weight, turn)
        return True

    def _weighted_front(self, line: Line, task: str, most: int) -> Sequence[Candidate[T]]:
        """As many jobs as may start of a task of which keys have weights."""
        own, others, size = self._lanes_by_weight(line, task, most)
        front = self._deal_front(line, task, own, others or (), size, most)
        if others is None and len(front) < most:
            others = self._lanes_with_room(line, {task: most})[task]
            front = self._deal_front(line, task, own, others, size, most)
        return front

    def _deal_front(
        self, line: Line, task: str, own: Mapping[str, int], others: Sequence[tuple[str, int]], size: int, most: int
    ) -> Sequence[Candidate[T]]:
        """As many jobs as may start of these lanes, each with its room."""
        left = {(task, lane): room for lane, room in [*own.items(), *others]}
        fronts: dict[Lane, Sequence[Candidate[T]]] = dict.fromkeys(left, ())
        asked: dict[Lane, int] = {}
        # Some give less than their part, and what they leave is dealt anew: to read all that each has room for would
        # be very many jobs.
        for number in range(_DEALS):
            gap = most - sum(map(len, fronts.values()))
            if number < _DEALS - 1:
                wanted = _deal(self._weighted[*line, task], left, size, most)
            else:
                wanted = {lane: min(room, asked.get(lane, 0) + gap) for lane, room in left.items()}
            more = {lane: count for lane, count in wanted.items() if count > asked.get(lane, 0)}
            if gap <= 0 or not more:
                break
            fronts |= self._fronts(line, more)
            asked |= more
            left |= {lane: len(fronts[lane]) for lane, count in more.items() if len(fronts[lane]) < count}
        self._note_short(line, fronts, asked)
        return self._weighted[*line, task].merge({lane: front for (_, lane), front in fronts.items()}, size, most)

    def _fronts(self, line: Line, counts: Mapping[Lane, int]) -> dict[Lane, Sequence[Candidate[T]]]:
        asked = {lane: most for lane, most in counts.items() if most}
        found = self._reader.lane_fronts(line, asked) if asked else {}
        return {lane: found.get(lane, ()) for lane in counts}

    def _lanes_by_weight(
        self, line: Line, task: str, most: int
    ) -> tuple[dict[str, int], Sequence[tuple[str, int]] | None, int]:
        """Lanes with room, and how much: those with weights of their own, some of the others from the one whose turn it
        is, and how many others there are. None: the others were not read, since it is not their turn."""
        turns = self._weighted[*line, task]
        # Of many lanes a claim cannot see how many there are: as many as the last round had. The first claim counts.
        most_read = _FEW if turns.state.size else EXAMINED
        few = self._reader.lanes(line, {task: LaneRange(None, None, most_read + 1)})[task]
        if len(few) <= _FEW:
            key = turn_order(turns.state.lane)
            found = self._with_room(line, task, sorted(few, key=lambda lane: key(lane.name)), most)
            others = [(lane, room) for lane, room in found if lane not in turns.weights]
            return {lane: room for lane, room in found if lane in turns.weights}, others, len(others)
        self._count_others(line, task, few)
        size, own = max(turns.state.size, turns.state.passed), self._own_with_room(line, task, most)
        # The others are among those with weights, which may be many: they are read only where it is their turn.
        rooms = dict[str | None, int]([*own.items(), (None, most)])
        is_theirs = None in islice(turns.in_turn(rooms, size), most)
        return own, self._lanes_with_room(line, {task: most})[task] if is_theirs else None, size

    def _own_with_room(self, line: Line, task: str, most: int) -> dict[str, int]:
        """The first lanes with weights of their own that have room, by their next start, and how much."""
        # Behind as many lanes as there are starts, none can start.
        names, own, at = self._weighted[*line, task].in_order(), dict[str, int](), 0
        step = max(_FEW, most)
        while at < len(names) and len(own) < most:
            named = self._reader.named_lanes(line, task, names[at : at + step])
            own |= dict(self._with_room(line, task, named, most))
            at, step = at + step, 4 * step
        return own

    def _count_others(self, line: Line, task: str, read: Sequence[FoundLane]) -> None:
        """Notes how many lanes have no weight of their own, if that is not known. read: the first lanes."""
        turns = self._weighted[*line, task]
        if turns.state.size:
            return
        names = [lane.name for lane in read if lane.name not in turns.weights]
        if len(read) > EXAMINED and len(names) < EXAMINED:
            # Lanes with weights, of which there may be as many, stand before them.
            behind = LaneRange(read[-1].name, None, len(turns.weights))
            found = self._reader.lanes(line, {task: behind})[task]
            names += [lane.name for lane in found if lane.name not in turns.weights]
        # The round may have begun in the middle: its end would else take its part for the whole.
        passed = sum(turns.state.lane is not None and name <= turns.state.lane for name in names)
        turns.state = replace(turns.state, size=max(1, len(names)), passed=passed)

    def _with_room(self, line: Line, task: str, lanes: Sequence[FoundLane], most: int) -> Sequence[tuple[str, int]]:
        """Those of these lanes that have room, and how much."""
        scan = LaneScan(None, most, len(lanes) + 1, has_weighted=True)
        self._read_limits({task: lanes})
        self._examine((*line, task), scan, lanes)
        return scan.found

    def _note_short(self, line: Line, fronts: Mapping[Lane, Sequence[Candidate[T]]], asked: Mapping[Lane, int]) -> None:
        # Of many the others are left until their next turn: to look into each would cost a part of the claim.
        looks = len(asked) <= FEW_FULL
        short = [
            lane
            for lane, most in asked.items()
            if (looks or len(fronts[lane]) < most) and EACH + lane[0] in self._limits
        ]
        for task, lane in short:
            self._use.drained[*line, task].add(lane)
        if short and not any(fronts.values()):
            # These lanes are empty and `save` removes them, but others may follow: come again at once.
            self._levels.again = 0

    def _lanes_with_room(self, line: Line, rooms: Mapping[str, int]) -> dict[str, list[tuple[str, int]]]:
        """Lanes of each task, each with its room: enough to fill the room of the task, if there are that many."""
        scans = {task: LaneScan(self._last_lane(line, task), room) for task, room in rooms.items()}
        while going := {task: scan for task, scan in scans.items() if not scan.ended}:
            found = self._read_lanes(line, going)
            self._read_limits(found)
            for task, scan in going.items():
                self._examine((*line, task), scan, found[task])
        return {task: scan.found for task, scan in scans.items()}

    def _last_lane(self, line: Line, task: str) -> str | None:
        return decode_turn(self._turns.get(turn_name(*line, task))).lane

    def _read_limits(self, found: Mapping[str, Sequence[FoundLane]]) -> None:
        """Reads what `_examine` needs of these lanes, by task."""
        limited = [task for task in found if EACH + task in self._limits]
        names = {task: [lane_levels(EACH + task) + lane.name for lane in found[task]] for task in limited}
        self._read_levels([name for some in names.values() for name in some])
        own = [task for task in limited if self._limits[EACH + task].has_key_limits]
        if own:
            self._key_limits.update(self._reader.key_limits([name for task in own for name in names[task]]))

    def _read_lanes(self, line: Line, scans: Mapping[str, "LaneScan"]) -> dict[str, list[FoundLane]]:
        found: dict[str, list[FoundLane]] = {task: [] for task in scans}
        stretches = {task: scan.next_stretch() for task, scan in scans.items()}
        while stretches:
            for task, lanes in self._reader.lanes(line, stretches).items():
                scans[task].advance(lanes)
                found[task] += lanes
            stretches = {task: scans[task].stretch for task in stretches if not scans[task].has_read_stretch}
        return found

    def _read_levels(self, names: Sequence[str]) -> None:
        # Known levels count what this claim has started, so they must not be read again.
        wanted = [name for name in names if name not in self._known]
        if wanted:
            levels, unused = self._reader.lane_levels(wanted), Level()
            self._known.update({name: levels.get(name, unused) for name in wanted})

    def _examine(self, place: TaskLine, scan: "LaneScan", lanes: Sequence[FoundLane]) -> None:
        """Adds lanes with room to the scan, and notes the others."""
        task = place[-1]
        each, of_lanes = self._limits.get(EACH + task), lane_levels(EACH + task)
        passed = self._weighted[place].weights if place in self._weighted and not scan.has_weighted else ()
        for lane in lanes:
            if scan.is_full:
                break
            if lane.name in passed:
                scan.passed += 1
                continue
            name = of_lanes + lane.name
            limit = each if each is None or not self._key_limits else self._key_limits.get(name, each)
            room = scan.most if limit is None else self._levels.room_under(limit, name, scan.most)
            if limit is None or (room and lane.has_jobs):
                scan.found.append((lane.name, room))
                continue
            scan.rejected += 1
            # A full lane is closed until it has room, so that later claims need not read it; an empty one is removed.
            if lane.has_jobs:
                self._use.full[place][lane.name] = self._known[name].again(limit, self._now)
            else:
                self._use.empty[place].add(lane.name)
        if scan.has_given_up:
            # Not all lanes were examined: come again at once.
            self._levels.again = 0


def _deal(turns: WeightedTask, left: Mapping[Lane, int], size: int, most: int) -> dict[Lane, int]:
    """How many of so many starts each of these lanes has by weight. left: how many it may have."""
    others = sorted(room for (_, lane), room in left.items() if lane not in turns.weights)
    rooms: dict[str | None, int] = {lane: room for (_, lane), room in left.items() if lane in turns.weights}
    rooms[None] = sum(others)
    starts = Counter(islice(turns.in_turn(rooms, size), most))
    share = _equal_share(others, starts[None])
    return {
        (task, lane): starts[lane] if lane in turns.weights else min(room, share) for (task, lane), room in left.items()
    }


def _equal_share(rooms: Sequence[int], count: int) -> int:
    """How many each has at most, where so many starts are shared equally. rooms: in order, the smallest first."""
    for number, room in enumerate(rooms):
        share = -(-count // (len(rooms) - number))
        if room >= share:
            return share
        count -= room
    return rooms[-1] if rooms else 0
