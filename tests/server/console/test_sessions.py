"""Sessions: a cookie names a token, and proves that its holder had it."""

import hmac
import secrets

import pytest

from tarry.errors import StoreBusy
from tarry.operate.access import Caller
from tarry.server.console.sign_in_session import (
    ENDED_CELL,
    LASTS,
    MOST_ENDED,
    SECRET_CELL,
    ConsoleSession,
    EndedSessions,
    Sessions,
    end_session,
    read_ended,
    read_secret,
)
from tarry.server.identity.tokens import TokenAccess
from tarry.store.memory.store import MemoryStore
from tests.server.console.visiting import Tokens

SECRET = secrets.token_bytes(32)


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def access(tokens: Tokens, clock: Hands) -> TokenAccess:
    return TokenAccess(tokens.file, clock)


def caller_of(sessions: Sessions, cookie: str) -> Caller | None:
    """Whose session it is."""
    session = sessions.read(cookie)
    return None if session is None else sessions.caller(session)


@pytest.fixture
def sessions(access: TokenAccess, clock: Hands) -> Sessions:
    return Sessions(access, SECRET, clock)


def test_a_session_is_its_token_s_caller(sessions: Sessions) -> None:
    caller = caller_of(sessions, sessions.open("operator"))
    assert caller is not None
    assert caller.name == "operator"


def test_every_process_knows_it(sessions: Sessions, access: TokenAccess, clock: Hands) -> None:
    assert caller_of(Sessions(access, SECRET, clock), sessions.open("reader")) is not None


def test_it_ends(sessions: Sessions, clock: Hands) -> None:
    cookie = sessions.open("reader")
    clock.now += LASTS - 1
    assert caller_of(sessions, cookie) is not None
    clock.now += 1
    assert caller_of(sessions, cookie) is None


def test_it_ends_with_its_token(sessions: Sessions, tokens: Tokens, clock: Hands) -> None:
    reader, chief = sessions.open("reader"), sessions.open("chief")
    tokens.remove("reader")
    clock.now += 2
    assert caller_of(sessions, reader) is None
    assert caller_of(sessions, chief) is not None


def test_another_token_of_that_name_does_not_bring_it_back(sessions: Sessions, tokens: Tokens, clock: Hands) -> None:
    cookie = sessions.open("reader")
    tokens.add("reader", "admin", token="another")
    clock.now += 2
    assert caller_of(sessions, cookie) is None


def test_a_session_of_another_store_is_none(sessions: Sessions, access: TokenAccess, clock: Hands) -> None:
    assert caller_of(Sessions(access, secrets.token_bytes(32), clock), sessions.open("reader")) is None


def test_no_other_name_and_no_later_end_can_be_written_into_it(sessions: Sessions) -> None:
    name, id, end, proof = sessions.open("reader").split(".")
    chief = sessions.open("chief").split(".")[0]
    assert caller_of(sessions, f"{name}.{id}.{end}.{proof}") is not None
    assert caller_of(sessions, f"{chief}.{id}.{end}.{proof}") is None
    assert caller_of(sessions, f"{name}.{'0' * 16}.{end}.{proof}") is None
    assert caller_of(sessions, f"{name}.{id}.{int(end) + 1}.{proof}") is None
    assert caller_of(sessions, f"{name}.{id}.{end}.{proof[:-1]}") is None


@pytest.mark.parametrize(
    "cookie",
    [
        "", ".", "..", "...", "....", "cmVhZGVy", "cmVhZGVy.0.9999999999999.", "cmVhZGVy.0.x.y",
        "%%%.0.99999999999999.y", "é.é.é.é", "cmVhZGVy.0.99999999999999.é", "//8.0.99999999999999.0", "a" * 10_000,
        "cmVhZGVy.0." + "9" * 5000 + ".0", "cmVhZGVy.99999999999999.0",
    ],
)  # fmt: skip
def test_garbage_is_no_session(sessions: Sessions, cookie: str) -> None:
    assert caller_of(sessions, cookie) is None


def test_a_session_that_somebody_has_signed_out_of_is_known_to_all(sessions: Sessions, clock: Hands) -> None:
    store = MemoryStore()
    one, other = (sessions.read(sessions.open("reader")) for _ in range(2))
    assert one is not None
    assert other is not None
    end_session(store, one, clock.now)
    ended = read_ended(store, "reader")
    assert (ended.has(one), ended.has(other)) == (True, False)
    assert read_ended(store, "chief") == EndedSessions()
    store.close()


def test_what_is_kept_of_them_is_bounded_and_none_of_them_comes_back(sessions: Sessions, clock: Hands) -> None:
    store, ended = MemoryStore(), list[ConsoleSession]()
    for _ in range(3 * MOST_ENDED):
        session = sessions.read(sessions.open("reader"))
        assert session is not None
        end_session(store, session, clock.now)
        ended.append(session)
        clock.now += 1
    known = read_ended(store, "reader")
    assert all(known.has(one) for one in ended)
    assert len(known.ids) <= MOST_ENDED
    assert len(store.kv_list(ENDED_CELL)) == 1
    later = sessions.read(sessions.open("reader"))
    assert later is not None
    assert not known.has(later)
    # Those that are over anyway are not kept.
    clock.now += LASTS
    end_session(store, later, clock.now)
    assert list(read_ended(store, "reader").ids) == [later.id]
    store.close()


@pytest.mark.parametrize("cell", [b"", b"x", b"[]", b'{"ids": 1}', b"\xff"])
def test_a_cell_that_cannot_be_read_ends_none_and_is_written_anew(sessions: Sessions, cell: bytes) -> None:
    store = MemoryStore()
    session = sessions.read(sessions.open("reader"))
    assert session is not None
    end_session(store, session, 0)
    ((name, was),) = store.kv_list(ENDED_CELL).items()
    store.kv_cas(name, cell, was)
    assert read_ended(store, "reader") == EndedSessions()
    end_session(store, session, 0)
    assert read_ended(store, "reader").has(session)
    store.close()


def test_forms_of_each_session_have_their_own_proof(sessions: Sessions) -> None:
    one, other = sessions.open("reader"), sessions.open("chief")
    assert len({sessions.form_proof(cookie) for cookie in (one, other, "")}) == 3
    assert sessions.form_proof(one) == sessions.form_proof(one)


def test_the_secret_is_made_once_for_a_store() -> None:
    store = MemoryStore()
    secret = read_secret(store)
    assert len(secret) == 32
    assert read_secret(store) == secret == store.kv_get(SECRET_CELL)
    store.close()


def test_a_store_that_keeps_no_secret_is_not_asked_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    asked = []
    monkeypatch.setattr(store, "kv_cas", lambda *cell: asked.append(cell))
    with pytest.raises(StoreBusy):
        read_secret(store)
    assert 0 < len(asked) < 10
    store.close()


def test_proofs_are_compared_in_constant_time(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    cookie = sessions.open("reader")
    assert caller_of(sessions, cookie) is None
    assert compared == [(cookie.rpartition(".")[2].encode(),) * 2]
