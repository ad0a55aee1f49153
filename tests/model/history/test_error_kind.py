"""Which errors are of one kind."""

import traceback

import pytest

from tarry.model import lifecycle
from tarry.model.history.error_kind import MOST_TEMPLATE, error_kind, place_of
from tarry.model.job import Job, State
from tarry.model.outcome import Lost, outcome_note


def fingerprint(message: str) -> str:
    return error_kind("shop.send", outcome_note("ValueError", message)).fingerprint


def raised_at(*frames: tuple[str, str]) -> str:
    lines = "".join(f'  File "{file}", line 7, in {function}\n    1 / 0\n' for file, function in frames)
    return f"Traceback (most recent call last):\n{lines}ZeroDivisionError: no\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no room for 17", "no room for 23"),
        ("no key 'ann'", "no key 'bob'"),
        ("no key b'ann'", "no key b'bob'"),
        ('no key b"ann"', 'no key b"bob"'),
        (f"no '{'ab ' * 90}'", f"no '{'cd ' * 100}'"),
        (f"no '{'ab ' * 900}'", f"no '{'cd ' * 1000}'"),
        (f'no b"{"ab " * 900}"', f'no b"{"cd " * 1000}"'),
        ("it is 'a' here, " * 200, "it is 'abc' here, " * 200),
        ("it is a fact " * 40, "it is a fact " * 50),
        ("no user ann@example.org", "no user bob.b+c@shop.example"),
        ("Key (name)=(Ann B) already exists", "Key (name)=(Bob) already exists"),
    ],
)
def test_what_differs_in_changing_parts_is_one_kind(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no room", "no mail"),
        ("Key (name)=(Ann) already exists", "Key (user)=(Ann) already exists"),
        ("a @ b", "a @ c"),
        ("it isn't here, it's there", "it isn't known, it's there"),
        ("so " * MOST_TEMPLATE, "no " * MOST_TEMPLATE),
        (f"{'it is a fact ' * 10}' one", f"{'it is a fact ' * 10}' two"),
    ],
)
def test_other_words_are_another_kind(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    "folder", ["20261130070000", "2026-11-30", "42", "1.2.3", "v1.2.3", "0a1b2c3", "shop-20261130", "9f" * 20]
)
def test_the_folder_of_a_release_is_left_out(folder: str) -> None:
    assert place_of(raised_at((f"/srv/releases/{folder}/app.py", "send"))) == "…/app.py:send"


@pytest.mark.parametrize("folder", ["shop", "v2", "facade", "python3"])
def test_other_folders_tell_files_apart(folder: str) -> None:
    assert place_of(raised_at((f"/srv/{folder}/app.py", "send"))) == f"{folder}/app.py:send"


@pytest.mark.parametrize(("file", "place"), [("app.py", "app.py:f"), ("<string>", "<string>:f"), ("/", "/:f")])
def test_a_file_may_have_no_folder(file: str, place: str) -> None:
    assert place_of(raised_at((file, "f"))) == place


@pytest.mark.parametrize("function", ["<listcomp>", "<dictcomp>", "<setcomp>"])
def test_a_comprehension_is_part_of_its_function(function: str) -> None:
    """Python 3.11 has a frame for it, later ones have none."""
    plain = raised_at(("/srv/shop/app.py", "send"))
    assert place_of(raised_at(("/srv/shop/app.py", "send"), ("/srv/shop/app.py", function))) == place_of(plain)


@pytest.mark.parametrize("message", ["", "no", "two\nlines"])
def test_lines_of_the_message_and_of_notes_are_no_calls(message: str) -> None:
    other = raised_at(("/srv/other/app.py", "run"))

    def send() -> None:
        error = ValueError(*[message + other] if message else [])
        error.add_note(other)
        raise error

    with pytest.raises(ValueError, check=lambda error: str(error).startswith(message)) as raised:
        send()
    text = "".join(traceback.format_exception(raised.value))
    note = outcome_note("ValueError", str(raised.value), text)
    assert error_kind("shop.send", note).place == "history/test_error_kind.py:send"


def test_workers_of_different_hosts_that_die_alike_are_one_kind() -> None:
    kinds = set()
    for name in ("web-a|3f2b-cd.4026531836:7:300:1", "mail|ab-de.ef:9:42:2", "ann"):
        job = Job(b"1" * 16, "mail", b"", state=State.RUNNING, epoch=1, owner=name)
        kinds.add(error_kind("mail", lifecycle.after(job, Lost(on=True, why="SIGKILL"), lifecycle.DEFAULT, 9).note))
    (kind,) = kinds
    assert kind.message == "worker … died while this job was on: SIGKILL"


def test_a_folder_that_is_named_as_this_package_is_the_users() -> None:
    own, library = ("/srv/tarry/tasks/mail.py", "send"), ("/usr/lib/python3.11/json/decoder.py", "decode")
    assert place_of(raised_at(own, library)) == "tasks/mail.py:send"


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"[" * 100_000,
        b'{"type":7}',
        b'{"type":"\\ud800"}',
        b'{"outcome":"x","status":1e999}',
    ],
)
def test_a_note_that_cannot_be_read_is_of_a_kind_too(note: bytes) -> None:
    assert len(error_kind("shop.send", note).fingerprint) == 16
