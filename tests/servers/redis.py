"""Redis: one server, one with a replica under sentinels, a cluster."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tests.servers.server import READY_WITHIN, Server, free_port, program

CALL_WITHIN = 30.0


class RedisServer(Server):
    """One server; `options` as on its command line."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory)
        self.options = options

    @property
    def url(self) -> str:
        """Database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[str]:
        return [
            program("redis-server", "valkey-server"), "--port", str(self.port), "--bind", "127.0.0.1", "--dir",
            str(self.directory), "--save", "", "--unixsocket", f"{self.directory}/sock", *self.options,
        ]  # fmt: skip

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.call("PING") == "PONG"
        return False

    def call(self, *words: str) -> str:
        """One command; the answer, also an error, as redis-cli prints it: without its start, which takes 20 times as
        long as the command."""
        sent = [part for word in words for part in (b"$%d" % len(word.encode()), word.encode())]
        with socket.create_connection(("127.0.0.1", self.port), CALL_WITHIN) as line, line.makefile("rb") as answer:
            line.sendall(b"\r\n".join([b"*%d" % len(words), *sent, b""]))
            return "\n".join(_read_lines(answer)).strip()

    def empty(self) -> None:
        """Forgets all that it has."""
        self.call("FLUSHALL")


class Sentinel(RedisServer):
    """One sentinel of `watched`, which it calls `tarry`."""

    def __init__(self, directory: Path, watched: RedisServer) -> None:
        super().__init__(directory)
        (directory / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {directory}\nsentinel monitor tarry 127.0.0.1 {watched.port} 2\n"
            "sentinel down-after-milliseconds tarry 500\nsentinel failover-timeout tarry 3000\n"
        )

    def command(self) -> Sequence[str]:
        return [program("redis-server", "valkey-server"), str(self.directory / "sentinel.conf"), "--sentinel"]


class Watched:
    """A server, its replica, and three sentinels that make the replica the server when the server dies."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.first = RedisServer(directory / "first", *options)
        self.second = RedisServer(directory / "second", "--replicaof", f"127.0.0.1 {self.first.port}", *options)
        self.sentinels = [Sentinel(directory / f"sentinel{number}", self.first) for number in range(3)]

    @property
    def url(self) -> str:
        """Asks any of the sentinels."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{each.port}' for each in self.sentinels)}/tarry/0"

    def start(self) -> None:
        """Returns once the replica is in step and the sentinels know of each other and of it."""
        for server in (self.first, self.second, *self.sentinels):
            server.start()
        until(lambda: "master_link_status:up" in self.second.call("INFO", "replication"), "the replica to be in step")
        until(lambda: all(_knows_all(sentinel) for sentinel in self.sentinels), "the sentinels to know each other")

    def stop(self) -> None:
        """All of them."""
        for server in (*self.sentinels, self.second, self.first):
            server.kill()

    @property
    def master(self) -> RedisServer:
        """The one that is written to, as the sentinels see it."""
        port = self.sentinels[0].call("SENTINEL", "get-master-addr-by-name", "tarry").split()[1]
        return self.first if int(port) == self.first.port else self.second


class RedisCluster:
    """Three masters, each with a replica."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.nodes = [
            RedisServer(
                directory / f"node{number}", "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
                "--cluster-port", str(free_port()), *options,
            )
            for number in range(6)
        ]  # fmt: skip

    @property
    def url(self) -> str:
        """Any node tells of the others."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}"

    def start(self) -> None:
        """Returns once every node knows who has which slots."""
        for node in self.nodes:
            node.start()
        ran = subprocess.run(
            [
                program("redis-cli", "valkey-cli"), "--cluster", "create",
                *[f"127.0.0.1:{node.port}" for node in self.nodes], "--cluster-replicas", "1", "--cluster-yes",
            ],
            capture_output=True, text=True, timeout=READY_WITHIN, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        until(lambda: all("cluster_state:ok" in node.call("CLUSTER", "INFO") for node in self.nodes), "the cluster")

    def stop(self) -> None:
        """All of them."""
        for node in self.nodes:
            node.kill()

    def masters(self) -> list[RedisServer]:
        """Those that are written to now, and live."""
        return [node for node in self.nodes if node.answers() and node.call("ROLE").startswith("master")]

    def empty(self) -> None:
        """Forgets all that it has."""
        for node in self.masters():
            node.empty()


def _read_lines(answer: IO[bytes]) -> list[str]:
    """The texts and numbers of an answer, one after the other: of one in another, too."""
    kind, rest = (line := answer.readline())[:1], line[1:].strip()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server has closed the connection")
    if kind == b"*":
        return [line for _ in range(int(rest)) for line in _read_lines(answer)]
    if kind != b"$":
        return [rest.decode()]
    return [answer.read(int(rest) + 2)[:-2].decode(errors="replace")] if int(rest) >= 0 else [""]


def until(look: Callable[[], object], what: str) -> None:
    """Waits for that."""
    end = time.monotonic() + READY_WITHIN
    while not look():
        assert time.monotonic() < end, f"waited {READY_WITHIN:g} s for {what}"
        time.sleep(0.05)


def _knows_all(sentinel: Sentinel) -> bool:
    told = sentinel.call("SENTINEL", "master", "tarry").split()
    facts = dict(zip(told[::2], told[1::2], strict=False))
    return facts.get("num-slaves") == "1" and facts.get("num-other-sentinels") == "2"
