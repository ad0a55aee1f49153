"""Tokens: who may do what, at which rate, and how a change of their file is noticed."""

import logging
from pathlib import Path

import pytest

from tarry.errors import ConfigError, NotAllowed, NotAuthenticated, RateExceeded
from tarry.operate.access import Scope
from tarry.server.identity.entries import CHECK_EVERY
from tarry.server.identity.tokens import TokenAccess, digest, new_token, read_tokens


class Watch:
    """A clock that stands still."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def section(name: str, token: str, rest: str = 'scopes = ["put"]') -> str:
    return f'[tokens.{name}]\nsha256 = "{digest(token).hex()}"\n{rest}\n\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


def test_a_token_is_for_its_scopes_and_queues(file: Path) -> None:
    token = new_token()
    file.write_text(section("shop", token, 'scopes = ["put", "read"]\nqueues = ["mail", "shop-*"]'))
    caller = TokenAccess(file).caller({"authorization": f"Bearer {token}"}, "")
    assert caller.name == "shop"
    for queue in ("mail", "shop-1", "shop-"):
        caller.check(Scope.PUT, queue)
    with pytest.raises(NotAllowed, match="token shop may not take"):
        caller.check(Scope.TAKE, "mail")
    with pytest.raises(NotAllowed, match="not for queue mail2: only mail, shop-"):
        caller.check(Scope.PUT, "mail2")
    caller.check(Scope.READ)
    assert [caller.allows(Scope.READ, queue) for queue in ("mail", "other")] == [True, False]
    assert not caller.allows(Scope.TAKE, "mail")


def test_admin_may_do_all(file: Path) -> None:
    file.write_text(section("root", "t", 'scopes = ["admin"]'))
    caller = TokenAccess(file).caller({"authorization": "bearer t"}, "")
    for scope in Scope:
        caller.check(scope)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic dDp0", "t", "Bearer wrong", "Bearer t t", "Bearer é"]
)
def test_who_has_no_known_token_is_nobody(file: Path, header: str) -> None:
    file.write_text(section("shop", "t"))
    with pytest.raises(NotAuthenticated):
        TokenAccess(file).caller({"authorization": header}, "")


def test_a_rate_counts_the_requests_of_one_token(file: Path) -> None:
    watch = Watch()
    file.write_text(section("slow", "s", 'scopes = ["put"]\nrate = "20/s"') + section("other", "o"))
    access = TokenAccess(file, watch)
    access.caller({"authorization": "Bearer s"}, "")
    with pytest.raises(RateExceeded, match="token slow may send 20 in 1 s") as refused:
        access.caller({"authorization": "Bearer s"}, "")
    assert 0 < refused.value.retry_after <= 0.06
    access.caller({"authorization": "Bearer o"}, "")
    watch.now += refused.value.retry_after + 0.000_001
    access.caller({"authorization": "Bearer s"}, "")


def test_no_second_has_more_requests_than_the_rate(file: Path) -> None:
    watch = Watch()
    file.write_text(section("slow", "s", 'scopes = ["put"]\nrate = "100/s"'))
    access, allowed = TokenAccess(file, watch), 0
    for _ in range(1000):
        watch.now += 0.001
        try:
            access.caller({"authorization": "Bearer s"}, "")
            allowed += 1
        except RateExceeded:
            continue
    assert 90 <= allowed <= 100


def test_a_change_is_noticed_within_a_second(file: Path) -> None:
    watch = Watch()
    file.write_text(section("old", "o"))
    access = TokenAccess(file, watch)
    file.write_text(section("new", "n") + section("newer", "m"))
    access.caller({"authorization": "Bearer o"}, "")
    watch.now += CHECK_EVERY
    assert access.caller({"authorization": "Bearer n"}, "").name == "new"
    with pytest.raises(NotAuthenticated):
        access.caller({"authorization": "Bearer o"}, "")


def test_a_change_elsewhere_leaves_the_count_of_a_token(file: Path) -> None:
    watch = Watch()
    slow = section("slow", "s", 'scopes = ["put"]\nrate = "1/h"')
    file.write_text(slow)
    access = TokenAccess(file, watch)
    access.caller({"authorization": "Bearer s"}, "")
    file.write_text(slow + section("other", "o"))
    watch.now += CHECK_EVERY
    access.caller({"authorization": "Bearer o"}, "")
    with pytest.raises(RateExceeded):
        access.caller({"authorization": "Bearer s"}, "")


def test_a_slip_in_the_file_shuts_nobody_out(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    file.write_text(section("shop", "t"))
    access = TokenAccess(file, watch)
    for broken in ('[tokens.shop]\nsha256 = "zz"', "[tokens", ""):
        file.write_text(broken)
        if not broken:
            file.unlink()
        watch.now += CHECK_EVERY
        with caplog.at_level(logging.ERROR):
            assert access.caller({"authorization": "Bearer t"}, "").name == "shop"
        assert "the tokens stay as they were" in caplog.messages[-1]
    assert len(caplog.messages) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[tokens.a]\nsha256 = "abc"', "tokens.a.sha256: expected the SHA-256 of the token"),
        ('[tokens.a]\nscopes = ["put"]', "tokens.a: expected a sha256"),
        (section("a", "t", 'scopes = ["pot"]'), "tokens.a.scopes: expected a list of scopes"),
        (section("a", "t", "queues = []"), "tokens.a.queues: expected a list of queues"),
        (section("a", "t", 'rate = "often"'), "tokens.a.rate: expected a rate"),
        (section("a", "t", 'scope = ["put"]'), "unknown setting tokens.a.scope; did you mean scopes"),
        (section("a", "t") + section("b", "t"), "expected another token than that of a"),
        # A session of it would be one of the password `ann`.
        (section('"password:ann"', "t"), "expected a name that does not begin with password:"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(file: Path, text: str, why: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_tokens(file)
    assert why in str(refused.value)
    assert "tokens.toml:" in str(refused.value)


def test_a_file_that_is_missing_is_an_error_at_the_start(file: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist: `tarry tokens add"):
        TokenAccess(file)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("mail[1]", "mail[1]", "mail1"),
        ("mail?", "mail?", "mails"),
        ("?", "?", "*"),
        ("[*]", "[*]", "*"),
        ("a*c*", "abcd", "a.b"),
        ("**", "*", None),
        ("*", "two\nlines", None),
    ],
)
def test_only_a_star_stands_for_other_characters(file: Path, pattern: str, inside: str, outside: str | None) -> None:
    file.write_text(section("shop", "t", f'scopes = ["put"]\nqueues = ["other", "{pattern}"]'))
    caller = TokenAccess(file).caller({"authorization": "Bearer t"}, "")
    assert caller.allows(Scope.PUT, inside)
    assert outside is None or not caller.allows(Scope.PUT, outside)
