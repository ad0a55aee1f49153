"""`Replay` restores what a store has lost, once, and nothing else."""

import gzip
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as altered

from tarry import App, State
from tarry.client.clock import Clock
from tarry.client.handle import Handle
from tarry.client.operations.job_editing import edit_job, encode_arguments
from tarry.config.config import Config, Push
from tarry.errors import StoreBusy, TarryError
from tarry.model import lifecycle
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job
from tarry.push.delivery.delivery_record import AttemptRecord
from tarry.push.journal import replay as replaying
from tarry.push.journal.log_lines import RequestLine, format_attempt, format_request
from tarry.push.journal.replay import Replay
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tests.push.fixture import DeliveryFixture
from tests.push.server import Server, answer
from tests.servers.redis import RedisServer
from tests.worker.bench import finished, until

LONG_AGO = 3600.0


class LossyDelivery:
    """A delivery whose store loses jobs, and the logs of which they come back."""

    def __init__(self, delivery: DeliveryFixture) -> None:
        self.delivery, self.logs = delivery, delivery.directory / "logs"

    def configure(self, **tasks: dict[str, Any]) -> None:
        whole = {name: self.delivery.settings(**task) for name, task in tasks.items()}
        push = Push(["127.0.0.1"], log=self.logs)
        self.delivery.app.configure(Config(tasks=whole, push=push, directory=self.delivery.directory))

    def put(self, count: int, first: int = 0, **options: Any) -> list[Handle[Any]]:
        hook = self.delivery.app.http.find("hook")
        assert hook is not None
        return hook.using(**options).enqueue_many([({"n": n},) for n in range(first, first + count)])

    def lose(self, *handles: Handle[Any]) -> None:
        """Nobody is told."""
        store = self.delivery.app.client.store
        jobs = [job for job in store.get([handle._id for handle in handles]) if job is not None]
        assert all(store.apply([lifecycle.forget(job) for job in jobs], store.time()))

    def jobs(self) -> list[Job]:
        return self.delivery.app.client.store.find(Query(limit=100_000))

    def replay(self, *logs: Path, ago: float = LONG_AGO, dry: bool = False) -> Replay:
        store = self.delivery.store()
        return Replay(store, Clock(store.time), logs or (self.logs,), time.time() - ago, 2**20, dry)

    def tally(self, *logs: Path, **how: Any) -> dict[str, int]:
        """What is not 0, after a replay."""
        tally = self.replay(*logs, **how).run()
        return {name: count for name in tally.__struct_fields__ if (count := getattr(tally, name))}

    def note(self, handle: Handle[Any], *, ended: bool, name: str = "notify.log") -> None:
        job = Job(handle._id, "hook", b"{}")
        line = format_attempt(job, AttemptRecord(1, "", "delivered" if ended else "again", ""), ended)
        with (self.logs / name).open("ab") as file:
            file.write(line)


@pytest.fixture
def lossy(delivery: DeliveryFixture) -> LossyDelivery:
    lossy = LossyDelivery(delivery)
    lossy.configure(hook={})
    return lossy


