"""Labels: jobs are found by them as long as they are kept, and no longer."""

import pytest
from msgspec import json
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.bound import Bound
from tarry.model.flow.node_ids import node_id
from tarry.model.job import (
    LONGEST_LABEL_NAME,
    LONGEST_LABEL_VALUE,
    MOST_LABELS,
    ORDER_LABEL,
    Job,
    JobLabel,
    State,
    label_headers,
    parse_label,
)
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.flows import BAD, flow_of, row_of, run, tend_all
from tarry.store.conformance.cases.jobs import (
    FORGETS,
    NOW,
    PLENTY,
    Promises,
    ids,
    made,
    outcomes,
    put,
    running,
    seen,
    settle,
    taken,
)
from tarry.store.rules.base import Query, Store

SEVEN: JobLabel = ("customer", "7")
"""What most tests look for."""
TEXTS = ("", "a b", "%", "_", "*", "it's", '"', "\\", "=:=", "日本", "\n", "\U0001f600", "CAPS", "caps", "caps ")


def headers(*labels: JobLabel) -> bytes:
    """The headers of a job with these labels, and with others."""
    return json.encode({"trace": "00-1", **label_headers(dict(labels))})


def by_labels(store: Store, *labels: JobLabel, limit: int = 1000) -> list[Job]:
    """The jobs with these labels."""
    return store.find(Query(labels=labels, limit=limit))


