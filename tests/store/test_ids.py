"""The ids of jobs: what RFC 9562 asks of a UUIDv7, their order, and their text."""

import os
import time
import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.store.rules.ids import parse, text, uuid7

MANY = 20_000


def test_version_and_variant() -> None:
    for made in (uuid7() for _ in range(1000)):
        assert len(made) == 16
        assert (made[6] >> 4, made[8] >> 6) == (7, 0b10)
        assert uuid.UUID(bytes=made).variant == uuid.RFC_4122


def test_carries_the_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    made = int.from_bytes(uuid7()[:6], "big")
    assert before - 1 <= made <= time.time_ns() // 1_000_000 + 1


def test_grows_and_never_repeats() -> None:
    made = [uuid7() for _ in range(MANY)]
    assert all(earlier < later for earlier, later in pairwise(made))


def test_grows_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    first = uuid7()
    monkeypatch.setattr(time, "time_ns", lambda: now - 1_000_000_000)
    assert first < uuid7()


def test_a_fork_makes_ids_of_its_own() -> None:
    uuid7()
    children = [_forked() for _ in range(3)]
    made = {uuid7() for _ in range(1000)}
    for pid, pipe in children:
        with os.fdopen(pipe, "rb") as answer:
            data = answer.read()
        assert os.waitpid(pid, 0)[1] == 0
        made |= {data[at : at + 16] for at in range(0, len(data), 16)}
    assert len(made) == 4000


def _forked() -> tuple[int, int]:
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(hear)
            with os.fdopen(tell, "wb") as answer:
                answer.write(b"".join(uuid7() for _ in range(1000)))
            code = 0
        finally:
            os._exit(code)
    os.close(tell)
    return pid, hear


@given(st.binary(min_size=16, max_size=16))
def test_text_and_back(id: bytes) -> None:
    assert text(id) == str(uuid.UUID(bytes=id))
    assert parse(text(id)) == parse(text(id).replace("-", "")) == parse(text(id).upper()) == id


@pytest.mark.parametrize(
    "wrong", ["", "1", "0" * 31, "0" * 33, "g" * 32, "naïve" + "0" * 27, "0x" + "0" * 30, " " * 32]
)
def test_what_is_no_id(wrong: str) -> None:
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        parse(wrong)
