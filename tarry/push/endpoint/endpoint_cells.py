"""HTTP tasks that are registered at run time. They live in cells of the store, so all hosts see them after any restart.

- `task:NAME` has the settings as JSON. For a task of the configuration it is `{"enabled": false}` or missing.
- `flow:NAME` has the flow state of the endpoint, see `flow`.
- `edits:NAME` has who changed the task last, see `edits`.
- `gone:NAME` has the reason why the task was disabled, if the endpoint itself answered that it is gone.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tarry.errors import ConfigError
from tarry.keeper.limits import BY_HAND
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.limit import EACH, TASK, Limit, parse_limit
from tarry.push.endpoint.edits import check_version, forget_edits, note_edit
from tarry.push.endpoint.endpoint_settings import Endpoint, EndpointError, setting_error
from tarry.push.endpoint.fields import FIELDS
from tarry.push.endpoint.flow import INITIAL, FlowState
from tarry.push.endpoint.hidden import NothingKeptError, kept_values, places_of, restore_hidden, secrets_of
from tarry.push.endpoint.template import UrlTemplate
from tarry.push.http.address_guard import AddressGuard, ForbiddenAddress
from tarry.store.rules.base import Store
from tarry.store.rules.cell import change_cell
from tarry.store.rules.partial_result import reachable_part

if TYPE_CHECKING:
    from tarry.push.http.target import RequestTarget

TASK_CELL, FLOW_CELL, GONE_CELL = "task:", "flow:", "gone:"
OFF = {"enabled": False}
"""The only value that a cell may have for a task of the configuration."""


_LOOPBACK = ("127.0.0.1", "::1")


def read_cells(store: Store, prefix: str) -> dict[str, bytes]:
    """The cells by name, without the prefix. Shards that are away are left out."""
    return {name.removeprefix(prefix): cell for name, cell in reachable_part(lambda: store.kv_list(prefix)).items()}


def decode_settings(cell: bytes) -> dict[str, Any]:
    """The settings of a cell; ConfigError if the cell holds something else."""
    try:
        return decode_json(cell, dict[str, Any])
    except UNREADABLE as error:
        raise ConfigError(f"the store has no settings there: {error}") from None


def is_registered(store: Store, name: str) -> bool:
    """Whether a task of that name is registered now."""
    return reachable_part(lambda: store.kv_get(TASK_CELL + name)) is not None


def removed_with_jobs(store: Store) -> set[str]:
    """Names of tasks that were removed while jobs waited, and were not registered again."""
    # A limit of 0 without a task is what `clear_removed` leaves. One that was set by hand means something else.
    held = {
        name.removeprefix(TASK)
        for name, (limit, _) in reachable_part(store.limits).items()
        if name.startswith(TASK) and limit.most == 0
    }
    by_hand = {name.removeprefix(BY_HAND + TASK) for name in reachable_part(lambda: store.kv_list(BY_HAND))}
    return held - by_hand - read_cells(store, TASK_CELL).keys() if held else held


def read_flows(store: Store) -> dict[str, tuple[FlowState, bytes]]:
    """The flow states by name, each with its cell as stored."""
    return {name: (decode_flow(cell), cell) for name, cell in read_cells(store, FLOW_CELL).items()}


def _is_off(cell: bytes) -> bool:
    """Whether the cell is a leftover of a task that the configuration had."""
    try:
        return decode_settings(cell) == OFF
    except ConfigError:
        return False


def decode_flow(cell: bytes) -> FlowState:
    """The flow state in a cell; the initial one if the cell cannot be read."""
    try:
        return decode_json(cell, FlowState)
    except UNREADABLE:
        return FlowState(INITIAL)


def _check_confined(name: str, settings: dict[str, Any], guard: AddressGuard, places: Collection[str]) -> Endpoint:
    """As `check_endpoint`; EndpointError also for a secret in a place that a registered task may not read."""
    endpoint = check_endpoint(name, settings, guard).confine(places)
    for trouble in endpoint.refusals():
        raise setting_error(name, "", trouble)
    return endpoint


def check_endpoint(name: str, settings: dict[str, Any], guard: AddressGuard) -> Endpoint:
    """The endpoint of these settings; EndpointError if they are wrong or the address can never be reached."""
    endpoint = Endpoint.parse(name, settings)
    from tarry.push.http.target import parse_target  # noqa: PLC0415 - brings the HTTP client

    if refused := _refusal(parse_target(endpoint.url.sample), guard):
        raise setting_error(name, "url", str(refused))
    return endpoint


def _refusal(to: "RequestTarget", guard: AddressGuard) -> ForbiddenAddress | None:
    """Why the guard refuses the host, if that can be said without a name server."""
    refused = None
    own = to.host == "localhost" or to.host.endswith(".localhost")  # RFC 6761: these names always mean the own host
    for address in (to.host,) if to.literal else _LOOPBACK if own else ():
        try:
            guard.check(address, to.host, to.port)
        except ForbiddenAddress as error:
            refused = refused or error
        else:
            return None
    return refused


def add(
    store: Store,
    name: str,
    settings: dict[str, Any],
    guard: AddressGuard,
    places: Collection[str] = (),
    may_write_places: bool = True,
) -> Endpoint:
    """Registers a task; ConfigError if the name is taken or the settings are wrong. Jobs of that name can run.

    places: `[push] secrets`, the only places from which the task may read a secret. may_write_places: whether the
    editor may write such a place where there was none.
    """
    endpoint = _check_confined(name, _restore_values(name, settings, {}), guard, places)
    _check_origin(name, settings, {}, endpoint.settings, may_write_places)
    was = store.kv_get(TASK_CELL + name)
    # A cell that the configuration left behind does not take the name. Two hosts may register the name at once: then
    # one compare-and-set fails.
    if (was is not None and not _is_off(was)) or not store.kv_cas(
        TASK_CELL + name, msgspec.json.encode(endpoint.settings), was
    ):
        raise EndpointError(f"there is a task {name} already: `tarry tasks edit {name}` changes it", "task")
    note_edit(store, name, None, endpoint.settings)
    # The state may be that of an earlier task with this name.
    forget_flow(store, name)
    # Set here, not by the workers: a worker that knows no HTTP task learns of this one only by claiming a job of it.
    for lane, wanted in limits_of(endpoint, FlowState(INITIAL)).items():
        set_limit(store, lane, wanted)
    return endpoint


def edit(
    store: Store,
    name: str,
    changes: Mapping[str, Any],
    guard: AddressGuard,
    places: Collection[str] = (),
    seen: str | None = None,
    may_write_places: bool = True,
) -> Endpoint:
    """Changes some settings; None removes one, and a hidden value that is sent as it is shown stays. Resets the flow
    state of the endpoint.

    places, may_write_places: see `add`. seen: the version that the editor saw; TaskChanged if it is another now.
    """
    found: list[Endpoint] = []

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        # Called again after a lost compare-and-set: the last endpoint counts.
        check_version(store, name, settings, seen)
        found[:] = [_check_confined(name, {**settings, **_restore_values(name, changes, settings)}, guard, places)]
        after = dict(found[0].settings)
        _check_origin(name, changes, settings, after, may_write_places)
        return after

    _change(store, name, change)
    # It may be another endpoint now.
    forget_flow(store, name)
    return found[0]


def replace(
    store: Store,
    name: str,
    settings: Mapping[str, Any],
    guard: AddressGuard,
    places: Collection[str] = (),
    seen: str | None = None,
    may_write_places: bool = True,
) -> Endpoint:
    """Gives a task these settings, and no other. The rest is as for `edit`."""
    return edit(store, name, {**dict.fromkeys(FIELDS), **settings}, guard, places, seen, may_write_places)


def _check_origin(
    name: str, changes: Mapping[str, Any], before: dict[str, Any], after: Mapping[str, Any], may_write_places: bool
) -> None:
    """EndpointError if values would go to another host than they were written for: whoever may change the url need not
    know them, and not everybody may have workers read them from a place."""
    was, now = _origin(before), _origin(after)
    if not may_write_places:
        _check_places(name, before if was == now else {}, after)
    if was and was != now and (kept := next(kept_values(changes, before, after), None)):
        field, what = kept
        said = f"{what} was written for {was}, and the url is now of {now}: write it again, or take it out"
        raise setting_error(name, field, said)


def _origin(settings: Mapping[str, Any]) -> str:
    from tarry.push.http.target import parse_target  # noqa: PLC0415 - brings the HTTP client

    return parse_target(UrlTemplate.parse(settings["url"]).sample).origin if "url" in settings else ""


def _check_places(name: str, kept: dict[str, Any], after: Mapping[str, Any]) -> None:
    for field, _, place in sorted(places_of(after) - places_of(kept)):
        said = (
            f"{place} may be written by callers for all queues only, and one for some queues keeps it only where it is,"
            " while the url keeps scheme, host and port: write the value itself, or take it out"
        )
        raise setting_error(name, field, said)


def _restore_values(name: str, changes: Mapping[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The changes with their hidden values; EndpointError if there is none."""
    try:
        found = restore_hidden(changes, before)
    except NothingKeptError as error:
        raise setting_error(name, error.field, str(error)) from None
    # Two names of one setting: whoever writes one of them does not have to take the other out.
    for key, other in (("secret", "secrets"), ("secrets", "secret")):
        if found.get(key) is not None and other not in found and other in before:
            found[other] = None
            if secrets_of({key: found[key]}) == secrets_of(before):
                # As they are, under the name that they have.
                del found[key], found[other]
    return found


