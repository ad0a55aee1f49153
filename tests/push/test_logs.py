"""request.log, notify.log and error.log: their lines, and that no trouble with them delays a job."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry import State
from tarry.client.bulk import change_jobs, find_pages
from tarry.config.config import Config, Push
from tarry.model import lifecycle
from tarry.model.duration import DAY, SECOND
from tarry.model.job import Job
from tarry.push.journal.log_lines import RequestLine, format_request, make_job
from tarry.push.journal.logs import AppendFile
from tarry.store.outbox import Outbox
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tarry.store.rules.entry import Entry
from tarry.store.rules.ids import uuid7
from tests.cli.disk import MB, Disk
from tests.push.fixture import DeliveryFixture
from tests.push.server import answer
from tests.worker.bench import finished, until

Line = dict[str, Any]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "push"


def configure(delivery: DeliveryFixture, logs: Path, **tasks: Line) -> None:
    whole = {name: delivery.settings(**task) for name, task in tasks.items()}
    delivery.app.configure(Config(tasks=whole, push=Push(["127.0.0.1"], log=logs), directory=delivery.directory))


def lines(file: Path) -> list[Line]:
    """All of them whole."""
    text = file.read_text() if file.exists() else ""
    assert text.endswith("\n") or not text
    found = [json.loads(line) for line in text.splitlines()]
    assert all(list(line)[:1] == ["time"] and len(line["time"]) == 27 for line in found)
    return found


def requests(logs: Path) -> list[Line]:
    return lines(logs / "request.log")


class TestRequests:
    def test_a_line_has_all_that_the_job_is_made_of(self, delivery: DeliveryFixture, logs: Path) -> None:
        configure(delivery, logs, hook={"queue": "hooks", "priority": 3, "order": "{customer}"})
        body = {"customer": "Zoë", "lines": 'a\nb "c"'}
        hook = delivery.app.http.find("hook")
        assert hook is not None
        job = hook.using(delay="1h", key="k", expires="2h", unique_for="1d").enqueue(body)
        (line,) = requests(logs)
        assert list(line)[:4] == ["time", "job", "task", "event"]
        assert (line["job"], line["task"], line["event"], line["queue"]) == (job.id, "hook", "accepted", "hooks")
        assert (line["body"], line["priority"], line["key"], line["lane"]) == (body, 3, "k", "Zoë")
        kept = delivery.job(job)
        text = (logs / "request.log").read_bytes()
        assert make_job(_read(text), kept.state_since) == kept
        assert kept.key_ttl == DAY

    @pytest.mark.parametrize("body", [b' {"a": 1.0}', b'{"a":\n1}', b'{"a": 1.0}', b'["\xff"]'])
    def test_bytes_come_back_as_they_were(self, body: bytes) -> None:
        line = format_request(Job(uuid7(), "hook", body))
        assert line.count(b"\n") == 1
        assert make_job(_read(line), 0).body == body

    @pytest.mark.parametrize("due", [0, 1, SECOND, 1_800_000_000_123_456, 2**62])
    def test_so_do_times(self, due: int) -> None:
        job = make_job(_read(format_request(Job(uuid7(), "hook", b"{}", due=due, expires=due))), 0)
        assert (job.due, job.expires) == (due, due)

    def test_whoever_enqueues_them(self, delivery: DeliveryFixture, logs: Path) -> None:
        configure(delivery, logs, hook={})
        delivery.app.http.load()

        @delivery.app.task
        def function() -> None: ...

        hook = delivery.app.tasks["hook"]
        delivery.app.enqueue("hook", {"n": 0})
        hook.enqueue_many([({"n": n},) for n in range(1, 1500)])
        function.enqueue()
        assert [line["body"]["n"] for line in requests(logs)] == list(range(1500))

    def test_also_from_a_loop(self, delivery: DeliveryFixture, logs: Path) -> None:
        configure(delivery, logs, hook={})
        job = asyncio.run(delivery.app.aenqueue("hook", {"n": 1}))
        assert [line["job"] for line in requests(logs)] == [job.id]

    def test_what_met_its_key_is_no_job_or_changes_the_one_there(self, delivery: DeliveryFixture, logs: Path) -> None:
        configure(delivery, logs, hook={})
        hook = delivery.app.http.find("hook")
        assert hook is not None
        first = hook.using(key="k", delay="1h", unique_for="waiting").enqueue({"n": 1})
        hook.using(key="k", delay="1h").enqueue({"n": 2})
        hook.using(key="k", delay="1h", on_duplicate="replace").enqueue({"n": 3})
        told = [(line["event"], line["job"], line["body"]["n"]) for line in requests(logs)]
        assert told == [("accepted", first.id, 1), ("changed", first.id, 3)]

    def test_what_lay_in_an_outbox_once_it_is_in_the_store(self, delivery: DeliveryFixture, logs: Path) -> None:
        configure(delivery, logs, hook={})
        delivery.app.http.load()
        client, outbox = delivery.app.client, Outbox(delivery.directory / "outbox.db")
        job = client.make_job("hook", b"{}")
        outbox.keep([Entry(job)])
        assert requests(logs) == []
        forwarder = client.make_forwarder(outbox)
        assert forwarder.step()
        forwarder.close()
        assert [line["job"] for line in requests(logs)] == [ids.text(job.id)]

    def test_what_is_done_by_hand(self, delivery: DeliveryFixture, logs: Path) -> None:
        configure(delivery, logs, hook={})
        first, second, third = (delivery.app.enqueue("hook", {"n": n}) for n in range(3))
        assert first.cancel()
        assert not first.cancel()
        assert first.retry()
        client = delivery.app.client
        assert client.move(first._id, priority=3)
        assert client.forget(second._id)
        cancel = partial(lifecycle.cancel, rules=client.rules("hook", "default"))
        for page in find_pages(client.store, Query(task="hook")):
            change_jobs(client, page, partial(lifecycle.move, priority=7), "moved")
            change_jobs(client, page, lambda job, now: cancel(job, now=now), "cancelled")
        told = [(line["event"], line["job"]) for line in requests(logs)][3:]
        assert told[:3] == [("cancelled", first.id), ("retried", first.id), ("moved", first.id)]
        assert told[3] == ("deleted", second.id)
        bulk = [(what, job.id) for job in (first, third) for what in ("moved", "cancelled")]
        assert sorted(told[4:]) == sorted(bulk)

    def test_without_a_setting_nothing_is_loaded(self, tmp_path: Path) -> None:
        told = subprocess.run(
            [sys.executable, "-c", _PLAIN], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=250
        ).stdout
        assert told == "[]\n"


_PLAIN = """
import sys
from tarry import App
app = App("memory://", closures=True)
app.http.load()
app.client
print([name for name in sys.modules if name.startswith(("tarry.push.log", "tarry.push.journal.logs"))])
"""


class TestAttempts:
    def test_each_has_a_line(self, delivery: DeliveryFixture, logs: Path) -> None:
        configure(delivery, logs, hook={"schedule": [0.001]}, gone={"url": "/gone"}, lacks={"url": "/{order}"})
        delivery.server.says("/gone", answer(404))
        delivery.server.says("/", answer(500, b"no"))
        jobs = [delivery.app.enqueue(name, {}) for name in ("hook", "gone", "lacks")]
        delivery.deliver()
        assert [finished(job) for job in jobs] == [State.DEAD] * 3
        delivery.server.says("/", answer(200, b"yes"))
        well = delivery.app.enqueue("hook", {})
        assert finished(well) is State.DONE
        told = [
            (line["job"], line["attempt"], line["outcome"], line.get("ended", False))
            for line in lines(logs / "notify.log")
        ]
        again, gone, lacks = (job.id for job in jobs)
        assert sorted(told) == sorted(
            [
                (again, 1, "again", False),
                (again, 2, "again", True),
                (gone, 1, "final", True),
                (lacks, 1, "final", True),
                (well.id, 1, "delivered", True),
            ]
        )
        last = lines(logs / "notify.log")[-1]
        assert list(last)[:3] == ["time", "job", "task"]
        assert (last["status"], last["answer"], last["reason"]) == (200, "yes", "answered 200 OK")
        assert {"address", "elapsed", "headers", "at"} < set(last)


class TestTroubles:
    def test_what_is_nobodys_attempt_stands_in_the_error_log(self, delivery: DeliveryFixture, logs: Path) -> None:
        configure(delivery, logs, unsent={"secret": "env:NOT_SET_ANYWHERE"}, gone={"url": "/gone"})
        delivery.server.says("/gone", answer(410))
        unsent, _ = delivery.app.enqueue("unsent", {}), delivery.app.enqueue("gone", {})
        delivery.deliver()
        file = logs / "error.log"
        until(lambda: file.exists() and "is disabled" in file.read_text() and "nothing was sent" in file.read_text())
        first, *_ = (line for line in lines(file) if "nothing was sent" in line["message"])
        assert (first["job"], first["task"], first["attempt"]) == (unsent.id, "unsent", 1)
        assert first["level"] == "WARNING"
        disabled, *_ = (line for line in lines(file) if "is disabled" in line["message"])
        assert (disabled["level"], "job" in disabled) == ("ERROR", False)

    def test_a_traceback_is_part_of_the_line_and_nothing_can_forge_one(
        self, delivery: DeliveryFixture, logs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        configure(delivery, logs, hook={})
        # What pytest captures has to travel between its processes, which this text cannot.
        monkeypatch.setattr(logging.getLogger("tarry.push"), "propagate", False)
        assert delivery.app.logs is not None
        try:
            raise ValueError("wrong\nlines")
        except ValueError:
            logging.getLogger("tarry.push").exception("one\ntwo \udcff")
        (line,) = lines(logs / "error.log")
        assert line["message"] == "one\ntwo \\udcff"
        assert line["traceback"].endswith("ValueError: wrong\nlines")

    def test_an_app_that_was_closed_writes_no_more(self, delivery: DeliveryFixture, logs: Path) -> None:
        configure(delivery, logs, hook={})
        delivery.app.enqueue("hook", {})
        delivery.app.close()
        logging.getLogger("tarry.push").warning("not ours")
        assert lines(logs / "error.log") == []


class TestFiles:
    def test_many_write_long_lines_while_it_is_rotated(self, tmp_path: Path) -> None:
        """Processes append lines of up to 300 KB, and the file is moved away under them again and again."""
        file = tmp_path / "request.log"
        writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(file), str(number)]) for number in range(3)]
        rotated = 0
        while any(writer.poll() is None for writer in writers):
            if file.exists():
                rotated += 1
                file.rename(tmp_path / f"request.log.{rotated}")
            until(lambda: file.exists() or all(writer.poll() is not None for writer in writers))
        assert [writer.returncode for writer in writers] == [0, 0, 0]
        found = [json.loads(line) for part in tmp_path.iterdir() for line in part.read_bytes().splitlines()]
        assert sorted((line["writer"], line["n"]) for line in found) == [(w, n) for w in range(3) for n in range(300)]
        assert rotated > 1

    def test_threads_share_one(self, tmp_path: Path) -> None:
        file = AppendFile(tmp_path / "log")

        def write() -> None:
            for _ in range(500):
                file.write(b"x" * 99 + b"\n")
                file.reopen()

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        moved = 0
        while any(thread.is_alive() for thread in threads):
            if file.path.exists():
                file.path.rename(tmp_path / f"log.{moved}")
                moved += 1
        for thread in threads:
            thread.join()
        whole = [line for part in tmp_path.iterdir() for line in part.read_bytes().splitlines()]
        assert whole == [b"x" * 99] * 2000

    def test_a_file_that_was_moved_away_is_let_go(self, tmp_path: Path) -> None:
        file = AppendFile(tmp_path / "log")
        file.write(b"one\n")
        held = os.stat(file.path)
        file.path.unlink()
        file.reopen()
        assert _open_files().isdisjoint({(held.st_dev, held.st_ino)})
        file.write(b"two\n")
        assert file.path.read_bytes() == b"two\n"

    def test_not_everybody_may_read_it(self, tmp_path: Path) -> None:
        AppendFile(tmp_path / "log").write(b"x\n")
        assert (tmp_path / "log").stat().st_mode & 0o007 == 0

    def test_jobs_go_on_without_the_directory(
        self, delivery: DeliveryFixture, logs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logs.parent.mkdir(parents=True)
        logs.write_text("a file where the directory should be")
        configure(delivery, logs, hook={})
        jobs = [delivery.app.enqueue("hook", {"n": n}) for n in range(10)]
        delivery.deliver()
        assert [finished(job) for job in jobs] == [State.DONE] * 10
        assert delivery.app.logs is not None
        assert delivery.app.logs.requests.lost == 10
        told = [record.message for record in caplog.records if record.name == "tarry.logs"]
        assert [text.partition(" cannot")[0] for text in told] == [f"{logs}/request.log", f"{logs}/notify.log"]
        assert told[0].endswith("(Not a directory): 1 lines are missing there; jobs go on")
        logs.unlink()
        delivery.app.enqueue("hook", {"n": 10})
        assert f"{logs}/request.log is written again; 10 lines are missing there" in caplog.text
        assert [line["body"]["n"] for line in requests(logs)] == [10]

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Disk]:
        disk = Disk(tmp_path / "disk", 8 * MB)
        yield disk
        disk.close()

    def test_a_full_disk_tears_one_line_at_most(self, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
        file, other = AppendFile(disk.path / "log"), AppendFile(disk.path / "log")
        file.write(b'{"n":0}\n')
        filler = disk.fill(but=8192)
        line = b'{"n":1,"x":"%b"}\n' % (b"x" * 20_000)
        file.write(line)
        file.write(line)
        assert file.lost == 2
        filler.unlink()
        file.write(b'{"n":2}\n')
        other.write(b'{"n":3}\n')
        found = file.path.read_bytes().splitlines()
        assert (found[0], found[2:]) == (b'{"n":0}', [b'{"n":2}', b'{"n":3}'])
        assert line.startswith(found[1])
        assert "No space left on device" in caplog.text
        assert "log is written again; 2 lines are missing there" in caplog.text


_WRITER = """
import json, sys
from pathlib import Path
from tarry.push.journal.logs import AppendFile
file, number = AppendFile(Path(sys.argv[1])), int(sys.argv[2])
for n in range(300):
    text = "x" * (300_000 if n % 50 == 0 else 40)
    file.write(json.dumps({"writer": number, "n": n, "text": text}).encode() + b"\\n")
assert not file.lost
"""


def _read(line: bytes) -> RequestLine:
    return msgspec.json.decode(line, type=RequestLine)


def _open_files() -> set[tuple[int, int]]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            here = os.fstat(int(number))
        except OSError:
            continue
        found.add((here.st_dev, here.st_ino))
    return found
