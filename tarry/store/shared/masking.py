"""URLs of stores without their passwords, also if they are malformed."""
# Malformed, since errors show them too.

import re
from urllib.parse import SplitResult, urlsplit

from tarry.errors import ConfigError

MAX_URL, _MAX_SHOWN = 8192, 1000
"""Characters of the URL of a store, and of what is shown of it."""
_WORDS = r"(?:pass|pwd|secret|token|key|auth|cred)"
_SECRET_OPTION = re.compile(rf"[?&#;][^=&#;]{{0,100}}?{_WORDS}[^=&#;]{{0,100}}=", re.IGNORECASE)
# A port without a host may be a password without a user.
_HOST = r"(?:\[[0-9A-Fa-f:.%]*\](?::\d{0,5})?|[^\[\]:@/?#\s,]+(?::\d{0,5})?|)"
_HOSTS = re.compile(rf"(?:{_HOST},)*{_HOST}")
_ESCAPED = re.compile(r"%([46][1-9A-Fa-f]|[57][0-9Aa])")
_OPTIONS = re.compile(r"(?:[\w.%-]+=[^&]*(?:&|$))*")
_MASK = "***"
ASTRAY = "a user or password with one of / ? # @ must be written with %2F %3F %23 %40"


def mask_password(url: str) -> str:
    """The URL without everything that may be a secret, whatever else is wrong with it:

    scheme://HIDDEN@hosts/path?option=value&password=HIDDEN

    all between `://` and the last `@`; all after the name of an option that says it is a secret; and hosts that are
    none, since a password may have come there."""
    # No parser: it could end a password at a / ? or # in it, and show the rest.
    scheme, mark, rest = url[:MAX_URL].partition("://")
    if not mark:
        return _MASK if "@" in url else url[:_MAX_SHOWN]
    # The name of a SQLite file may have an @ in it, and it has no password.
    if scheme == "sqlite":
        return f"{scheme}://{_hide_options(rest)}"[:_MAX_SHOWN]
    before, at, after = rest.rpartition("@")
    # With an @ in the value of an option, what follows is the end of that secret.
    if at and _SECRET_OPTION.search(_decoded_names(before)):
        return f"{scheme}://{_MASK}"
    hosts = re.split(r"[/?#]", after, maxsplit=1)[0]
    if not _HOSTS.fullmatch(hosts):
        return f"{scheme}://{_MASK}"
    return f"{scheme}://{f'{_MASK}@' if at else ''}{_hide_options(after)}"[:_MAX_SHOWN]


def _hide_options(text: str) -> str:
    where, mark, options = text.partition("?")
    if not _OPTIONS.fullmatch(options):
        # No options: a password ends there with a `?` in it, perhaps.
        text = f"{where}{mark}{_MASK}"
    # All that follows, and not up to the next `&`: the secret may have one in it.
    found = _SECRET_OPTION.search(_decoded_names(text))
    return text if found is None else f"{_decoded_names(text)[: found.end()]}{_MASK}"


def _decoded_names(text: str) -> str:
    """The text with `%61` as a letter, as names of options may be written; other signs stay."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if chr(int(found[1], 16)).isalnum() else found[0], text)


def is_astray(rest: str) -> bool:
    """Whether an @ follows the first / ? or #: these may be a part of a password, which they ended too early. rest:
    what follows `://`."""
    return "@" in re.split(r"[/?#]", rest, maxsplit=1)[-1] and re.search(r"[/?#]", rest) is not None


def is_secret(option: str) -> bool:
    """Whether an option of this name may be a secret."""
    return re.search(_WORDS, option[:MAX_URL], re.IGNORECASE) is not None


def check_place(url: str, form: str) -> None:
    """ConfigError if a part of a password may stand where a parser sees hosts, a path or options. form: how to write
    the URL."""
    rest = url[:MAX_URL].partition("://")[2]
    if is_astray(rest):
        raise ConfigError(f"{mask_password(url)}: {ASTRAY}; the form is {form}")
    hosts = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    if len(url) > MAX_URL or not _HOSTS.fullmatch(hosts):
        raise ConfigError(f"{mask_password(url)}: no host, or no host:port; the form is {form}")


def split(url: str, form: str, hosts: bool = False) -> SplitResult:
    """The parts of a URL; ConfigError, without the password, for a malformed one. form: how to write it. hosts: there
    may be several, each with its port."""
    check_place(url, form)
    try:
        parts = urlsplit(url)
        # A wrong port is an error only when it is read.
        _ = hosts or parts.port
    except ValueError:
        # Do not show the reason: it quotes parts of the URL, perhaps of the password.
        raise ConfigError(f"{mask_password(url)}: not understood; write {form}, special characters as %XX") from None
    return parts