def set_enabled(store: Store, name: str, enabled: bool, configured: bool) -> None:
    """Enables or disables a task. Its jobs wait while it is disabled. configured: the configuration has it."""
    if configured:
        # The store never keeps settings of a configured task: they could differ from the file.
        _write(store, TASK_CELL + name, None if enabled else msgspec.json.encode(OFF))
    else:
        _change(store, name, lambda settings: {**settings, "enabled": enabled})
    if enabled:
        forget_flow(store, name)


def disable(store: Store, name: str, configured: bool, why: str) -> None:
    """Disables a task whose endpoint answers that it is gone. why: for people."""
    set_enabled(store, name, False, configured)
    _write(store, GONE_CELL + name, why.encode())


def disabled_reasons(store: Store) -> dict[str, str]:
    """Tasks that `disable` disabled and that were not enabled since, with the reasons."""
    return {name: cell.decode("utf-8", "replace") for name, cell in read_cells(store, GONE_CELL).items()}


def remove(store: Store, name: str) -> int:
    """Removes a task. Its unfinished jobs stay in the store; returns how many they are."""
    waiting = sum(tally.count for tally in store.counts() if tally.task == name and not tally.state.finished)
    if not _write(store, TASK_CELL + name, None):
        raise ConfigError(f"no HTTP task {name} is registered; `tarry tasks` lists them")
    forget_edits(store, name)
    clear_removed(store, name)
    return waiting


