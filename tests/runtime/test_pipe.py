import socket
import threading

import pytest

from tarry.runtime.pipe import MessagePipe, PipeMessage


@pytest.fixture
def pair() -> tuple[MessagePipe, MessagePipe]:
    ours, theirs = socket.socketpair()
    return MessagePipe(ours), MessagePipe(theirs)


def test_lines_come_whole_and_in_order(pair: tuple[MessagePipe, MessagePipe]) -> None:
    here, there = pair
    here.send({"n": 1})
    here.send({"text": "zwei\nLines · ☃"})
    assert there.receive() == [{"n": 1}, {"text": "zwei\nLines · ☃"}]
    assert there.receive() == []
    assert not there.at_eof
    for pipe in pair:
        pipe.close()


def test_a_line_in_pieces_waits_for_its_end() -> None:
    ours, theirs = socket.socketpair()
    pipe = MessagePipe(theirs)
    ours.send(b'{"a":')
    assert pipe.receive() == []
    ours.send(b'1}\n{"b"')
    assert pipe.receive() == [{"a": 1}]
    ours.close()
    assert pipe.receive() == []
    assert pipe.at_eof
    pipe.close()


def test_what_is_no_message_is_passed_over() -> None:
    ours, theirs = socket.socketpair()
    pipe = MessagePipe(theirs)
    ours.send(b'printed by a task\n[1]\n\xff\xfe\n{"ok": 1}\n')
    assert pipe.receive() == [{"ok": 1}]
    ours.close()
    pipe.close()


def test_the_last_words_are_heard_with_the_end(pair: tuple[MessagePipe, MessagePipe]) -> None:
    here, there = pair
    here.send({"last": True})
    here.close()
    assert there.receive() == [{"last": True}]
    assert there.at_eof
    there.close()


def test_sending_does_not_wait_for_one_who_does_not_read(pair: tuple[MessagePipe, MessagePipe]) -> None:
    here, there = pair
    sent = [{"n": n, "pad": "x" * 1000} for n in range(2000)]
    for message in sent:
        here.send(message)
    assert here.has_unsent
    got: list[PipeMessage] = []
    while len(got) < len(sent):
        got += there.receive()
        here.flush()
    assert got == sent
    assert not here.has_unsent
    for pipe in pair:
        pipe.close()


def test_sending_may_wait(pair: tuple[MessagePipe, MessagePipe]) -> None:
    here, there = pair
    big: PipeMessage = {"pad": "x" * 900_000}
    sender = threading.Thread(target=here.send, args=(big, True))
    sender.start()
    got: list[PipeMessage] = []
    while not got:
        got = there.receive()
    sender.join()
    assert got == [big]
    assert not here.has_unsent
    for pipe in pair:
        pipe.close()


def test_sending_to_nobody_is_no_error(pair: tuple[MessagePipe, MessagePipe]) -> None:
    here, there = pair
    there.close()
    here.send({"n": 1}, wait=True)
    assert not here.has_unsent
    assert here.receive() == []
    assert here.at_eof
    here.close()
