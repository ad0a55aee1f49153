"""Why a job does not run, as a function of what is known."""

from typing import Any

import pytest
from msgspec.structs import replace

from tarry.keeper.waiting_reasons import MOST_COUNTED, SENTENCES, EndpointState, LimitUse, WaitingFacts, waiting_reasons
from tarry.model.duration import MINUTE, SECOND
from tarry.model.flow.node_ids import flow_id, node_id
from tarry.model.job import Job, State
from tarry.model.limit import Level, Limit, LimitShare
from tarry.store.queries.hosts import LOST, Host, PoolFigures, WorkerFigures, serving_pools
from tarry.store.rules.ids import uuid7
from tarry.store.rules.waiting import CappedCount

NOW = 1_700_000_000 * SECOND
JOB = Job(uuid7(), "shop.send", b"[]", "mail", due=NOW - SECOND, state_since=NOW - SECOND)
LATER = replace(JOB, state=State.SCHEDULED, due=NOW + 200 * SECOND)
SERVING = Host("a", "web-1", pools=[PoolFigures("mails", workers=2, busy=1, queues=["mail"])])
OTHER = Host("b", "web-2", pools=[PoolFigures("bulk", workers=2, queues=["bulk"])])
BROADCAST = Host(
    "b|1:9:1:0", "web-3", pools=[PoolFigures("m", workers=3, busy=3, queues=["mail"])],
    workers=[WorkerFigures("m", 1, "b|1:7:1:1")], more_workers=["b|1:8:1:1"],
)  # fmt: skip
OPEN = EndpointState(trouble="open (503)", opens=NOW + MINUTE)


def facts(job: Job = JOB, **more: Any) -> WaitingFacts:
    return WaitingFacts(job, NOW, **{"hosts": [SERVING], **more})


def full(name: str, most: int = 1, running: int = 1) -> LimitUse:
    return LimitUse(name, Limit(most), Level(running))


def shared(most: int, running: int, whole: tuple[int, int] = (9, 4), until: int = NOW + 1) -> LimitUse:
    """One of which the shard of the job has a share."""
    share = Limit(most, share=LimitShare(whole[0], until=until))
    return replace(full("queue:mail", *whole), share=(share, Level(running)))


