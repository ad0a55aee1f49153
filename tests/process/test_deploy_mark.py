"""The mark of a generation is written once the store takes it, with the time at which the generation began."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tarry.client.clock import Clock
from tarry.config.config import Config
from tarry.errors import StoreAway
from tarry.model.duration import SECOND
from tarry.process import deploy_mark
from tarry.process.deploy_mark import DeployMark
from tarry.runtime.board.master_status import MasterStatus, Origin
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.deploys import MOST_BY, read_deploys

BEGAN = 1.0


def master(generation: int, by: str) -> Any:
    status = MasterStatus(generation, origin=Origin("reload", by))
    return Mock(notice=status, children=[Mock(pid=os.getpid(), generation=generation, started=BEGAN)])


def test_a_store_that_was_away_takes_the_mark_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    board = master(2, "x" * 500)
    monkeypatch.setattr(deploy_mark, "ParentBoard", lambda config: Mock(pid=os.getpid(), read=lambda: board))
    store = MemoryStore()
    # The store's clock is a minute ahead.
    times = iter([4.0, 9.0])
    now = Mock(time=0.0)
    monkeypatch.setattr(deploy_mark, "time", Mock(time=lambda: now.time))
    clock = Mock(spec=Clock, now=lambda: round((now.time + 60) * SECOND))
    mark = DeployMark(store, Config(directory=tmp_path), clock)
    write = store.kv_cas
    monkeypatch.setattr(store, "kv_cas", Mock(side_effect=StoreAway("away")))
    now.time = next(times)
    with pytest.raises(StoreAway):
        mark.write()
    monkeypatch.setattr(store, "kv_cas", write)
    now.time = next(times)
    assert mark.write()
    (found,) = read_deploys(store)
    assert (found.at, found.kind, len(found.by)) == (61 * SECOND, "reload", MOST_BY)
    assert not mark.write()
