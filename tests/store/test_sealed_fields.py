"""Field by field: what is sealed, that it opens for its own job only, and what stays clear."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.attempts import with_attempt
from tarry.model.change import Change
from tarry.model.checks.texts import MOST_NOTE, bounded_note
from tarry.model.checks.unreadable import is_altered, token_of
from tarry.model.flow.node_ids import flow_id, node_id
from tarry.model.flow.signal import Signal
from tarry.model.flow.wiring import NodeLinks, added_result, unwrap, wrap
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Raised, Returned, outcome_note
from tarry.model.slept import Slept, kept_slept
from tarry.store.rules.ids import uuid7
from tarry.store.sealing.fields import FieldSealer
from tarry.store.sealing.key_ring import KeyRing, key_id

OLD, NEW = b"o" * 32, b"n" * 32
MARKER = b"pelican"
NOTE = outcome_note("ValueError", "no pelican", 'File "app.py", line 1, in pay\n  pelican')
NODE = node_id(flow_id(1, 1), 3)
RUNNING = Job(uuid7(), "pay", b"[]", state=State.RUNNING, epoch=1)
FAILED = with_attempt(RUNNING, "failed", 5, NOTE)
PROGRESS = b'[0.5,"at pelican",1,0,"printed pelican\\n",[["step","pelican",false]],[7,8,9,0]]'

JOBS: dict[str, Job] = {
    "arguments": replace(RUNNING, body=b'["pelican"]'),
    "arguments that are no text": replace(RUNNING, body=b"\x00\xff pelican"),
    "arguments of a node": replace(RUNNING, id=NODE, body=wrap(NodeLinks(), b'["pelican"]')),
    "what undoes a node": replace(
        RUNNING, id=NODE, body=wrap(NodeLinks(undo=("refund", "bank", b'["pelican"]')), b"[]")
    ),
    "result": replace(RUNNING, state=State.DONE, note=b'{"type":"pelican","status":"pelican"}'),
    "result of an earlier run": replace(RUNNING, state=State.READY, note=b'{"type":"pelican","message":"a pelican"}'),
    "error": replace(RUNNING, state=State.DEAD, note=NOTE),
    "delivery": replace(
        RUNNING, state=State.DEAD, note=b'{"attempt":1,"at":"","outcome":"final","reason":"pelican","answer":"pelican"}'
    ),
    "progress": replace(RUNNING, progress=PROGRESS),
    "attempts": replace(RUNNING, attempts=FAILED),
}


@pytest.fixture
def sealer() -> FieldSealer:
    return FieldSealer(KeyRing([NEW, OLD]))


@pytest.mark.parametrize("name", JOBS)
def test_a_field_is_sealed_and_opens_for_its_own_job_only(sealer: FieldSealer, name: str) -> None:
    job = JOBS[name]
    sealed = sealer.seal_job(job)
    assert MARKER not in b"".join((sealed.body, sealed.note, sealed.progress, sealed.attempts))
    assert sealed != job
    assert sealer.open_job(sealed) == job
    assert sealer.seal_job(sealed) == sealed
    other = node_id(flow_id(1, 1), 4) if job.id == NODE else uuid7()
    assert MARKER not in repr(sealer.open_job(replace(sealed, id=other))).encode()
    assert MARKER not in repr(FieldSealer(KeyRing([OLD])).open_job(sealed)).encode()
    assert FieldSealer(KeyRing([OLD, NEW])).open_job(sealed) == job


def test_a_value_of_another_field_does_not_open(sealer: FieldSealer) -> None:
    job = sealer.seal_job(replace(RUNNING, state=State.DONE, body=b'["pelican"]', note=b'"other"'))
    swapped = sealer.open_job(replace(job, body=job.note, note=job.body))
    assert MARKER not in swapped.note
    assert b"other" not in swapped.body


def test_one_that_does_not_open_can_still_be_opened_where_it_belongs(sealer: FieldSealer) -> None:
    job = replace(RUNNING, body=b'["pelican"]')
    moved = sealer.open_job(replace(sealer.seal_job(job), id=uuid7()))
    assert sealer.open_job(replace(moved, id=job.id)).body == job.body


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[:40],
        lambda body: body.replace(b'"}', b'A"}'),
        lambda body: body[:27] + b"\xff" + body[28:],
        lambda body: body.replace(b".", b"", 1),
        lambda body: b' {"tarry-sealed":"',
        lambda body: b' {"tarry-sealed":"' + b"x" * 5000 + b'"}',
    ],
)
def test_garbage_opens_to_no_error(sealer: FieldSealer, damage: Callable[[bytes], bytes]) -> None:
    body = sealer.seal_body(RUNNING.id, b'["pelican"]')
    opened = sealer.open_job(replace(RUNNING, body=damage(body), note=damage(body), progress=damage(body)))
    assert MARKER not in opened.body


@pytest.mark.parametrize("byte", [b"\x00", b"\xff", b"\xc3\xa9", b"'", b"\\"])
def test_whatever_byte_is_in_it_it_is_known_as_altered(sealer: FieldSealer, byte: bytes) -> None:
    sealed = sealer.seal_job(replace(RUNNING, body=b'["pelican"]', progress=PROGRESS))
    fields = (sealed.body, sealed.progress)
    for at in range(45, min(map(len, fields)) - 60):
        body, progress = (field[:at] + byte + field[at + 1 :] for field in fields)
        opened = sealer.open_job(replace(sealed, body=body, progress=progress))
        assert is_altered(token_of(opened.body)), opened.body
        assert is_altered(token_of(opened.progress)), opened.progress
        assert sealer.open_job(opened) == opened


def test_what_rules_read_stays_clear(sealer: FieldSealer) -> None:
    sealed = sealer.seal_job(replace(JOBS["progress"], id=NODE, body=wrap(NodeLinks(label="a"), b"[]")))
    assert kept_slept(sealed.progress) == kept_slept(PROGRESS) == Slept(7, 8, 9)
    assert unwrap(sealed.body)[0] == NodeLinks(label="a")
    assert sealer.seal_job(replace(RUNNING, state=State.DONE, note=added_result(3, 2))).note == added_result(3, 2)
    assert sealer.seal_job(replace(RUNNING, state=State.DONE, note=b"null")).note == b"null"


def test_changes_are_sealed_as_jobs_are(sealer: FieldSealer) -> None:
    def made(outcome: Any, job: Job = RUNNING) -> Change:
        change = sealer.seal_change(lifecycle.after(job, outcome, Rules(), 10))
        assert MARKER not in repr((change.note, change.attempts, change.node and change.node.note)).encode()
        return change

    done = made(Returned(b'"pelican"'))
    assert sealer.open_job(done.apply_to(RUNNING)).note == b'"pelican"'
    dead = made(Raised(NOTE, final=True))
    assert sealer.open_job(dead.apply_to(RUNNING)).note == NOTE
    node = made(Raised(NOTE, final=True), replace(RUNNING, id=NODE, body=wrap(NodeLinks(), b"[]")))
    assert node.node is not None
    assert node.node.note


def test_a_long_error_is_not_cut_once_it_is_sealed(sealer: FieldSealer) -> None:
    note = bounded_note(outcome_note("E" * 200, "\0" * 10_000, "\0" * 8192))
    sealed = sealer.seal_change(Change(RUNNING.id, State.RUNNING, 1, State.DEAD, note=note)).note
    assert len(sealed) > MOST_NOTE
    assert bounded_note(sealed) == sealed


def test_a_signal_opens_at_its_own_address_only(sealer: FieldSealer) -> None:
    signal = Signal("paid", "7", b"i" * 16, b'"pelican"', 5)
    sealed = sealer.seal_signal(signal)
    assert MARKER not in sealed.value
    assert sealer.open_signal(sealed) == signal
    assert MARKER not in sealer.open_signal(replace(sealed, key="8")).value


def test_the_name_of_a_key_is_short_and_always_the_same() -> None:
    assert key_id(OLD) == key_id(OLD) != key_id(NEW)
    assert len(key_id(OLD)) == 8
    assert base64.b16encode(OLD).lower()[:8] != key_id(OLD).encode()