class TestWhatComesBack:
    def test_what_was_lost_as_it_was_and_once(self, lossy: LossyDelivery) -> None:
        handles = lossy.put(3, delay="1h", priority=4, expires="2h")
        before = lossy.jobs()
        lossy.lose(*handles[1:])
        assert lossy.tally() == {"put_back": 2, "known": 1}
        after = lossy.jobs()
        assert [altered(job, state_since=0) for job in after] == [altered(job, state_since=0) for job in before]
        assert lossy.tally() == {"known": 3}
        assert lossy.jobs() == after

    def test_many(self, lossy: LossyDelivery) -> None:
        handles = lossy.put(2500)
        lossy.lose(*handles[::2])
        assert lossy.tally() == {"put_back": 1250, "known": 1250}
        assert len(lossy.jobs()) == 2500

    def test_it_is_delivered_then(self, lossy: LossyDelivery) -> None:
        (handle,) = lossy.put(1)
        lossy.lose(handle)
        assert lossy.tally() == {"put_back": 1}
        lossy.delivery.deliver()
        assert finished(handle) is State.DONE
        assert [seen.body for seen in lossy.delivery.server.seen] == [b'{"n":0}']
        lossy.lose(handle)
        assert lossy.tally() == {"ended": 1}

    def test_not_what_has_ended(self, lossy: LossyDelivery) -> None:
        lossy.delivery.server.says("/", answer(404))
        dead, begun, cancelled, deleted, tried = handles = lossy.put(5, delay="1h")
        for handle in (dead, begun):
            lossy.note(handle, ended=True)
        lossy.note(tried, ended=False)
        assert cancelled.cancel()
        assert lossy.delivery.app.client.forget(deleted._id)
        assert begun.retry()
        lossy.lose(dead, begun, cancelled, tried)
        assert lossy.tally() == {"put_back": 2, "ended": 3}
        assert {job.id for job in lossy.jobs()} == {begun._id, tried._id}
        assert len(handles) == 5

    def test_the_newest_form_of_what_was_changed(self, lossy: LossyDelivery) -> None:
        (handle,) = lossy.put(1, key="k", delay="1h", unique_for="waiting")
        lossy.put(1, 1, key="k", delay="1h", on_duplicate="replace")
        lossy.put(1, 2, key="k", delay="1h", on_duplicate="replace")
        lossy.lose(handle)
        assert lossy.tally() == {"put_back": 1}
        assert [job.body for job in lossy.jobs()] == [b'{"n":2}']

    def test_the_arguments_that_somebody_has_edited(self, lossy: LossyDelivery) -> None:
        (handle,) = lossy.put(1, delay="1h")
        client = lossy.delivery.app.client
        edited = encode_arguments(client, handle.record(), {"n": 7})
        assert edit_job(client, handle.record(), edited, run=False) is not None
        lossy.lose(handle)
        assert lossy.tally() == {"put_back": 1}
        assert [job.body for job in lossy.jobs()] == [b'{"n":7}']

    def test_not_what_had_to_begin_before(self, lossy: LossyDelivery) -> None:
        lossy.put(1)
        job = altered(lossy.jobs()[0], id=ids.uuid7(), due=SECOND, expires=HOUR)
        _append(lossy.logs / "request.log", format_request(job))
        assert lossy.tally() == {"known": 1, "expired": 1}

    def test_a_key_that_another_holds_is_told(self, lossy: LossyDelivery) -> None:
        (lost,) = lossy.put(1, key="k", delay="1h")
        lossy.lose(lost)
        (other,) = lossy.put(1, key="k", delay="1h")
        replay = lossy.replay()
        assert (replay.run().held, replay.counts.put_back, replay.counts.known) == (1, 0, 1)
        (left,) = replay.conflicts
        assert (left.job, left.key, left.holder) == (lost.id, "k", other.id)

    def test_only_what_was_accepted_since(self, lossy: LossyDelivery) -> None:
        handles = lossy.put(2)
        lossy.lose(*handles)
        file = lossy.logs / "request.log"
        first, second = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b'{"time":"2026-01-01T00:00:00.000000Z"' + first[first.index(b",") :] + second)
        assert lossy.tally() == {"put_back": 1}
        assert [job.id for job in lossy.jobs()] == [handles[1]._id]

    def test_dry_nothing_is_changed(self, lossy: LossyDelivery) -> None:
        lossy.lose(*lossy.put(3))
        replay = lossy.replay(dry=True)
        assert (replay.run().put_back, len(replay.first), lossy.jobs()) == (3, 3, [])

    def test_of_several_hosts(self, lossy: LossyDelivery, tmp_path: Path) -> None:
        handles = lossy.put(3)
        lossy.lose(*handles)
        other = tmp_path / "other"
        other.mkdir()
        lossy.note(handles[0], ended=True)
        (lossy.logs / "notify.log").rename(other / "notify.log")
        (other / "request.log").touch()
        assert lossy.tally(lossy.logs, other) == {"put_back": 2, "ended": 1}


