"""Passwords: who may sign in, how a change of their file is noticed, and how fast somebody may guess."""

import logging
from pathlib import Path

import pytest

from tarry.errors import ConfigError, NotAllowed, NotAuthenticated, RateExceeded
from tarry.operate.access import Scope
from tarry.server.identity.access import OpenAccess
from tarry.server.identity.entries import CHECK_EVERY
from tarry.server.identity.passwords import (
    MOST,
    PasswordAccess,
    PasswordHash,
    hash_password,
    open_access,
    read_passwords,
)
from tarry.server.identity.sign_in_tries import FIRST, FORGOTTEN_AFTER, FREE, FREE_OF_ADDRESS, LONGEST, SignInTries
from tarry.server.identity.tokens import TokenAccess, digest

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


class Watch:
    """A clock that stands still."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def cheap_hash(password: str) -> str:
    """A hash of this password that takes no time."""
    return str(hash_password(password, cost=2))


def section(name: str, password: str, rest: str = 'scopes = ["read"]') -> str:
    return f'[passwords.{name}]\nscrypt = "{cheap_hash(password)}"\n{rest}\n\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "passwords.toml"
    path.touch(0o600)
    return path


def test_a_hash_is_of_its_password_and_salted() -> None:
    first, second = hash_password("correct horse"), hash_password("correct horse")
    assert first.matches("correct horse")
    assert not first.matches("correct hors")
    assert str(first) != str(second)
    assert "correct" not in str(first)


def test_one_letter_is_the_same_however_it_is_typed(file: Path) -> None:
    file.write_text(section("ann", "pâté de foie"))
    PasswordAccess(file).sign_in("ann", "pa\u0302te\u0301 de foie", HERE)


def test_a_password_is_for_its_scopes_and_queues(file: Path) -> None:
    file.write_text(section("ann", "secret-1", 'scopes = ["read", "operate"]\nqueues = ["mail"]'))
    access = PasswordAccess(file)
    caller = access.sign_in("ann", "secret-1", HERE)
    assert caller.name == "ann"
    caller.check(Scope.OPERATE, "mail")
    with pytest.raises(NotAllowed, match="password ann may not admin"):
        caller.check(Scope.ADMIN)
    with pytest.raises(NotAllowed, match="password ann is not for queue other: only mail"):
        caller.check(Scope.READ, "other")
    assert access.named(caller.entry) is caller


@pytest.mark.parametrize(
    ("name", "password"),
    [("ann", "secret-2"), ("bob", "secret-1"), ("", "secret-1"), ("ann", ""), ("ann", "secret-1" + " " * MOST)],
)
def test_who_has_no_right_name_and_password_is_nobody(file: Path, name: str, password: str) -> None:
    file.write_text(section("ann", "secret-1"))
    with pytest.raises(NotAuthenticated, match="the name or the password is wrong"):
        PasswordAccess(file).sign_in(name, password, HERE)


def test_whoever_names_nobody_costs_as_much_as_a_wrong_password(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(f'[passwords.ann]\nscrypt = "{hash_password("secret-1")}"\nscopes = ["read"]\n')
    costs = []

    def matches(self: PasswordHash, password: str) -> bool:
        costs.append((self.cost, self.block, self.lanes))
        return False

    monkeypatch.setattr(PasswordHash, "matches", matches)
    access = PasswordAccess(file)
    for name in ("ann", "bob"):
        with pytest.raises(NotAuthenticated):
            access.sign_in(name, "wrong", HERE)
    assert len(costs) == 2
    assert costs[0] == costs[1]


def test_what_is_kept_follows_the_entry(file: Path) -> None:
    watch = Watch()
    file.write_text(section("ann", "secret-1") + section("bob", "secret-1"))
    access = PasswordAccess(file, clock=watch)
    entries = [access.sign_in(name, "secret-1", HERE).entry for name in ("ann", "bob")]
    before = [access.digest_of(entry) for entry in entries]
    assert all(before)
    file.write_text(section("ann", "secret-22"))
    watch.now += CHECK_EVERY
    assert access.named(entries[1]) is None
    assert access.digest_of(entries[1]) == b""
    assert access.digest_of(entries[0]) not in (b"", before[0])


def test_a_slip_in_the_file_shuts_nobody_out(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    file.write_text(section("ann", "secret-1"))
    access = PasswordAccess(file, clock=watch)
    file.write_text("[passwords")
    watch.now += CHECK_EVERY
    with caplog.at_level(logging.ERROR, "tarry.server"):
        access.sign_in("ann", "secret-1", HERE)
    assert "the passwords stay as they were" in caplog.messages[-1]


@pytest.mark.parametrize(
    "written",
    [
        "",
        "x",
        "2$1$1$MDEyMzQ1Njc4OWFiY2RlZg==$x",
        "3$1$1$%s",
        "0$1$1$%s",
        "1048576$8$1$%s",
        "32768$8$99$%s",
        "2$0$1$%s",
    ],
)
def test_a_wrong_hash_is_told_with_its_place(file: Path, written: str) -> None:
    salt_and_key = cheap_hash("secret-1").split("$", 3)[3]
    file.write_text(f'[passwords.ann]\nscopes = ["read"]\nscrypt = "{written.replace("%s", salt_and_key)}"\n')
    with pytest.raises(ConfigError, match=r"passwords\.toml:3: passwords\.ann\.scrypt"):
        read_passwords(file)


def test_a_file_that_is_missing_or_lacks_a_hash_is_told(file: Path) -> None:
    with pytest.raises(ConfigError, match="tarry passwords add NAME"):
        read_passwords(file.with_name("none.toml"))
    file.write_text('[passwords.ann]\nscopes = ["read"]\n')
    with pytest.raises(ConfigError, match=r"passwords\.ann"):
        read_passwords(file)


@pytest.mark.parametrize(("mode", "told"), [(0o600, ""), (0o640, ""), (0o644, "read"), (0o646, "change")])
def test_a_file_that_others_may_read_or_change_is_told(
    file: Path, mode: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(section("ann", "secret-1"))
    file.chmod(mode)
    with caplog.at_level(logging.WARNING, "tarry.server"):
        PasswordAccess(file)
    warned = [message for message in caplog.messages if "every user of this host" in message]
    assert [f"may {told} {file}: chmod 600" in message for message in warned] == ([True] if told else [])


def test_tokens_and_passwords_may_have_one_name(file: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[tokens.ann]\nsha256 = "{digest("t").hex()}"\nscopes = ["put"]\n')
    file.write_text(section("ann", "secret-1"))
    access = open_access(tokens, file)
    by_token = access.caller({"authorization": "Bearer t"}, HERE)
    by_password = access.sign_in("ann", "secret-1", HERE)
    assert by_token.entry != by_password.entry
    assert access.named(by_token.entry) is by_token
    assert access.named(by_password.entry) is by_password
    assert access.digest_of(by_token.entry) != access.digest_of(by_password.entry)


def test_the_access_is_as_the_files_are(file: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("")
    assert isinstance(open_access(None, None), OpenAccess)
    assert isinstance(open_access(tokens, None), TokenAccess)
    both, only = open_access(tokens, file), open_access(None, file)
    assert [(one.takes_tokens, one.takes_passwords) for one in (both, only)] == [(True, True), (False, True)]
    with pytest.raises(NotAuthenticated, match="this server has no tokens"):
        only.caller({"authorization": "Bearer t"}, HERE)
    with pytest.raises(NotAuthenticated, match="sign in with a token"):
        open_access(tokens, None).sign_in("ann", "secret-1", HERE)


def fail(tries: SignInTries, times: int, name: str = "ann", address: str = HERE, now: float = 0.0) -> None:
    for _ in range(times):
        tries.note_failure(name, address, now)


def pause(tries: SignInTries, name: str = "ann", address: str = HERE, now: float = 0.0) -> float:
    try:
        tries.check(name, address, now)
    except RateExceeded as error:
        return error.retry_after
    return 0.0


def test_pauses_get_longer_up_to_a_bound_and_are_forgotten() -> None:
    tries = SignInTries()
    fail(tries, FREE - 1)
    assert pause(tries) == 0
    seen = []
    for _ in range(12):
        fail(tries, 1)
        seen.append(pause(tries))
    assert seen[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert seen[-1] == LONGEST
    assert pause(tries, now=LONGEST) == 0
    fail(tries, 1, now=FORGOTTEN_AFTER + 1)
    assert pause(tries, now=FORGOTTEN_AFTER + 1) == 0


def test_nobody_is_shut_out_by_what_others_try() -> None:
    tries = SignInTries()
    fail(tries, FREE_OF_ADDRESS + 5)
    assert pause(tries) > 0
    assert pause(tries, "ann", ELSEWHERE) == 0
    # From the same address, as behind a proxy, everybody has a first try soon; a guesser no second one with a name.
    assert pause(tries, "bob") == FIRST
    assert pause(tries, "bob", now=FIRST) == 0
    fail(tries, 1, "bob")
    assert pause(tries, "bob", now=FIRST) > 0
    assert pause(tries, "bob", ELSEWHERE) == 0
    tries.note_success("cy", HERE)
    assert pause(tries, "cy") == 0
    fail(tries, FREE, "cy")
    assert pause(tries, "cy") > 0


def test_a_success_ends_the_pauses_of_its_name_only() -> None:
    tries = SignInTries()
    fail(tries, FREE_OF_ADDRESS)
    fail(tries, 1, "bob")
    tries.note_success("ann", HERE)
    assert pause(tries) == 0
    assert pause(tries, "bob") > 0


def test_failures_of_a_few_names_hold_up_no_other_behind_the_same_proxy() -> None:
    tries = SignInTries()
    for number in range(10):
        fail(tries, 1, f"name {number}")
    fail(tries, 1, "bob")
    assert pause(tries, "bob") == 0
    for number in range(FREE_OF_ADDRESS):
        fail(tries, 1, f"name {number}")
    assert pause(tries, "bob") > FIRST
    assert pause(tries, "cy", now=FIRST) == 0


def test_a_network_of_one_customer_is_one_address() -> None:
    tries = SignInTries()
    for number in range(FREE_OF_ADDRESS):
        fail(tries, 1, f"name {number}", f"2001:db8:1:2::{number:x}")
    for address in ("2001:db8:1:2:eeee::1", "2001:db8:1:3::1", ""):
        fail(tries, 1, "other", address)
    assert pause(tries, "other", "2001:db8:1:2:ffff::1") > 0
    assert pause(tries, "other", "2001:db8:1:3::1") == 0
    assert pause(tries, "other", "") == 0


def test_tries_during_a_pause_are_not_looked_at(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    file.write_text(section("ann", "secret-1"))
    access = PasswordAccess(file, clock=watch)
    for _ in range(FREE):
        with pytest.raises(NotAuthenticated):
            access.sign_in("ann", "wrong", HERE)
    with pytest.raises(RateExceeded) as refused:
        access.sign_in("ann", "secret-1", HERE)
    assert 0 < refused.value.retry_after <= FIRST
    access.sign_in("ann", "secret-1", ELSEWHERE)
    watch.now += FIRST
    access.sign_in("ann", "secret-1", HERE)
