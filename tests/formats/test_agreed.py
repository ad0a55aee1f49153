"""What programs of several versions compute each for itself and have to agree on: names, digests, numbers, places.

Another value means that two versions do not see that they mean the same: a job is put twice, a shard does not find what
another program put there, a sealed value stays sealed. So none changes within a version of the formats.
"""

import hashlib
from typing import Any

import pytest

from tarry.client.flows.flow_signals import make_signal
from tarry.model.change import CANCELLED, DEAD, DONE, EXPIRED, FAILED, PUT
from tarry.model.flow.node_ids import flow_id, node_id
from tarry.model.flow_row import Phase
from tarry.model.history.buckets import bucket_of
from tarry.model.history.error_kind import error_kind
from tarry.model.job import Job
from tarry.model.overrides import order_headers
from tarry.model.schedules.definition import ScheduleDefinition
from tarry.model.schedules.stored import StoredSchedule
from tarry.runtime.board import layout
from tarry.store.mysql.sql import digest
from tarry.store.queries.stored_schedules import entry_of
from tarry.store.rules.owner import process_of
from tarry.store.rules.payload_reference import parse_name
from tarry.store.rules.weights.weighted_turns import Share, share_of
from tarry.store.sealing.fields import VALUE
from tarry.store.sealing.key_ring import KeyRing, key_id
from tarry.store.shards.location import RendezvousHash
from tarry.store.shared.bounded_room import room_of_key
from tarry.store.shared.state_codes import CODE
from tarry.tasks.task_limits import _shorten

ID, KEY = bytes(range(16)), bytes(range(32))
FLOW = flow_id(1_800_000_000_000, 2**41 + 7)
TICK = 1_800_000_000_000_000
REPORT = ScheduleDefinition("report", b"[7]", "0 7 * * *", "Europe/Paris", jitter=60_000_000)
ENTRY = entry_of("report:7", StoredSchedule(REPORT, look=TICK), b"{}")
assert ENTRY is not None
NOTHING: Any = None
SHARDS = RendezvousHash({0: "one", 1: "two", 2: "three"})
SEALED = "c1e74ac8.QNfms7+BTnjgenKgqJRakX+PIfB8PB9y5uZm1vAl7g=="
ERROR = (
    b'{"type":"ValueError","message":"order 7 is not there","traceback":"  File \\"a/shop.py\\", line 3, in send\\n"}'
)


def board() -> str:
    """Where each field of the scoreboard is."""
    fields = {name: one for name, one in vars(layout).items() if isinstance(one, layout.Field)}
    places = [(name, one._offset, one._end) for name, one in fields.items()]
    numbers = [(name, value) for name, value in vars(layout).items() if name.isupper() and type(value) in (int, tuple)]
    text = repr(sorted([*map(repr, places), *map(repr, numbers), layout.CELL.format]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


AGREED: dict[str, tuple[Any, Any]] = {
    "lane of a long key": (_shorten("k" * 300)[-40:], "kkkkkkk~085254bffe7133a9c012c479ba21da9e"),
    "shards of jobs": (
        [SHARDS.place_of_job(bytes([n]) * 16) for n in range(12)],
        [2, 2, 2, 2, 2, 0, 1, 0, 1, 0, 2, 1],
    ),
    "shards of keys": (
        [SHARDS.place_of_key(f"customer {n}") for n in range(12)],
        [1, 2, 0, 1, 0, 0, 2, 2, 1, 1, 2, 0],
    ),
    "shard of a flow": (
        [SHARDS.place_of_job(one) for one in (FLOW, node_id(FLOW, 1), node_id(FLOW, 999))],
        [2, 2, 2],
    ),
    "ids of a flow": (
        [FLOW.hex(), node_id(FLOW, 999).hex()],
        ["01a3185c500088008000000700000000", "01a3185c5000880080000007000003e7"],
    ),
    "key in MySQL": (
        digest("ship", "7").hex(),
        "d68c631935a7d5edab30eaa89d0981117380870e03d4115d9553408371da7792",
    ),
    "group of errors": (error_kind("ship", ERROR).fingerprint, "5f61d6853e763fea"),
    "key of a tick": (REPORT.schedule("report:7").key(TICK), "schedule:report:7:1800000000000000"),
    "jitter of a tick": (REPORT.delay("report:7", TICK), 42_020_333),
    "entry of a schedule": (
        ENTRY.cell,
        "schedule-due:0006651728988000:d905e156:report:7",
    ),
    "signal with an id": (
        make_signal(0, "review", "7", True, "once").id.hex(),
        "f4323a87ed2b0d8832bdb0bf6c846221",
    ),
    "room of a key": (
        room_of_key(NOTHING, Job(ID, "ship", b"", lane="whale"), 1, False).cell,
        "key-room:7503dc54754607132a19a2f9b6dd92b9",
    ),
    "order by key": (
        order_headers("ship", "whale", holds=True),
        {"tarry-label:tarry-order": "dd53b04519fb2fc6202a1e88269313b7", "tarry-on-dead": "hold"},
    ),
    "turn of a lane": (share_of("whale", 3), Share(3, 25_743_533_864_840)),
    "name of a payload": (
        parse_name(f"{'ab' * 16}/0f/{ID.hex()}-result-{'c' * 32}"),
        ("ab" * 16, ID, "result"),
    ),
    "name of an owner": (
        process_of("web-1|0a1b2c3d.4026531836:42:1234:1"),
        ("web-1|0a1b2c3d.4026531836", 42, "1234"),
    ),
    "key of a seal": (key_id(KEY), "c1e74ac8"),
    "sealed value": (KeyRing([KEY]).open(ID, VALUE, SEALED), b"tea"),
    "codes of states": (
        {state.value: code for state, code in CODE.items()},
        {"scheduled": 0, "ready": 1, "running": 2, "done": 3, "dead": 4, "cancelled": 5, "blocked": -1},
    ),
    "phases of flows": (
        [(one.name, one.value) for one in Phase],
        [("STORING", 0), ("RUNNING", 1), ("CANCELLING", 2), ("UNDOING", 3), ("ENDED", 4)],
    ),
    "numbers of what is counted": ([PUT, DONE, FAILED, DEAD, CANCELLED, EXPIRED], [1, 2, 3, 4, 5, 6]),
    "buckets of durations": (
        [bucket_of(10**n) for n in range(13)],
        [0, 0, 3, 16, 29, 43, 56, 69, 82, 96, 109, 122, 136],
    ),
}


@pytest.mark.parametrize("name", AGREED)
def test_it_is_as_other_versions_have_it(name: str) -> None:
    computed, agreed = AGREED[name]
    assert computed == agreed


def test_a_board_with_another_layout_has_another_version() -> None:
    """The masters and the commands of one host may be of two versions."""
    assert (layout.VERSION, board()) == (4, "47bb2dd8a0b9088b")