RATE_OF_A_SHARD = LimitUse(
    "queue:mail", Limit(None, 4, MINUTE), Level(0, NOW),
    share=(Limit(None, 1, MINUTE, share=LimitShare(None, 4, NOW + 1)), Level(0, NOW + MINUTE)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("known", "kinds"),
    [
        (facts(), ["free"]),
        (facts(replace(JOB, state=State.DEAD)), ["ended"]),
        (facts(replace(JOB, state=State.BLOCKED, id=node_id(flow_id(1, 1), 7))), ["blocked"]),
        (facts(replace(JOB, state=State.BLOCKED, id=flow_id(1, 1))), ["flow"]),
        (facts(replace(JOB, state=State.RUNNING, owner="w")), ["running"]),
        (facts(LATER), ["due"]),
        (facts(replace(LATER, failures=2)), ["retry"]),
        # Its time has come, though no claim has made it ready yet.
        (facts(replace(LATER, due=NOW)), ["free"]),
        (facts(is_paused=True), ["paused"]),
        (facts(LATER, is_paused=True), ["due", "paused"]),
        # What passes by itself may be over when its time comes.
        (facts(LATER, before=CappedCount(7), limits=[full("queue:mail")]), ["due"]),
        (facts(endpoint=EndpointState(enabled=False)), ["disabled"]),
        (facts(endpoint=OPEN), ["circuit"]),
        (facts(was_unknown=True, is_listed=False), ["unknown"]),
        (facts(is_listed=False), ["unlisted"]),
        (facts(is_listed=False, is_external=True), ["external"]),
        (facts(limits=[full("task:shop.send", 0, 0)]), ["stopped"]),
        (facts(endpoint=OPEN, limits=[full("task:shop.send", 0, 0)]), ["circuit"]),
        (facts(endpoint=OPEN, limits=[full("queue:mail", 0, 0)]), ["circuit", "stopped"]),
        (facts(limits=[full("task:shop.send", 2, 2)]), ["limit"]),
        (facts(limits=[full("task:shop.send", 2, 1)]), ["free"]),
        (facts(limits=[full("each:shop.send")]), ["key"]),
        (facts(limits=[LimitUse("queue:mail", Limit(None, 1, MINUTE), Level(0, NOW + MINUTE))]), ["rate"]),
        (facts(limits=[LimitUse("queue:mail", Limit(None, 1, MINUTE), Level(0, NOW))]), ["free"]),
        (facts(limits=[shared(3, 3)]), ["share"]),
        (facts(limits=[shared(3, 2)]), ["free"]),
        (facts(limits=[shared(0, 0)]), ["no_share"]),
        (facts(limits=[shared(0, 1)]), ["no_share"]),
        (facts(limits=[shared(3, 0, until=NOW)]), ["share_ended"]),
        (facts(limits=[shared(3, 3, whole=(9, 9))]), ["limit"]),
        (facts(limits=[shared(0, 0, whole=(0, 0))]), ["stopped"]),
        (facts(limits=[RATE_OF_A_SHARD]), ["rate"]),
        (facts(hosts=[]), ["no_host"]),
        (facts(hosts=[replace(SERVING, state=LOST)]), ["no_host"]),
        (facts(hosts=[], away="store b is away"), ["free", "away"]),
        (facts(hosts=[OTHER]), ["unserved"]),
        (facts(hosts=[OTHER, SERVING]), ["free"]),
        (facts(hosts=[Host("c", "web-3", pools=[PoolFigures("all", workers=1, queues=["*"])])]), ["free"]),
        # A master that does not tell what its pools serve: nothing is said of it.
        (facts(hosts=[OTHER, Host("d", "web-3", pools=[PoolFigures("old", workers=1)])]), ["free"]),
        (facts(hosts=[Host("a", "web-3", pools=[PoolFigures("mails", queues=["mail"])])]), ["no_worker"]),
        (facts(hosts=[Host("a", "web-3", pools=[PoolFigures("m", workers=3, busy=3, queues=["mail"])])]), ["busy"]),
        # Of a broadcast: only the host or worker whose queue it is.
        (facts(replace(JOB, queue="@b|1:9:1:0"), hosts=[SERVING]), ["gone"]),
        (facts(replace(JOB, queue="@b|1:9:1:0"), hosts=[SERVING, BROADCAST]), ["busy"]),
        (facts(replace(JOB, queue="@b|1:7:1:1"), hosts=[BROADCAST]), ["busy"]),
        (facts(replace(JOB, queue="@b|1:8:1:1"), hosts=[BROADCAST]), ["busy"]),
        (facts(replace(JOB, queue="@b|1:6:1:1"), hosts=[BROADCAST]), ["gone"]),
        (facts(followed=[(JOB.id, 1, "w-1")]), ["follows"]),
        (facts(LATER, followed=[(JOB.id, 1, "w-1")], is_paused=True), ["follows", "paused"]),
        (facts(ahead=JOB), ["order"]),
        (facts(LATER, ahead=replace(JOB, state=State.DEAD)), ["order_dead"]),
        (facts(replace(JOB, crashes=2)), ["suspect"]),
        (facts(replace(JOB, crashes=1)), ["free"]),
        (facts(before=CappedCount(3)), ["before"]),
        (facts(before=CappedCount(1), is_paused=True, limits=[full("queue:mail")]), ["paused", "limit", "one_before"]),
    ],
)
def test_what_holds_a_job_back(known: WaitingFacts, kinds: list[str]) -> None:
    found = waiting_reasons(known)
    assert [reason.kind for reason in found] == kinds
    # The console fills the sentence in another language with the same values.
    assert [SENTENCES[reason.kind] % reason.values for reason in found] == [reason.text for reason in found]


def test_until_when_it_lasts_is_told_where_it_is_known() -> None:
    assert waiting_reasons(facts(LATER))[0].until == LATER.due / SECOND
    assert waiting_reasons(facts(endpoint=OPEN))[0].until == (NOW + MINUTE) / SECOND
    assert waiting_reasons(facts(is_paused=True))[0].until is None


def test_times_and_counts_are_words() -> None:
    assert waiting_reasons(facts(LATER))[0].text == "It is due in 3m20s."
    assert waiting_reasons(facts(replace(LATER, due=NOW + 1)))[0].text == "It is due in 1s."
    assert waiting_reasons(facts(before=CappedCount(1)))[0].text == "One job of this queue runs before it."
    assert waiting_reasons(facts(before=CappedCount(1204)))[0].text == "1,204 jobs of this queue run before it."
    many = waiting_reasons(facts(before=CappedCount(MOST_COUNTED, at_least=True)))[0].text
    assert many == "More than 10,000 jobs of this queue run before it."


def test_pools_of_a_queue() -> None:
    all_queues = PoolFigures("all", queues=["*"])
    mails = PoolFigures("mails", queues=["mail", "bulk"])
    assert serving_pools([all_queues, mails], "mail") == [all_queues, mails]
    assert serving_pools([mails], "slow") == []
    assert serving_pools([mails, PoolFigures("old")], "mail") is None
