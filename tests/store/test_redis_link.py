"""The link to one server, seen through what it answers and raises."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tarry.errors import ConfigError, StoreAway, StoreError, StoreForeign, StoreFull, StoreUnavailable, TarryError
from tarry.store.redis.link.access import Access, ServerAddress
from tarry.store.redis.link.base import Script, ScriptCall
from tarry.store.redis.link.connection import SLACK, RedisConnection
from tarry.store.redis.link.redis_errors import ReplyLost
from tarry.store.redis.link.server import ServerLink
from tarry.store.redis.opening import server_link
from tarry.store.redis.url import parse_url
from tarry.store.rules.sleeper import RESULT
from tests.servers.redis import RedisServer, until
from tests.servers.server import free_port as free

ECHO = Script("echo", "return {KEYS[1], ARGV[1], ARGV[2]}", repeatable=True)
APPEND = Script("append", "return redis.call('RPUSH', KEYS[1], ARGV[1])")
COUNT = Script("count", "return redis.call('INCR', KEYS[1])")
SLOW = Script("slow", "local n = 0 while n < 1e9 do n = n + 1 end return 1")


def link_to(url: str) -> ServerLink:
    return server_link(parse_url(url))


@pytest.fixture
def server(redis_server: RedisServer) -> Iterator[RedisServer]:
    redis_server.empty()
    yield redis_server
    redis_server.call("CONFIG", "SET", "maxmemory", "0")


@pytest.fixture
def link(server: RedisServer) -> Iterator[ServerLink]:
    link = link_to(server.url)
    yield link
    link.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that the test may kill."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


class TestCalls:
    def test_raw_answers(self, link: ServerLink) -> None:
        assert link.run(ECHO, ["key"], [b"\x00\xff", 12]) == [b"key", b"\x00\xff", b"12"]
        assert link.run(Script("kinds", "return {1, false, 'x'}"), [], []) == [1, None, b"x"]
        assert link.command("GET", "none") is None

    def test_many_in_order(self, link: ServerLink) -> None:
        calls = [ScriptCall(APPEND, ["list"], [n]) for n in range(500)]
        assert link.run_all(calls) == list(range(1, 501))
        assert link.command("LRANGE", "list", 0, -1) == [str(n).encode() for n in range(500)]

    def test_a_large_answer(self, link: ServerLink) -> None:
        big = os.urandom(3_000_000)
        assert link.run(ECHO, ["key"], [big, big]) == [b"key", big, big]

    def test_scripts_that_the_server_forgot(self, link: ServerLink, server: RedisServer) -> None:
        for _ in range(2):
            assert link.run_all([ScriptCall(COUNT, ["n"], []), ScriptCall(APPEND, ["list"], ["x"])])
            server.call("SCRIPT", "FLUSH")
        assert link.run_all([ScriptCall(COUNT, ["n"], []), ScriptCall(COUNT, ["n"], [])]) == [3, 4]

    def test_from_many_threads(self, link: ServerLink, server: RedisServer) -> None:
        with ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(lambda n: link.run(ECHO, ["k"], [n, n]), range(2000)))
        assert [int(answer[1]) for answer in answers] == list(range(2000))
        # Connections of the test before this one may still be ending.
        until(
            lambda: int(server.call("INFO", "clients").split("connected_clients:")[1].split()[0]) <= 9,
            "the others to end",
        )

    def test_by_socket(self, server: RedisServer) -> None:
        link = link_to(f"redis+unix://{server.directory}/sock")
        assert link.command("PING") == b"PONG"
        link.close()

    def test_another_database(self, server: RedisServer, link: ServerLink) -> None:
        other = link_to(f"redis://127.0.0.1:{server.port}/5")
        other.command("SET", "here", 1)
        assert link.command("GET", "here") is None
        other.close()

    def test_closed_twice(self, server: RedisServer) -> None:
        link = link_to(server.url)
        link.command("PING")
        link.close()
        link.close()


class TestRefusals:
    def test_what_the_script_says(self, link: ServerLink) -> None:
        with pytest.raises(StoreError, match="oops"):
            link.run(Script("bad", "return redis.error_reply('ERR oops')"), [], [])
        assert link.command("PING") == b"PONG"

    def test_one_of_many(self, link: ServerLink) -> None:
        """Its error is raised; what the others did stays, and the next call gets its own answer."""
        link.command("SET", "text", "x")
        with pytest.raises(StoreForeign, match="prefix"):
            link.run_all(
                [ScriptCall(COUNT, ["n"], []), ScriptCall(APPEND, ["text"], ["x"]), ScriptCall(COUNT, ["n"], [])]
            )
        assert link.run(COUNT, ["n"], []) == 3

    def test_full(self, link: ServerLink, server: RedisServer) -> None:
        server.call("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(StoreFull, match="maxmemory"):
            link.run(APPEND, ["list"], ["x"])
        assert link.run(Script("allowed", "#!lua flags=allow-oom\nreturn 1"), [], []) == 1

    @pytest.mark.parametrize(
        ("tail", "why"), [("/999", "no database of that number"), ("/0?timeout=1s", "user or the password")]
    )
    def test_wrong_in_the_url(self, server: RedisServer, tail: str, why: str) -> None:
        user = "" if "999" in tail else "ann:secret@"
        with pytest.raises(ConfigError, match=why) as raised:
            link_to(f"redis://{user}127.0.0.1:{server.port}{tail}").check()
        assert "secret" not in str(raised.value)

    def test_no_password(self, own: RedisServer) -> None:
        own.call("CONFIG", "SET", "requirepass", "secret")
        with pytest.raises(ConfigError, match="asks for a password"):
            link_to(own.url).check()
        link = link_to(own.url.replace("//", "//:secret@"))
        assert link.command("PING") == b"PONG"
        link.close()

    def test_no_permission(self, own: RedisServer) -> None:
        own.call("ACL", "SETUSER", "ann", "on", ">secret", "~other*", "+@all")
        link = link_to(own.url.replace("//", "//ann:secret@"))
        with pytest.raises(ConfigError, match="ACL SETUSER"):
            link.run(COUNT, ["{tarry}:n"], [])
        link.close()

    def test_a_right_that_is_taken_away_later(self, own: RedisServer) -> None:
        """That is trouble that may pass, and no wrong setting."""
        own.call("ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all")
        link = link_to(own.url.replace("//", "//ann:secret@"))
        assert link.run(COUNT, ["n"], []) == 1
        own.call("ACL", "SETUSER", "ann", ">other", "<secret")
        own.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(StoreUnavailable, match="wrong"):
            link.run(COUNT, ["n"], [])
        own.call("ACL", "SETUSER", "ann", ">secret")
        assert link.run(COUNT, ["n"], []) == 2
        link.close()

    def test_a_script_that_runs_too_long(self, own: RedisServer) -> None:
        own.call("CONFIG", "SET", "busy-reply-threshold", "50")
        link = link_to(f"{own.url}?timeout=500ms")
        other = link_to(own.url)
        stuck = threading.Thread(target=raised_by, args=(other, SLOW))
        stuck.start()
        until_busy(own)
        with pytest.raises(StoreUnavailable, match="SCRIPT KILL"):
            link.run(ECHO, ["k"], [1, 2])
        own.call("SCRIPT", "KILL")
        stuck.join()
        assert link.command("PING") == b"PONG"
        link.close()
        other.close()


class TestReplicas:
    def test_nobody_confirms(self, link: ServerLink) -> None:
        link.run(COUNT, ["n"], [])
        with pytest.raises(StoreUnavailable, match=r"stored, but confirmed by 0 of 1 replicas within 0.1 s"):
            link.wait_for_replicas(1, 0.1, False)
        assert link.run(COUNT, ["n"], []) == 2

    def test_another_connection_would_be_no_proof(self, link: ServerLink, server: RedisServer) -> None:
        """A server that was started anew may have lost what it is asked about."""
        link.run(COUNT, ["n"], [])
        server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(StoreUnavailable, match=r"stored, but not confirmed by a replica: .* broke"):
            link.wait_for_replicas(1, 0.1, False)

    def test_nothing_was_stored(self, link: ServerLink) -> None:
        with pytest.raises(StoreError, match="nothing was stored from this thread"):
            link.wait_for_replicas(1, 0.1, False)

    def test_on_disk(self, server: RedisServer) -> None:
        link = link_to(f"{server.url}?confirm=disk&replicas=2")
        link.run(COUNT, ["n"], [])
        with pytest.raises(StoreError, match=r"Redis 7\.2 or later|of 2 replicas"):
            link.wait_for_replicas(1, 0.1, False)
        link.close()


class TestNobodyThere:
    def test_refused(self) -> None:
        with pytest.raises(
            StoreAway, match="cannot connect: Connection refused; is a Redis running there, and host and port right"
        ):
            link_to(f"redis://127.0.0.1:{free()}/0").check()

    def test_no_such_host(self) -> None:
        with pytest.raises(StoreAway, match=r"nowhere\.invalid:6379: cannot connect"):
            link_to("redis://nowhere.invalid").check()

    def test_no_such_socket(self, tmp_path: Path) -> None:
        with pytest.raises(StoreAway, match=r"No such file.*; is a Redis running there, and the path right"):
            link_to(f"redis+unix://{tmp_path}/none").check()

    def test_silent(self) -> None:
        """It takes the connection, and says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            start = time.monotonic()
            with pytest.raises(StoreAway, match="no answer in time"):
                link_to(f"redis://127.0.0.1:{silent.getsockname()[1]}/0?timeout=300ms").check()
            assert 0.25 < time.monotonic() - start < 15

    def test_no_redis(self) -> None:
        """Something else listens there."""
        with Answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as other, pytest.raises(StoreError, match="no Redis"):
            link_to(f"redis://127.0.0.1:{other.port}/0?timeout=5s").check()

    @pytest.mark.parametrize(
        ("version", "mode", "why"),
        [
            ("6.2.14", "standalone", "is Redis 6.2.14: version 7 or later"),
            ("7.4.0", "cluster", r"redis\+cluster://"),
            ("7.4.0", "sentinel", r"redis\+sentinel://"),
        ],
    )
    def test_another_kind_of_server(self, version: str, mode: str, why: str) -> None:
        with Answering(hello(version, mode)) as other, pytest.raises(TarryError, match=why):
            link_to(f"redis://127.0.0.1:{other.port}/0").check()

    def test_an_old_server(self) -> None:
        old = b"-ERR unknown command `HELLO`, with args beginning with: `2`, \r\n"
        with Answering(old) as other, pytest.raises(StoreError, match="version 7 or later"):
            link_to(f"redis://127.0.0.1:{other.port}/0").check()


