"""Bytes as each version of the formats wrote them: today's readers read them all, and writers write the newest."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from tarry.model.attempts import Attempt, attempts_of, with_attempt
from tarry.model.flow.wiring import NodeLinks, unwrap, wrap
from tarry.model.job import Job, State
from tarry.model.outcome import outcome_note
from tarry.store.rules.entry import Entry
from tarry.tasks.arguments.codec import Codec
from tarry.tasks.arguments.headers import decode_headers, encode_headers
from tarry.tasks.progress import Progress, decode_output, decode_progress

SECOND = 1_000_000
ID = bytes(range(16))


def ship(order: int, lines: list[str], *, by: str = "van") -> str:
    return ""


CODEC = Codec("ship", ship)
JOB = Job(ID, "ship", b"[7]", state=State.RUNNING, epoch=2, state_since=1_800_000_000 * SECOND, owner="web-1|1|2")
TRIED = b'[0,[[1,2,1800000000000000,1800000001000000,"failed","web-1|1|2","ValueError: no tea","File 1"]],[]]'
ATTEMPT = Attempt(
    1, 2, 1_800_000_000 * SECOND, 1_800_000_001 * SECOND, "failed", "web-1|1|2", "ValueError: no tea", "File 1"
)
REPORT = b'[0.5,"page 1",1,0,"printed"]'


class Sample(NamedTuple):
    """What a version wrote. means: what reading it gives. write: writes the same today; None: a newer version does."""

    written: bytes
    read: Callable[[bytes], Any]
    means: Any
    write: Callable[[], bytes] | None = None


SAMPLES = {
    "arguments 1": Sample(b'[7,["tea"]]', CODEC.decode, ((7, ["tea"]), {}), lambda: CODEC.encode((7, ["tea"]), {})),
    "arguments by name 1": Sample(
        b'{"order":7,"lines":["tea"],"by":"ship"}',
        CODEC.decode,
        ([], {"order": 7, "lines": ["tea"], "by": "ship"}),
        lambda: CODEC.encode((7, ["tea"]), {"by": "ship"}),
    ),
    "headers 1": Sample(
        b'{"trace":"1"}', decode_headers, {"trace": "1"}, lambda: encode_headers("ship", {"trace": "1"})
    ),
    "error 1": Sample(
        b'{"type":"ValueError","message":"no tea","traceback":"File 1"}',
        msgspec.json.decode,
        {"type": "ValueError", "message": "no tea", "traceback": "File 1"},
        lambda: outcome_note("ValueError", "no tea", "File 1"),
    ),
    "attempts 1": Sample(
        TRIED,
        lambda written: attempts_of(msgspec.structs.replace(JOB, state=State.DEAD, attempts=written)).attempts,
        [ATTEMPT],
        lambda: with_attempt(JOB, "failed", ATTEMPT.ended, outcome_note("ValueError", "no tea", "File 1")),
    ),
    "progress 1": Sample(REPORT, decode_progress, Progress(0.5, "page 1")),
    "output 1": Sample(REPORT, lambda written: getattr(decode_output(written), "text", None), "printed"),
    "node 1": Sample(
        b"\x01\x0c\x94\x90\x90\x00\xa7ship it[7]",
        unwrap,
        (NodeLinks(label="ship it"), b"[7]"),
        lambda: wrap(NodeLinks(label="ship it"), b"[7]"),
    ),
    "outbox 1": Sample(
        b"\x81\xa3job\x88\xa2id\xc4\x10\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\xa4task\xa4ship"
        b"\xa4body\xc4\x03[7]\xa5state\xa7running\xa5epoch\x02\xa5owner\xa9web-1|1|2\xabstate_since\xcf\x00\x06e\x17("
        b"\x98\x80\x00\xa5later\xc3",  # as of a version with a field more, and as of one with fields less
        msgspec.msgpack.Decoder(Entry).decode,
        Entry(JOB),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_what_was_written_is_read(name: str) -> None:
    sample = SAMPLES[name]
    assert sample.read(sample.written) == sample.means


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample.write])
def test_the_newest_is_written(name: str) -> None:
    sample = SAMPLES[name]
    assert sample.write is not None
    assert sample.write() == sample.written


def test_what_a_newer_version_adds_to_an_array_is_left_out() -> None:
    newer = TRIED.replace(b'"File 1"]', b'"File 1","new"]').replace(b",[]]", b',[],"new"]')
    job = msgspec.structs.replace(JOB, state=State.DEAD, attempts=newer)
    assert attempts_of(job).attempts == [ATTEMPT]
    assert decode_progress(b'[0.5,"page 1",1,0,"printed",null,[0,0,0,0],"new"]') == Progress(0.5, "page 1")
