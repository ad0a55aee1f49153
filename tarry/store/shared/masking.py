"""URLs of stores without their passwords, also if they are malformed."""
# Malformed, since errors show them too.

import re
from urllib.parse import SplitResult, urlsplit

from tarry.errors import ConfigError

SECRET = ("password", "sslpassword", "sentinel_password", "ssl_password")
"""Options of a URL that are secrets."""
_OPTIONS = re.compile(rf"\b({'|'.join(SECRET)})=[^&#]*", re.IGNORECASE)


def mask_password(url: str) -> str:
    """The URL without everything between `://` and the last `@`, and without the values of options that are secrets."""
    # No parser: it could end a password at a / ? or # in it, and show the rest.
    scheme, mark, rest = url.partition("://")
    if not mark:
        return "***" if "@" in url else url
    # The name of a SQLite file may have an @ in it, and it has no password.
    rest = f"***@{rest.rpartition('@')[2]}" if "@" in rest and scheme != "sqlite" else rest
    return f"{scheme}://" + _OPTIONS.sub(r"\1=***", rest)


def astray(netloc: str, others: str) -> bool:
    """Whether user and password reach into the other parts of a URL, since a / ? or # in them ended the netloc."""
    return "@" in others and "@" not in netloc


def split(url: str, form: str, hosts: bool = False) -> SplitResult:
    """The parts of a URL; ConfigError, without the password, for a malformed one. form: how to write it. hosts: there
    may be several, each with its port."""
    try:
        parts = urlsplit(url)
        # A wrong port is an error only when it is read.
        _ = hosts or parts.port
    except ValueError:
        # Do not show the reason: it quotes parts of the URL, perhaps of the password.
        raise ConfigError(f"{mask_password(url)}: not understood; write {form}, special characters as %XX") from None
    if "@" in parts.path or astray(parts.netloc, parts.query + parts.fragment):
        raise ConfigError(
            f"{mask_password(url)}: a user or password with one of / ? # @ must be written with %2F %3F %23 %40"
        )
    return parts