class Labelling(Promises):
    """Each job with labels is in an index, from its insert to its deletion."""

    def test_found_by_a_label(self, store: Store) -> None:
        """And by several, which it must all have; other jobs are not, whatever they are like."""
        both, one = (put(store, headers=headers(*some))[0] for some in ((SEVEN, ("plan", "gold")), (SEVEN,)))
        put(store, headers=headers(("customer", "77"))) + put(store, headers=headers(("client", "7"))) + put(store)
        assert by_labels(store, SEVEN) == sorted((both, one), key=lambda job: job.id)
        assert by_labels(store, ("plan", "gold")) == by_labels(store, ("plan", "gold"), SEVEN) == [both]
        assert by_labels(store, SEVEN, ("plan", "gold")) == [both]
        assert by_labels(store, SEVEN, ("plan", "lead")) == by_labels(store, ("plan", "7")) == []
        assert both.labels == {"customer": "7", "plan": "gold"}

    def test_a_label_beside_other_conditions(self, store: Store) -> None:
        """States, queue, task, key, queues by pattern, and the time."""
        jobs = [
            *put(store, headers=headers(SEVEN)),
            *put(store, headers=headers(SEVEN), queue="shop-a", task="other", state_since=NOW - 5, key="k"),
            *put(store, headers=headers(SEVEN), due=NOW + 10),
        ]
        put(store, queue="shop-a", task="other", state_since=NOW - 5)
        query = Query(labels=(SEVEN,))
        for narrow in (
            replace(query, states=(State.READY,), task="other"),
            replace(query, queue="shop-a"),
            replace(query, task="other"),
            replace(query, key="k"),
            replace(query, queues=("shop-*",)),
            replace(query, before=NOW),
        ):
            assert store.find(narrow) == [jobs[1]]
        assert store.find(replace(query, states=(State.SCHEDULED,))) == [jobs[2]]
        assert store.find(replace(query, states=(State.RUNNING,))) == []

    def test_the_jobs_of_an_order(self, store: Store) -> None:
        """Beside as many labels as a job may have, also in its states, and after many that have ended. It is no label
        that people see or set."""
        order = (ORDER_LABEL, "a")
        labels = [(f"label{number}", "x") for number in range(MOST_LABELS)]
        both, one = (put(store, headers=headers(*some))[0] for some in ((*labels, order), (order,)))
        put(store, headers=headers((ORDER_LABEL, "b"))) + put(store, headers=headers(("tarry", "order")))
        assert by_labels(store, order) == sorted((both, one), key=lambda job: job.id)
        assert (both.labels, one.labels) == (dict(labels), {})
        with pytest.raises(ValueError, match="tarry itself"):
            parse_label(f"{ORDER_LABEL}=a")
        assert all(outcomes(store, taken(store), Returned()))
        last = put(store, headers=headers(order), due=NOW + 10)[0]
        unfinished = Query(states=(State.READY, State.SCHEDULED), labels=(order,), limit=1)
        assert store.find(unfinished) == [last]
        assert store.find(replace(unfinished, until=one.id)) == []

    def test_pages(self, store: Store) -> None:
        """In the order of ids, `limit` at a time, up to the last that is wanted, past jobs that do not match."""
        for number in range(1300):
            if number % 100 == 0:
                put(store, queue="slow", headers=headers(SEVEN))
        jobs = sorted(put(store, 700, headers=headers(SEVEN)), key=lambda job: job.id)
        query, after, pages = Query(labels=(SEVEN,), queue="default", limit=300), b"", list[list[Job]]()
        while page := store.find(replace(query, after=after)):
            pages.append(page)
            after = page[-1].id
        assert [len(page) for page in pages] == [300, 300, 100]
        assert [job for page in pages for job in page] == jobs
        assert store.find(replace(query, after=jobs[9].id, until=jobs[12].id)) == jobs[10:13]
        assert by_labels(store, SEVEN, limit=0) == []
        (slow,) = store.find(Query(labels=(SEVEN,), queue="slow", limit=1))
        assert slow.queue == "slow"

    def test_id_behind_counts_jobs_with_the_label(self, store: Store) -> None:
        """However many others are between them: so a search leaves these out."""
        for _ in range(10):
            put(store, 100)
            put(store, 10, headers=headers(SEVEN))
        seven, after, steps = by_labels(store, SEVEN), b"", 0
        assert len(seven) == 100
        while (end := store.id_behind(after, 40, SEVEN)) is not None:
            assert end in ids(seven)
            assert end > after
            assert 0 < len(store.find(Query(labels=(SEVEN,), after=after, until=end))) <= 100
            after, steps = end, steps + 1
        assert steps <= 4 * max(self.shards, 1) * 3
        assert store.id_behind(seven[-1].id, 1, SEVEN) is store.id_behind(b"", 1, ("customer", "8")) is None

    def test_any_texts(self, store: Store) -> None:
        """Values are compared byte by byte; the longest and the most are kept."""
        jobs = {text: put(store, headers=headers(("text", text)))[0] for text in TEXTS}
        for text, job in jobs.items():
            assert by_labels(store, ("text", text)) == [job]
        assert by_labels(store, ("TEXT", "")) == []
        names = ["é" * (LONGEST_LABEL_NAME // 2), *(f"n{number}" for number in range(1, MOST_LABELS))]
        many = dict.fromkeys(names, "ü" * (LONGEST_LABEL_VALUE // 2))
        (job,) = put(store, headers=headers(*many.items()))
        for label in many.items():
            assert by_labels(store, label) == [job]
        assert by_labels(store, *many.items()) == [job]
        assert seen(store, job).labels == many

    def test_headers_of_others(self, store: Store) -> None:
        """What is no label is in no index, and is in nobody's way."""
        texts = (
            b'{"tarry-label:a":7}', b'{"tarry-label:a', b'["tarry-label:a"]', b'{"tarry-label:":"x"}',
            b'{"tarry-label:%b":"x"}' % (b"n" * 65), b'{"tarry-label:a":"%b"}' % (b"v" * 257),
            b'{"other":"\\"tarry-label:a\\":"}', b'{"tarry-label:a":null}', b'\xff"tarry-label:a":',
        )  # fmt: skip
        jobs = [put(store, headers=text)[0] for text in texts]
        for label in (("a", "7"), ("", "x"), ("a", "null"), ("a", "")):
            assert by_labels(store, label) == []
        assert [seen(store, job).headers for job in jobs] == list(texts)
        for job in taken(store):
            done = settle(store, job, Returned())
        assert store.prune(done.keep_until, PLENTY) == len(texts)
        assert self.count_labels(store) in (0, None)

    def test_through_its_life(self, store: Store) -> None:
        """A change of a job changes nothing of its labels."""
        (job,) = running(store, headers=headers(SEVEN))
        assert by_labels(store, SEVEN) == [job]
        done = settle(store, job, Returned(b"1"))
        assert by_labels(store, SEVEN) == [done]
        assert store.apply([lifecycle.run_now(done, NOW)], NOW) == [True]
        assert by_labels(store, SEVEN) == [seen(store, job)]

    def test_sent_twice(self, store: Store) -> None:
        """It is one job, alone and among others; that of a key that is held is none."""
        jobs = made(store, 3, headers=headers(SEVEN))
        for batch in (jobs[:1], jobs[:1], jobs, jobs):
            assert store.insert(batch) == ids(batch)
        assert by_labels(store, SEVEN) == sorted(jobs, key=lambda job: job.id)
        (holder,) = put(store, key="k", headers=headers(("customer", "8")))
        (other,) = made(store, key="k", headers=headers(SEVEN))
        assert store.insert([other]) == [holder.id]
        assert len(by_labels(store, SEVEN)) == 3

    def test_in_a_bounded_queue(self, store: Store) -> None:
        """A job that is refused has no labels either."""
        jobs = made(store, 10, headers=headers(SEVEN))
        taken_in = [job for job in store.insert_bounded(jobs, {"default": Bound(4)}, NOW) if isinstance(job, bytes)]
        assert 0 < len(taken_in) < len(jobs)
        assert ids(by_labels(store, SEVEN)) == sorted(taken_in)

    def test_with_a_limit(self, store: Store) -> None:
        """A job that waits in a lane is found as others are."""
        (job,) = put(store, lane="ann", headers=headers(SEVEN))
        assert by_labels(store, SEVEN) == [job]

    @pytest.mark.parametrize("count", [1, 3])
    def test_forgotten_at_its_end(self, store: Store, count: int) -> None:
        """By a rule that keeps no job that is done: then its labels are gone."""
        plain = put(store, count)
        jobs = put(store, count, headers=headers(SEVEN, ("plan", "gold")))
        assert outcomes(store, taken(store), Returned(), FORGETS) == [True] * (2 * count)
        assert by_labels(store, SEVEN) == []
        assert self.count_labels(store) in (0, None)
        assert store.get(ids([*plain, *jobs])) == [None] * (2 * count)

    def test_forgotten_by_hand(self, store: Store) -> None:
        """Waiting, or finished."""
        (ran,) = running(store, headers=headers(SEVEN))
        jobs = [settle(store, ran, Returned()), *put(store, 2, headers=headers(SEVEN, ("plan", "gold")))]
        assert self.count_labels(store) in (5, None)
        for job in jobs:
            assert store.apply([lifecycle.forget(job)], NOW) == [True]
        assert by_labels(store, SEVEN) == []
        assert self.count_labels(store) in (0, None)

    def test_pruned(self, store: Store) -> None:
        """Those of other jobs stay."""
        (stays,) = put(store, headers=headers(SEVEN), due=NOW + 10)
        gone = [settle(store, job, Returned()) for job in running(store, 3, headers=headers(SEVEN))]
        assert store.prune(gone[0].keep_until, PLENTY) == 3
        assert by_labels(store, SEVEN) == [stays]
        assert self.count_labels(store) in (1, None)

    def test_of_a_flow(self, store: Store) -> None:
        """Its root and its nodes, until the flow is deleted."""
        if not self.has_flows:
            pytest.skip("this store keeps no flows")
        new = flow_of(store, [[], [1]], fields={1: {"headers": headers(SEVEN)}, 2: {"headers": headers(SEVEN)}})
        new = replace(new, root=replace(new.root, headers=headers(SEVEN)))
        flow = store.flows.insert(new, NOW)
        assert store.flows.insert(new, NOW) == flow
        assert ids(by_labels(store, SEVEN)) == [flow, node_id(flow, 1), node_id(flow, 2)]
        first = store.flows.grow(flow, 1)
        assert first is not None
        added = replace(new.nodes[1], id=node_id(flow, first), headers=headers(SEVEN, ("added", "yes")))
        store.flows.add_nodes([added])
        assert by_labels(store, ("added", "yes")) == [added]
        run(store, flow, 1, outcome=BAD)
        assert tend_all(store, row_of(store, flow).at) > 0
        assert store.flows.get(flow) is None
        assert by_labels(store, SEVEN) == []
        assert self.count_labels(store) in (0, None)