class TestTls:
    def test_both_ways(self, secured: RedisServer) -> None:
        files = f"ssl_ca_certs={secured.directory}/ca.crt"
        link = link_to(f"rediss://127.0.0.1:{secured.port}/0?{files}")
        big = os.urandom(300_000)
        assert link.run(ECHO, ["key"], [big, big]) == [b"key", big, big]
        assert link.command("PING") == b"PONG"
        sleeper = link.wakeup("{t}")
        sleeper.listen(RESULT)
        link.command("PUBLISH", "{t}:wakeup:r", "")
        assert sleeper.wait(15) == b"\0"
        sleeper.close()
        link.close()

    def test_not_to_be_trusted(self, secured: RedisServer) -> None:
        with pytest.raises(ConfigError, match="ssl_ca_certs"):
            link_to(f"rediss://127.0.0.1:{secured.port}/0").check()

    def test_where_there_is_none(self, server: RedisServer) -> None:
        with pytest.raises((ConfigError, StoreAway)):
            link_to(f"rediss://127.0.0.1:{server.port}/0?timeout=2s").check()

    def test_where_it_is_needed(self, secured: RedisServer) -> None:
        with pytest.raises(StoreAway, match="rediss://"):
            link_to(f"redis://127.0.0.1:{secured.port}/0").check()


