"""Some of the points, drawn; `make kill-points` tries all."""

from collections.abc import Iterator

import pytest

from tests.kill_points.__main__ import Part
from tests.kill_points.points import FAULTS, Point, Tries, fast_directory, trying
from tests.kill_points.servers import KINDS_OF_SERVERS
from tests.seeds import seeded_random
from tests.servers.fixtures import empty_server
from tests.servers.server import Missing

SAMPLES = {"killed": 13, "torn": 4, "EIO": 5, "ENOSPC": 5, "EINTR": 3, "short": 3, "power": 4}
FEWEST_CALLS = {"killed": 1000}
"""Of a fault, else 300: fewer would mean that the library does not see all calls."""
FEWEST_SENT = 150
FEWEST_OF_MASTERS = {
    ("doors", "killed"): 300,
    ("worker", "killed"): 100,
    ("reload", "killed"): 40,
    ("upgrade", "killed"): 25,
    ("successor", "killed"): 25,
    ("reload", "breakpoint"): 200,
    ("worker", "breakpoint"): 30,
}
"""So many points there are at least, by story and fault."""
KILLS = ("unsent", "sent")


@pytest.fixture(scope="module")
def tries(request: pytest.FixtureRequest) -> Iterator[Tries]:
    try:
        with fast_directory() as directory, trying(directory, lambda kind: empty_server(request, kind)) as tries:
            yield tries
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.seeded
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", SAMPLES)
@pytest.mark.parametrize("story", ["file", "shards"])
def test_what_was_acknowledged_is_done_whatever_call_kills_the_process_or_fails(
    story: str, fault: str, tries: Tries
) -> None:
    assert tries.count(story, FAULTS.index(fault)) >= FEWEST_CALLS.get(fault, 300)
    count, wrong = Part(story, FAULTS.index(fault)).wrong(tries, SAMPLES[fault], seeded_random())
    assert wrong == []
    assert count == SAMPLES[fault]


def test_every_kind_of_call_is_a_point_and_kills(tries: Tries) -> None:
    kinds = tries.answer(Point("file"))["kinds"]
    assert {kind for kind, count in kinds.items() if count} >= {"write", "sync", "size", "name", "lock", "send"}
    assert "killed" in tries.answer(Point("file", 1))
    assert "calls" in tries.answer(Point("file", sum(kinds.values()) * 2))


@pytest.mark.seeded
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS_OF_SERVERS)
def test_what_a_server_acknowledged_is_done_whatever_is_not_sent_or_not_answered(kind: str, tries: Tries) -> None:
    dice = seeded_random()
    sent = tries.count(kind, FAULTS.index("sent"))
    assert sent >= FEWEST_SENT
    for fault in ("sent", dice.choice(("unsent", "reset", "unanswered"))):
        # Threads make that one run sends less than the one before it: not by so much.
        answer = tries.answer(point := Point(kind, dice.randint(1, sent * 3 // 4), FAULTS.index(fault)))
        assert ("killed" in answer) == (fault in KILLS), point
        assert answer["wrong"] == [], point


@pytest.mark.seeded
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("story", "fault"), FEWEST_OF_MASTERS)
def test_a_fresh_master_goes_on_whatever_call_or_line_kills_a_process_of_another(
    story: str, fault: str, tries: Tries
) -> None:
    point = Point(story, seeded_random().randint(1, FEWEST_OF_MASTERS[story, fault]), FAULTS.index(fault))
    assert tries.answer(point) == {"killed": True, "wrong": []}, point
