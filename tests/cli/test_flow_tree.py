"""The tree that `tarry flows show` prints."""

import re
from typing import Any

import pytest

from tarry import App, fan_out
from tarry.cli.operate.flow_tree import flow_lines
from tarry.client.flows.flow_handle import FlowHandle
from tarry.client.flows.flow_records import flow_detail
from tarry.store.rules import flow_folding, flow_graph
from tarry.testing.kit import Jobs

app = App(retry=None)
broken: set[int] = set()


@pytest.fixture(autouse=True)
def _nothing_is_broken() -> None:
    broken.clear()


@app.task(name="charge")
def charge(order: int) -> str:
    if order in broken:
        raise LookupError(f"no card {order}")
    return f"receipt {order}"


@app.task(name="send")
def send(*parts: object) -> int:
    return len(parts)


@app.task(name="refund")
def refund(receipt: str) -> None: ...


@app.task(name="split")
def split(count: int) -> list[str]:
    return fan_out(charge.call(order) for order in range(count))


def tree(flow: FlowHandle[Any], most: int = flow_graph.LOOKED_AT) -> list[str]:
    """Its lines, without ids."""
    detail = flow_detail(app.client, flow.record(), most=most)
    lines = flow_lines(detail, app.client.clock.now())
    return [re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", line) for line in lines]


def test_each_job_stands_below_what_it_waits_for(jobs: Jobs) -> None:
    with app.flow("order", key="7", deadline="2d") as f:
        paid = f.add(charge.call(7))
        f.add(send.call(paid.result), name="thank")
        f.add(send.call(paid.result, 1), name="ship")
    jobs.advance(5)
    assert tree(f.handle) == [
        "order ID, key 7: running for 5s, deadline in 1d23h; 0 of 3 jobs ended",
        "└─ 1 charge: ready for 5s",
        "   ├─ 2 thank (send): blocked",
        "   └─ 3 ship (send): blocked",
    ]


def test_a_chain_is_not_indented(jobs: Jobs) -> None:
    flow = app.chain(charge.call(1), send.call(), send.call(), send.call())
    assert tree(flow)[1:] == [
        "└─ 1 charge: ready for 0.0ms",
        "   ↓ 2 send: blocked",
        "   ↓ 3 send: blocked",
        "   ↓ 4 send: blocked",
    ]


def test_a_job_with_several_parents_is_shown_once(jobs: Jobs) -> None:
    with app.flow("order") as f:
        first = f.add(charge.call(1), name="first")
        second = f.add(charge.call(2), name="second")
        last = f.add(send.call(first.result, second.result), name="last")
        f.add(send.call(last.result), name="after it")
    assert [line.partition(":")[0] for line in tree(f.handle)[1:]] == [
        "├─ 1 first (charge)",
        "│  └─ 3 last",
        "└─ 2 second (charge)",
        "   ↓ 3 last (send)",
        "   ↓ 4 after it (send)",
    ]
    assert tree(f.handle)[2] == "│  └─ 3 last: see below"


def test_alike_jobs_are_one_line(jobs: Jobs) -> None:
    broken.update((3, 5))
    chord = app.chord((charge.call(order) for order in range(1200)), send.call())
    jobs.drain()
    jobs.advance(60)
    lines = tree(chord)
    assert re.fullmatch(r"chord ID: dead .* after it was made, .* ago; 1,200 of 1,201 jobs ended", lines[0])
    assert lines[1:] == [
        "└─ 1 charge x 1,200: 1,198 done, 2 dead, 1 failed attempt at most of one",
        "      4 dead, LookupError: no card 3 (tarry jobs show ID)",
        "      6 dead, LookupError: no card 5 (tarry jobs show ID)",
        "   ↓ 1201 send: blocked",
        "dead: job 4: LookupError: no card 3",
    ]


def test_what_ended_says_how_long_it_took(jobs: Jobs) -> None:
    broken.add(7)
    flow = app.chain(charge.call(7), send.call())
    jobs.advance(3)
    jobs.drain()
    jobs.advance(60)
    lines = tree(flow)
    # The clock of the kit stands still while jobs run; an id has milliseconds.
    assert re.fullmatch(r"└─ 1 charge: dead, waited 3s, ran 0\.0ms, 1 failed attempt, 1m ago", lines[1])
    broken.clear()
    assert flow.retry()
    jobs.drain()
    assert re.fullmatch(r"chain ID: done 1m3s after it was made, 0.0ms ago; 2 of 2 jobs ended", tree(flow)[0])
    assert tree(flow)[-1] == "result: 1"


def test_what_was_added_and_undone(jobs: Jobs) -> None:
    flow = app.chain(split.call(3), send.call())
    assert jobs.run(flow) == 1
    assert [re.sub(" in .*", "", line) for line in tree(flow)[1:-1]] == [
        "└─ 1 split: done",
        "   ↓ 3 charge x 3: 3 done",
        "   ↓ 2 send: done",
    ]
    broken.add(8)
    with app.flow("order", on_failure="compensate") as f:
        paid = f.add(charge.call(7), undo=refund.call())
        f.add(charge.call(8), after=[paid])
    jobs.drain()
    shown = [re.sub(r" in .*|, waited .*", "", line) for line in tree(f.handle)[1:]]
    assert shown == [
        "├─ 1 charge [compensate]: done",
        "│  ↓ 2 charge [compensate]: dead",
        "│       LookupError: no card 8 (tarry jobs show ID)",
        "└─ 3 undo: done",
        "   ↓ 4 undo 1 (refund) [go_on]: done",
        "dead: job 2: LookupError: no card 8",
    ]


def test_what_is_not_looked_at_is_said(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_graph, "PAGE", 20)
    monkeypatch.setattr(flow_graph, "LONG", 60)
    monkeypatch.setattr(flow_folding, "MOST_BOXES", 2)
    chord = app.chord((charge.call(order) for order in range(1000)), send.call())
    assert re.fullmatch(
        r"└─ 1 charge x 1,000: \d+ (ready|blocked).*, of 1\d\d that were looked at", tree(chord, most=300)[1]
    )
    chain = app.chain(charge.call(1), send.call(), send.call(), send.call())
    assert tree(chain)[-1] == "2 jobs more, too many to show: --json and GET /v1/flows/ID/nodes have pages"
