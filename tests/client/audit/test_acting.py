"""What an act leaves on a job, and who it says it was."""

import threading

from tarry import App
from tarry.client.acting import Actor, acting, command_actor, current_actor
from tarry.client.bulk import change_jobs
from tarry.model import lifecycle
from tarry.model.attempts import MOST_ACTS, JobAct, acts_of, attempts_of
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query


def made() -> App:
    app = App(MemoryStore(), closures=True)

    @app.task(name="mail")
    def mail(to: str) -> None: ...

    return app


def only_job(app: App) -> Job:
    (job,) = app.client.store.find(Query())
    return job


def acts(app: App) -> list[tuple[str, str, str, str]]:
    return [(one.act, one.who, one.address, one.via) for one in acts_of(only_job(app))]


def test_each_act_is_kept_with_the_job() -> None:
    app = made()
    id = app.named("mail").enqueue("ann").id
    key = only_job(app).id
    with acting(Actor("ann", "10.0.0.1", "http")):
        assert app.client.move(key, priority=3)
        assert app.client.cancel(key)
    with acting(Actor("bob", "here", "command")):
        assert app.client.retry(key)
    assert acts(app) == [
        ("moved", "ann", "10.0.0.1", "http"),
        ("cancelled", "ann", "10.0.0.1", "http"),
        ("retried", "bob", "here", "command"),
    ]
    assert attempts_of(only_job(app)).attempts == []
    assert only_job(app).id.hex() == id.replace("-", "")


def test_a_program_that_says_nothing_is_a_program_on_its_host() -> None:
    app = made()
    handle = app.named("mail").enqueue("ann")
    assert handle.cancel()
    (only,) = acts(app)
    assert (only[0], only[1], only[3]) == ("cancelled", "", "program")
    assert only[2]


def test_many_at_once_are_signed_too() -> None:
    app = made()
    app.named("mail").enqueue_many([("ann",)])
    with acting(Actor("ann", via="operation")):
        assert change_jobs(app.client, [only_job(app)], app.client.cancel_change, "cancelled") == 1
    assert acts(app) == [("cancelled", "ann", "", "operation")]


def test_the_acts_of_a_job_are_bounded() -> None:
    job = Job(b"1" * 16, "mail", b"[]")
    for number in range(MOST_ACTS + 5):
        change = lifecycle.by_hand(
            job, lifecycle.move(job, number, priority=number), JobAct(number, "moved", "", "", "")
        )
        job = change.apply_to(job)
    assert [one.at for one in acts_of(job)] == list(range(5, MOST_ACTS + 5))


def test_a_deletion_leaves_nothing_to_sign() -> None:
    job = Job(b"1" * 16, "mail", b"[]")
    assert lifecycle.by_hand(job, lifecycle.forget(job), JobAct(0, "deleted", "", "", "")).attempts is None


def test_an_actor_is_the_thread_s_own() -> None:
    seen: list[Actor] = []
    with acting(Actor("ann")):
        thread = threading.Thread(target=lambda: seen.append(current_actor()))
        thread.start()
        thread.join()
        assert current_actor().name == "ann"
    assert seen[0].name == ""
    assert current_actor().via == "program"


def test_the_user_of_a_command() -> None:
    actor = command_actor()
    assert actor.via == "command"
    assert actor.address
