"""Groups of errors; what each store keeps of them is in the conformance suite."""

import time

import pytest
from msgspec.structs import replace

from tarry.errors import PartlyUnavailable, StoreBusy
from tarry.model import lifecycle
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Raised, outcome_note
from tarry.store.memory.history import MemoryHistory
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.error_changing import forget_group, mute_group
from tarry.store.queries.error_reading import read_groups
from tarry.store.rules.base import Store
from tarry.store.rules.history.error_groups import ErrorGroup, decode_group, encode_group, group_place
from tarry.store.rules.history.error_sums import MOST_GROUPS, merge_groups
from tarry.store.rules.history.journal import MOST_KINDS, record_of_changes
from tarry.store.rules.history.sums import Place
from tarry.store.shards.sharded import ShardedStore
from tests.store.switched import Switched

NOW = 1_800_000_000_000_000
ID = "0123456789abcdef"


def added(count: int, tasks: int, since: int = NOW) -> dict[Place, ErrorGroup]:
    """Groups of so many tasks by turns, each a bit later than the one before."""
    return {
        group_place("mail", f"{since + number:016x}"): ErrorGroup(
            "ValueError", count=1, last=since + number, tasks={f"task{number % tasks}": 1}
        )
        for number in range(count)
    }


def test_a_flood_of_kinds_of_many_tasks_is_summed_up_at_once() -> None:
    """Else the keeper would do nothing else, and the journal would grow."""
    began = time.monotonic()
    kept = merge_groups(added(20_000, tasks=5_000), {})
    assert time.monotonic() - began < 10
    groups = [decode_group(cell) for cell in kept.values()]
    assert len(groups) == MOST_GROUPS + 1
    assert sum(group.count for group in groups) == 20_000


def test_a_call_with_very_many_kinds_names_some_and_counts_all() -> None:
    """A keeper that was away reads a thousand of such records at once."""
    word = str.maketrans("0123456789", "ghijklmnop")
    runs = Job(b"1" * 16, "send", b"", state=State.RUNNING, epoch=1, owner="ann", state_since=NOW, queue="mail")
    notes = [outcome_note("ValueError", f"{'so ' * 99}{number}".translate(word)[-280:]) for number in range(2_000)]
    quiet = replace(runs, task="quiet")
    ends = [
        lifecycle.after(job, Raised(note), DEFAULT, NOW) for job, note in [*((runs, n) for n in notes), (quiet, b"{}")]
    ]
    record = record_of_changes(ends)
    assert len(record) < 50_000
    store = MemoryStore()
    store.history.append(record)
    store.history.sum_up(NOW)
    found = read_groups(store.history, NOW, lambda *_: True)
    assert len(found) == MOST_KINDS + 2
    assert sum(one.count for one in found.values()) == 2_001
    assert (found[""].count, found[""].first, found[""].tasks, found[""].job) == (2_000 - MOST_KINDS, 0, {}, None)


def test_a_task_with_many_kinds_drives_out_its_own_oldest_ones() -> None:
    quiet = added(400, tasks=2)
    there = merge_groups(quiet, {})
    kept = {place for place, cell in merge_groups(added(5_000, tasks=1, since=NOW + 1000), there).items() if cell}
    assert kept >= {group_place("mail", f"{NOW + 1000 + number:016x}") for number in range(4_300, 5_000)}
    assert (
        merge_groups(added(5_000, tasks=1, since=NOW + 1000), there)
        .keys()
        .isdisjoint(place for place in quiet if decode_group(there[place]).tasks == {"task1": 1})
    )


def happen(store: Store, queue: str) -> None:
    """An error that is summed up."""
    group = ErrorGroup("ValueError", count=1, last=NOW, tasks={"send": 1})
    assert store.history.change_errors(lambda there: merge_groups({group_place(queue, ID): group}, there))


def muted(store: Store, *queues: str) -> bool:
    """Whether the error is muted for who sees these queues; none: all."""
    return read_groups(store.history, NOW, lambda queue, _: not queues or queue in queues)[ID].is_muted


def test_who_mutes_an_error_in_one_queue_mutes_it_in_no_other() -> None:
    store = MemoryStore()
    happen(store, "mail")
    mute_group(store.history, ID, lambda queue: queue == "mail", is_muted=True, is_for_all=False)
    assert muted(store)
    happen(store, "mail")
    happen(store, "bills")
    assert (muted(store, "mail"), muted(store, "bills"), muted(store)) == (True, False, False)
    mute_group(store.history, ID, lambda queue: queue == "mail", is_muted=False, is_for_all=False)
    happen(store, "mail")
    assert not muted(store, "mail")


def test_who_mutes_an_error_in_all_queues_hears_of_it_in_no_further_one() -> None:
    store = MemoryStore()
    happen(store, "mail")
    mute_group(store.history, ID, lambda _: True, is_muted=True, is_for_all=True)
    happen(store, "bills")
    assert (muted(store, "bills"), muted(store)) == (True, True)
    mute_group(store.history, ID, lambda _: True, is_muted=False, is_for_all=True)
    happen(store, "later")
    assert (muted(store, "mail"), muted(store, "later"), muted(store)) == (False, False, False)


def test_a_change_that_others_prevent_each_time_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    happen(store, "mail")
    monkeypatch.setattr(MemoryHistory, "fold", lambda *_: False)
    with pytest.raises(StoreBusy, match="try again"):
        mute_group(store.history, ID, lambda _: True, is_muted=True, is_for_all=True)
    with pytest.raises(StoreBusy, match="try again"):
        forget_group(store.history, ID, lambda _: True)
    assert not muted(store)


def test_of_the_shards_that_are_there_all_are_read() -> None:
    away = Switched(MemoryStore(name="b"))
    store = ShardedStore([MemoryStore(name="a"), away])
    cell = encode_group(ErrorGroup("ValueError", count=3, last=NOW))
    assert store.history.change_errors(lambda _: {group_place("mail", ID): cell})
    away.down()
    with pytest.raises(PartlyUnavailable) as raised:
        read_groups(store.history, NOW, lambda *_: True)
    assert {id: one.count for id, one in raised.value.answer.items()} == {ID: 3}
    away.up()
    store.close()
