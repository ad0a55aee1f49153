"""URLs of stores as people may see them: also in errors, where they may be anything but well formed."""

import re
from urllib.parse import SplitResult, urlsplit

from tarry.errors import ConfigError

SECRET = ("password", "sslpassword", "sentinel_password", "ssl_password")
"""Options that are secrets."""
_OPTIONS = re.compile(rf"\b({'|'.join(SECRET)})=[^&#]*", re.IGNORECASE)


def masked(url: str) -> str:
    """The URL without all that stands between `://` and the last `@`, and without options that are secrets: whatever
    characters a password has, and wherever a parser would have ended it."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return "***" if "@" in url else url
    rest = f"***@{rest.rpartition('@')[2]}" if "@" in rest and scheme != "sqlite" else rest
    return f"{scheme}://" + _OPTIONS.sub(r"\1=***", rest)


def astray(netloc: str, others: str) -> bool:
    """Whether user and password reach into the other parts of a URL, since a / ? or # of theirs ended the netloc."""
    return "@" in others and "@" not in netloc


def split(url: str, form: str, hosts: bool = False) -> SplitResult:
    """Its parts; ConfigError, without the password, for what cannot be taken apart. form: how to write it. hosts: there
    may be several, each with its port."""
    try:
        parts = urlsplit(url)
        _ = hosts or parts.port
    except ValueError:
        # The reason that is given has parts of the URL in it, perhaps of the password.
        raise ConfigError(f"{masked(url)}: not understood; write {form}, special characters as %XX") from None
    if "@" in parts.path or astray(parts.netloc, parts.query + parts.fragment):
        raise ConfigError(f"{masked(url)}: a user or password with one of / ? # @ must be written with %2F %3F %23 %40")
    return parts
