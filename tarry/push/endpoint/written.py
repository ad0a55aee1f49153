"""Settings of HTTP tasks as people type them, on the command line and in the form of the console.

delay     10m                                       a text
schedule  ["1m", "3m"]                              TOML, where it is a value of TOML
headers   authorization: env:TOKEN                  a line for each header, or a table of TOML
alert     ops@example.org                           a line for each recipient, or a list of TOML
owner                                               nothing: the setting is taken out
"""

import re
import tomllib
from typing import Any

from tarry.config.parser import as_toml
from tarry.errors import UsageError
from tarry.push.endpoint.hidden import HIDDEN

TEXTS = frozenset(
    {"url", "method", "secret", "queue", "retry_when", "rate", "order", "on_dead", "owner", "description"}
)
"""Settings whose value is text, whatever it looks like."""
MOST_WRITTEN = 70_000
"""Characters: all headers of a request, and what is written around them."""
_HEADER = re.compile(r"(?P<name>[^\s:={}\[\]\"',]+)\s*:[ \t]*(?P<value>.*)")


def read_written(name: str, text: str) -> Any:
    """The value that is typed for a setting; None: nothing is. A value is TOML if it can be read as TOML, else text.
    UsageError if it is too long."""
    if len(text) > MOST_WRITTEN:
        raise UsageError(f"{name}: a text of {len(text):,} characters; at most {MOST_WRITTEN:,}")
    text = text.replace("\r\n", "\n").strip()
    if not text:
        return None
    try:
        found = tomllib.loads(f"it = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return _read_lines(name, text)
    value = found["it"]
    # TOML also knows dates; no setting is one. A text of several lines could be several keys.
    plain = isinstance(value, str | list | dict) or (isinstance(value, int | float) and name not in TEXTS)
    return value if plain and len(found) == 1 else _read_lines(name, text)


def write_setting(name: str, value: Any) -> str:
    """The text from which `read_written` reads this value, the one that is easiest to read; None: empty."""
    if value is None:
        return ""
    for text in _simple_texts(name, value):
        if read_written(name, text) == value:
            return text
    return as_toml(value)


def _read_lines(name: str, text: str) -> Any:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if name == "alert" and len(lines) > 1:
        return lines
    headers = [_HEADER.fullmatch(line) for line in lines] if name == "headers" else [None]
    if not all(headers):
        return text
    names = [header["name"] for header in headers if header]
    # What stands there twice would be lost: the reader of headers tells what is wrong with a text.
    if len(set(names)) < len(names):
        return text
    # A name alone keeps the value that the header has.
    return {header["name"]: header["value"] or HIDDEN for header in headers if header}


def _simple_texts(name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if name == "alert" and isinstance(value, list):
        return ["\n".join(map(str, value))]
    if name == "headers" and isinstance(value, dict):
        return ["\n".join(f"{header}: {text}" for header, text in value.items())]
    return []