class TestFiles:
    @pytest.mark.parametrize("name", ["request.log.1", "request.log.2.gz", "request.log-20261122", "request.log.old"])
    def test_what_was_rotated_is_read_too(self, lossy: LossyDelivery, name: str) -> None:
        handles = lossy.put(2)
        lossy.note(handles[0], ended=True)
        lossy.lose(*handles)
        for log in ("request", "notify"):
            file = lossy.logs / f"{log}.log"
            text = file.read_bytes()
            file.unlink()
            rotated = lossy.logs / name.replace("request", log)
            rotated.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        assert lossy.tally() == {"put_back": 1, "ended": 1}

    def test_one_file_can_be_named(self, lossy: LossyDelivery) -> None:
        lossy.lose(*lossy.put(2))
        file = lossy.logs / "request.log"
        file.rename(lossy.logs / "request.log.1")
        assert lossy.delivery.app.logs is not None
        lossy.delivery.app.logs.reopen()
        lossy.lose(*lossy.put(3))
        named = lossy.logs / "request.log.1"
        assert lossy.tally(named) == {"put_back": 2}
        assert lossy.tally(file) == {"put_back": 3, "known": 2}

    def test_what_cannot_be_read_is_told_and_passed_over(self, lossy: LossyDelivery) -> None:
        lossy.lose(*lossy.put(3))
        file = lossy.logs / "request.log"
        first, second, third = file.read_bytes().splitlines(keepends=True)
        long = b'{"time":"' + b"x" * 2**22 + b"\n"
        wrong = second.replace(b'"body":{', b'"bidy":{')
        bare = b'{"time":"2026-11-22T00:00:00.000000Z","job":"nobody","task":"hook","event":"accepted"}\n'
        torn = second[:60] + second
        file.write_bytes(first + b"\n\xff\n" + long + wrong + torn + bare + third + first[:90])
        replay = lossy.replay(ago=10**8)
        assert (replay.run().put_back, replay.counts.unreadable) == (3, 4)
        assert replay.unreadable.places == [f"{file}, line {number}" for number in (3, 4, 5, 7)]

    def test_a_last_line_without_an_end_counts_if_it_is_whole(self, lossy: LossyDelivery) -> None:
        lossy.lose(*lossy.put(2))
        file = lossy.logs / "request.log"
        file.write_bytes(file.read_bytes().removesuffix(b"\n"))
        assert lossy.tally() == {"put_back": 2}

    def test_a_file_that_is_no_gzip_or_breaks_off(self, lossy: LossyDelivery) -> None:
        lossy.lose(*lossy.put(1))
        (lossy.logs / "request.log.1.gz").write_bytes(b"no gzip")
        packed = gzip.compress((lossy.logs / "request.log").read_bytes() * 1000)
        (lossy.logs / "request.log.2.gz").write_bytes(packed[: len(packed) // 2])
        replay = lossy.replay()
        assert (replay.run().put_back, replay.counts.unreadable) == (1, 2)
        assert all("it breaks off, or is no gzip" in place for place in replay.unreadable.places)

    def test_a_log_that_is_not_there(self, lossy: LossyDelivery, tmp_path: Path) -> None:
        told = "request.log is not there: --from names it, or the directory"
        with pytest.raises(TarryError, match=told):
            lossy.replay(tmp_path)


class TestBesideOthers:
    def test_what_ends_meanwhile_is_not_put_back(self, lossy: LossyDelivery) -> None:
        """Delivered and forgotten, after the replay has read the log of attempts; also after a rotation."""
        first, second = lossy.put(2)
        lossy.note(first, ended=False)
        lossy.lose(first, second)

        def meanwhile(lines: Iterable[RequestLine]) -> Iterator[RequestLine]:
            yield from lines
            lossy.note(first, ended=True)
            (lossy.logs / "notify.log").rename(lossy.logs / "notify.log.1")
            lossy.note(second, ended=True)

        assert lossy.replay().run(meanwhile).ended == 2
        assert lossy.jobs() == []

    def test_several_put_back_each_once(self, lossy: LossyDelivery) -> None:
        handles = lossy.put(3000)
        lossy.lose(*handles)
        replays = [lossy.replay() for _ in range(3)]
        _together([replay.run for replay in replays])
        assert sum(replay.counts.put_back for replay in replays) == 3000
        assert sum(replay.counts.known for replay in replays) == 6000
        assert len(lossy.jobs()) == 3000

    def test_one_waits_for_another_but_not_for_ever(
        self, lossy: LossyDelivery, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lossy.lose(*lossy.put(1))
        store = lossy.delivery.app.client.store
        monkeypatch.setattr(replaying, "LOCK_TIMEOUT", 0.1)
        assert store.hold("replay", "somebody", store.time() + HOUR, store.time())
        with pytest.raises(StoreBusy, match="another replay is under way on this store"):
            lossy.tally()
        assert store.hold("replay", "somebody", store.time(), store.time())
        assert lossy.tally() == {"put_back": 1}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    yield redis
    redis.kill()


def test_a_redis_that_lost_its_last_second(redis: RedisServer, server: Server, tmp_path: Path) -> None:
    """It is killed, and comes back with what it had on disk: of what came after that it knows nothing."""
    delivery = DeliveryFixture(App(redis.url, closures=True), lambda: open_store(redis.url), server, tmp_path)
    lossy = LossyDelivery(delivery)
    lossy.configure(hook={})
    try:
        old = lossy.put(50, delay="1h")
        assert redis.call("SAVE") == "OK"
        worker = delivery.deliver()
        delivered = lossy.put(100, 50)
        until(lambda: all(handle.state is State.DONE for handle in delivered))
        worker.end()
        waiting = lossy.put(100, 150)
        assert all(handle.cancel() for handle in waiting[:10])
        redis.kill()
        redis.start()
        assert {job.id for job in lossy.jobs()} == {handle._id for handle in old}
        replays = [lossy.replay() for _ in range(2)]
        _together([replay.run for replay in replays])
        assert sum(replay.counts.put_back for replay in replays) == 90
        assert lossy.tally() == {"known": 140, "ended": 110}
        delivery.deliver()
        until(lambda: all(handle.state is State.DONE for handle in waiting[10:]))
        bodies = sorted(int(seen.body[5:-1]) for seen in server.seen)
        assert bodies == [*range(50, 150), *range(160, 250)]
    finally:
        delivery.close()


def _together(calls: Iterable[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _append(file: Path, line: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(line)
