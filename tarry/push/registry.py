"""HTTP tasks that are registered at run time: cells of the store, for all hosts and over restarts.

The cell `task:NAME` has the settings, as JSON; that of a task which stands in the configuration only says
`{"enabled": false}`, or is not there. The cell `flow:NAME` has how it goes at the endpoint, see `flow`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tarry.engine.limits import BY_HAND
from tarry.errors import ConfigError, PartlyUnavailable, StoreBusy
from tarry.model.limit import EACH, TASK, Limit
from tarry.push.endpoint import Endpoint, EndpointError
from tarry.push.flow import FIRST, State
from tarry.push.guard import Forbidden, Guard
from tarry.settings import dotted
from tarry.store.base import Store

CELL, FLOW = "task:", "flow:"
OFF = {"enabled": False}
"""All that a cell may say of a task that stands in the configuration."""
_TRIES = 20

Settings = dict[str, Any]


def cells(store: Store, prefix: str) -> dict[str, bytes]:
    """By name, without the prefix; of several stores, those of the ones that are there."""
    try:
        found = store.cells(prefix)
    except PartlyUnavailable as error:
        found = error.answer
    return {name.removeprefix(prefix): cell for name, cell in found.items()}


def decoded(cell: bytes) -> Settings:
    """The settings of a cell; ConfigError if another client wrote what are none."""
    try:
        return msgspec.json.decode(cell, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the store has no settings there: {error}") from None


def flows(store: Store) -> dict[str, tuple[State, bytes]]:
    """How it goes at the endpoints of which that is known, and how the store has it."""
    return {name: (_state(cell), cell) for name, cell in cells(store, FLOW).items()}


def _state(cell: bytes) -> State:
    try:
        return msgspec.json.decode(cell, type=State)
    except msgspec.MsgspecError:
        return State(FIRST)


def checked(name: str, settings: Settings, guard: Guard) -> Endpoint:
    """The endpoint of these settings; EndpointError for what is wrong, or could never be reached."""
    endpoint = Endpoint.parse(name, settings)
    from tarry.push.target import target  # noqa: PLC0415 - brings the HTTP client

    to = target(endpoint.url.sample)
    if to.literal:
        try:
            guard.check(to.host, to.host, to.port)
        except Forbidden as error:
            place = dotted(("tasks", name, "url"))
            raise EndpointError(f"{place}: {error}", "url") from None
    return endpoint


def add(store: Store, name: str, settings: Settings, guard: Guard) -> Endpoint:
    """Registers a new one; ConfigError if there is one, or it is none."""
    endpoint = checked(name, settings, guard)
    if not store.write(CELL + name, msgspec.json.encode(endpoint.settings), None):
        raise ConfigError(f"there is a task {name} already: `tarry tasks edit {name}` changes it")
    return endpoint


def edit(store: Store, name: str, changes: Mapping[str, Any], guard: Guard) -> Endpoint:
    """Changes some settings; None takes one out. What was known of the endpoint is forgotten."""
    found: list[Endpoint] = []

    def change(settings: Settings) -> Settings:
        found[:] = [checked(name, {**settings, **changes}, guard)]
        return dict(found[0].settings)

    _change(store, name, change)
    forget_flow(store, name)
    return found[0]


def switch(store: Store, name: str, enabled: bool, in_file: bool) -> None:
    """Enables or disables one; what waits for it, waits. in_file: it stands in the configuration."""
    if in_file:
        _write(store, CELL + name, None if enabled else msgspec.json.encode(OFF))
    else:
        _change(store, name, lambda settings: {**settings, "enabled": enabled})
    if enabled:
        forget_flow(store, name)


def remove(store: Store, name: str) -> int:
    """Forgets one. Its jobs that are not finished stay where they are: how many."""
    waiting = sum(tally.count for tally in store.counts() if tally.task == name and not tally.state.finished)
    if not _write(store, CELL + name, None):
        raise ConfigError(f"no HTTP task {name} is registered; `tarry tasks` lists them")
    forget_flow(store, name)
    limit(store, EACH + name, None)
    limit(store, TASK + name, Limit(0) if waiting else None)
    return waiting


def limit(store: Store, name: str, wanted: Limit | None) -> None:
    """Sets it unless somebody has by hand."""
    if not store.cells(BY_HAND + name):
        store.limit(name, wanted)


def forget_flow(store: Store, name: str) -> None:
    """Whatever happened there, it begins anew."""
    _write(store, FLOW + name, None)


def _change(store: Store, name: str, how: Callable[[Settings], Settings]) -> None:
    for _ in range(_TRIES):
        was = store.cells(CELL + name).get(CELL + name)
        if was is None:
            raise ConfigError(f"no HTTP task {name} is registered; `tarry tasks` lists them")
        if store.write(CELL + name, msgspec.json.encode(how(decoded(was))), was):
            return
    raise StoreBusy(f"task {name} changes all the time; try again")


def _write(store: Store, cell: str, value: bytes | None) -> bool:
    """Sets it, whatever it was; whether it was there."""
    for _ in range(_TRIES):
        was = store.cells(cell).get(cell)
        if (was is None and value is None) or store.write(cell, value, was):
            return was is not None
    raise StoreBusy(f"{cell} changes all the time; try again")
