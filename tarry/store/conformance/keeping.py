"""Insert, get, find, counts."""

import time

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import MAX_PRIORITY, UNFINISHED, Job, State
from tarry.model.job import WAITING as ONLY_WHILE_WAITING
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Released, Returned
from tarry.store.conformance.cases.jobs import (
    ALONE,
    FINISHED,
    LEASE,
    NOW,
    WAITING,
    Promises,
    ids,
    in_state,
    made,
    put,
    running,
    seen,
    settle,
    taken,
)
from tarry.store.rules.base import Backlog, Query, Store
from tarry.store.rules.ids import uuid7
from tarry.store.rules.name_pattern import fits

MANY = 2500


class Keeping(Promises):
    """Insert, get, find, counts."""

    def test_a_job_comes_back_as_it_was_inserted(self, store: Store) -> None:
        """No field is lost or changed, the greatest priorities included."""
        full = made(store, queue="q", due=NOW + 5, expires=NOW + 9, key="käse", body=b"[1]", note=b"{}", headers=b"{}")[
            0
        ]
        jobs = [full, *made(store, priority=MAX_PRIORITY), *made(store, priority=-MAX_PRIORITY)]
        store.insert(jobs)
        assert store.get(ids(jobs)) == jobs

    def test_inserted_twice_is_one_job(self, store: Store) -> None:
        """The same id again answers that id and changes nothing."""
        (job,) = put(store)
        assert store.insert([replace(job, body=b"other")]) == [job.id]
        assert store.find(Query()) == [job]

    @pytest.mark.parametrize("state", ALONE)
    def test_inserted_again_in_any_state_changes_nothing(self, store: Store, state: State) -> None:
        """A late retry of an insert does not bring a job back to its beginning."""
        job = in_state(store, state, key="k")
        assert store.insert([replace(job, state=State.READY, epoch=0)]) == [job.id]
        assert seen(store, job) == job

    def test_same_id_twice_in_one_batch_is_one_job(self, store: Store) -> None:
        """Also when a batch repeats itself."""
        (job,) = made(store)
        assert store.insert([job, job]) == [job.id, job.id]
        assert ids(taken(store)) == [job.id]

    def test_an_empty_batch_is_fine(self, store: Store) -> None:
        """Every verb accepts an empty batch."""
        assert (store.insert([]), store.apply([], NOW), store.get([])) == ([], [], [])
        assert store.extend("ann", [], LEASE, NOW) == []
        assert store.claim([], 5, "ann", LEASE, NOW) == []
        assert taken(store, limit=0) == []

    @pytest.mark.parametrize("state", [*WAITING, State.RUNNING])
    def test_key_of_an_unfinished_job_is_taken(self, store: Store, state: State) -> None:
        """A second job with the key is not stored; its insert returns the id of the first."""
        first = in_state(store, state, key="k")
        (second,) = made(store, key="k")
        assert store.insert([second]) == [first.id]
        assert store.get([second.id]) == [None]
        assert seen(store, first) == first

    @pytest.mark.parametrize("state", FINISHED)
    def test_key_is_free_when_its_job_has_finished(self, store: Store, state: State) -> None:
        """Done, dead or cancelled: another job may have the key."""
        in_state(store, state, key="k")
        (second,) = put(store, key="k")
        assert seen(store, second) == second

    def test_key_is_free_when_its_job_is_forgotten(self, store: Store) -> None:
        """A deleted job holds no key."""
        (first,) = put(store, key="k")
        assert store.apply([lifecycle.forget(first)], NOW) == [True]
        put(store, key="k")

    def test_key_within_one_batch(self, store: Store) -> None:
        """Of two jobs with one key in a batch the first is stored."""
        first, second = made(store, 2, key="k")
        assert store.insert([first, second]) == [first.id, first.id]
        assert store.get([first.id, second.id]) == [first, None]

    def test_key_belongs_to_a_task(self, store: Store) -> None:
        """Two tasks may use the same key; no key is no key."""
        jobs = put(store, key="k") + put(store, key="k", task="other") + put(store, 2)
        assert len(taken(store)) == len(jobs)

    def test_key_for_the_wait_is_free_once_claimed(self, store: Store) -> None:
        """A claim gives up the key, and the job does not get it back by itself."""
        (first,) = put(store, key="k", key_ttl=ONLY_WHILE_WAITING)
        (second,) = made(store, key="k")
        assert store.insert([second]) == [first.id]
        (job,) = taken(store)
        assert job.key_held_until == seen(store, first).key_held_until == 0
        put(store, key="k", key_ttl=ONLY_WHILE_WAITING)
        settle(store, job, Released())
        assert len(taken(store)) == 2

    @pytest.mark.parametrize("state", FINISHED)
    def test_key_for_a_time_is_held_after_the_end(self, store: Store, state: State) -> None:
        """Up to its time and not a microsecond longer, however few bytes the finished jobs may take."""
        first = in_state(store, state, key="k", key_ttl=HOUR)
        # With no room at all, a finished job that holds no key would go.
        store.prune(NOW + HOUR - 1, 0)
        (late,) = made(store, key="k")
        assert store.insert([replace(late, state_since=NOW + HOUR - 1)]) == [first.id]
        late = replace(late, state_since=NOW + HOUR)
        assert store.insert([late]) == [late.id]
        assert seen(store, first).key_held_until == 0

    @pytest.mark.parametrize("state", FINISHED)
    def test_a_key_for_a_time_can_be_held_for_longer(self, store: Store, state: State) -> None:
        """By the job that has ended, as long as no other has the key."""
        first = in_state(store, state, key="k", key_ttl=HOUR)
        change = lifecycle.prolong_burst(first, NOW + 2 * HOUR)
        assert change is not None
        assert store.apply([change], NOW) == [True]
        until = {"key_held_until": NOW + 2 * HOUR, "keep_until": max(first.keep_until, NOW + 2 * HOUR)}
        assert seen(store, first) == replace(first, **until)
        (late,) = made(store, key="k", state_since=NOW + 2 * HOUR - 1)
        assert store.insert([late]) == [first.id]
        late = replace(late, state_since=NOW + 2 * HOUR)
        assert store.insert([late]) == [late.id]
        assert store.apply([change], NOW + 2 * HOUR) == [False], "another job has it"

    def test_a_key_whose_time_is_over_stops_no_kick(self, store: Store) -> None:
        """It counts for nothing, even if no other job has wanted it since."""
        first = in_state(store, State.DONE, key="k")
        in_state(store, State.DONE, key="k", key_ttl=HOUR)
        assert store.apply([lifecycle.run_now(first, NOW + HOUR - 1)], NOW + HOUR - 1) == [False]
        assert store.apply([lifecycle.run_now(first, NOW + HOUR)], NOW + HOUR) == [True]

    @pytest.mark.parametrize("state", ALONE)
    def test_who_holds_a_key_is_what_the_model_says(self, store: Store, state: State) -> None:
        """`lifecycle.holds_key` counts for inserts and for changes that start a job anew."""
        ttls = (ONLY_WHILE_WAITING, UNFINISHED, HOUR)
        ended = [in_state(store, State.DONE, key=f"k{ttl}") for ttl in ttls]
        first = [in_state(store, state, key=f"k{ttl}", key_ttl=ttl) for ttl in ttls]
        for now in (NOW, NOW + HOUR - 1, NOW + HOUR):
            for n, ttl in enumerate(ttls):
                other = replace(made(store, key=f"k{ttl}")[0], state_since=now)
                revived = store.get([ended[n].id]) != [ended[n]]
                held = revived or lifecycle.holds_key(seen(store, first[n]), now)
                assert store.apply([lifecycle.run_now(ended[n], now)], now) == [not held]
                assert store.insert([other]) == [first[n].id if held and not revived else ended[n].id]

    def test_a_change_may_bring_other_arguments(self, store: Store) -> None:
        """A change without arguments leaves them unchanged."""
        job = in_state(store, State.SCHEDULED, body=b"[1]")
        changes = [lifecycle.move(job, NOW, priority=2), lifecycle.replace_call(job, replace(job, body=b"[2]"), NOW)]
        assert store.apply(changes[:1], NOW) == [True]
        assert seen(store, job).body == b"[1]"
        assert store.apply(changes[1:], NOW) == [True]
        assert seen(store, job).body == b"[2]"

    def test_progress_is_kept_of_what_runs(self, store: Store) -> None:
        """Only from the present attempt."""
        (job,) = running(store)
        told = [(job.id, job.epoch, b"[0.5]"), (job.id, job.epoch - 1, b"[0.9]"), (b"0" * 16, 1, b"[0.1]")]
        assert store.save_progress("ann", told) == [True, False, False]
        assert seen(store, job).progress == b"[0.5]"
        settle(store, job, Released())
        assert store.save_progress("ann", [(job.id, job.epoch, b"[0.7]")]) == [False]
        assert seen(store, job).progress == b"[0.5]"

    @pytest.mark.parametrize("owner", ["ann", "", "bo", "bobby", "Bob", "bob "])
    def test_progress_of_another_owner_is_not_kept(self, store: Store, owner: str) -> None:
        """Also if the epoch is the same."""
        # A store that lost a claim gives the job again with the same epoch, and the first owner may still report.
        (job,) = running(store, owner="bob")
        # Twice the same: that no byte changes does not mean that it is not his.
        assert [store.save_progress("bob", [(job.id, job.epoch, b"[0.5]")]) for _ in range(2)] == [[True]] * 2
        assert store.save_progress(owner, [(job.id, job.epoch, b"[0.9]")]) == [False]
        assert seen(store, job).progress == b"[0.5]"

    def test_named_values(self, store: Store) -> None:
        """Written only by a caller that knows the present value; listed by the prefix of their names."""
        assert store.kv_cas("a:1", b"x", None)
        assert not store.kv_cas("a:1", b"y", None)
        assert not store.kv_cas("a:1", b"y", b"z")
        assert store.kv_cas("a:1", b"y\0", b"x")
        assert store.kv_cas("a:2", b"", None)
        assert store.kv_cas("b", b"z", None)
        assert store.kv_list("a:") == {"a:1": b"y\0", "a:2": b""}
        assert (store.kv_get("a:1"), store.kv_get("a:"), store.kv_get("c")) == (b"y\0", None, None)
        assert store.kv_cas("a:1", None, b"y\0")
        assert not store.kv_cas("a:1", None, b"y\0")
        assert store.kv_list("") == {"a:2": b"", "b": b"z"}

    @pytest.mark.parametrize("prefix", ["a:", "ä", "\ud7ff", "\U0010ffff", "a\U0010ffff", "_", "%", "a:1"])
    def test_names_that_begin_so(self, store: Store, prefix: str) -> None:
        """Exactly the names with the prefix, whatever characters they have."""
        # Surrogates, the last character and the wildcards of LIKE are where a store could go wrong.
        names = [
            prefix,
            prefix + "0",
            prefix + "\U0010ffff",
            prefix + "\ue000",
            prefix[:-1] + "b",
            prefix[:-1] + "\ue000",
        ]
        for name in names:
            assert store.kv_cas(name, b"x", None) or name in store.kv_list(name)
        assert list(store.kv_list(prefix)) == sorted({name for name in names if name.startswith(prefix)})

    @pytest.mark.parametrize("state", FINISHED)
    def test_a_kick_does_not_steal_the_key(self, store: Store, state: State) -> None:
        """A finished job cannot be restarted while another job holds its key, but can be once that one has finished."""
        first = in_state(store, state, key="k")
        (second,) = put(store, key="k")
        assert store.apply([lifecycle.run_now(first, NOW)], NOW) == [False]
        assert store.get([first.id, second.id]) == [first, second]
        assert store.apply([lifecycle.cancel(second, DEFAULT, NOW)], NOW) == [True]
        assert store.apply([lifecycle.run_now(first, NOW)], NOW) == [True]
        assert store.insert(made(store, key="k")) == [first.id]

    @pytest.mark.parametrize("data", [b"", bytes(range(256)), b"\0" * 1000 + b"\xff", bytes(range(256)) * 4096])
    def test_any_bytes_survive(self, store: Store, data: bytes) -> None:
        """In a body and in a note: none, every value there is, a megabyte."""
        (job,) = running(store, body=data)
        assert job.body == data
        done = settle(store, job, Returned(data))
        assert (done.body, done.note) == (data, data)

    def test_get_answers_in_order(self, store: Store) -> None:
        """By position: None where there is no such job, and a job twice if asked for twice."""
        one, two = put(store, 2)
        assert store.get([two.id, uuid7(), one.id, two.id]) == [two, None, one, two]

    def test_find_narrows(self, store: Store) -> None:
        """Each field of a query narrows, and all of them together."""
        plain, other = put(store)[0], put(store, task="other", queue="slow", key="k", state_since=NOW - 5)[0]
        late = put(store, due=NOW + HOUR)[0]
        for query in (Query(task="other"), Query(queue="slow"), Query(key="k"), Query(before=NOW)):
            assert store.find(query) == [other]
        assert store.find(Query(states=(State.SCHEDULED,))) == [late]
        assert {*ids(store.find(Query(states=WAITING, queue="default", task="mail")))} == {plain.id, late.id}
        assert store.find(Query(task="other", queue="default")) == []

    def test_find_narrows_to_queues_that_fit_a_pattern(self, store: Store) -> None:
        """`*` stands for any characters; nothing else is special, nor are capitals small letters."""
        names = (
            "shop-a",
            "shop-b",
            "SHOP-a",
            "shop",
            "a[b]c",
            "a?c",
            "a_c",
            "a%c",
            "abc",
            "a.c",
            "a!c",
            "日本",
            "日本-a",
        )
        jobs = {name: put(store, queue=name)[0] for name in names}
        for patterns in (("shop-*",), ("*a",), ("a[b]c", "a_c"), ("a?c",), ("a%*",), ("a.c", "a!c"), ("日*",), ("x*",)):
            found = {job.queue for job in store.find(Query(queues=patterns))}
            assert found == {name for name in jobs if fits(patterns, name)}
        shop = sorted((jobs["shop-a"], jobs["shop-b"]), key=lambda job: job.id)
        assert store.find(Query(queues=("shop-*",), limit=1)) == shop[:1]
        assert store.find(Query(queues=("shop-*",), states=WAITING, after=shop[0].id, task="mail")) == shop[1:]
        assert store.find(Query(queues=("shop-*",), queue="shop")) == []

    def test_find_tasks_that_fit_a_pattern(self, store: Store) -> None:
        """As of queues, and together with these."""
        names = ("shop.mail", "shop.pay", "SHOP.pay", "shop", "shop_pay", "a%c", "日本.a")
        jobs = {name: put(store, task=name, queue="slow" if name == "shop.pay" else "default")[0] for name in names}
        for patterns in (("shop.*",), ("*pay", "a%*"), ("shop?pay",), ("日*",), ("x*",)):
            found = {job.task for job in store.find(Query(tasks=patterns))}
            assert found == {name for name in jobs if fits(patterns, name)}
        assert store.find(Query(tasks=("shop.*",), queues=("s*",))) == [jobs["shop.pay"]]
        assert store.find(Query(tasks=("shop.*",), queue="default", states=WAITING)) == [jobs["shop.mail"]]
        assert store.find(Query(tasks=("shop.*",), states=(State.DONE,))) == []

    def test_find_pages(self, store: Store) -> None:
        """In the order of ids, `limit` at a time, each page after the last id of the one before."""
        jobs = sorted(put(store, 7), key=lambda job: job.id)
        first = store.find(Query(limit=3))
        second = store.find(Query(limit=3, after=first[-1].id))
        assert [*first, *second, *store.find(Query(limit=3, after=second[-1].id))] == jobs

    def test_find_ends_where_it_is_told(self, store: Store) -> None:
        """Only ids up to the last one that is wanted, also where few of them match."""
        jobs = sorted(put(store, 40), key=lambda job: job.id)
        assert store.find(Query(until=jobs[4].id)) == jobs[:5]
        assert store.find(Query(after=jobs[1].id, until=jobs[4].id, limit=2)) == jobs[2:4]
        assert store.find(Query(after=jobs[4].id, until=jobs[4].id)) == []
        assert store.find(Query(states=(State.DONE,), until=jobs[30].id)) == []

    def test_id_behind_leads_through_all_jobs(self, store: Store) -> None:
        """Step by step, each of them bounded, to the last job and no further."""
        jobs = sorted(put(store, 3000), key=lambda job: job.id)
        # Some dozens, of each of several shards.
        few = 1500
        # One by one only the last three hundred, of each of several shards some: three thousand steps take long.
        for count, first in ((1, 2700), (60, 0)):
            seen, steps, after = list[Job](), 0, jobs[first - 1].id if first else b""
            while (end := store.id_behind(after, count)) is not None:
                step = store.find(Query(after=after, until=end, limit=10_000))
                assert 0 < len(step) <= max(count, few)
                seen, steps, after = seen + step, steps + 1, end
            rest = store.find(Query(after=after, limit=10_000))
            assert len(rest) <= max(count, few)
            assert seen + rest == jobs[first:]
            assert steps >= 1
        assert store.id_behind(jobs[-1].id, 100) is None

    def test_counts(self, store: Store) -> None:
        """By queue, task and state: how many, the earliest due, the bytes of bodies and notes."""
        settle(store, running(store, body=b"12")[0], Returned(b"345"))
        put(store, due=NOW - 3, body=b"12") + put(store, body=b"1") + put(store, queue="slow", body=b"")
        tallies = {(t.queue, t.task, t.state): (t.count, t.oldest, t.bytes) for t in store.counts()}
        assert tallies == {
            ("default", "mail", State.DONE): (1, NOW, 5),
            ("default", "mail", State.READY): (2, NOW - 3, 3),
            ("slow", "mail", State.READY): (1, NOW, 0),
        }

    def test_backlog(self, store: Store) -> None:
        """The jobs of the given queues that could run now, counted up to a number, with their earliest `due`."""
        settle(store, running(store, 2, due=NOW - 50)[0], Returned(b""))
        put(store, 3, due=NOW - 3) + put(store, due=NOW - 9, priority=-5) + put(store, due=NOW + HOUR, queue="slow")
        put(store, 2, due=NOW - 30, queue="off")
        store.pause("off", True)
        store.limit("task:one", Limit(most=1))
        put(store, 2, task="one", lane="", due=NOW - 40, queue="one")
        assert store.backlog(None, NOW, 100) == Backlog(6, NOW - 40)
        assert store.backlog(["default", "none"], NOW, 100) == Backlog(4, NOW - 9)
        assert store.backlog(["default"], NOW, 2).count == 2
        assert store.backlog(["one", "off"], NOW, 100) == Backlog(2, NOW - 40)
        assert store.backlog(["slow", "off"], NOW, 100) == Backlog(0, NOW)
        assert store.backlog(["slow", "off"], NOW + HOUR, 100) == Backlog(1, NOW + HOUR)
        assert store.backlog(None, NOW + HOUR, 100) == Backlog(7, NOW - 40)

    def test_large_batches(self, store: Store) -> None:
        """Thousands in one call, through every verb of a job's life."""
        jobs = put(store, MANY)
        claimed = taken(store, limit=MANY)
        assert {*ids(claimed)} == {*ids(jobs)}
        assert store.extend("ann", {(job.id, job.epoch) for job in claimed}, LEASE, NOW) == []
        changes = [lifecycle.after(job, Returned(b"%d" % n), DEFAULT, NOW) for n, job in enumerate(claimed)]
        assert store.apply(changes, NOW) == [True] * MANY
        assert [job and job.note for job in store.get(ids(claimed))] == [b"%d" % n for n in range(MANY)]

    def test_closed_and_opened_again(self, store: Store) -> None:
        """Everything acknowledged is there again: jobs in every state, leases, paused queues."""
        jobs = [in_state(store, state) for state in (*FINISHED, State.RUNNING, *WAITING)]
        store.pause("slow", True)
        again = self.reopen(store)
        if again is None:
            pytest.skip("this kind of store keeps nothing beyond its closing")
        try:
            assert again.get(ids(jobs)) == jobs
            assert again.queues() == {"default": False, "slow": True}
            assert again.reclaim(NOW + 1) == []
            assert ids(again.reclaim(NOW + LEASE)) == [jobs[3].id]
        finally:
            again.close()

    def test_closing_twice_is_fine(self, store: Store) -> None:
        """As with a file."""
        store.close()
        store.close()

    def test_says_what_an_operator_should_know(self, store: Store) -> None:
        """Its diagnostics name its durability; its clock is in microseconds."""
        assert any("durability" in fact.name for fact in store.diagnostics())
        assert abs(store.time() - time.time_ns() // 1000) < 60 * SECOND
