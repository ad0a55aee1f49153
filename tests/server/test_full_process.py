"""How long a process that is full leaves a connection that waits to the others."""

import pytest

from tarry.server.socket_listener import (
    GROWS_WITHIN,
    OTHERS_ACCEPT_WITHIN,
    LeftToOthers,
    leave_to_others,
    nothing_to_others,
)


class Servers:
    """Of which some accept, at a moment."""

    def __init__(self) -> None:
        self.ready, self.now = 1, 100.0

    def leave(self, processes: int) -> LeftToOthers:
        return leave_to_others(processes, lambda: self.ready, lambda: self.now)


@pytest.fixture
def servers() -> Servers:
    return Servers()


def test_one_alone_leaves_nothing(servers: Servers) -> None:
    assert servers.leave(1) is nothing_to_others


def test_all_are_there(servers: Servers) -> None:
    servers.ready = 4
    is_left = servers.leave(4)
    assert (is_left(0.0), is_left(OTHERS_ACCEPT_WITHIN - 0.1), is_left(OTHERS_ACCEPT_WITHIN)) == (True, True, False)


def test_it_waits_for_those_to_come_but_not_for_ever(servers: Servers) -> None:
    is_left = servers.leave(4)
    assert (is_left(5.0), is_left(GROWS_WITHIN - 0.1), is_left(GROWS_WITHIN)) == (True, True, False)


def test_the_last_one_that_came_has_time_to_accept(servers: Servers) -> None:
    is_left = servers.leave(4)
    assert is_left(5.0)
    servers.ready = 4
    servers.now += 0.1
    assert is_left(5.1)
    servers.now += OTHERS_ACCEPT_WITHIN
    assert not is_left(6.1)
