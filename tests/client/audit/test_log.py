"""The store's log of acts: bounded, in order, by many at once, and whatever is in its cells."""

import threading

import msgspec
import pytest

from tarry.client.audit import log as audit
from tarry.client.audit.log import (
    KEPT_FOR,
    MOST_SHARES,
    MOST_TEXT,
    PAGE,
    PAGES,
    PAGES_REFUSED,
    PREFIX,
    Act,
    ActFilter,
    ActLog,
    share_of,
)
from tarry.errors import PartlyUnavailable, StoreBusy
from tarry.model.duration import DAY, HOUR
from tarry.store.memory.store import MemoryStore

NOBODY = "01900000-0000-7000-8000-000000000000"
NOW = 1_800_000_000_000_000
ALL = ActFilter()
SHARE = f"{PREFIX}{share_of(Act(0, 'ann', '', 'done'))}/"


def act(number: int, **more: object) -> Act:
    return msgspec.structs.replace(Act(NOW + number, "ann", "cancel_job", "done", subject=str(number)), **more)


def read_all(log: ActLog, wanted: ActFilter = ALL, now: int = NOW) -> list[str]:
    """The subjects of all acts that match, page by page."""
    found: list[str] = []
    cursor = ""
    for _ in range(PAGES * PAGE):
        page = log.read(wanted, 7, cursor, now)
        found += [one.subject for one in page.acts]
        cursor = page.next
        if not cursor:
            return found
    raise AssertionError("the pages have no end")


def test_an_empty_log() -> None:
    assert ActLog(MemoryStore()).read(ALL, 10).acts == []


def test_acts_come_the_newest_first_however_they_were_written() -> None:
    log = ActLog(MemoryStore())
    log.append([act(number) for number in range(3)], NOW)
    for number in range(3, 2 * PAGE + 5):
        log.append([act(number)], NOW)
    log.append([act(number) for number in range(2 * PAGE + 5, 5 * PAGE)], NOW)
    assert read_all(log) == [str(number) for number in reversed(range(5 * PAGE))]


@pytest.mark.parametrize("limit", [1, 99, 100, 101, 350])
def test_a_page_goes_on_where_the_one_before_ended(limit: int) -> None:
    log = ActLog(MemoryStore())
    log.append([act(number) for number in range(350)], NOW)
    first = log.read(ALL, limit, "", NOW)
    second = log.read(ALL, 1000, first.next, NOW) if first.next else audit.ActPage([])
    assert [one.subject for one in (*first.acts, *second.acts)] == [str(number) for number in reversed(range(350))]


def test_the_log_is_bounded() -> None:
    store = MemoryStore()
    log = ActLog(store)
    count = (PAGES + 7) * PAGE
    log.append([act(number) for number in range(count)], NOW)
    cells = store.kv_list(PREFIX)
    assert len(cells) == PAGES + 1
    assert sum(map(len, cells.values())) < PAGES * PAGE * 250
    found = read_all(log)
    assert found == [str(number) for number in reversed(range(count - PAGES * PAGE, count))]


@pytest.mark.parametrize("outcome", ["done", "NotAllowed: no"])
def test_a_caller_drives_out_no_act_but_its_own(outcome: str) -> None:
    """However much it does, or is refused."""
    log = ActLog(MemoryStore())
    log.append([act(0), act(1, outcome="NotAllowed: no"), act(2, who="bob", outcome="done")], NOW)
    flood = [act(number, who="bob", outcome=outcome) for number in range(3, 3 + (PAGES + 2) * PAGE)]
    log.append(flood, NOW)
    most = (PAGES if outcome == "done" else PAGES_REFUSED) * PAGE
    found = read_all(log)
    kept = len(found) - (2 if outcome == "done" else 3)
    assert most - PAGE < kept <= most
    assert found[:kept] == [one.subject for one in reversed(flood[-kept:])]
    assert found[kept:] == [*(["2"] if outcome != "done" else []), "1", "0"]
    assert read_all(log, ActFilter(who="ann")) == ["1", "0"]


def test_a_cursor_tells_nothing_of_acts_that_the_reader_may_not_see() -> None:
    alone, beside = ActLog(MemoryStore()), ActLog(MemoryStore())
    acts = [audit.with_id(act(2 * number, queue=f"shop-{number}")) for number in range(5)]
    alone.append(acts, NOW)
    for number, one in enumerate(acts):
        beside.append([act(2 * number + 1, who="bob", queue="internal"), act(number, who="bob"), one], NOW)
    wanted = ActFilter(queues=("shop-*",), reader="ann")
    for limit in (1, 2, 4, 5):
        pages = [log.read(wanted, limit, "", NOW) for log in (alone, beside)]
        assert pages[0] == pages[1]
        assert bool(pages[0].next) == (limit < 5)


def test_there_are_not_too_many_shares() -> None:
    """The one that was idle for the longest time goes, and those with old acts only."""
    store = MemoryStore()
    log = ActLog(store)
    log.append([act(number, who=f"w{number}") for number in range(MOST_SHARES + 3)], NOW)
    assert read_all(log) == [str(number) for number in reversed(range(3, MOST_SHARES + 3))]
    later = NOW + KEPT_FOR + DAY
    log.append([act(0, who="new", at=later)], later)
    assert {name.split("/")[1] for name in store.kv_list(PREFIX)} == {share_of(act(0, who="new"))}


