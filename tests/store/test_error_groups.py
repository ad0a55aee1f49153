"""Groups of errors; what each store keeps of them is in the conformance suite."""

import pytest

from tarry.errors import PartlyUnavailable
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.error_reading import read_groups
from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place
from tarry.store.shards.sharded import ShardedStore
from tests.store.switched import Switched

NOW = 1_800_000_000_000_000
ID = "0123456789abcdef"


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
