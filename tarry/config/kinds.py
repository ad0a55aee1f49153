"""The kinds of values that settings have: how each is written in TOML and in a variable, and what it becomes."""

import json
import os
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from tarry.config.parser import Kind
from tarry.errors import ConfigError
from tarry.model.bound import WhenFull
from tarry.model.duration import SECOND, microseconds
from tarry.model.limit import parse_limit
from tarry.model.quantity import LARGEST_PAYLOAD, octets
from tarry.model.values.log_target import NAMES, log_target

DEFAULT_STORE = "sqlite:///tarry.db"
PLACE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\0\n]*")
"""A place of a secret, outside of the settings and the store."""
MOST_SECRET = 8192
"""Bytes of a secret."""


def number(text: str) -> Any:
    """The number in the text of a variable, or the text itself."""
    # Only numbers: json alone would also take a list, or true.
    return json.loads(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else text


def _flag(text: str) -> Any:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)


def parse_table(text: str) -> Any:
    """`{ min = 1 }` as in the file, or JSON."""
    if not text.startswith("{"):
        return number(text)
    try:
        # tomllib reads only whole documents.
        return tomllib.loads(f"it = {text}")["it"]
    except tomllib.TOMLDecodeError:
        return json.loads(text)


def parse_list(text: str) -> Any:
    """`["a", "b"]`, as in the file, or `a, b`."""
    return json.loads(text) if text[:1] in "[{" else [part.strip() for part in text.split(",")]


def _names(text: str) -> Any:
    return text if text == "*" else parse_list(text)


def _shares(text: str) -> Any:
    if text == "strict":
        return text
    return [number(part) if isinstance(part, str) else part for part in parse_list(text)]


def _urls(text: str) -> Any:
    # A URL may have commas of its own, between the hosts of a cluster: only a comma before another URL separates.
    return parse_list(text) if text.startswith("[") else re.split(r",\s*(?=[a-z][a-z0-9+]*://)", text)


def _app(written: str) -> str:
    if not re.fullmatch(r"[\w.]+:[\w.]+", written):
        raise ValueError("no module and name")
    return written


def _store(written: str | list[str]) -> str | list[str]:
    urls = [written] if isinstance(written, str) else written
    if not all(re.match(r"[a-z][a-z0-9+]*://", url) for url in urls):
        raise ValueError("no URL")
    return urls if len(urls) > 1 else urls[0]


def _lease(written: float | str) -> int:
    lease = microseconds(written)
    if lease < 2 * SECOND:
        raise ValueError("shorter than a worker's extensions can be sure to reach")
    return lease


def _rate(written: str) -> str:
    parse_limit(None, written)
    return written


def _log(written: str) -> str:
    log_target(written)
    return written


def _recipients(text: str) -> Any:
    # A URL may have commas of its own: only a comma before another URL or mail address separates.
    return parse_list(text) if text.startswith("[") else re.split(r",\s*(?=[a-z][a-z0-9+.-]*://|[^,\s/@]+@)", text)


def _share(written: str) -> float:
    if not re.fullmatch(r"[1-9]\d?%|100%", written):
        raise ValueError("no share of a whole")
    return int(written[:-1]) / 100


def _some_octets(written: int | str) -> int:
    size = octets(written)
    if size < 1:
        raise ValueError("nothing would fit")
    return size


def _payload_octets(written: int | str) -> int:
    size = _some_octets(written)
    if size > LARGEST_PAYLOAD:
        raise ValueError("more than a worker should have in memory")
    return size


def _payload_place(written: str) -> str | None:
    if written and not re.fullmatch(r"file:///[^\0\n]*|s3://[^/\s?#@]+(/[^\0\n?#]*)?", written):
        raise ValueError("no place")
    return written or None


def _output(written: int | str) -> int:
    size = octets(written)
    if size > 1_000_000:
        raise ValueError("more than the store should be given ten times a second")
    return size


class Unshown(dict[str, Any]):
    """Settings that may hold secrets."""

    def __repr__(self) -> str:
        # Only the names: the values may be secret.
        return f"<{', '.join(self)}>"


