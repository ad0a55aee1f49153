"""Figures of the history for Prometheus: what was ever counted, by queue and task."""

from collections.abc import Callable

from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tarry.door.figures import DoorFigures, Scrape
from tarry.door.store_look import StoreLook, read_totals
from tarry.errors import PartlyUnavailable
from tarry.model import lifecycle
from tarry.model.duration import DAY, HOUR, SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Raised, Returned
from tarry.store.base import NORMAL, Store, Want
from tarry.store.history.sums import Place
from tarry.store.ids import uuid7
from tarry.store.memory import MemoryStore

NOW = 1_800_000_000 * SECOND


def work(store: Store) -> None:
    """One job of mail is done after 2 s of waiting and 20 s of running, one ends dead, and one of other waits."""
    for queue in ("mail", "mail", "other"):
        store.insert([Job(uuid7(), "send", b"", queue, due=NOW, state_since=NOW)])
    first, second = store.claim([Want("mail", NORMAL, 2)], 2, "ann", HOUR, NOW + 2 * SECOND)
    done = lifecycle.after(first, Returned(), DEFAULT, NOW + 22 * SECOND)
    dead = lifecycle.after(second, Raised(b"{}", final=True), DEFAULT, NOW + 2 * SECOND)
    assert store.apply([done, dead], NOW + 22 * SECOND) == [True, True]
    store.history.sum_up(NOW + HOUR)


def scraped(store: Store, allows: Callable[[str], bool] = lambda queue: True) -> dict[str, dict[str, float]]:
    """The values of the history's samples, by the name and then by the other labels, joined."""
    # As OpenMetrics, whose parser refuses what does not follow its rules.
    scrape = Scrape(DoorFigures(), StoreLook.of(store), read_totals(store), allows)
    text = generate_latest(scrape).decode()  # type: ignore[no-untyped-call]
    families: list[Metric] = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    found: dict[str, dict[str, float]] = {}
    for family in families:
        for sample in family.samples:
            names = sorted(sample.labels, key=lambda name: (name == "le", name))
            found.setdefault(sample.name, {})["/".join(sample.labels[name] for name in names)] = sample.value
    return found


def test_counters_are_by_queue_and_task() -> None:
    store = MemoryStore()
    work(store)
    found = scraped(store)
    assert found["tarry_jobs_put_total"] == {"mail/send": 2, "other/send": 1}
    assert found["tarry_jobs_done_total"] == {"mail/send": 1, "other/send": 0}
    assert found["tarry_jobs_dead_total"] == {"mail/send": 1, "other/send": 0}
    assert found["tarry_jobs_failed_total"] == {"mail/send": 0, "other/send": 0}
    assert {"tarry_jobs_cancelled_total", "tarry_jobs_expired_total"} <= found.keys()


def test_times_are_histograms_by_queue() -> None:
    store = MemoryStore()
    work(store)
    found = scraped(store)
    waited, ran = found["tarry_job_wait_seconds_bucket"], found["tarry_job_run_seconds_bucket"]
    assert (waited["mail/1.0"], waited["mail/2.5"], waited["mail/+Inf"], waited["other/+Inf"]) == (0, 2, 2, 0)
    assert (ran["mail/0.005"], ran["mail/10.0"], ran["mail/30.0"], ran["mail/+Inf"]) == (1, 1, 2, 2)
    assert found["tarry_job_run_seconds_count"]["mail"] == 2
    assert 17.5 < found["tarry_job_run_seconds_sum"]["mail"] < 22.5


def test_counters_do_not_go_down_when_sums_are_pruned() -> None:
    store = MemoryStore()
    work(store)
    before = scraped(store)
    store.history.prune(NOW + 1000 * DAY)
    after = scraped(store)
    # Those of the process itself go on.
    counted = [name for name in before if name.startswith("tarry_job")]
    assert len(counted) > 5
    assert [after[name] for name in counted] == [before[name] for name in counted]


def test_a_caller_sees_only_its_queues() -> None:
    store = MemoryStore()
    work(store)
    found = scraped(store, lambda queue: queue == "other")
    assert found["tarry_jobs_put_total"] == {"other/send": 1}
    assert all(labels.startswith("other/") for labels in found["tarry_job_wait_seconds_bucket"])


def test_while_a_part_of_the_store_is_away_there_are_no_counters() -> None:
    """Without that part they would go down."""
    store = MemoryStore()
    work(store)

    def away(resolution: int, start: int, end: int) -> dict[Place, bytes]:
        raise PartlyUnavailable("a shard is away", {})

    store.history.read = away  # type: ignore[method-assign]
    assert "tarry_jobs_put_total" not in scraped(store)
