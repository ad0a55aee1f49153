"""A scrape: what was ever counted, and what is so now, by queue and task."""

from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from tarry import App
from tarry.errors import PartlyUnavailable, StoreAway
from tarry.keeper import schedule_state
from tarry.keeper.schedule_state import ScheduleState
from tarry.metrics import scrape
from tarry.metrics.host_families import HostFigures, ProcessFigures
from tarry.metrics.names import METRICS, OTHER
from tarry.metrics.process_figures import OwnFigures
from tarry.metrics.scrape import MOST_ERRORS, Scrape
from tarry.metrics.store_figures import FiguresReader
from tarry.model import lifecycle
from tarry.model.change import DONE
from tarry.model.duration import DAY, HOUR, SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Raised, Returned
from tarry.model.schedules.schedule import left_out
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.memory.store import MemoryStore
from tarry.store.queries import stored_schedules
from tarry.store.queries.hosts import PoolFigures
from tarry.store.queries.missed_schedules import MARK
from tarry.store.rules.base import NORMAL, Store, Want
from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place
from tarry.store.rules.history.sums import OTHERS, TOTALS, Place, Sums, encode
from tarry.store.rules.ids import uuid7
from tests.metrics.reading import ACCEPT, Samples, samples_of

NOW = 1_800_000_000 * SECOND


def work(store: Store) -> None:
    """One job of mail is done after 2 s of waiting and 20 s of running, one ends dead, and one of other waits."""
    for queue in ("mail", "mail", "docs"):
        store.insert([Job(uuid7(), "send", b"", queue, due=NOW, state_since=NOW)])
    first, second = store.claim([Want("mail", NORMAL, 2)], 2, "ann", HOUR, NOW + 2 * SECOND)
    done = lifecycle.after(first, Returned(), DEFAULT, NOW + 22 * SECOND)
    dead = lifecycle.after(second, Raised(b"{}", final=True), DEFAULT, NOW + 2 * SECOND)
    assert store.apply([done, dead], NOW + 22 * SECOND) == [True, True]
    store.history.sum_up(NOW + HOUR)


def scraped(
    store: Store,
    allows: Callable[[str], bool] = lambda queue: True,
    host: HostFigures | None = None,
    app: App | None = None,
) -> Samples:
    own, reader = OwnFigures(), FiguresReader(app or App(store), lambda: store)
    text, media_type = Scrape(own, reader.read(), host, allows=allows).encode(ACCEPT)
    assert media_type.startswith("application/openmetrics-text")
    return samples_of(text.decode())


def test_counters_are_by_queue_and_task() -> None:
    store = MemoryStore()
    work(store)
    found = scraped(store)
    assert found["tarry_jobs_enqueued_total"] == {("mail", "send"): 2, ("docs", "send"): 1}
    ended = found["tarry_jobs_total"]
    assert (ended["done", "mail", "send"], ended["dead", "mail", "send"], ended["done", "docs", "send"]) == (1, 1, 0)
    assert {outcome for outcome, _, _ in ended} == {"done", "dead", "cancelled", "expired"}
    assert found["tarry_job_retries_total"] == {("mail", "send"): 0, ("docs", "send"): 0}


def test_errors_are_counted_by_their_ids() -> None:
    store = MemoryStore()
    places = {group_place("mail", f"{number:016x}"): number for number in range(MOST_ERRORS + 1)}
    cells = {place: encode_group(ErrorGroup("ValueError", count=7, last=NOW + at)) for place, at in places.items()}
    assert store.history.change_errors(lambda _: cells | {group_place("", ""): encode_group(ErrorGroup(count=3))})
    found = scraped(store)["tarry_errors_total"]
    # The one that was seen first has no series, nor has what is not counted by kind.
    assert {error for error, _ in found} == {f"{number:016x}" for number in range(1, MOST_ERRORS + 1)}
    assert set(found.values()) == {7}
    assert scraped(store, lambda queue: queue == "docs").get("tarry_errors_total", {}) == {}


