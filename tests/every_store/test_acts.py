"""The log of acts on every store, and what an act leaves on a job there."""

import threading

from tarry import App
from tarry.client.acting import Actor, acting
from tarry.client.audit.log import PAGE, PAGES, PAGES_REFUSED, Act, ActFilter, ActLog
from tarry.model.attempts import acts_of
from tarry.store.rules import ids


def test_acts_of_many_processes_are_kept_in_order(app: App) -> None:
    store = app.client.store
    now, writers, each = store.time(), 3, PAGE // 2

    def write(writer: int) -> None:
        for number in range(each):
            ActLog(store).append([Act(now, str(writer), "cancel_job", "done", subject=str(number))], now)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = ActLog(store)
    first = log.read(ActFilter(), PAGE, "", now)
    found = [*first.acts, *log.read(ActFilter(), PAGE, first.next, now).acts]
    for writer in range(writers):
        own = [int(one.subject) for one in found if one.who == str(writer)]
        assert own == list(reversed(range(each)))


def test_a_caller_that_acts_without_end_drives_out_no_act_of_others(app: App) -> None:
    store = app.client.store
    now, log = store.time(), ActLog(store)
    log.append([Act(now, "ann", "cancel_job", "done", queue="mail")], now)
    for outcome in ("done", "NotAllowed: no"):
        acts = [Act(now + number, "bob", "pause_queue", outcome, queue="shop") for number in range(PAGES * PAGE + 1)]
        for start in range(0, len(acts), PAGE):
            log.append(acts[start : start + PAGE], now)
    assert [one.act for one in log.read(ActFilter(queue="mail"), 10, "", now).acts] == ["cancel_job"]
    kept = log.read(ActFilter(who="bob"), 10**6, "", now).acts
    assert len(kept) <= (PAGES + PAGES_REFUSED) * PAGE


def test_an_act_is_kept_with_its_job(app: App) -> None:
    app.task(name="mail")(lambda to: None)
    handle = app.named("mail").enqueue("ann")
    with acting(Actor("ann", "10.0.0.1", "http")):
        assert handle.cancel()
        assert handle.retry()
    (job,) = app.client.store.get([ids.parse(handle.id)])
    assert job is not None
    assert [(one.act, one.who) for one in acts_of(job)] == [("cancelled", "ann"), ("retried", "ann")]
