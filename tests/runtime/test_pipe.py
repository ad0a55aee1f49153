import socket
import threading

import pytest

from tarry.runtime.pipe import Link, Message


@pytest.fixture
def pair() -> tuple[Link, Link]:
    ours, theirs = socket.socketpair()
    return Link(ours), Link(theirs)


def test_lines_come_whole_and_in_order(pair: tuple[Link, Link]) -> None:
    here, there = pair
    here.send({"n": 1})
    here.send({"text": "zwei\nLines · ☃"})
    assert there.lines() == [{"n": 1}, {"text": "zwei\nLines · ☃"}]
    assert there.lines() == []
    assert not there.ended
    for link in pair:
        link.close()


def test_a_line_in_pieces_waits_for_its_end() -> None:
    ours, theirs = socket.socketpair()
    link = Link(theirs)
    ours.send(b'{"a":')
    assert link.lines() == []
    ours.send(b'1}\n{"b"')
    assert link.lines() == [{"a": 1}]
    ours.close()
    assert link.lines() == []
    assert link.ended
    link.close()


def test_what_is_no_message_is_passed_over() -> None:
    ours, theirs = socket.socketpair()
    link = Link(theirs)
    ours.send(b'printed by a task\n[1]\n\xff\xfe\n{"ok": 1}\n')
    assert link.lines() == [{"ok": 1}]
    ours.close()
    link.close()


def test_the_last_words_are_heard_with_the_end(pair: tuple[Link, Link]) -> None:
    here, there = pair
    here.send({"last": True})
    here.close()
    assert there.lines() == [{"last": True}]
    assert there.ended
    there.close()


def test_sending_does_not_wait_for_one_who_does_not_read(pair: tuple[Link, Link]) -> None:
    here, there = pair
    sent = [{"n": n, "pad": "x" * 1000} for n in range(2000)]
    for message in sent:
        here.send(message)
    assert here.unsent
    got: list[Message] = []
    while len(got) < len(sent):
        got += there.lines()
        here.flush()
    assert got == sent
    assert not here.unsent
    for link in pair:
        link.close()


def test_sending_may_wait(pair: tuple[Link, Link]) -> None:
    here, there = pair
    big: Message = {"pad": "x" * 900_000}
    sender = threading.Thread(target=here.send, args=(big, True))
    sender.start()
    got: list[Message] = []
    while not got:
        got = there.lines()
    sender.join()
    assert got == [big]
    assert not here.unsent
    for link in pair:
        link.close()


def test_sending_to_nobody_is_no_error(pair: tuple[Link, Link]) -> None:
    here, there = pair
    there.close()
    here.send({"n": 1}, wait=True)
    assert not here.unsent
    assert here.lines() == []
    assert here.ended
    here.close()