class TestFork:
    def test_the_child_opens_its_own(self, server: RedisServer, link: ServerLink) -> None:
        """And whatever it does with the parent's, that goes on."""
        assert link.run(COUNT, ["n"], []) == 1
        sleeper = link.wakeup("{t}")
        sleeper.listen(RESULT)
        child = os.fork()
        if not child:
            signal.alarm(30)
            own = link_to(server.url)
            fine = own.run(COUNT, ["n"], []) == 2 and link.run(COUNT, ["n"], []) == 3
            own.close()
            link.close()
            del link, own
            os._exit(0 if fine else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert link.run(COUNT, ["n"], []) == 4
        until(lambda: server.call("CLIENT", "LIST").count("name=tarry") == 2, "the child's connections to end")
        sleeper.listen(RESULT)
        link.command("PUBLISH", "{t}:wakeup:r", "")
        assert sleeper.wait(15) == b"\0"
        sleeper.close()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that speaks TLS on its port, with a certificate for 127.0.0.1 and localhost."""
    folder = tmp_path / "redis"
    server = RedisServer(folder)
    certify(folder)
    plain = free()
    server.options = (
        "--tls-port", str(server.port), "--port", str(plain), "--tls-cert-file", f"{folder}/server.crt",
        "--tls-key-file", f"{folder}/server.key", "--tls-ca-cert-file", f"{folder}/ca.crt", "--tls-auth-clients", "no",
    )  # fmt: skip
    secure, server.port = server.port, plain
    server.start()
    server.port = secure
    yield server
    server.kill()


def certify(folder: Path) -> None:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    signs = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ours", "-days", "2", *signs)
    openssl("req", *ec, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "server.csr", "-out", "server.crt", *signed)


class Answering:
    """Something that answers whatever it is told with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Answering":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        caller, _ = self._listener.accept()
        with caller:
            while caller.recv(4096):
                caller.sendall(self._answer)


def hello(version: str, mode: str) -> bytes:
    words = ["server", "redis", "version", version, "mode", mode, "role", "master"]
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)


def until_busy(server: RedisServer) -> None:
    until(lambda: "BUSY" in server.call("PING"), "the script to be in the way")


def raised_by(link: ServerLink, script: Script) -> None:
    with pytest.raises(StoreError):
        link.run(script, [], [])


def test_calls_with_one_deadline_end_by_it(tmp_path: Path) -> None:
    """The later one does not get the time of the first one anew."""
    server = RedisServer(tmp_path / "slow")
    server.start()
    connection = RedisConnection(ServerAddress("127.0.0.1", server.port), Access(), time.monotonic() + 15)
    allowed = 1.0
    deadline = time.monotonic() + allowed
    assert connection.ask([("PING",)], deadline) == [b"PONG"]
    server.halt()
    until(lambda: time.monotonic() > deadline - allowed / 4, "most of the time to be gone")
    with pytest.raises(ReplyLost):
        connection.ask([("PING",)], deadline)
    assert time.monotonic() < deadline + SLACK + allowed / 2
    server.resume()
    connection.close()
    server.kill()
