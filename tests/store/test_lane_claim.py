"""Which lanes a claim reads, and how often, over a reader that keeps lanes in a dict."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from tarry.model.limit import Level, Limit
from tarry.store.rules.base import Want
from tarry.store.rules.lanes import JobKey, lane_level, turn_name
from tarry.store.sql.lane_claim import claim_in_lanes
from tarry.store.sql.lane_reader import Candidate, FoundLane, Lane, LaneRange, LaneReader, LaneState, LaneUse, Line
from tarry.store.sql.lane_scan import EXAMINED, FEW_FULL, FULL

NOW = 1_800_000_000_000_000
TURN = turn_name("a", 0, "mail")
WANTS = [Want("a", 0, 10**6)]


class FakeReader(LaneReader[JobKey]):
    """One task, `mail`, in one queue. jobs: how many wait in each lane; running: how many run of it."""

    def __init__(self, jobs: dict[str, int], running: dict[str, int], most: int, turn: str | None = None) -> None:
        self.jobs, self.running, self.most, self.turn = jobs, running, most, turn
        self.calls = Counter[str]()
        self.started: list[str | None] = []
        self.use = LaneUse()

    def look(self, lines: Sequence[Line]) -> LaneState:
        return LaneState({"each:mail": Limit(self.most)}, {}, {TURN: self.turn})

    def tasks(self, line: Line) -> list[str]:
        return ["mail"]

    def has_open_jobs(self, line: Line) -> bool:
        return False

    def open_fronts(self, line: Line, most: int) -> list[list[Candidate[JobKey]]]:
        return [[], []]

    def lanes(self, line: Line, stretches: Mapping[str, LaneRange]) -> dict[str, list[FoundLane]]:
        self.calls["lanes"] += 1
        one = stretches["mail"]
        names = [name for name in sorted(self.jobs) if one.after is None or name > one.after]
        return {"mail": [FoundLane(name) for name in names if one.last is None or name <= one.last][: one.count]}

    def lane_levels(self, names: Sequence[str]) -> dict[str, Level]:
        self.calls["levels"] += 1
        return {lane_level("mail", lane): Level(count) for lane, count in self.running.items()}

    def key_limits(self, names: Sequence[str]) -> dict[str, Limit]:
        return {}

    def weights(self, task: str) -> dict[str, int]:
        return {}

    def named_lanes(self, line: Line, task: str, lanes: Sequence[str]) -> list[FoundLane]:
        return [FoundLane(lane) for lane in lanes if lane in self.jobs]

    def lane_fronts(self, line: Line, counts: Mapping[Lane, int]) -> dict[Lane, Sequence[Candidate[JobKey]]]:
        self.calls["fronts"] += 1
        return {(task, lane): self._front(lane, most) for (task, lane), most in counts.items()}

    def _front(self, lane: str, most: int) -> list[Candidate[JobKey]]:
        return [((0, n, False, bytes([n])), ("a", "mail", lane)) for n in range(min(self.jobs[lane], most))]

    def costs(self, items: Sequence[JobKey]) -> Sequence[int]:
        return [1] * len(items)

    def job_key(self, item: JobKey) -> JobKey:
        return item

    def start(self, items: Sequence[JobKey]) -> Sequence[JobKey]:
        for _, _, lane in items:
            assert lane is not None
            self.jobs[lane] -= 1
            self.started.append(lane)
        return items

    def save(self, use: LaneUse) -> None:
        self.use = use


def test_lanes_are_served_in_a_circle_after_the_last_one() -> None:
    reader = FakeReader({"a": 2, "b": 2, "c": 2, "d": 2}, {}, 10, turn="b")
    assert claim_in_lanes(reader, WANTS, 4, NOW) is None
    assert reader.started == ["c", "d", "a", "b"]
    assert reader.use.turns == {TURN: "b"}
    assert reader.calls == {"lanes": 2, "levels": 1, "fronts": 1}


def test_what_a_short_lane_leaves_of_its_share_is_for_the_others() -> None:
    reader = FakeReader({"a": 9, "b": 1}, {}, 100)
    assert claim_in_lanes(reader, WANTS, 8, NOW) is None
    assert Counter(reader.started) == {"a": 7, "b": 1}
    assert reader.calls["fronts"] == 2
    assert reader.use.drained == {("a", 0, "mail"): {"a", "b"}}


def test_full_lanes_are_passed_by_and_noted() -> None:
    full = [f"a{n:02}" for n in range(FEW_FULL + 1)]
    reader = FakeReader(dict.fromkeys([*full, "b", "c"], 2), dict.fromkeys(full, 1), 1)
    assert claim_in_lanes(reader, WANTS, 2, NOW) is None
    assert reader.started == ["b", "c"]
    assert reader.use.full == {("a", 0, "mail"): dict.fromkeys(full)}


def test_a_few_full_lanes_stay_open() -> None:
    full = [f"a{n:02}" for n in range(FEW_FULL)]
    reader = FakeReader(dict.fromkeys([*full, "b"], 2), dict.fromkeys(full, 1), 1)
    assert claim_in_lanes(reader, WANTS, 2, NOW) is None
    assert reader.started == ["b"]
    assert reader.use.full == {}


def test_behind_many_full_lanes_a_claim_gives_up_and_comes_again() -> None:
    names = [f"{n:04}" for n in range(2 * EXAMINED)]
    reader = FakeReader(dict.fromkeys(names, 1), dict.fromkeys(names, 1), 1)
    assert claim_in_lanes(reader, WANTS, 10, NOW) == 0
    assert len(reader.use.full["a", 0, "mail"]) == FULL
    assert reader.calls["lanes"] <= 3


def test_a_line_that_is_at_its_end_is_not_asked_again() -> None:
    reader = FakeReader({"a": 1}, {}, 9)
    claim_in_lanes(reader, [Want("a", 0, 3)], 9, NOW)
    assert reader.started == ["a"]
    assert reader.calls["lanes"] == 1


class WeightedReader(FakeReader):
    """Lanes of which some have weights. read: how many jobs were asked for; named: how many lanes."""

    def __init__(self, jobs: dict[str, int], weights: dict[str, int], turn: str | None = None) -> None:
        super().__init__(jobs, {}, 10**6, turn)
        self._weights, self.read, self.named = weights, 0, 0

    def look(self, lines: Sequence[Line]) -> LaneState:
        limit = Limit(self.most, has_key_limits=True, has_weights=True)
        return LaneState({"each:mail": limit}, {}, {TURN: self.turn})

    def weights(self, task: str) -> dict[str, int]:
        return self._weights

    def lane_fronts(self, line: Line, counts: Mapping[Lane, int]) -> dict[Lane, Sequence[Candidate[JobKey]]]:
        self.read += sum(counts.values())
        return super().lane_fronts(line, counts)

    def named_lanes(self, line: Line, task: str, lanes: Sequence[str]) -> list[FoundLane]:
        self.named += len(lanes)
        return super().named_lanes(line, task, lanes)

    def claim(self, count: int) -> Counter[str]:
        """Claims so many; how many started of lanes that begin with each letter."""
        self.started = []
        assert claim_in_lanes(self, WANTS, count, NOW) is None
        self.turn = self.use.turns[TURN]
        return Counter((lane or "")[0] for lane in self.started)


@pytest.mark.parametrize("first", "az")
def test_lanes_beside_a_thousand_with_weights_have_their_part(first: str) -> None:
    """Wherever their names stand."""
    weights = {f"{first}{number:03}": 2 for number in range(1000)}
    reader = WeightedReader(dict.fromkeys(weights, 9) | {f"m{number:03}": 9 for number in range(1000)}, weights)
    for _ in range(3):
        started = reader.claim(300)
        assert abs(started["m"] - 100) <= 5
        assert started.total() == 300


def test_lanes_without_a_weight_are_read_only_in_their_turn() -> None:
    """To find them among those with weights costs many looks."""
    weights = {f"a{number:03}": 50 for number in range(1000)}
    reader = WeightedReader(dict.fromkeys(weights, 9) | {f"m{number}": 9 for number in range(9)}, weights)
    reader.claim(1)
    reader.calls.clear()
    for _ in range(20):
        assert reader.claim(1).total() == 1
    assert reader.calls["lanes"] < 30


def test_lanes_without_a_weight_fill_a_claim_that_is_not_their_turn() -> None:
    reader = WeightedReader({"whale": 3} | {f"m{number:03}": 9 for number in range(100)}, {"whale": 1000})
    assert reader.claim(2) == {"w": 2}
    assert reader.claim(9) == {"w": 1, "m": 8}


def test_lanes_of_a_round_that_began_in_the_middle_have_their_part() -> None:
    """As after turns without weights."""
    reader = WeightedReader({f"m{number:03}": 9 for number in range(900)} | {"whale": 999}, {"whale": 100}, "m799")
    for _ in range(5):
        started = reader.claim(100)
        assert abs(started["m"] - 90) <= 3


def test_what_few_jobs_leave_is_read_of_few_lanes() -> None:
    """And not all that every lane has room for."""
    weights = {f"a{number:03}": 10 for number in range(200)} | {"whale": 1000}
    reader = WeightedReader(dict.fromkeys(weights, 100) | {"whale": 5}, weights)
    assert reader.claim(100) == {"a": 95, "w": 5}
    assert reader.read < 300


def test_a_claim_is_filled_although_lane_after_lane_has_few_jobs() -> None:
    """However often starts would have to be dealt anew."""
    weights = {f"a{number}": 1000 // 2**number or 1 for number in range(12)}
    reader = WeightedReader(dict.fromkeys(weights, 1) | {"a9": 100}, weights)
    assert reader.claim(100) == {"a": 100}


def test_a_claim_looks_at_few_of_a_thousand_lanes_with_weights() -> None:
    """Those whose starts come next, until they are enough; all have their turns."""
    weights = {f"a{number:03}": 1 + number % 7 for number in range(1000)}
    reader = WeightedReader({lane: 9 for lane in weights if lane > "a100"}, weights)
    lanes = Counter[str | None]()
    for _ in range(100):
        reader.named = 0
        assert reader.claim(40) == {"a": 40}
        assert reader.named <= 64 + 256
        lanes.update(reader.started)
    whole = sum(weights[lane] for lane in reader.jobs)
    for lane in reader.jobs:
        assert abs(lanes[lane] - 4000 * weights[lane] / whole) <= 1
