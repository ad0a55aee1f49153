"""Changes of a named value that several processes may change at once."""

from collections.abc import Callable

from tarry.errors import StoreBusy
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part

# Each try fails only if another process has written in between.
_TRIES = 100


Value = bytes | None
"""None: there is none."""


def change_cell(store: Store, name: str, change: Callable[[Value], Value]) -> tuple[Value, Value]:
    """Sets the named value to what `change` makes of the one that is there; returns that one and the new one. `change`
    may be called several times. StoreBusy if other processes write it all the time; StoreError."""
    for _ in range(_TRIES):
        was = reachable_part(lambda: store.kv_get(name))
        value = change(was)
        if value == was or store.kv_cas(name, value, was):
            return was, value
    raise StoreBusy(f"{name}: others changed it {_TRIES} times in a row; try again")