def test_times_are_histograms() -> None:
    store = MemoryStore()
    work(store)
    found = scraped(store)
    waited, ran = found["tarry_job_wait_seconds_bucket"], found["tarry_job_duration_seconds_bucket"]
    assert [waited["mail", limit] for limit in ("1.0", "2.5", "+Inf")] == [0, 2, 2]
    assert waited["docs", "+Inf"] == 0
    assert [ran["mail", "send", limit] for limit in ("0.005", "10.0", "30.0", "+Inf")] == [1, 1, 2, 2]
    assert found["tarry_job_duration_seconds_count"]["mail", "send"] == 2
    assert 17.5 < found["tarry_job_duration_seconds_sum"]["mail", "send"] < 22.5


def test_counters_do_not_go_down_when_sums_are_pruned() -> None:
    store = MemoryStore()
    work(store)
    before = scraped(store)
    store.history.prune(NOW + 1000 * DAY)
    after = scraped(store)
    counted = [name for name in before if name.startswith("tarry_job")]
    assert len(counted) > 5
    assert [after[name] for name in counted] == [before[name] for name in counted]


def test_a_caller_sees_only_its_queues() -> None:
    store = MemoryStore()
    work(store)
    found = scraped(store, lambda queue: queue == "docs")
    assert found["tarry_jobs_enqueued_total"] == {("docs", "send"): 1}
    assert {labels[0] for labels in found["tarry_job_wait_seconds_bucket"]} == {"docs"}
    assert {queue for queue, _ in found["tarry_queue_depth"]} == {"docs"}
    assert found["tarry_store_up"] == {("1",): 1}


