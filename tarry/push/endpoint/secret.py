"""Secrets: the keys that sign, and the values of headers.

`env:NAME` and `file:PATH` name a place outside of the settings and the store. The value is read by the worker, each
time it is used, so a file may be replaced while workers run.
"""

from collections.abc import Collection
from typing import NoReturn

from tarry.config.kinds import read_place
from tarry.errors import ConfigError


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
        return self._written if self.literal else read_place(self._written)

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
