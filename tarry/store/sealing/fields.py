"""What is sealed of a job, field by field. All else of it stays clear: stores, limits and people work with that."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from tarry.model.attempts import with_texts
from tarry.model.change import Change
from tarry.model.checks.unreadable import (
    ALTERED,
    SAID,
    SEALED,
    SEALED_PROGRESS,
    SEALED_TEXT,
    explain,
    is_apart,
    is_sealed,
    read_note,
    token_of,
)
from tarry.model.flow.effect import NodeEffect
from tarry.model.flow.node_ids import flow_of, is_root
from tarry.model.flow.signal import Signal
from tarry.model.flow.wiring import added_nodes, split, unwrap, wrap
from tarry.model.flow_row import FlowChange, FlowRow
from tarry.model.history.error_kind import LEFT_OUT, error_kind
from tarry.model.job import Job, State
from tarry.model.lifecycle import NO_KEY, OUT_OF_TURN, UNKNOWN_TASK, UNREAD
from tarry.model.moving import is_parking_note
from tarry.model.slept import Slept, kept_slept

if TYPE_CHECKING:
    from tarry.store.sealing.key_ring import KeyRing

BODY, UNDO, NOTE, PROGRESS, ATTEMPTS, SIGNAL = b"body", b"undo", b"note", b"progress", b"attempts", b"signal"
VALUE = b"value"
"""The fields, as the authentication of each value has them."""
_CLEAR = ("type", "due", "node", "outcome", "status", "attempt", "at", "sent", "beanstalk")
"""What stays clear of the note of a job that did not end well: rules read it, also where there is no key."""
_OWN = (OUT_OF_TURN, UNKNOWN_TASK, NO_KEY, UNREAD)
"""The types of notes of jobs that wait, and that rules read."""
# Nothing is in them, and most jobs return None.
_EMPTY = (b"", b"null")


class FieldSealer:
    """Seals and opens jobs, changes and what else says something of a job."""

    def __init__(self, keys: "KeyRing") -> None:
        self._keys = keys

    # Seal

    def seal_job(self, job: Job) -> Job:
        """A new job, as it is stored."""
        return replace(
            job,
            body=self.seal_body(job.id, job.body),
            note=self._seal_any_note(job.id, job.note, job.state, job.task if job.state.finished else ""),
            progress=self.seal_progress(job.id, job.progress),
            attempts=self._seal_attempts(job.id, job.attempts),
        )

    def seal_change(self, change: Change) -> Change:
        """A change, as it is stored."""
        task = "" if change.job is None else change.job.task
        note = self._seal_any_note(change.id, change.note, change.to, task)
        if note is not change.note:
            change = replace(change, note=note)
        if change.body:
            change = replace(change, body=self.seal_body(change.id, change.body))
        if change.attempts:
            change = replace(change, attempts=self._seal_attempts(change.id, change.attempts))
        if change.node is not None and change.node.note:
            change = replace(change, node=self._seal_effect(change.id, change.node))
        return change

    def seal_body(self, id: bytes, body: bytes) -> bytes:
        """The arguments; how a node is tied to others stays clear, and what the root of a flow says of it."""
        if is_root(id):
            return body
        envelope, arguments = split(id, body)
        if arguments and not _is_closed(arguments):
            arguments = self._seal(id, BODY, arguments)
        return _with_undo(envelope, arguments, lambda undo: undo if is_sealed(undo) else self._seal(id, UNDO, undo))

    def seal_result(self, id: bytes, result: bytes) -> bytes:
        """The result of a job that is done."""
        return self._seal_any_note(id, result, State.DONE, "")

    def seal_progress(self, id: bytes, progress: bytes) -> bytes:
        """Progress, output and steps; how long the job has slept stays clear."""
        if not progress or progress.startswith(SEALED_PROGRESS):
            return progress
        slept, text = kept_slept(progress), SEALED_TEXT + self._keys.seal(id, PROGRESS, progress)
        rest = () if slept == Slept() else (0, 0, None, None, slept)
        return msgspec.json.encode((None, text, *rest))

    def seal_flow_change(self, change: FlowChange) -> FlowChange:
        """A change of a flow, as it is stored."""
        return replace(change, note=self._seal_note(change.id, change.note)) if change.note else change

    def seal_signal(self, signal: Signal) -> Signal:
        """A signal, as it is stored."""
        if signal.value in _EMPTY or is_sealed(signal.value):
            return signal
        return replace(signal, value=self._seal(signal.id, _address(signal), signal.value))

    def seal_value(self, name: str, value: bytes) -> bytes:
        """A part of a named value, as it is stored."""
        return value if is_sealed(value) else self._seal(name.encode(), VALUE, value)

    # Open

    def open_job(self, job: Job) -> Job:
        """A job as it was before it was sealed. What cannot be opened stays sealed."""
        opened = replace(
            job,
            body=self._open_body(job.id, job.body),
            note=self._open(job.id, NOTE, job.note),
            progress=self._open_progress(job.id, job.progress),
        )
        return replace(opened, attempts=self._open_attempts(job.id, job.attempts)) if job.attempts else opened

    def open_flow(self, row: FlowRow) -> FlowRow:
        """A flow, with its root if that is there."""
        row = replace(row, note=self._open(row.id, NOTE, row.note)) if row.note else row
        return row if row.root is None else replace(row, root=self.open_job(row.root))

    def open_signal(self, signal: Signal) -> Signal:
        """A signal as it was sent."""
        return replace(signal, value=self._open(signal.id, _address(signal), signal.value))

    def open_value(self, name: str, value: bytes) -> bytes:
        """A part of a named value as it was before it was sealed."""
        return self._open(name.encode(), VALUE, value)

    # Field by field

    def _seal(self, id: bytes, field: bytes, value: bytes) -> bytes:
        return b'%b%b"}' % (SEALED, self._keys.seal(id, field, value).encode())

    def _open(self, id: bytes, field: bytes, value: bytes) -> bytes:
        if not is_sealed(value):
            return value
        return self._open_token(id, field, value)

    def _open_token(self, id: bytes, field: bytes, value: bytes) -> bytes:
        token = token_of(value)
        found = self._keys.open(id, field, token)
        if isinstance(found, bytes) or found == token:
            return found if isinstance(found, bytes) else value
        # Only its key is marked: what is no ASCII is in the value, but not in its token.
        key = found.partition(".")[0].removesuffix(ALTERED).encode()
        return value.replace(key, key + ALTERED.encode(), 1)

    def _seal_any_note(self, id: bytes, note: bytes, state: State | None, task: str) -> bytes:
        """state: in which the job has the note."""
        if note in _EMPTY or _is_closed(note):
            return note
        if state is State.DONE:
            # Which nodes were added is no result: the flow goes by it.
            return note if added_nodes(note) is not None else self._seal(id, NOTE, note)
        if is_parking_note(note):
            return note
        # Otherwise it may be the result of an earlier run, of which nothing is to stay clear.
        is_error = bool(task) or (state is not None and state.finished) or read_note(note).get("type") in _OWN
        return self._seal_note(id, note, task) if is_error else self._seal(id, NOTE, note)

    def _seal_note(self, id: bytes, note: bytes, task: str = "") -> bytes:
        """How an attempt ended. task: what had the error, if it counts; empty: it does not."""
        if is_sealed(note):
            return note
        known, token = read_note(note), self._keys.seal(id, NOTE, note)
        if known.keys().isdisjoint(SAID):
            # It is no error of ours: a result, perhaps, of a job that was run again.
            known = {}
        clear: dict[str, Any] = {name: known[name] for name in _CLEAR if name in known}
        clear |= {name: explain(token) for name in SAID if name in known}
        if task:
            # The group of the error is known without the key, but not its message.
            clear["kind"] = replace(error_kind(task, note), message=LEFT_OUT)
        return b'%b%b"%b' % (SEALED, token.encode(), b"," + msgspec.json.encode(clear)[1:] if clear else b"}")

    def _seal_effect(self, id: bytes, effect: NodeEffect) -> NodeEffect:
        return replace(effect, note=self._seal_note(flow_of(id), effect.note))

    def _seal_attempts(self, id: bytes, record: bytes) -> bytes:
        def seal(text: str) -> str:
            is_clear = text and not text.startswith(SEALED_TEXT)
            return SEALED_TEXT + self._keys.seal(id, ATTEMPTS, text.encode()) if is_clear else text

        return with_texts(record, seal)

    def _open_attempts(self, id: bytes, record: bytes) -> bytes:
        def unseal(text: str) -> str:
            if not text.startswith(SEALED_TEXT):
                return text
            found = self._keys.open(id, ATTEMPTS, text.removeprefix(SEALED_TEXT))
            return found.decode() if isinstance(found, bytes) else SEALED_TEXT + found

        return with_texts(record, unseal)

    def _open_body(self, id: bytes, body: bytes) -> bytes:
        envelope, arguments = split(id, body)
        return _with_undo(envelope, self._open(id, BODY, arguments), lambda undo: self._open(id, UNDO, undo))

    def _open_progress(self, id: bytes, progress: bytes) -> bytes:
        if not progress.startswith(SEALED_PROGRESS):
            return progress
        return self._open_token(id, PROGRESS, progress)


def _is_closed(value: bytes) -> bool:
    """Whether a value is sealed already, here or where it is kept."""
    return is_sealed(value) or is_apart(value)


def _with_undo(envelope: bytes, arguments: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A body of these parts, with the arguments of what undoes the job as `change` makes them."""
    if not envelope:
        return arguments
    links = unwrap(envelope)[0]
    if links is None or links.undo is None:
        return envelope + arguments
    task, queue, body = links.undo
    return wrap(replace(links, undo=(task, queue, change(body))), arguments)


def _address(signal: Signal) -> bytes:
    # A value must not pass for one of another address.
    return b"\0".join((SIGNAL, signal.name.encode(), signal.key.encode(), b""))
