"""TLS of the doors: real handshakes, a certificate that is renewed, and files that are wrong."""

import contextlib
import logging
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tarry.errors import ConfigError
from tarry.server.serving.certificates import ServerCertificate
from tests.push.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def file(tmp_path: Path, authority: Authority) -> Path:
    return put(tmp_path / "server.pem", authority)


def put(file: Path, authority: Authority) -> Path:
    fresh = authority.sign(["localhost"])
    shutil.move(fresh, file)
    return file


@contextlib.contextmanager
def serving(context: ssl.SSLContext) -> Iterator[int]:
    """The port of a server that answers one handshake after another, each with one byte."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        thread = threading.Thread(target=_answer, args=(listener, context))
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(30)


def _answer(listener: socket.socket, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.settimeout(30)
            with (
                connection,
                contextlib.suppress(OSError),
                context.wrap_socket(connection, server_side=True) as tls,
            ):
                tls.sendall(b"!")


def handshake(port: int, authority: Authority, own: Path | None = None) -> int:
    """The serial number of the server's certificate."""
    client = ssl.create_default_context(cadata=authority.pem.decode())
    if own is not None:
        client.load_cert_chain(own)
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        client.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        assert tls.recv(1) == b"!"
        found = tls.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)


def test_a_renewed_certificate_is_used_from_then_on(file: Path, authority: Authority) -> None:
    certificate = ServerCertificate(file)
    with serving(certificate.context) as port:
        first = handshake(port, authority)
        assert not certificate.reload_if_changed()
        put(file, authority)
        assert certificate.reload_if_changed()
        assert handshake(port, authority) != first
        assert not certificate.reload_if_changed()


def test_a_certificate_that_is_half_written_changes_nothing(
    file: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = ServerCertificate(file)
    with serving(certificate.context) as port:
        first = handshake(port, authority)
        file.write_bytes(file.read_bytes()[:300])
        with caplog.at_level(logging.ERROR):
            assert not certificate.reload_if_changed()
        assert "the certificate stays as it was: [server] certificate" in caplog.text
        assert handshake(port, authority) == first


def test_a_client_without_a_certificate_is_refused(tmp_path: Path, file: Path, authority: Authority) -> None:
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(authority.pem)
    with serving(ServerCertificate(file, client_ca=trusted).context) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(port, authority)
        stranger = tmp_path / "other"
        stranger.mkdir()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(port, authority, Authority(stranger).sign(["localhost"]))
        assert handshake(port, authority, authority.sign(["client"]))


def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, file: Path, authority: Authority) -> None:
    with pytest.raises(ConfigError, match=r"\[server\] certificate .*none.pem cannot be used: No such file"):
        ServerCertificate(tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=r"\[server\] certificate .* cannot be used: KEY_VALUES_MISMATCH"):
        ServerCertificate(file, put(tmp_path / "key.pem", authority))
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(ConfigError, match=r"\[server\] client_ca .*empty.pem cannot be used"):
        ServerCertificate(file, client_ca=empty)


def test_a_key_with_a_passphrase_is_refused_and_nothing_is_asked(tmp_path: Path, file: Path) -> None:
    key = serialization.load_pem_private_key(file.read_bytes(), None)
    sealed = tmp_path / "sealed.pem"
    sealed.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="has a passphrase; write the key without one"):
        ServerCertificate(file, sealed)