def test_while_a_part_of_the_store_is_away_there_are_no_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that part they would go down."""
    store = MemoryStore()
    work(store)

    def away(resolution: int, start: int, end: int) -> dict[Place, bytes]:
        raise PartlyUnavailable("a shard is away", {})

    monkeypatch.setattr(store.history, "read", away)
    found = scraped(store)
    assert "tarry_jobs_total" not in found
    assert found["tarry_queue_depth"]["docs", "ready"] == 1


def test_what_has_no_name_of_its_own_is_other() -> None:
    """Also where a queue and a task are really named so."""
    store = MemoryStore()
    cells = {
        Place(TOTALS, 0, OTHERS, OTHERS): encode(Sums(kinds={DONE: 5})),
        Place(TOTALS, 0, OTHER, OTHER): encode(Sums(kinds={DONE: 2})),
    }
    store.history.read = lambda resolution, start, end: cells  # type: ignore[method-assign]
    ended = scraped(store)["tarry_jobs_total"]
    assert {labels[1:] for labels in ended} == {("other", "other")}
    assert sum(ended.values()) == 7


def test_queues_beyond_the_bound_are_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "MOST_QUEUES", 2)
    store = MemoryStore()
    for number in range(5):
        store.insert([Job(uuid7(), "send", b"", f"q{number}", due=NOW, state_since=NOW)] * 1)
    store.pause("q4", True)
    found = scraped(store)
    depth = {queue: count for (queue, state), count in found["tarry_queue_depth"].items() if state == "ready"}
    assert depth == {"q0": 1, "q1": 1, "other": 3}
    assert found["tarry_queue_paused"] == {("q0",): 0, ("q1",): 0, ("other",): 1}


def needed(store: Store) -> Mapping[tuple[str, ...], float]:
    return scraped(store).get("tarry_queue_workers_needed", {})


def test_the_workers_needed_would_work_off_what_is_ready_in_a_minute() -> None:
    store = MemoryStore()
    work(store)
    assert needed(store) == {("mail",): 0, ("docs",): 1}, "of a queue without an ended attempt no duration is known"
    store.insert([Job(uuid7(), "send", b"", "mail", due=NOW, state_since=NOW) for _ in range(60)])
    # Two attempts took 20 s and none: 10 s a job, to within an eighth.
    assert 9 <= needed(store)["mail",] <= 12
    store.claim([Want("mail", NORMAL, 12)], 12, "ann", HOUR, NOW + HOUR)
    assert 12 + 7 <= needed(store)["mail",] <= 12 + 9
    store.pause("mail", True)
    assert needed(store)["mail",] == 12


def test_the_workers_needed_are_not_told_while_a_part_of_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    work(store)
    monkeypatch.setattr(store.history, "read", lambda resolution, start, end: {})
    assert needed(store) == {}


def test_answers_of_endpoints_are_by_class_of_status(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    cells = {Place(TOTALS, 0, "push", "hook"): encode(Sums(statuses={200: 3, 204: 1, 503: 2, 700: 1}))}
    monkeypatch.setattr(store.history, "read", lambda resolution, start, end: cells)
    assert scraped(store)["tarry_push_attempts_total"] == {
        ("2xx", "hook"): 4,
        ("4xx", "hook"): 0,
        ("5xx", "hook"): 2,
        ("other", "hook"): 1,
    }


STORED = ("_missed", "_missed_ticks_total", "_last_run_timestamp_seconds", "_next_run_timestamp_seconds")


def test_schedules_tell_when_they_ran_and_what_they_missed() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(cron="0 * * * *")
    def clean() -> None: ...

    store = app.client.store
    now = store.time()
    (name,) = [schedule.name for schedule in clean.schedules]
    state = ScheduleState(clean.schedules[0].rule, now, now, last=now - HOUR)
    state = replace(state, runs=[left_out([now - 2 * HOUR, now - HOUR])])
    assert schedule_state.write(store, name, state, None)
    found = scraped(store, app=app)
    assert found["tarry_schedule_last_run_timestamp_seconds"][name,] == pytest.approx((now - HOUR) / SECOND)
    assert 0 < found["tarry_schedule_next_run_timestamp_seconds"][name,] - now / SECOND <= 3600
    assert (found["tarry_schedule_missed_ticks"][name,], found["tarry_schedule_paused"][name,]) == (2, 0)


def test_schedules_in_the_store_are_sums() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(name="report")
    def report() -> None: ...

    store, names = app.client.store, [f"tarry_stored_schedules{rest}" for rest in ("", *STORED)]
    assert [scraped(store, app=app)[name] for name in names] == [{(): 0}] * 5
    for name in ("a", "b", "c"):
        app.schedules.put(name, report.call(), every="1h")
    facts = app.schedules.get("a")
    assert facts is not None

    def left_out_once(schedule: StoredSchedule | None) -> StoredSchedule | None:
        assert schedule is not None
        return replace(schedule, runs=[left_out([store.time()])])

    stored_schedules.change(store, "b", left_out_once)
    store.kv_cas(f"{MARK}b", b"", None)
    store.kv_cas("stored-schedules:ticks", b'{"last":7000000,"missed":5}', None)
    found = scraped(store, app=app)
    assert [found[name][()] for name in names] == [3, 1, 5, 7, facts.next]


def test_the_master_and_its_processes() -> None:
    pool = PoolFigures("mail", workers=4, busy=1, memory=7, wanted=5, failure="no", replaced={"age": 2, "crash": 1})
    processes = [ProcessFigures("worker mail.1", 9.0, 70, 10.0), ProcessFigures("worker mail.1", 1.0, 50, 20.0)]
    found = scraped(MemoryStore(), host=HostFigures(5.0, True, False, [pool], processes))
    assert found["tarry_workers"] == {("mail", "busy"): 1, ("mail", "idle"): 3}
    assert found["tarry_workers_replaced_total"] == {
        ("mail", "age"): 2,
        ("mail", "crash"): 1,
        ("mail", "hang"): 0,
        ("mail", "killed"): 0,
    }
    assert (found["tarry_pool_failed"]["mail",], found["tarry_workers_wanted"]["mail",]) == (1, 5)
    # The one that took the place of the other.
    assert found["tarry_process_cpu_seconds_total"] == {("worker mail.1",): 1}


def test_a_store_that_is_away_shows_nothing_but_that(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    work(store)

    def away(*_: object) -> None:
        raise StoreAway("away")

    monkeypatch.setattr(store, "kv_get", away)
    found = scraped(store)
    assert list(found["tarry_store_up"].values()) == [0]
    assert {name for name in found if name.startswith("tarry_")} == {"tarry_store_up", "tarry_build_info"}


def test_every_figure_has_the_labels_that_are_told_of_it() -> None:
    store = MemoryStore()
    work(store)
    for name, by_labels in scraped(store).items():
        if not name.startswith("tarry_"):
            continue
        known: Mapping[str, int] = {known: len(one.labels) for known, one in METRICS.items()}
        base = name if name in known else name.rpartition("_")[0]
        extra = name.endswith("_bucket")
        assert {len(labels) for labels in by_labels} == {known[base] + extra}, name
