"""Secrets: the keys that sign, and the values of headers.

`env:NAME` and `file:PATH` name a place outside of the settings and the store. The value is read by the worker, each
time it is used, so a file may be replaced while workers run.
"""

import os
import re
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from tarry.errors import ConfigError

PLACE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\0\n]*")
"""A place of a secret."""
MOST = 8192
"""Bytes of a secret."""


class Secret:
    """A text that is never shown. Two with the same text are equal.

    barred: it may not be read from its place, since a writer to the store chose that place.
    """

    __slots__ = ("_written", "is_barred")

    def __init__(self, written: str, barred: bool = False) -> None:
        self._written = written
        # A literal value is known already to the one who wrote it.
        self.is_barred = barred and not self.literal

    @property
    def literal(self) -> bool:
        """Whether the settings hold the value itself, not its place."""
        return not self._written.startswith(("env:", "file:"))

    def written(self) -> str:
        """The text in the settings, which may be the value itself: for the store only."""
        return self._written

    def value(self) -> str:
        """The value; ConfigError with the place if it is missing or may not be read."""
        if self.is_barred:
            raise self.refusal()
        kind, _, place = self._written.partition(":")
        if self.literal:
            return self._written
        return _variable(place) if kind == "env" else _file(place)

    def refusal(self) -> ConfigError:
        """The error for a secret that may not be read."""
        return ConfigError(
            f"{self._written}: only a task in tarry.toml may read that; for tasks that are registered at run time, add"
            f' "{self._written}" to the list secrets under [push]'
        )

    def confine(self, places: Collection[str]) -> "Secret":
        """A copy that may be read only if it is literal or in one of these places."""
        return Secret(self._written, barred=self._written not in places)

    def __repr__(self) -> str:
        return f"<secret {'***' if self.literal else self._written}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._written == other._written

    def __hash__(self) -> int:
        return hash(self._written)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not to be pickled")


def _variable(name: str) -> str:
    if not (value := os.environ.get(name, "").strip()):
        raise ConfigError(f"env:{name}: the variable {name} is not set here; set it for the workers too")
    return value


def _file(name: str) -> str:
    path = Path(name)
    try:
        about = path.stat()
        # The file is read again only when it has changed.
        value = _read(path, about.st_mtime_ns, about.st_size, about.st_ino)
    except OSError as error:
        raise ConfigError(f"file:{name}: it cannot be read: {error.strerror}; see that workers may read it") from None
    except UnicodeDecodeError:
        raise ConfigError(f"file:{name}: it is no text in UTF-8; write the secret in base64") from None
    if not value:
        raise ConfigError(f"file:{name}: it is empty; write the secret into it")
    return value


@lru_cache(maxsize=256)
def _read(path: Path, mtime: int, size: int, inode: int) -> str:
    """Cached for each state of the file."""
    # A pipe or a device might never end.
    if size > MOST or not path.is_file():
        raise ConfigError(f"file:{path}: it is no file of at most {MOST} bytes; a secret is one line")
    # Most editors end a file with a newline.
    return path.read_text(encoding="utf-8").strip()
