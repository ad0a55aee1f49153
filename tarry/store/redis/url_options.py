"""The options after the `?` of a redis URL."""

import re
import ssl
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qsl

from tarry.errors import ConfigError
from tarry.model.duration import microseconds
from tarry.store.shared.masking import mask_password

COMMON = {"prefix": "tarry", "timeout": "5s", "replicas": "1", "confirm": "memory"}
TLS = dict.fromkeys(("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password"), "") | {
    "ssl_cert_reqs": "required",
    "ssl_check_hostname": "yes",
}
OF_KIND = {
    "unix": {"db": "0"},
    "sentinel": {"sentinel_user": "", "sentinel_password": ""},
    "cluster": {"parts": "6"},
}
DEFAULTS = {"prefix": COMMON["prefix"], "parts": OF_KIND["cluster"]["parts"]}
"""The defaults of the options that say which store it is."""
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_MOST_PARTS = 1024


def shown(url: str) -> str:
    """The URL as people may see it; it need not be well formed."""
    return mask_password(url)


def options_of(url: str, kind: str, tls: bool, query: str) -> dict[str, str]:
    """The options with their defaults. ConfigError: an option is unknown, or its value is not possible."""
    known = COMMON | OF_KIND.get(kind, {}) | (TLS if tls else {})
    given = known.copy()
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            # Without a value it may be the end of a password that has a `?` in it.
            named = f"no option {name!r}" if value else "no such option"
            raise ConfigError(f"{shown(url)}: there is {named} here; {hint}")
        given[name] = value
    _check(url, given)
    return given


def _check(url: str, given: Mapping[str, str]) -> None:
    if not _PREFIX.fullmatch(given["prefix"]):
        raise ConfigError(f"{shown(url)}: prefix={given['prefix']!r}: letters, digits and _ . : - only")
    try:
        long = microseconds(given["timeout"], "timeout")
    except ValueError as error:
        raise ConfigError(f"{shown(url)}: {error}") from None
    if not long:
        raise ConfigError(f"{shown(url)}: timeout={given['timeout']!r}: a call must be given some time, as in 5s")
    for name, least, most in (("replicas", 1, 100), ("parts", 1, _MOST_PARTS), ("db", 0, 10**6)):
        value = given.get(name, "1")
        if not value.isdecimal() or not least <= int(value) <= most:
            raise ConfigError(f"{shown(url)}: {name}={value!r}: a number from {least} to {most}")
    for name, choices in _CHOICES.items():
        if name in given and given[name] not in choices:
            raise ConfigError(f"{shown(url)}: {name}={given[name]!r}: one of {', '.join(choices)}")


_CHOICES = {
    "confirm": ("memory", "disk"),
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("yes", "no", "true", "false"),
}


def tls_of(url: str, given: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS settings that the options say; they mean what redis-py's options of these names mean."""
    files: dict[str, Any] = {"cafile": given["ssl_ca_certs"] or None, "capath": given["ssl_ca_path"] or None}
    try:
        context = ssl.create_default_context(**files)
        if given["ssl_certfile"]:
            keys = given["ssl_keyfile"] or None
            context.load_cert_chain(given["ssl_certfile"], keys, given["ssl_password"] or None)
    except OSError as error:
        raise ConfigError(f"{shown(url)}: a file of ssl_...: {error.strerror or error}") from None
    # First the host's name: while it is checked, Python refuses CERT_NONE.
    context.check_hostname = given["ssl_check_hostname"] in ("yes", "true") and given["ssl_cert_reqs"] != "none"
    reqs = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
    context.verify_mode = reqs[given["ssl_cert_reqs"]]
    return context