def clear_removed(store: Store, name: str) -> None:
    """Clears the state of a removed task, except for the limit that holds back its jobs.

    That limit stays until a task of that name is registered, or a function of that name declares its limits.
    """
    forget_flow(store, name)
    set_limit(store, EACH + name, None)
    waiting = any(tally.task == name and not tally.state.finished for tally in reachable_part(store.counts))
    set_limit(store, TASK + name, Limit(0) if waiting else None)


def limits_of(endpoint: Endpoint, state: FlowState) -> dict[str, Limit | None]:
    """The limits that the store keeps for an endpoint: how many at once now, and one at a time per key with `order`."""
    most = min(state.allowed, endpoint.concurrency or state.allowed)
    each = None if endpoint.order is None else Limit(1)
    return {
        TASK + endpoint.name: parse_limit(most if endpoint.enabled else 0, endpoint.rate),
        EACH + endpoint.name: each,
    }


def set_limit(store: Store, name: str, wanted: Limit | None) -> None:
    """Sets a limit, unless one was set by hand."""
    if store.kv_get(BY_HAND + name) is None:
        store.limit(name, wanted)


def forget_flow(store: Store, name: str) -> None:
    """Resets the state of the endpoint, and the reason why it was disabled."""
    _write(store, FLOW_CELL + name, None)
    _write(store, GONE_CELL + name, None)


def _change(store: Store, name: str, how: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    def change(was: bytes | None) -> bytes:
        if was is None:
            raise ConfigError(f"no HTTP task {name} is registered; `tarry tasks` lists them")
        return msgspec.json.encode(how(decode_settings(was)))

    was, now = change_cell(store, TASK_CELL + name, change)
    if was is not None and now is not None:
        note_edit(store, name, decode_settings(was), decode_settings(now))


def _write(store: Store, cell: str, value: bytes | None) -> bool:
    """Sets a cell, whatever it was; returns whether it existed."""
    was, _ = change_cell(store, cell, lambda _: value)
    return was is not None