def test_old_acts_are_left_out() -> None:
    store = MemoryStore()
    log = ActLog(store)
    log.append([act(0), act(1)], NOW)
    later = NOW + KEPT_FOR + 2
    assert read_all(log, now=later) == []
    log.append([act(2, at=later)], later)
    assert read_all(log, now=later) == ["2"]
    assert b'"subject":"0"' not in store.kv_list(PREFIX)[f"{SHARE}1"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ActFilter(who="ann"), "6 5 4 3 1 0"),
        (ActFilter(who="bob"), "2"),
        (ActFilter(act="pause_queue"), "3"),
        (ActFilter(queue="mail"), "4"),
        (ActFilter(job="a"), "6 5"),
        (ActFilter(since=NOW + 5), "6 5"),
        (ActFilter(until=NOW + 1), "0"),
        (ActFilter(who="ann", since=NOW + 1, until=NOW + 5), "4 3 1"),
    ],
)
def test_filters(wanted: ActFilter, found: str) -> None:
    log = ActLog(MemoryStore())
    special: dict[int, dict[str, object]] = {
        2: {"who": "bob"},
        3: {"act": "pause_queue"},
        4: {"queue": "mail"},
        5: {"jobs": ("a", "b")},
    }
    special[6] = {"jobs": ("a",)}
    log.append([act(number, **special.get(number, {})) for number in range(7)], NOW)
    assert " ".join(read_all(log, wanted)) == found


def test_many_write_at_once_and_nothing_is_lost() -> None:
    store = MemoryStore()
    writers, each = 4, PAGE

    def write(number: int) -> None:
        for at in range(each):
            ActLog(store).append([act(number * each + at)], NOW)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, read_all(ActLog(store)))) == list(range(writers * each))


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_a_page_that_cannot_be_read_holds_up_nothing(content: bytes) -> None:
    store = MemoryStore()
    log = ActLog(store)
    log.append([act(0)], NOW)
    store.kv_cas(f"{SHARE}1", content, store.kv_get(f"{SHARE}1"))
    log.append([act(1)], NOW)
    assert read_all(log) == ["1"]


@pytest.mark.parametrize(
    "head", [b"", b"x", b"1", b"1 2 3", b"0 1", b"2 1", b"-1 1", b"1 " + b"9" * 14, b"1 " + b"9" * 5000]
)
def test_a_head_that_cannot_be_read_is_found_again(head: bytes) -> None:
    store = MemoryStore()
    log = ActLog(store)
    log.append([act(number) for number in range(PAGE + 5)], NOW)
    assert store.kv_cas(f"{SHARE}head", head, store.kv_get(f"{SHARE}head"))
    assert len(read_all(log)) == PAGE + 5
    log.append([act(PAGE + 5)], NOW)
    assert store.kv_get(f"{SHARE}head") == b"1 2"
    assert read_all(log) == [str(number) for number in reversed(range(PAGE + 6))]


@pytest.mark.parametrize("already", [0, PAGE - 1, PAGE - 50, PAGE])
def test_an_act_whose_answer_was_lost_is_there_once(already: int) -> None:
    log = ActLog(MemoryStore())
    log.append([act(number) for number in range(already)], NOW)
    acts = [audit.with_id(act(number)) for number in range(already, already + PAGE)]
    for _ in range(3):
        log.append(acts, NOW)
    assert read_all(log) == [str(number) for number in reversed(range(already + PAGE))]


def test_nothing_is_written_while_the_head_is_away() -> None:
    """It would come to a page that nobody reads."""

    class HeadAway(MemoryStore):
        def kv_get(self, name: str) -> bytes | None:
            if name == f"{SHARE}head":
                raise PartlyUnavailable("a shard is away", None)
            return super().kv_get(name)

    store = HeadAway()
    with pytest.raises(PartlyUnavailable):
        ActLog(store).append([act(0)], NOW)
    assert store.kv_list(PREFIX) == {}


@pytest.mark.parametrize("at", [-1, 2**57 + 1, 10**30])
def test_a_time_that_cannot_be_shown_is_none(at: int) -> None:
    store = MemoryStore()
    store.kv_cas(f"{SHARE}1", b'[{"at":%d,"who":"a","act":"b","outcome":"c"}]' % at, None)
    assert ActLog(store).read(ALL, 10, "", 0).acts == []


def test_a_cursor_behind_the_end_is_one_at_the_end() -> None:
    log = ActLog(MemoryStore())
    log.append([act(0)], NOW)
    page = log.read(ALL, 10, f"{10**20}.{NOBODY}", NOW)
    assert ([one.subject for one in page.acts], page.next) == (["0"], "")


class Contested(MemoryStore):
    """Somebody else writes between each read and the write that follows."""

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        return False


def test_who_never_gets_a_turn_gives_up() -> None:
    with pytest.raises(StoreBusy):
        ActLog(Contested()).append([act(0)], NOW)


@pytest.mark.parametrize("cursor", ["x", "1", "1.x", "-1.2", "1.2.3", "9" * 50 + ".1"])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(ValueError, match="is no cursor"):
        ActLog(MemoryStore()).read(ALL, 10, cursor)


def test_texts_are_cut() -> None:
    assert audit.cut("x" * MOST_TEXT) == "x" * MOST_TEXT
    assert len(audit.cut("x" * 10_000)) == MOST_TEXT
    assert KEPT_FOR == 90 * DAY
    assert HOUR < KEPT_FOR
