"""Labels: what a job may have, which ways lead to them, and what inherits them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tarry import App, Fail, current_job, fan_out
from tarry.errors import BodyTooLarge, IdempotencyError
from tarry.model.job import LONGEST_LABEL_NAME, LONGEST_LABEL_VALUE, MOST_LABELS, Job, label_headers
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query
from tarry.tasks.arguments.options import Options
from tarry.testing import Jobs

SEVEN = {"customer": "7"}


def labelled(app: App, labels: Mapping[str, str]) -> list[Job]:
    """The jobs with these labels, in the order of their ids."""
    return app.client.store.find(Query(labels=tuple(labels.items())))


def test_a_job_is_found_by_its_labels(jobs: Jobs) -> None:
    @jobs.app.task
    def mail(number: int) -> None: ...

    seven = mail.using(labels=SEVEN | {"plan": "gold"}).enqueue(1)
    mail.using(labels={"customer": "8"}).enqueue(1)
    mail.enqueue(1)
    assert seven.record().labels == {"customer": "7", "plan": "gold"}
    assert labelled(jobs.app, SEVEN) == labelled(jobs.app, {"plan": "gold"} | SEVEN) == [seven.record()]
    assert labelled(jobs.app, SEVEN | {"plan": "lead"}) == []


def test_an_app_finds_and_changes_the_jobs_of_a_label(jobs: Jobs) -> None:
    @jobs.app.task
    def mail(number: int) -> None: ...

    seven = [mail.using(labels=SEVEN | {"plan": "gold"}).enqueue(number).id for number in range(3)]
    mail.using(labels={"plan": "gold"}).enqueue(3)
    found = jobs.app.jobs(labels=SEVEN)
    assert ([job.id for job in found], found.count()) == (seven, 3)
    assert jobs.app.jobs(labels=SEVEN | {"plan": "lead"}).count() == 0
    assert found.cancel("moved away").changed == 3
    assert jobs.app.jobs(state="ready").count() == 1
    with pytest.raises(ValueError, match="blank"):
        jobs.app.jobs(labels={"a b": "7"})
    with pytest.raises(ValueError, match="of which jobs"):
        jobs.app.jobs(labels={}).delete()


def test_each_way_to_enqueue_takes_labels(jobs: Jobs) -> None:
    @jobs.app.task
    def mail(number: int) -> None: ...

    @jobs.app.task(batch=10)
    def store(numbers: Sequence[int]) -> None: ...

    of_seven = mail.using(labels=SEVEN)
    of_seven.enqueue(1)
    of_seven.enqueue_many([mail.call(1), mail.call(2)])
    of_seven.enqueue_many([mail.call(1), mail.call(2)], over="1h")
    store.using(labels=SEVEN).enqueue(1)
    jobs.app.client.insert_jobs([jobs.app.client.make_job("unknown", b"[]", Options(labels=SEVEN).check())])
    assert len(labelled(jobs.app, SEVEN)) == 7


def test_labels_that_are_changed_later_are_those_of_the_call(jobs: Jobs) -> None:
    @jobs.app.task
    def mail() -> None: ...

    given = dict(SEVEN)
    of_seven, of_flow = mail.using(labels=given), jobs.app.using(labels=given)
    given["customer"] = "x" * 1000
    alone, flow = of_seven.enqueue().record(), of_flow.group([mail.call()]).record().root
    assert flow is not None
    assert alone.labels == flow.labels == SEVEN


def test_the_most_that_a_job_may_have(jobs: Jobs) -> None:
    @jobs.app.task
    def mail() -> None: ...

    most = {
        f"{number:02}{'é' * (LONGEST_LABEL_NAME // 2 - 1)}": "ü" * (LONGEST_LABEL_VALUE // 2)
        for number in range(MOST_LABELS)
    }
    assert mail.using(labels=most).enqueue().record().labels == most
    assert mail.using(labels={}).enqueue().record().headers == b""


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([("customer", "7")], "a dict of text by name"),
        ({"customer": 7}, "a name and a value are text, not str and int"),
        ({7: "customer"}, "not int and str"),
        ({f"n{number}": "" for number in range(MOST_LABELS + 1)}, "at most 16 labels, not 17"),
        ({"": "7"}, "1 to 64 bytes of UTF-8, not 0"),
        ({"n" * 65: "7"}, "1 to 64 bytes of UTF-8, not 65"),
        ({"é" * 33: "7"}, "not 66"),
        ({"customer": "7" * 257}, "at most 256 bytes of UTF-8, not 257"),
        ({"customer": "\0"}, "NUL"),
        ({"customer": "\ud800"}, "half of a character"),
        ({"a=b": "7"}, "no `=`"),
        ({"a:b": "7"}, "no `=`, `:`"),
        ({"a b": "7"}, "blank"),
        ({"a\n": "7"}, "control character"),
    ],
)
def test_what_cannot_be_a_label_is_refused(jobs: Jobs, labels: Any, why: str) -> None:
    @jobs.app.task
    def mail() -> None: ...

    for takes in (mail.using, jobs.app.using):
        with pytest.raises(ValueError, match=r"labels=.*") as refused:
            takes(labels=labels)
        assert why in str(refused.value)
    assert jobs.app.client.store.find(Query()) == []


def test_a_task_sees_its_labels_and_cannot_change_them(jobs: Jobs) -> None:
    @jobs.app.task
    def mail() -> None:
        seen.append(dict(current_job().labels))
        with pytest.raises(TypeError):
            current_job().labels["customer"] = "8"  # type: ignore[index]

    seen: list[dict[str, str]] = []
    mail.using(labels=SEVEN).enqueue()
    mail.enqueue()
    jobs.drain()
    assert seen == [SEVEN, {}]


def test_a_later_call_of_the_key_changes_no_labels(jobs: Jobs) -> None:
    @jobs.app.task
    def index(page: str) -> None: ...

    first = index.using(key="p", labels=SEVEN).enqueue("one")
    again = index.using(key="p", on_duplicate="replace", labels={"customer": "8"}).enqueue("two")
    assert (again.id, again.record().labels, again.record().body) == (first.id, SEVEN, b'["two"]')
    assert labelled(jobs.app, {"customer": "8"}) == []


def test_what_a_job_enqueues_has_its_labels(jobs: Jobs) -> None:
    """Those of its own win; what a job enqueued by a job enqueues has them, too."""

    @jobs.app.task
    def parent() -> None:
        child.enqueue()
        child.using(labels={"plan": "gold", "step": "2"}).enqueue()
        child.enqueue_many([child.call(), child.call()])

    @jobs.app.task
    def child() -> None:
        if current_job().labels.get("step") == "2":
            grandchild.enqueue()

    @jobs.app.task
    async def grandchild() -> None:
        await leaf.aenqueue()

    @jobs.app.task
    def leaf() -> None: ...

    parent.using(labels=SEVEN | {"plan": "lead"}).enqueue()
    jobs.drain()
    tasks = [job.task.rpartition(".")[2] for job in labelled(jobs.app, SEVEN)]
    assert sorted(tasks) == ["child"] * 4 + ["grandchild", "leaf", "parent"]
    gold = [job.task.rpartition(".")[2] for job in labelled(jobs.app, {"plan": "gold", "step": "2"})]
    assert sorted(gold) == ["child", "grandchild", "leaf"]
    child.enqueue()
    assert len(labelled(jobs.app, SEVEN)) == 7, "no job runs here"


def test_a_job_has_no_more_than_it_may(jobs: Jobs) -> None:
    @jobs.app.task
    def parent() -> None:
        child.using(labels={"own": "1", "n0": "own"}).enqueue()

    @jobs.app.task
    def child() -> None: ...

    parent.using(labels={f"n{number}": "" for number in range(MOST_LABELS)}).enqueue()
    jobs.drain()
    (job,) = labelled(jobs.app, {"own": "1"})
    assert len(job.labels) == MOST_LABELS
    assert job.labels["n0"] == "own"


def test_a_batch_hands_on_what_all_of_its_jobs_have(jobs: Jobs) -> None:
    @jobs.app.task(batch=10)
    def store(numbers: Sequence[int]) -> None:
        child.enqueue()

    @jobs.app.task
    def child() -> None: ...

    for number in range(3):
        store.using(labels=SEVEN | {"number": str(number)}).enqueue(number)
    jobs.drain()
    (job,) = (job for job in labelled(jobs.app, SEVEN) if job.task == child.name)
    assert job.labels == SEVEN


def test_the_nodes_of_a_flow_have_its_labels(jobs: Jobs) -> None:
    @jobs.app.task
    def step(number: int) -> int:
        return number

    @jobs.app.task
    def last(numbers: list[int]) -> int:
        return sum(numbers)

    with jobs.app.flow("order", labels=SEVEN) as flow:
        nodes = flow.add_all([step.call(1), step.using(labels={"customer": "8"}).call(2)])
        flow.add(last.call(nodes.result))
    jobs.drain()
    found = labelled(jobs.app, SEVEN)
    assert sorted(job.task.rpartition(".")[2] for job in found) == ["flow:order", "last", "step"]
    assert [job.task for job in labelled(jobs.app, {"customer": "8"})] == [step.name]


def test_a_flow_that_a_job_stores_has_its_labels(jobs: Jobs) -> None:
    """Root and nodes; and those that a node adds."""

    @jobs.app.task
    def parent() -> None:
        jobs.app.group([pages.call(), pages.using(labels={"plan": "gold"}).call()])

    @jobs.app.task
    def pages() -> list[int]:
        return fan_out([page.call(1), page.call(2)])

    @jobs.app.task
    def page(number: int) -> int:
        return number

    parent.using(labels=SEVEN).enqueue()
    jobs.drain()
    tasks = sorted(job.task.rpartition(".")[2] for job in labelled(jobs.app, SEVEN))
    assert tasks == ["flow:group", *["page"] * 4, "pages", "pages", "parent"]
    assert [job.task for job in labelled(jobs.app, {"plan": "gold"})] == [pages.name, page.name, page.name]


def test_what_undoes_a_node_has_its_labels(jobs: Jobs) -> None:
    @jobs.app.task
    def book(number: int) -> int:
        return number

    @jobs.app.task
    def fail(number: int) -> None:
        raise Fail

    @jobs.app.task
    def cancel(number: int) -> None: ...

    with jobs.app.flow("order", on_failure="compensate", labels=SEVEN) as flow:
        booked = flow.add(book.using(labels={"plan": "gold"}).call(1), undo=cancel.call())
        flow.add(fail.call(booked.result))
    jobs.drain()
    (undone,) = (job for job in labelled(jobs.app, SEVEN) if job.task == cancel.name)
    assert undone.labels == SEVEN | {"plan": "gold"}
    assert len(labelled(jobs.app, SEVEN)) == 5


def test_headers_that_are_too_large_are_refused(jobs: Jobs) -> None:
    @jobs.app.task
    def mail() -> None: ...

    # Each of these bytes takes six in JSON.
    labels = {f"n{number}": "\x01" * LONGEST_LABEL_VALUE for number in range(MOST_LABELS)}
    with pytest.raises(BodyTooLarge, match="the headers take"):
        mail.using(labels=labels).enqueue()
    assert jobs.app.client.store.find(Query()) == []


def test_a_request_sent_again_is_the_same_whatever_its_labels() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task
    def mail(number: int) -> None: ...

    first = mail.using(idempotency="r", labels=SEVEN).enqueue(1)
    assert mail.using(idempotency="r").enqueue(1).id == first.id
    with pytest.raises(IdempotencyError):
        mail.using(idempotency="r", labels=SEVEN).enqueue(2)
    assert label_headers(SEVEN) == {"tarry-label:customer": "7"}
    app.close()
