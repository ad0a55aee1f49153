"""Certificate authorities that are trusted besides the system's."""

from tarry.config.config import Config
from tarry.errors import ConfigError

MOST = 1024 * 1024
"""Bytes."""


def load_certificates(config: Config) -> bytes:
    """The certificates (PEM) of `[push] ca`; ConfigError, with the place and the file, if there are none."""
    if config.push.ca is None:
        return b""
    try:
        if config.push.ca.stat().st_size > MOST:
            raise _error(config, f"it has more than {MOST // 1024} KiB")
        found = config.push.ca.read_bytes()
    except OSError as error:
        raise _error(config, f"it cannot be read: {error.strerror}") from None
    _check(config, found)
    return found


def _check(config: Config, found: bytes) -> None:
    import ssl  # noqa: PLC0415 - slow to load, and few apps have such a file

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # PEM is ASCII. Only comments around the certificates may have other characters.
        context.load_verify_locations(cadata=found.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        raise _error(config, "there is no certificate in it") from None
    if not context.cert_store_stats()["x509"]:
        raise _error(config, "there is no certificate in it")


def _error(config: Config, why: str) -> ConfigError:
    place = config.place("push", "ca")
    return ConfigError(f"{place}: push.ca: {config.push.ca}: {why}; name a file of certificates as PEM")
