"""A store that goes away and stays so."""

from collections.abc import Callable
from typing import Any

from tarry.errors import StoreAway
from tarry.store.flaky import FlakyStore
from tarry.store.rules.base import Store


class AwayStore(FlakyStore):
    """Goes away after so many calls."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, -1, after=False)
        self.left = -1
        """Calls that are answered still; -1: all."""
        self.was_away = False

    def _call(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.left == 0:
            self.was_away = True
            raise StoreAway("away")
        self.left -= 1
        return verb(*args, **kwargs)
