"""The operations of a store: each has a cell, `operations/ID`, which every process can read.

What somebody typed into one says what jobs say: where there is a key, that is sealed.
"""

import contextlib
from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.client.operations.operation import Operation
from tarry.errors import OperationNotFound, TooManyOperations, UsageError
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE, explain, is_sealed, token_of
from tarry.model.duration import DAY
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.cell import change_cell
from tarry.store.rules.partial_result import reachable_part

PREFIX = "operations/"
MOST_OPEN = 20
"""Operations that have not ended."""
MOST_OF_CALLER = 10
"""Of these, of one caller with a name: so nobody keeps others from having theirs."""
MOST_KEPT = 100
"""Ended operations that are kept."""
KEPT_FOR = 7 * DAY
"""Microseconds that an ended operation is kept."""


StoredOperation = tuple[Operation, bytes]
"""An operation, and its cell as stored."""


def read_all(store: Store) -> list[StoredOperation]:
    """All operations, the oldest first. StoreError."""
    found = []
    for cell in reachable_part(lambda: store.kv_list(PREFIX)).values():
        # A newer release may have written it.
        with contextlib.suppress(*UNREADABLE):
            found.append((_decode(store, cell), cell))
    return sorted(found, key=lambda one: one[0].id)


def read(store: Store, id: str) -> StoredOperation:
    """The operation with this id; OperationNotFound, also for what is no id."""
    # Not every text is one that every store can look for.
    cell = store.kv_get(PREFIX + id) if id.isprintable() else None
    return _read_cell(store, id, cell), cell or b""


def _read_cell(store: Store, id: str, cell: bytes | None) -> Operation:
    if cell is None:
        raise not_found(id)
    try:
        return _decode(store, cell)
    except UNREADABLE:
        raise not_found(id) from None


def not_found(id: str) -> OperationNotFound:
    """The answer where there is no operation with this id."""
    return OperationNotFound(f"no operation {id}: it never existed, or it ended more than a week ago")


def add(store: Store, operation: Operation, now: int) -> Operation:
    """Stores a new operation, with an id; TooManyOperations, UsageError. now: microseconds."""
    if operation.filter.matches_all:
        raise UsageError(f"{operation.act} which jobs? Narrow with queue, task, key, states, older and so on", "filter")
    if operation.act == "move" and operation.target.queue is None and operation.target.priority is None:
        raise UsageError("move to where? Name a queue, a priority or both in target", "target")
    try:
        operation.filter.query(now)
    except ValueError as error:
        raise UsageError(f"filter: {error}", "filter") from None
    known = read_all(store)
    own = sum(not one.is_ended and one.caller == operation.caller for one, _ in known)
    if operation.caller and own >= MOST_OF_CALLER:
        raise TooManyOperations(
            f"{own} operations of {operation.caller} are under way: wait until one ends, or stop one"
        )
    if sum(not one.is_ended for one, _ in known) >= MOST_OPEN:
        raise TooManyOperations(f"{MOST_OPEN} operations are under way: wait until one ends, or stop one")
    _prune(store, known, now)
    operation = replace(operation, id=ids.text(ids.uuid7()), created=now)
    store.kv_cas(PREFIX + operation.id, _encode(store, operation), None)
    return operation


def write(store: Store, operation: Operation, expected: bytes) -> bytes | None:
    """Stores an operation; returns its cell, or None if the cell no longer has the expected content."""
    cell = _encode(store, operation)
    return cell if store.kv_cas(PREFIX + operation.id, cell, expected) else None


def stop(store: Store, id: str, now: int) -> Operation:
    """Asks an operation to end; what it has changed stays changed. One that has ended stays as it is.
    OperationNotFound."""

    def change(operation: Operation) -> Operation:
        if operation.state == "waiting":
            return replace(operation, state="stopped", ended=now)
        return operation if operation.is_ended else replace(operation, state="stopping")

    return _change(store, id, change)


def _change(store: Store, id: str, change: Callable[[Operation], Operation]) -> Operation:
    def change_stored(cell: bytes | None) -> bytes:
        operation = _read_cell(store, id, cell)
        changed = change(operation)
        return cell if cell and changed == operation else _encode(store, changed)

    _, changed = change_cell(store, PREFIX + id, change_stored)
    return _read_cell(store, id, changed)


def _prune(store: Store, known: list[StoredOperation], now: int) -> None:
    """Removes what ended long ago, and the oldest if too many are kept."""
    ended = [(one, cell) for one, cell in known if one.is_ended]
    for at, (one, cell) in enumerate(ended):
        if at < len(ended) - MOST_KEPT or one.ended < now - KEPT_FOR:
            store.kv_cas(PREFIX + one.id, None, cell)


class _Texts(Struct, frozen=True, array_like=True):
    text: str
    error_text: tuple[str, ...]
    reason: str
    trouble: str


_NONE = _Texts("", (), "", "")


def _encode(store: Store, operation: Operation) -> bytes:
    """Its cell. Texts that could not be opened here stay as they were."""
    filter = operation.filter
    texts = _Texts(filter.text, filter.error_text, operation.reason, operation.trouble)
    if texts == _NONE or operation.sealed:
        return msgspec.json.encode(operation)
    sealed = store.seal_value(PREFIX + operation.id, msgspec.json.encode(texts), filter.task or "")
    if not is_sealed(sealed):
        return msgspec.json.encode(operation)
    # Without its texts a filter would fit more jobs: so who has no key finds none.
    why = explain(token_of(sealed))
    shown = _Texts(
        filter.text and why, tuple(why for _ in texts.error_text), texts.reason and why, texts.trouble and why
    )
    return msgspec.json.encode(_with(operation, shown, sealed))


def _decode(store: Store, cell: bytes) -> Operation:
    """The operation of a cell; `sealed` is empty unless that cannot be opened here. UNREADABLE."""
    operation = decode_json(cell, Operation)
    if not operation.sealed:
        return operation
    opened = store.open_value(PREFIX + operation.id, operation.sealed)
    return operation if is_sealed(opened) else _with(operation, decode_json(opened, _Texts), b"")


def _with(operation: Operation, texts: _Texts, sealed: bytes) -> Operation:
    filter = replace(operation.filter, text=texts.text, error_text=texts.error_text)
    return replace(operation, filter=filter, reason=texts.reason, trouble=texts.trouble, sealed=sealed)
