"""Who changed a registered task, and which of its settings: for an editor who finds that it has changed meanwhile.

The cell `edits:NAME` has the last changes, as JSON, the newest last.
"""

import logging
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from tarry.client.acting import current_actor
from tarry.errors import Outdated, StoreError
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND, format_duration
from tarry.push.endpoint.endpoint_settings import version_of
from tarry.push.endpoint.hidden import Settings
from tarry.store.rules.base import Store
from tarry.store.rules.cell import change_cell
from tarry.store.rules.partial_result import reachable_part

log = logging.getLogger("tarry.push")

EDITS_CELL = "edits:"
MOST_EDITS = 10


class TaskEdit(Struct, frozen=True):
    """One change of a task."""

    at: float
    """Seconds since the epoch, by the clock of the store."""
    by: str
    """Of a token or user; empty: not known."""
    address: str
    via: str
    """`http`, `console`, `command` or `program`."""
    settings: tuple[str, ...]
    """Those that were changed."""
    version: str
    """What the task was from then on."""


class TaskChanged(Outdated):
    """A task has changed since its editor saw it. edits: those since then, oldest first; they may be unknown."""

    def __init__(self, name: str, edits: Sequence[TaskEdit], now: float) -> None:
        who = "; ".join(_describe(edit, now) for edit in edits) or "by whom is not known"
        super().__init__(f"{name} has changed since you saw it: {who}. Look at it again, and send its new version")
        self.edits = tuple(edits)


def note_edit(store: Store, name: str, before: Settings | None, after: Settings) -> None:
    """Remembers who made the settings of a task what they are now. before: None for a new task. Never fails."""
    keys = dict.fromkeys((*(before or {}), *after))
    changed = tuple(key for key in keys if (before or {}).get(key) != after.get(key))
    if not changed:
        return
    try:
        edit = _edit_now(store, changed, version_of(after))
        change_cell(store, EDITS_CELL + name, lambda was: _append([] if before is None else _decode(was), edit))
    except StoreError as error:
        # The task itself is changed by now: whoever changed it is not to hear that it failed.
        log.warning("who changed the HTTP task %s cannot be noted: %s", name, error)


def _edit_now(store: Store, settings: tuple[str, ...], version: str) -> TaskEdit:
    actor = current_actor()
    return TaskEdit(store.time() / SECOND, actor.name, actor.address, actor.via, settings, version)


def _append(earlier: list[TaskEdit], edit: TaskEdit) -> bytes:
    return msgspec.json.encode([*earlier, edit][-MOST_EDITS:])


def forget_edits(store: Store, name: str) -> None:
    """Forgets the changes of a task that is removed."""
    change_cell(store, EDITS_CELL + name, lambda _: None)


def check_version(store: Store, name: str, settings: Settings, seen: str | None) -> None:
    """TaskChanged unless these settings of a task are those that the editor saw. seen: None: whatever they are."""
    if seen is not None and version_of(settings) != seen:
        edits = _decode(reachable_part(lambda: store.kv_get(EDITS_CELL + name)))
        last = max((number for number, edit in enumerate(edits, 1) if edit.version == seen), default=0)
        raise TaskChanged(name, edits[last:], store.time() / SECOND)


def _decode(cell: bytes | None) -> list[TaskEdit]:
    try:
        return [] if cell is None else decode_json(cell, list[TaskEdit])
    except UNREADABLE:
        # A newer release may have written it.
        return []


def _describe(edit: TaskEdit, now: float) -> str:
    who = edit.by or edit.address or "somebody"
    ago = format_duration(max(1, round(now - edit.at)) * SECOND)
    return f"{who} changed {', '.join(edit.settings)} {ago} ago"
