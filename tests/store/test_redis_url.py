"""What a redis URL says, and what is said of a wrong one: never the password."""

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tarry.errors import ConfigError
from tarry.store.redis.url import parse_url


def test_a_server() -> None:
    target = parse_url("redis://ann:s%2Fecret@example.com:7000/3")
    assert (target.kind, target.addresses, target.database) == ("server", (("example.com", 7000),), 3)
    assert (target.user, target.password) == ("ann", "s/ecret")
    assert (target.prefix, target.timeout, target.tls) == ("tarry", 5.0, None)


def test_what_is_left_out() -> None:
    target = parse_url("redis://localhost")
    assert (target.addresses, target.database, target.user, target.password) == ((("localhost", 6379),), 0, "", "")
    assert parse_url("redis://:only@localhost").password == "only"


def test_ipv6() -> None:
    assert parse_url("redis://[::1]:7000").addresses == (("::1", 7000),)
    assert parse_url("redis://[::1]:7000").url == "redis://[::1]:7000/0"


def test_a_socket() -> None:
    target = parse_url("redis+unix:///run/sock?db=2&prefix=mine")
    assert (target.kind, target.addresses, target.database, target.prefix) == ("unix", (("/run/sock", 0),), 2, "mine")
    assert target.url == "redis+unix:///run/sock?db=2&prefix=mine"


def test_sentinels() -> None:
    target = parse_url("redis+sentinel://:pw@a:1,b/main/4?sentinel_password=other&timeout=2s")
    assert (target.kind, target.addresses) == ("sentinel", (("a", 1), ("b", 26379)))
    assert (target.service, target.database, target.timeout) == ("main", 4, 2.0)
    assert (target.password, target.options["sentinel_password"]) == ("pw", "other")


def test_a_cluster() -> None:
    target = parse_url("redis+cluster://a:1,b:2?parts=3")
    assert (target.kind, target.addresses, target.parts) == ("cluster", (("a", 1), ("b", 2)), 3)
    assert parse_url("redis+cluster://a:1/").parts == 6


def test_tls(tmp_path: Path) -> None:
    for scheme in ("rediss", "rediss+cluster"):
        secure = parse_url(f"{scheme}://host").tls
        assert secure is not None
        assert secure.check_hostname
        assert secure.verify_mode is ssl.CERT_REQUIRED
    loose = parse_url("rediss://host?ssl_cert_reqs=none").tls
    assert loose is not None
    assert loose.verify_mode is ssl.CERT_NONE
    wrong(f"rediss://host?ssl_ca_certs={tmp_path}/none", "No such file")


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("redis://ann:secret@h/0?timeout=3s", "redis://h:6379"),
        ("redis://h?prefix=tarry&replicas=2", "redis://h/0"),
        ("redis+sentinel://:secret@h/m?sentinel_password=secret", "redis+sentinel://h:26379/m/0"),
        ("redis+cluster://:secret@h", "redis+cluster://h?parts=6"),
    ],
)
def test_the_url_of_the_store_says_which_it_is(url: str, same: str) -> None:
    """And nothing else: shards are told apart by it."""
    assert parse_url(url).url == parse_url(same).url
    assert "secret" not in repr(parse_url(url))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://", "host is missing"),
        ("redis://h:x", "no host, or no host:port"),
        ("redis://h:70000", "'h:70000' is no host"),
        ("redis://h/zero", "'zero' is no number"),
        ("redis://h/0/1", "'0/1' is no number"),
        ("redis://a,b", "one server only"),
        ("redis+unix://", "path is missing"),
        ("redis+sentinel://h", "name of the service"),
        ("redis+sentinel://h/m/x", "'x' is no number"),
        ("redis+cluster://h/2", "only database 0"),
        ("redis://h?prefx=a", "'prefx' here; did you mean prefix?"),
        ("redis://h?zzz=a", "there are prefix, timeout"),
        ("redis://h?parts=3", "no option 'parts'"),
        ("redis://h?ssl_ca_certs=x", "no option 'ssl_ca_certs'"),
        ("redis://h?timeout=soon", "timeout='soon': a duration as 5s"),
        ("redis://h?timeout=0s", "timeout='0s': a duration as 5s"),
        ("redis://h?prefix=a{b}", "prefix='a{b}'"),
        ("redis+cluster://h?parts=0", "from 1 to"),
        ("redis://h?replicas=many", "replicas='many'"),
        ("redis://h?confirm=paper", "one of memory, disk"),
        ("rediss://h?ssl_cert_reqs=yes", "one of required"),
        ("redis://ann:sec/ret@h", "must be written with %2F"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(url: str, why: str) -> None:
    wrong(url, why)


@pytest.mark.parametrize(
    "url",
    [
        "redis://ann:secret@h:x",
        "redis://ann:secret@h/zero",
        "redis://ann:secret@h?prefx=1",
        "redis://ann:s@secret@h/x",
        "redis://:pw/secret@h",
        "redis://:secret?secret@h",
        "redis://:pw?secret@h",
        "redis+sentinel://ann:secret@h?sentinel_password=secret",
        "redis+sentinel://ann:secret@h/m?sentinel_password=secret&x=1",
        "rediss://h?ssl_password=secret&ssl_certfile=/none",
    ],
)
def test_the_password_is_never_shown(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_url(url)
    assert "secret" not in str(raised.value)


def wrong(url: str, why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_url(url)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_without_the_driver() -> None:
    """What is missing is said, with what to do."""
    program = """
import sys
sys.modules["hiredis"] = None
from tarry.store.opening import open_store
open_store("redis://localhost")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=False)
    assert 'ConfigError: a redis store needs its driver: pip install "tarry[redis]"' in ran.stderr
