"""Sessions: a cookie names a token, and proves that its holder had it."""

import hmac
import secrets

import pytest

from tarry.door.console.session import LASTS, SECRET_CELL, Sessions, read_secret
from tarry.door.identity.tokens import TokenAccess
from tarry.errors import StoreBusy
from tarry.store.memory import MemoryStore
from tests.door.console.visiting import Tokens

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


@pytest.fixture
def sessions(access: TokenAccess, clock: Hands) -> Sessions:
    return Sessions(access, SECRET, clock)


def test_a_session_is_its_token_s_caller(sessions: Sessions) -> None:
    caller = sessions.caller(sessions.open("operator"))
    assert caller is not None
    assert caller.name == "operator"


def test_every_process_knows_it(sessions: Sessions, access: TokenAccess, clock: Hands) -> None:
    assert Sessions(access, SECRET, clock).caller(sessions.open("reader")) is not None


def test_it_ends(sessions: Sessions, clock: Hands) -> None:
    cookie = sessions.open("reader")
    clock.now += LASTS - 1
    assert sessions.caller(cookie) is not None
    clock.now += 1
    assert sessions.caller(cookie) is None


def test_it_ends_with_its_token(sessions: Sessions, tokens: Tokens, clock: Hands) -> None:
    reader, chief = sessions.open("reader"), sessions.open("chief")
    tokens.remove("reader")
    clock.now += 2
    assert sessions.caller(reader) is None
    assert sessions.caller(chief) is not None


def test_another_token_of_that_name_does_not_bring_it_back(sessions: Sessions, tokens: Tokens, clock: Hands) -> None:
    cookie = sessions.open("reader")
    tokens.add("reader", "admin", token="another")
    clock.now += 2
    assert sessions.caller(cookie) is None


def test_a_session_of_another_store_is_none(sessions: Sessions, access: TokenAccess, clock: Hands) -> None:
    assert Sessions(access, secrets.token_bytes(32), clock).caller(sessions.open("reader")) is None


def test_no_other_name_and_no_later_end_can_be_written_into_it(sessions: Sessions) -> None:
    name, end, proof = sessions.open("reader").split(".")
    chief = sessions.open("chief").split(".")[0]
    assert sessions.caller(f"{chief}.{end}.{proof}") is None
    assert sessions.caller(f"{name}.{int(end) + 1}.{proof}") is None
    assert sessions.caller(f"{name}.{end}.{proof[:-1]}") is None


@pytest.mark.parametrize(
    "cookie",
    [
        "", ".", "..", "...", "cmVhZGVy", "cmVhZGVy.9999999999999.", "cmVhZGVy.x.y", "%%%.99999999999999.y", "é.é.é",
        "cmVhZGVy.99999999999999.é", "//8.99999999999999.0", "a" * 10_000, "cmVhZGVy." + "9" * 5000 + ".0",
    ],
)  # fmt: skip
def test_garbage_is_no_session(sessions: Sessions, cookie: str) -> None:
    assert sessions.caller(cookie) is None


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
    assert sessions.caller(cookie) is None
    assert compared == [(cookie.rpartition(".")[2].encode(),) * 2]
