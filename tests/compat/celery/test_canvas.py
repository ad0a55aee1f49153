"""Celery's canvas on top of flows."""

import warnings
from typing import Any

import pytest

from tarry.compat.celery import CeleryDifference, CeleryNotSupported, chain, chord, group, signature
from tarry.errors import FlowFailed
from tarry.testing.kit import Jobs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", CeleryDifference)
    from tests.compat.celery.typical import add, fails, flaky, join, same, seen

ADD = add.name

CASES: list[tuple[Any, Any]] = [
    (lambda: chain(add.s(1, 2), add.s(3), add.s(4)), 10),
    (lambda: chain([add.s(1, 2), add.si(3, 3)]), 6),
    (lambda: add.s(1, 2) | add.s(3), 6),
    (lambda: add.s(1, 2) | add.s(3) | same.s(), 6),
    (lambda: group(add.s(n, n) for n in range(3)), [0, 2, 4]),
    (lambda: group(add.s(1, 1), add.s(2, 2)), [2, 4]),
    (lambda: group([]), []),
    (lambda: chord([add.s(1, 1), add.s(2, 2)], join.s(sep="+")), "2+4"),
    (lambda: group(add.s(1, 1), add.s(2, 2)) | join.s(), "2-4"),
    (lambda: chain(add.s(1, 1), group(add.s(1), add.s(2))), [3, 4]),
    (lambda: chain(add.s(1, 1), group(add.s(1), add.s(2)), join.s()), "3-4"),
    (lambda: group(chain(add.s(1, 1), add.s(1)), add.s(5, 5)), [3, 10]),
    (lambda: group(chain(add.s(1, 1), group(add.s(1), add.s(2))), add.s(5, 5)), [[3, 4], 10]),
    (lambda: chord([chain(add.s(1, 1), add.s(1)), add.s(5, 5)], join.s() | same.s()), "3-10"),
    (lambda: chain(signature(ADD, (1, 2)), signature(ADD, args=(3,))), 6),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_canvas_gives_what_celery_gives(jobs: Jobs, case: int) -> None:
    make, expected = CASES[case]
    result = make().delay()
    jobs.drain()
    assert result.state == "SUCCESS"
    assert result.get(timeout=1) == expected


def test_arguments_go_to_the_first(jobs: Jobs) -> None:
    one, each = chain(add.s(1), add.s(10)).delay(5), group(add.s(1), add.s(2)).delay(5)
    header = chord([add.s(1, 1)])(join.s())
    jobs.drain()
    assert (one.get(), each.get(), header.get()) == (16, [6, 7], "2")


def test_options_of_a_call_within(jobs: Jobs) -> None:
    chain(add.s(1, 2), add.s(3).set(queue="slow", countdown=60)).delay()
    jobs.drain()
    assert [found.queue for found in jobs.enqueued(ADD)] == ["celery", "slow"]


def test_a_call_that_fails_ends_the_flow(jobs: Jobs) -> None:
    result = chain(fails.s("no"), same.s()).delay()
    jobs.drain()
    assert (result.state, result.failed()) == ("FAILURE", True)
    with pytest.raises(ValueError, match="no") as raised:
        result.get()
    assert isinstance(raised.value.__cause__, FlowFailed)
    assert isinstance(result.get(propagate=False), ValueError)
    assert "ValueError: no" in result.traceback


def test_a_retry_within_a_flow_keeps_its_limit(jobs: Jobs) -> None:
    seen.clear()
    result = chain(flaky.s("u"), same.s()).delay()
    for _ in range(4):
        jobs.drain()
        jobs.advance(60)
    assert (seen, result.state) == ([0, 1, 2], "FAILURE")


def test_signatures(jobs: Jobs) -> None:
    call = add.s(2)
    assert call(1) == 3
    assert call.apply((1,)).get() == 3
    result = call.apply_async((1,), countdown=5)
    assert jobs.drain() == 0
    jobs.advance(5)
    jobs.drain()
    assert result.get() == 3
    assert add.si(1, 2).clone((9,)).args == (1, 2)
    assert repr(add.s(1) | add.s(y=2)) == f"{ADD}(1) | {ADD}(y=2)"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: group(add.s(1)).link(add.s(2)),
        lambda: chord([add.s(1, 1)]).delay(),
        lambda: chain(add.s(1)).clone((2,)),
        lambda: signature({"task": "celery.chunks", "subtask_type": "chunks"}),
    ],
)
def test_what_would_be_lost_is_an_error(jobs: Jobs, wrong: Any) -> None:
    with pytest.raises(CeleryNotSupported):
        wrong()
    assert jobs.enqueued() == []


def test_revoke_a_flow(jobs: Jobs) -> None:
    result = chain(add.s(1, 1), add.s(2)).delay()
    result.revoke()
    assert jobs.drain() == 0
    assert result.state == "REVOKED"
