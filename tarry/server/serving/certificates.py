"""TLS of the doors: a certificate and its key, read again when the files change; perhaps certificates of clients."""

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

from tarry.errors import ConfigError

log = logging.getLogger("tarry.server")


class ServerCertificate:
    """The SSLContext of a server.

    certificate: a PEM file, with the authorities between it and a root. key: a PEM file without a passphrase; None: it
    is in the same file. client_ca: a PEM file; then every client must have a certificate of one of these authorities.
    """

    def __init__(self, certificate: Path, key: Path | None = None, client_ca: Path | None = None) -> None:
        """ConfigError if a file cannot be read, or the key is not that of the certificate."""
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._seen = self._signature()
        # The authorities of clients are not changed in a living context: OpenSSL can only add to them.
        self.context = self._load()

    def reload_if_changed(self) -> bool:
        """Reads changed files; connections that are opened from now on use them. False: nothing changed, or what is
        there now is wrong (then it is logged, and the old certificate stays)."""
        signature = self._signature()
        if signature == self._seen:
            return False
        self._seen = signature
        try:
            # First into a context of its own: a wrong pair must not be left in the one that serves.
            self._load()
            self.context.load_cert_chain(self._certificate, self._key)
        except (ConfigError, OSError) as error:
            log.error("the certificate stays as it was: %s", error)
            return False
        log.info("certificate %s read again", self._certificate)
        return True

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        _read(self._certificate, "certificate", lambda: context.load_cert_chain(self._certificate, self._key, _refuse))
        if self._client_ca is not None:
            ca = self._client_ca
            _read(ca, "client_ca", lambda: context.load_verify_locations(ca))
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _signature(self) -> tuple[object, ...]:
        return tuple(_file_state(file) for file in (self._certificate, self._key) if file is not None)


def _read(file: Path, setting: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:
        # ssl.SSLError is an OSError; its reason names the mistake, such as KEY_VALUES_MISMATCH.
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(f"[server] {setting} {file} cannot be used: {why}") from None


def _refuse() -> str:
    # Without this, OpenSSL would ask for the passphrase on the terminal.
    raise ValueError("its key has a passphrase; write the key without one, readable only for tarry's user")


def _file_state(file: Path) -> tuple[int, ...]:
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
