"""`tarry hosts`: what it asks a master for; the real masters are in tests/system."""

import argparse
import getpass

import pytest

from tarry import App
from tarry.cli.hosts import _request
from tarry.keeper.host_requests import HostAct
from tarry.keeper.hosts import Host
from tarry.store.memory import MemoryStore

HOST = Host("web-1|1.1:7:9:0", "web-1", remote_control=True)


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name_may_ask(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """As in many containers."""

    def nobody() -> str:
        raise error("no such user")

    monkeypatch.setattr(getpass, "getuser", nobody)
    found = _request(App(MemoryStore()).client, HOST, argparse.Namespace(action="reload", words=["web-1"]))
    assert (found.act, found.by) == (HostAct.RELOAD, "")
