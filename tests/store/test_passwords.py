"""Who a database's password goes to: only a server that proved who it is, or one on this host.

`127.1` is this host to the resolver and any other name to tarry, so that a server of the tests can stand for a remote
one.
"""

import contextlib
import itertools
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tarry.errors import ConfigError, TarryError
from tarry.store.opening import open_store
from tarry.store.shared.transport import Transport, is_local
from tests.push.certificates import Authority
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.store.test_postgres import asks_for_a_password

SECRET = b"s3cret-of-mysql"
REMOTE = "127.1"
_ENCRYPTED, _CAPABILITIES = 0x800, 0xFFFFFFFF ^ 0x800


class FakeMysql:
    """Answers as a MySQL server that would like to have the password; `heard` is what it was sent, in clear.

    plugin: what it names in its greeting. answers: what it says to each packet.
    """

    def __init__(self, plugin: bytes, answers: list[bytes], certificate: Path | None) -> None:
        self.heard: list[bytes] = []
        self._plugin, self._answers, self._certificate = plugin, answers, certificate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            client.settimeout(5)
            with contextlib.suppress(OSError, EOFError), contextlib.closing(client):
                self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        can = _CAPABILITIES | (_ENCRYPTED if self._certificate else 0)
        greeting = b"\x0a8.0.30\0" + struct.pack("<I", 7) + b"12345678\0" + struct.pack("<H", can & 0xFFFF)
        greeting += struct.pack("<BHHB", 33, 2, can >> 16, 21) + bytes(10) + b"901234567890\0" + self._plugin + b"\0"
        client.sendall(struct.pack("<I", len(greeting)) + greeting)
        if self._certificate:
            _packet(client)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._certificate)
            client = context.wrap_socket(client, server_side=True)
        with client:
            self._ask(client)

    def _ask(self, client: socket.socket) -> None:
        number, data = _packet(client)
        self.heard.append(data)
        for answer in self._answers:
            client.sendall(struct.pack("<I", len(answer) | (number + 1) << 24) + answer)
            number, data = _packet(client)
            self.heard.append(data)

    def close(self) -> None:
        """Everything that was sent has been heard."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


def _packet(client: socket.socket) -> tuple[int, bytes]:
    (head,) = struct.unpack("<I", _exactly(client, 4))
    return head >> 24, _exactly(client, head & 0xFFFFFF)


def _exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = client.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC = b"\x01" + KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
CLEAR = [b"\xfemysql_clear_password\0"]
NATIVE = b"mysql_native_password"
WAYS = {
    "clear": (NATIVE, CLEAR),
    "dialog": (NATIVE, [b"\xfedialog\0\x03Password: "]),
    "old": (NATIVE, [b"\xfemysql_old_password\x0012345678\0"]),
    "sha256": (NATIVE, [b"\xfesha256_password\x0012345678901234567890\0", PUBLIC]),
    "sha256 greeting": (b"sha256_password", [PUBLIC]),
    "caching": (b"caching_sha2_password", [b"\x01\x04", PUBLIC]),
    "caching switch": (NATIVE, [b"\xfecaching_sha2_password\x0012345678901234567890\0", b"\x01\x04", PUBLIC]),
}


def heard(way: str, host: str, options: str, certificate: Path | None = None) -> tuple[bytes, str]:
    """What that server knows after all, and what the client said."""
    server = FakeMysql(*WAYS[way], certificate)
    try:
        with pytest.raises(TarryError) as raised:
            open_store(f"mysql://app:{SECRET.decode()}@{host}:{server.port}/jobs?timeout=2{options}")
    finally:
        server.close()
    assert SECRET.decode() not in str(raised.value)
    return b"".join(_opened(packet) for packet in server.heard), f"{type(raised.value).__name__}: {raised.value}"


def _opened(packet: bytes) -> bytes:
    """Also what came under the server's own key, which hides the password behind the greeting's salt."""
    if len(packet) != KEY.key_size // 8:
        return packet
    plain = KEY.decrypt(packet, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))
    return bytes(byte ^ salt for byte, salt in zip(plain, itertools.cycle(b"12345678901234567890"), strict=False))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path)
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    return authority


@pytest.mark.parametrize("way", WAYS)
def test_a_mysql_server_that_nobody_vouches_for_is_not_sent_the_password(way: str, authority: Authority) -> None:
    """Neither in clear, nor in TLS whose certificate was not looked at, nor under a key of its own."""
    for certificate, options in (None, ""), (authority.sign([REMOTE]), ""), (authority.sign([REMOTE]), "&tls=yes"):
        sent, said = heard(way, REMOTE, options, certificate)
        assert SECRET not in sent
        assert said.startswith("ConfigError: mysql://app@127.1"), said
        assert "the server asks for the password" in said


@pytest.mark.parametrize("way", ["clear", "caching", "sha256 greeting"])
def test_a_mysql_server_that_is_vouched_for_gets_the_password(way: str, authority: Authority, tmp_path: Path) -> None:
    certificate = authority.sign(["localhost", REMOTE])
    for options in f"&tls=verify&tls_ca={tmp_path}/ca.pem", f"&tls_ca={tmp_path}/ca.pem":
        sent, _ = heard(way, REMOTE, options, certificate)
        assert SECRET in sent, options
    wrong = authority.sign(["elsewhere.example"])
    sent, _ = heard(way, REMOTE, f"&tls=yes&tls_ca={tmp_path}/ca.pem", wrong)
    assert SECRET in sent
    sent, said = heard(way, REMOTE, f"&tls=verify&tls_ca={tmp_path}/ca.pem", wrong)
    assert SECRET not in sent
    assert "certificate" in said


def test_a_certificate_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    for options in f"&tls=yes&tls_ca={tmp_path}/ca.pem", f"&tls_ca={tmp_path}/ca.pem":
        sent, said = heard("clear", REMOTE, options, Authority(tmp_path).sign([REMOTE]))
        assert sent == b""
        assert "check tls= and tls_ca=" in said


def test_a_mysql_server_on_this_host_gets_the_password() -> None:
    sent, _ = heard("clear", "127.0.0.1", "")
    assert SECRET in sent
    for way in "clear", "sha256", "sha256 greeting", "caching", "caching switch":
        sent, _ = heard(way, REMOTE, "&cleartext=yes")
        assert SECRET in sent, way


@pytest.mark.parametrize("tls", ["no", "preferred"])
def test_an_authority_that_nobody_would_ask_is_a_mistake(tls: str) -> None:
    with pytest.raises(ConfigError, match=r"tls_ca= needs tls=verify or tls=yes"):
        open_store(f"mysql://u@h/d?tls={tls}&tls_ca=ca.pem")


@pytest.fixture
def careless(mortal_postgres: PostgresServer) -> Iterator[str]:
    """A URL of a server that asks for the password in clear."""
    with asks_for_a_password(mortal_postgres, "eve", "password", REMOTE) as url:
        yield url


def test_a_postgresql_server_that_nobody_vouches_for_is_not_sent_the_password(careless: str) -> None:
    for option in "", "?sslmode=prefer", "?sslmode=disable", "?notify=no":
        with pytest.raises(ConfigError, match=r"asks for the password in clear.*sslmode=verify-full") as raised:
            open_store(careless + option)
        assert "s3cret" not in str(raised.value)


def test_a_postgresql_server_on_this_host_gets_the_password(careless: str) -> None:
    for url in careless.replace(REMOTE, "127.0.0.1"), f"{careless}?require_auth=password":
        with contextlib.closing(open_store(url)) as store:
            assert store.time() > 0


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("/run/postgresql", True), ("@name", True), ("", True), ("10.0.0.1", False), ("db.internal", False),
        ("localhost.evil.example", False), ("0.0.0.0", False), (REMOTE, False),
    ],
)  # fmt: skip
def test_which_hosts_are_this_one(host: str, local: bool) -> None:
    assert is_local(host) == local


def test_check_names_stores_to_which_the_way_is_open(careless: str, redis_server: RedisServer) -> None:
    redis = f"redis://{REMOTE}:{redis_server.port}/0"
    for url in f"{careless}?require_auth=password", redis:
        with contextlib.closing(open_store(url)) as store:
            (fact,) = [fact for fact in store.diagnostics() if fact.name == "transport"]
            assert fact.value == "clear, to another host"
            assert "verif" in fact.advice or "rediss://" in fact.advice
    with contextlib.closing(open_store(redis.replace(REMOTE, "127.0.0.1"))) as store:
        (fact,) = [fact for fact in store.diagnostics() if fact.name == "transport"]
        assert (fact.value, fact.advice) == ("on this host", "")


@pytest.mark.parametrize(
    ("transport", "value", "advised"),
    [
        (Transport(local=True, encrypted=False, verified=False), "on this host", False),
        (Transport(local=False, encrypted=True, verified=True), "TLS, verified", False),
        (Transport(local=False, encrypted=True, verified=False), "TLS, to whoever answers", True),
        (Transport(local=False, encrypted=False, verified=False), "clear, to another host", True),
    ],
)
def test_what_is_said_of_the_way_to_a_store(transport: Transport, value: str, advised: bool) -> None:
    fact = transport.fact("do this")
    assert (fact.name, fact.value, "do this" in fact.advice) == ("transport", value, advised)
