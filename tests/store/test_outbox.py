import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from tarry.errors import ConfigError, StoreForeign, StoreFull, StoreUnavailable
from tarry.model.job import Job
from tarry.store.outbox import Outbox
from tarry.store.rules.entry import Content, Entry
from tarry.store.rules.ids import uuid7
from tarry.store.sqlite import file


def entries(count: int, size: int = 10) -> list[Entry]:
    return [Entry(Job(uuid7(), "mail", bytes(size), key=f"k{n}"), "replace", "x") for n in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


def test_nothing_is_made_before_the_first_is_kept(path: Path) -> None:
    outbox = Outbox(path)
    assert (outbox.content(), outbox.find([uuid7()])) == (Content(), {})
    assert not path.exists()


def test_what_is_kept_is_there_whole_and_in_order_also_for_others(path: Path) -> None:
    outbox, put = Outbox(path), entries(30)
    outbox.keep(put[:10])
    outbox.keep(put[10:])
    outbox.close()
    other = Outbox(path)
    pages = [other.page(0, 20), other.page(20, 20)]
    assert [entry for page in pages for _, entry in page] == put
    assert other.find([put[3].job.id, uuid7()]) == {put[3].job.id: put[3].job}
    assert (other.content().jobs, other.content().oldest) == (30, put[0].job.created)
    other.close()


def test_one_that_is_kept_twice_is_kept_once(path: Path) -> None:
    outbox, put = Outbox(path), entries(3)
    outbox.keep(put)
    size = outbox.content()
    outbox.keep(put)
    assert outbox.content() == size
    outbox.close()


def test_what_is_removed_is_gone_and_leaves_its_room(path: Path) -> None:
    outbox, put = Outbox(path), entries(3)
    outbox.keep(put)
    numbers = [n for n, _ in outbox.page(0, 10)]
    outbox.remove(numbers[:2])
    assert [entry for _, entry in outbox.page(0, 10)] == put[2:]
    outbox.remove(numbers)
    outbox.remove(numbers)
    assert outbox.content() == Content()
    outbox.close()


def test_it_takes_so_much_and_not_a_part_of_a_batch(path: Path) -> None:
    outbox = Outbox(path, 1000)
    outbox.keep(entries(1))
    before = outbox.content()
    with pytest.raises(StoreFull, match=r"3 jobs would take 2,\d+ bytes; outbox_bytes is 1,000"):
        outbox.keep(entries(2, 1000))
    assert outbox.content() == before
    outbox.keep(entries(1))
    outbox.close()


def test_many_keep_at_once(path: Path) -> None:
    boxes = [Outbox(path) for _ in range(4)]
    threads = [threading.Thread(target=lambda b=box: [b.keep(entries(5)) for _ in range(10)]) for box in boxes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert boxes[0].content().jobs == 200
    for box in boxes:
        box.close()


def test_who_opens_it_while_another_makes_it_waits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite asks nobody whether to wait when the journal mode is changed while another one writes."""
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    def ended(seconds: float) -> None:
        if other.in_transaction:
            other.execute("COMMIT")

    monkeypatch.setattr(file, "time", SimpleNamespace(monotonic=time.monotonic, sleep=ended))
    outbox = Outbox(path)
    assert outbox.keep(entries(1)) == [True]
    outbox.close()
    other.close()


def test_one_forwards_at_a_time(path: Path) -> None:
    one, other = Outbox(path), Outbox(path)
    with one.turn() as ours, other.turn() as theirs:
        assert (ours, theirs) == (True, False)
    with other.turn() as theirs:
        assert theirs


def test_what_cannot_be_an_outbox_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the directory .*none does not exist; create it first"):
        Outbox(tmp_path / "none" / "outbox.db")
    (tmp_path / "dir").mkdir()
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        Outbox(tmp_path / "dir").keep(entries(1))
    with closing(sqlite3.connect(tmp_path / "their.db")) as theirs, theirs:
        theirs.execute("CREATE TABLE theirs (x)")
    theirs.close()
    with pytest.raises(StoreForeign, match="give the outbox a file of its own"):
        Outbox(tmp_path / "their.db").keep(entries(1))


def test_a_child_forked_while_somebody_forwards_does_not_keep_the_turn(path: Path) -> None:
    outbox = Outbox(path)
    reading, writing = os.pipe()
    with outbox.turn() as ours:
        assert ours
        pid = os.fork()
        if not pid:
            os.close(writing)
            os.read(reading, 1)  # until the parent has looked
            os._exit(0)
    os.close(reading)
    with Outbox(path).turn() as ours:
        assert ours
    os.close(writing)
    assert os.waitpid(pid, 0)[1] == 0


KILLED_AMID = """
import os, sys
from pathlib import Path
from tarry.store.outbox import Outbox
with Outbox(Path(sys.argv[1])).turn() as ours:
    assert ours
    if os.fork():
        os.kill(os.getpid(), 9)
    print("forked", flush=True)
    sys.stdin.read()
"""


def test_nor_does_the_child_of_one_that_was_killed_while_it_forwarded(path: Path) -> None:
    code = [sys.executable, "-c", KILLED_AMID, str(path)]
    process = subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "forked\n"
    assert process.wait(60) == -9
    with Outbox(path).turn() as ours:
        assert ours
    process.stdin.close()
    assert process.stdout.read() == "", "the child has ended"
    process.stdout.close()


def test_an_outbox_goes_on_in_a_forked_child(path: Path) -> None:
    outbox, put = Outbox(path), entries(2)
    outbox.keep(put[:1])
    pid = os.fork()
    if not pid:
        status = 1
        try:
            outbox.keep(put[1:])
            status = 0 if outbox.content().jobs == 2 else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert outbox.content().jobs == 2
    outbox.close()