class Sealed:
    """A setting that may hold secrets, as written. The code that uses it reads `value` and reports mistakes in it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sealed) and self.value == other.value

    def __hash__(self) -> int:
        # By its text, since the value may be a list.
        return hash(repr(self.value))

    def __repr__(self) -> str:
        return "<sealed>"


_SomeText = Annotated[str, Meta(min_length=1)]
_SecretPlace = Annotated[str, Meta(pattern=f"^({PLACE.pattern})$")]
_From1 = Annotated[int, Meta(ge=1)]
_WrittenDuration = int | float | str

# No Meta(pattern=...) here: msgspec 0.22 frees a pattern that stands in a union once too often, and crashes.
DURATION = Kind('a duration such as 90 (seconds) or "1h30m"', int | float | str, microseconds, number)
FROM_0 = Kind("a whole number of 0 or more", Annotated[int, Meta(ge=0)], parse_variable=number)
FRACTION = Kind("a number from 0 to 1", Annotated[float, Meta(ge=0, le=1)], parse_variable=number)
APP = Kind('a module and a name in it, such as "shop.jobs:app"', str, _app)
STORE = Kind(
    f'a URL such as "{DEFAULT_STORE}", or a list of them',
    str | Annotated[list[str], Meta(min_length=1)],
    _store,
    _urls,
    is_secret=True,
)
LEASE = Kind('a duration of 2 seconds or more, such as "15s"', _WrittenDuration, _lease, number)
SECONDS = Kind(DURATION.expected, _WrittenDuration, lambda written: microseconds(written) / SECOND, number)
SIZE = Kind('a size such as 65536 (bytes), "64KB" or "1MiB"', int | str, octets, number)
SOME_SIZE = Kind('a size of 1 byte or more, such as 65536, "64KB" or "1MiB"', int | str, _some_octets, number)
PAYLOAD_SIZE = Kind('a size of at most 1GiB such as "64MB"', int | str, _payload_octets, number)
PAYLOAD_PLACE = Kind('"file:///srv/tarry", "s3://bucket/prefix", or "" for none', str, _payload_place)
OUTPUT = Kind('a size of at most 1MB such as "8KB", or 0 for none', int | str, _output, number)
RATE = Kind('a rate such as "100/s", "10/m" or "5/2h"', str, _rate)
FROM_1 = Kind("a whole number of 1 or more", _From1, parse_variable=number)
FILE = Kind("the path of a file", _SomeText, Path)
DIRECTORY = Kind('the path of a directory, or "" for none', str, lambda written: Path(written) if written else None)
LOG = Kind(
    '"stderr", "syslog", "journal", a URL such as "syslog://host:514", or the path of a file',
    _SomeText,
    _log,
    names=NAMES,
)
FORMAT = Kind('"text" or "json"', Literal["text", "json"], parse_variable=str.lower, names=("text", "json"))
FENCE = Kind('"off" or "stop"', Literal["off", "stop"], parse_variable=str.lower, names=("off", "stop"))
WHEN_FULL = Kind('"refuse" or "drop_oldest"', WhenFull, parse_variable=str.lower, names=("refuse", "drop_oldest"))
LEVEL = Kind(
    '"debug", "info", "warning" or "error"',
    Literal["debug", "info", "warning", "error"],
    parse_variable=str.lower,
    names=("debug", "info", "warning", "error"),
)
QUEUES = Kind(
    '"*", a list of names such as ["default", "mail"], or weights such as { critical = 5, default = 3 }',
    Literal["*"]
    | Annotated[list[_SomeText], Meta(min_length=1)]
    | Annotated[dict[_SomeText, _From1], Meta(min_length=1)],
    parse_variable=_names,
)
SHARES = Kind(
    'three whole numbers of 1 or more such as [5, 3, 2], or "strict"',
    Literal["strict"] | tuple[_From1, _From1, _From1],
    parse_variable=_shares,
)
FLAG = Kind("true or false", bool, parse_variable=_flag)
TASKS = Kind('a table for each HTTP task, as in [tasks."order.timeout"]', dict[_SomeText, Any], Unshown, parse_table)
PLACES = Kind(
    'a list of places such as ["env:ORDER_SECRET", "file:/run/secrets/order"]',
    list[_SecretPlace],
    parse_variable=parse_list,
)
ALLOW = Kind('a list of networks such as ["10.0.0.0/8"]', list[_SomeText], parse_variable=parse_list)

SEALED = Kind("a setting", Any, Sealed)
RECIPIENTS = Kind("a list of recipients", Any, Sealed, _recipients)
SCHEMES = Kind('a list of schemes such as ["slack"]', list[_SomeText], parse_variable=parse_list)
SHARE = Kind('a share such as "90%"', str, _share)
TEXT = Kind("a text", str)


def read_place(written: str) -> str:
    """The secret in this place, now; ConfigError with the place if it is missing."""
    kind, _, place = written.partition(":")
    return _read_variable(place) if kind == "env" else _read_file(place)


def _read_variable(name: str) -> str:
    if not (value := os.environ.get(name, "").strip()):
        raise ConfigError(f"env:{name}: the variable {name} is not set here; set it for the workers too")
    return value


def _read_file(name: str) -> str:
    path = Path(name)
    try:
        about = path.stat()
        # The file is read again only when it has changed.
        value = _read_state(path, about.st_mtime_ns, about.st_size, about.st_ino)
    except OSError as error:
        raise ConfigError(f"file:{name}: it cannot be read: {error.strerror}; see that workers may read it") from None
    except UnicodeDecodeError:
        raise ConfigError(f"file:{name}: it is no text in UTF-8; write the secret in base64") from None
    if not value:
        raise ConfigError(f"file:{name}: it is empty; write the secret into it")
    return value


@lru_cache(maxsize=256)
def _read_state(path: Path, mtime: int, size: int, inode: int) -> str:
    """Cached for each state of the file."""
    # A pipe or a device might never end.
    if size > MOST_SECRET or not path.is_file():
        raise ConfigError(f"file:{path}: it is no file of at most {MOST_SECRET} bytes; a secret is one line")
    # Most editors end a file with a newline.
    return path.read_text(encoding="utf-8").strip()
