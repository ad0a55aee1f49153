"""No error that comes from a job's data leaves `lifecycle.after`; rules with numbers beyond all bounds are refused."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tarry import Retry
from tarry.model import lifecycle
from tarry.model.flow.node_ids import flow_id, node_id
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Lost, Raised, Released, Returned, Snoozed, TimedOut, outcome_note
from tarry.store.rules.ids import uuid7
from tests.every_store.garbage import garbage

NOW = 1_800_000_000_000_000
NOTE = outcome_note("ValueError", "no")
OUTCOMES = (Returned(), Raised(NOTE, ("ValueError",)), TimedOut(NOTE), Lost(True), Lost(False), Released(), Snoozed(5))
RULES = Rules(retry=Retry(5, "exponential", jitter=0.5, within="1d"))
BUT_FOR_ID: dict[str, Any] = {"state": State.RUNNING, "owner": "ann", "state_since": NOW, "due": NOW, "epoch": 1}


@pytest.mark.parametrize("id", [uuid7(), node_id(flow_id(1, 1), 3)], ids=["job", "node"])
def test_every_decision_can_be_stored(id: bytes) -> None:
    job = Job(id, "t", b"[]", **BUT_FOR_ID)
    for fields in garbage(job):
        for outcome in OUTCOMES:
            change = lifecycle.after(replace(job, **fields), outcome, RULES, NOW)
            numbers = (change.failures, change.crashes, change.keep_until, change.due or 0, change.key_held_until or 0)
            assert all(-(2**63) <= number < 2**63 for number in numbers), (fields, outcome, change)


@pytest.mark.parametrize(
    "fields", [{"failures": "many"}, {"created": 1}, {"key": "k", "key_ttl": None}, {"headers": None}, {"crashes": []}]
)
def test_a_record_of_other_types_is_dead_and_says_so(fields: dict[str, Any]) -> None:
    job = replace(Job(uuid7(), "t", b"[]", **BUT_FOR_ID), **{n: v for n, v in fields.items() if n != "created"})
    for outcome in (Raised(NOTE, ("ValueError",)), Lost(True)):
        change = lifecycle.after(job, outcome, Rules(retry=Retry(5)), NOW)
        if change.to is State.DEAD:
            assert msgspec.json.decode(change.note)["type"] == "RecordError"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(5, backoff="9" * 5000 + "n+1 minutes"),
        lambda: Retry(5, backoff="n+" + "9" * 5000 + " minutes"),
        lambda: Retry(10**9),
        lambda: Retry(10**5000),
        lambda: Retry(5, jitter=float("nan")),
        lambda: Retry(5, jitter=float("inf")),
        lambda: Retry(5, base=float("inf")),
        lambda: Retry(5, base=float("nan")),
        lambda: Retry(5, base=10**5000),
        lambda: Retry(5, cap="9" * 90 + "s"),
        lambda: Retry(5, within=10**5000),
        lambda: Retry(backoff=["1m", 10**5000]),
    ],
)
def test_a_rule_beyond_all_bounds_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        make()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("rule", [Retry(5, "n+1 minutes"), Retry(5, "linear"), Retry(5, "exponential", jitter=1.0)])
@pytest.mark.parametrize("failures", [-(2**63), -1, 0, 2**31, 2**63, 10**400])
def test_a_delay_for_any_number_of_failures(rule: Retry, failures: int) -> None:
    for each in (rule, Retry(None, rule.backoff, jitter=rule.jitter)):
        assert 0 <= (each.delay(failures) or 0) <= 2 * each.cap
