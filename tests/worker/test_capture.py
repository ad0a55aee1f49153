"""What tasks print and log, kept with their jobs."""

import asyncio
import functools
import logging
import os
import sys
import threading
import time as clock
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tarry import App, Output, Progress, Retry, current_job
from tarry.store.memory.store import MemoryStore
from tarry.tasks import progress
from tarry.tasks.running import Running
from tarry.worker import capture
from tests.worker.bench import LIMIT, Bench, finished, until, wait_for
from tests.worker.manual_pump import MakePump, ManualPump

KEPT = 8_000


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Loggers as they were."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers


def text(job: Any) -> str:
    output: Output | None = job.output
    return "" if output is None else output.text


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_output_is_seen_while_the_task_runs_and_afterwards(
    any_bench: Bench, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    gate = any_bench.gate()

    @any_bench.app.task(name="sync")
    def sync() -> None:
        print("one", 1)
        wait_for(gate)
        print("two", file=sys.stderr)

    @any_bench.app.task(name="loop")
    async def loop() -> None:
        print("one", 1)
        await asyncio.to_thread(wait_for, gate)
        print("two", file=sys.stderr)

    job = any_bench.app.enqueue(kind)
    assert job.output is None
    any_bench.work(keep_output=KEPT)
    until(lambda: job.output == Output("one 1\n", 1, 0))
    gate.set()
    job.result(LIMIT)
    assert job.output == Output("one 1\ntwo\n", 1, 0)
    assert asyncio.run(job.aoutput()) == job.output
    assert job.progress is None
    assert capsys.readouterr() == ("one 1\n", "two\n"), "it goes where it went before"


def test_jobs_at_the_same_time_have_their_own(bench: Bench) -> None:
    @bench.app.task
    async def talk(name: str) -> None:
        for number in range(20):
            print(name, number)
            await asyncio.sleep(0)
        await asyncio.to_thread(print, name, "aside")

    @bench.app.task
    def say(name: str) -> None:
        for number in range(20):
            print(name, number)

    jobs = {str(n): talk.enqueue(str(n)) for n in range(20)} | {f"s{n}": say.enqueue(f"s{n}") for n in range(20)}
    bench.work(threads=3, keep_output=KEPT)
    for name, job in jobs.items():
        job.result(LIMIT)
        aside = "" if name.startswith("s") else f"{name} aside\n"
        assert text(job) == "".join(f"{name} {number}\n" for number in range(20)) + aside


def test_what_is_logged_is_kept_whatever_becomes_of_it_else(bench: Bench) -> None:
    @bench.app.task
    def log() -> None:
        logging.getLogger("shop").warning("paid %d", 5)
        logging.getLogger("shop").debug("below its level")
        quiet = logging.getLogger("shop.quiet")
        quiet.propagate = False
        quiet.setLevel("DEBUG")
        quiet.debug("two\nlines")
        logging.getLogger("shop").error("bad %d", "argument")
        current_job().log.error("its own")
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("shop").exception("broke")

    logging.raiseExceptions, before = False, logging.raiseExceptions
    bench.at_last.append(lambda: setattr(logging, "raiseExceptions", before))
    bench.work(keep_output=KEPT)
    job = log.enqueue()
    job.result(LIMIT)
    lines = text(job).splitlines()
    assert lines[:5] == [
        "WARNING shop: paid 5",
        "DEBUG shop.quiet: two",
        "lines",
        "ERROR shop: bad %d ('argument',)",
        "ERROR tarry.task: its own",
    ]
    assert (lines[5], lines[6], lines[-1]) == (
        "ERROR shop: broke",
        "Traceback (most recent call last):",
        "ValueError: why",
    )


def test_what_is_logged_to_stderr_is_kept_once(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    @bench.app.task
    def log() -> None:
        root = logging.getLogger()
        root.handlers[:] = [logging.StreamHandler(sys.stderr)]
        logging.getLogger("shop").warning("by a handler")
        root.handlers[:] = []
        logging.getLogger("shop").warning("as a last resort")

    bench.work(keep_output=KEPT)
    job = log.enqueue()
    job.result(LIMIT)
    assert text(job) == "WARNING shop: by a handler\nWARNING shop: as a last resort\n"
    assert capsys.readouterr().err == "by a handler\nas a last resort\n"


def test_of_a_failed_attempt_it_stays_until_the_next_says_something(bench: Bench) -> None:
    gates = [bench.gate(), bench.gate()]

    @bench.app.task(retry=Retry(3, base=0))
    def fail() -> None:
        attempt = current_job().attempt
        if attempt > 1:
            wait_for(gates[0])
            print("now", attempt)
            wait_for(gates[1])
            return
        current_job().progress(0.5, "half")
        print("first")
        raise ValueError("why")

    job = fail.enqueue()
    bench.work(keep_output=KEPT)
    until(lambda: job.record().attempt == 2 and job.state == "running")
    assert job.output == Output("first\n", 1, 0)
    gates[0].set()
    until(lambda: job.output == Output("now 2\n", 2, 0))
    assert job.progress == Progress(0.5, "half"), "progress is what was said last, in any attempt"
    gates[1].set()
    assert finished(job) == "done"


def test_a_job_that_dies_keeps_its_last_words(any_bench: Bench) -> None:
    @any_bench.app.task
    def die(number: int) -> None:
        print("last words of", number)
        raise ValueError("why")

    jobs = die.enqueue_many([(number,) for number in range(100)])
    any_bench.work(threads=2, keep_output=KEPT)
    for number, job in enumerate(jobs):
        assert finished(job) == "dead"
        assert text(job) == f"last words of {number}\n"


def test_a_gigabyte_is_bounded_in_memory_and_in_writes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w") as nothing:
        monkeypatch.setattr(sys, "stdout", nothing)
        seen: list[Any] = []

        @bench.app.task
        def flood() -> float:
            begun, piece = clock.monotonic(), "x" * 99 + "\n"
            for _ in range(1000):
                print(piece * 10_000, end="")
            for number in range(50_000):
                print("line", number)
            seen.append(current_job().running.tail)
            return clock.monotonic() - begun

        store = bench.store()
        marks: list[int] = []
        mark = store.save_progress

        def counted(owner: str, said: Sequence[progress.ProgressRow]) -> list[bool]:
            marks.append(sum(len(one[2]) for one in said))
            return mark(owner, said)

        monkeypatch.setattr(store, "save_progress", counted)
        worker = bench.work(store=store, keep_output=KEPT)
        job = flood.enqueue()
        until(lambda: job.state.finished, 4 * LIMIT)
        seconds = job.result(LIMIT)
        worker.stop()
        worker.end()
    assert sum(map(len, seen[0]._lines)) <= 2 * KEPT
    assert len(marks) <= seconds / progress.SAVE_INTERVAL + 3
    assert max(marks) <= KEPT + 1000
    assert text(job).endswith("line 49998\nline 49999\n")
    assert job.output is not None
    assert job.output.left_out == 10_000_000 + 50_000 - 64


def test_many_jobs_do_not_send_more_than_a_megabyte_at_once(make: MakePump) -> None:
    manual = make(threads=200, keep_output=KEPT)
    begun = begin(manual, 200)
    for running in begun:
        tell(manual, running, f"job {running.job.id.hex()}")
    manual.turns()
    first = [running for running in begun if manual.record(running.job).progress]
    assert len(first) == progress.MAX_SAVE_BYTES // KEPT
    for running in first:
        tell(manual, running, "more")
    manual.pass_time(progress.SAVE_INTERVAL)
    manual.turns()
    assert all(manual.record(running.job).progress for running in begun), "who waited comes first"


def begin(manual: ManualPump, count: int) -> list[Running]:
    manual.insert(count)
    manual.turns()
    return list(manual.sync.on)


def tell(manual: ManualPump, running: Running, line: str) -> None:
    capture.keep(running, line)


def test_only_what_jobs_print_is_kept(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    @bench.app.task
    def start() -> None:
        thread = threading.Thread(target=print, args=("of a thread of its own",))
        thread.start()
        thread.join()
        if os.fork() == 0:
            print("of a child")
            sys.stdout.flush()
            os._exit(0)
        os.wait()
        sys.stdout.writelines(["kept", "\n"])

    bench.work(keep_output=KEPT)
    print("of nobody")
    job = start.enqueue()
    job.result(LIMIT)
    assert text(job) == "kept\n"
    assert capsys.readouterr().out.startswith("of nobody\nof a thread of its own\n")


def test_the_streams_are_their_own_for_all_else(bench: Bench) -> None:
    @bench.app.task
    def look() -> list[Any]:
        with pytest.raises(TypeError):
            sys.stdout.write(b"bytes")  # type: ignore[arg-type]
        return [sys.stdout.encoding, sys.stdout.isatty(), sys.stdout.writable()]

    before = sys.stdout, sys.stderr, logging.getLogRecordFactory()
    worker = bench.work(keep_output=KEPT)
    other = bench.work(keep_output=KEPT)
    until(lambda: sys.stdout is not before[0])
    assert look.enqueue().result(LIMIT) == [before[0].encoding, before[0].isatty(), True]
    for one in (worker, other):
        one.stop()
        one.end()
    assert (sys.stdout, sys.stderr, logging.getLogRecordFactory()) == before


def test_what_others_put_around_them_stays(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    @bench.app.task
    def log() -> None:
        logging.getLogger("shop").warning("once")

    def worked() -> str:
        worker = bench.work(keep_output=KEPT)
        job = log.enqueue()
        job.result(LIMIT)
        ours = logging.getLogRecordFactory()
        monkeypatch.setattr(logging, "_logRecordFactory", functools.partial(ours))
        worker.stop()
        worker.end()
        return text(job)

    assert [worked(), worked(), worked()] == ["WARNING shop: once\n"] * 3


def test_nothing_is_watched_where_nothing_is_kept(bench: Bench) -> None:
    @bench.app.task
    def look() -> bool:
        print("said")
        return sys.stdout is before

    before = sys.stdout
    bench.work()
    job = look.enqueue()
    assert job.result(LIMIT) is True
    assert job.output is None


def test_of_a_batch_the_first_jobs_keep_it(bench: Bench) -> None:
    @bench.app.task(batch=20, wait=5)
    def many(items: list[int]) -> None:
        print("called for", len(items))
        logging.getLogger("shop").warning("of all")

    jobs = many.enqueue_many([(number,) for number in range(20)])
    bench.work(keep_output=KEPT)
    for job in jobs:
        job.result(LIMIT)
    said = [text(job) for job in jobs]
    assert said.count("called for 20\nWARNING shop: of all\n") == capture.BATCH_SHARE
    assert said.count("") == 20 - capture.BATCH_SHARE


def test_who_follows_hears_of_progress_and_not_of_lines(bench: Bench) -> None:
    gate = bench.gate()

    @bench.app.task
    def talk() -> None:
        current_job().progress(0.5)
        for number in range(10):
            print(number)
            until(lambda line=f"{number}\n": text(jobs[0]).endswith(line))  # type: ignore[misc]
        wait_for(gate)

    jobs = [talk.enqueue()]
    bench.work(keep_output=KEPT)
    events = []
    for event in jobs[0].follow(LIMIT):
        events.append((event.state, event.progress))
        if event.progress:
            until(lambda: text(jobs[0]).endswith("9\n"))
            gate.set()
    assert len(events) == len(set(map(str, events))), "each is another"


def test_app_running_keeps_it_by_default() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task
    def hello() -> None:
        print("hello")

    before = sys.stdout
    with app.running():
        job = hello.enqueue()
        job.result(LIMIT)
    assert text(job) == "hello\n"
    assert sys.stdout is before
    app.close()
