"""Which errors are the same mistake: those of one kind, which is read from the note of a failed attempt.

Two are of one kind if they have the same class, the same message but for numbers, ids and quoted parts, and were raised
by the same function of the user's code; of deliveries, if the same endpoint answered with the same status. The idea is
that of error trackers, as Sentry's fingerprints.
"""

import re
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.texts import MOST_TYPE, cut
from tarry.model.checks.unreadable import UNREADABLE, is_sealed

MOST_TEMPLATE = 300
"""Characters of a message without its changing parts, and of a place."""
_LOOKED_AT = 2000
"""Characters of a message that are looked at."""
_COMPARED = 50
"""Characters by which a message is found in the traceback."""
LEFT_OUT = "…"
"""What stands in the place of a changing part."""
# Each is linear. An apostrophe within a word quotes nothing; the b of bytes is no word.
_OPENING = r"""(?:(?<!\w)b?'|\bb"|"|(?<!\w)`)"""
_QUOTED = re.compile(r"""(?<!\w)b?'[^'\n]*'(?!\w)|(?:\bb)?"[^"\n]*"|(?<!\w)`[^`\n]*`""")
_CUT_QUOTED = re.compile(rf"""{_OPENING}[^'"`\n]*\Z""")
# An address; and a value as databases tell it: `Key (name)=(Ann) already exists`.
_VALUE = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w.-]{1,255}|(?<==\()[^)\n]{0,200}(?=\))")
_WORD = re.compile(r"[\w-]+")
_HEX = re.compile(r"[0-9a-fA-F]{8,}")
_DIGIT = re.compile(r"\d")
_REPEATED = re.compile(f"{LEFT_OUT}(?:[ .,:/;|+]{{0,3}}{LEFT_OUT})+")
_WORKER = re.compile(r"(?<=^worker )\S+")
_FRAME = re.compile(r'[ |]{0,40}File "([^"\n]{1,1000})", line \d{1,9}, in ([^\n]{1,200})')
_BEGINS = "Traceback (most recent call last)"
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<frozen ")
_TARRY = f"{Path(__file__).parents[2]}/"
# Python 3.12 has no frames of their own for these any more.
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")
_RELEASE = re.compile(r"v?\d+(?:[._-]\d+)+|\d+|.*\d{4}.*|(?=.*\d)[0-9a-f]{7,40}")
"""The name of a folder that each deploy has anew: a number, a version, a date, a commit; `v2` is none."""


class ErrorKind(Struct, frozen=True, array_like=True):
    """What errors of one kind have in common."""

    fingerprint: str
    """16 hexadecimal digits."""
    type: str
    """The name of the class; of a delivery `HTTP` and the status, or `delivery` if no answer came."""
    message: str
    """Without its changing parts, in whose place `LEFT_OUT` stands."""
    place: str
    """File and function of the innermost call of the user's code; of a delivery the endpoint. Empty: not known."""


class _FailureNote(Struct):
    type: str = ""
    message: str = ""
    traceback: str = ""
    outcome: str = ""
    reason: str = ""
    status: int = 0
    kind: ErrorKind | None = None
    """Of a sealed note: its kind, since the rest cannot be read here."""


_notes = json_decoder(_FailureNote)


def error_kind(task: str, note: bytes) -> ErrorKind:
    """The kind of the error that this note of a failed attempt is about. Raises nothing, whatever the note is."""
    try:
        found = _notes.decode(note)
    except UNREADABLE:
        found = _FailureNote()
    if found.kind is not None and is_sealed(note):
        return found.kind
    if found.outcome:
        kind = f"HTTP {found.status}" if found.status else "delivery"
        # What answers is known by the status: the reason has the words of the endpoint.
        return _kind(kind, found.outcome if found.status else template(found.reason), task)
    # Who died has a name that no other worker has, with that of its host.
    message = _WORKER.sub(LEFT_OUT, found.message) if found.type == "WorkerDied" else found.message
    return _kind(found.type or "unknown", template(message), place_of(_calls(found)))


def _calls(note: _FailureNote) -> str:
    """Its traceback without the message and the notes of the error, which may have lines as of calls."""
    message = f": {note.message[:_COMPARED]}" if note.message else "\n"
    end = note.traceback.rfind(f"\n{note.type}{message}")
    return note.traceback if end < 0 else note.traceback[:end]


def _kind(type: str, message: str, place: str) -> ErrorKind:
    # The end of a long message depends on how long its changing parts were.
    texts = cut(type, MOST_TYPE), cut(message[:MOST_TEMPLATE], MOST_TEMPLATE), cut(place, MOST_TEMPLATE)
    digest = blake2b("\0".join(texts).encode(), digest_size=8)
    return ErrorKind(digest.hexdigest(), *texts)


def template(message: str) -> str:
    """A message without what differs from one error to the next: numbers, ids, quoted and hexadecimal parts."""
    text = _QUOTED.sub(LEFT_OUT, message[:_LOOKED_AT])
    if len(message) > _LOOKED_AT:
        text = _CUT_QUOTED.sub(LEFT_OUT, text)
    text = _VALUE.sub(LEFT_OUT, text)
    text = _WORD.sub(lambda word: LEFT_OUT if _changes(word[0]) else word[0], text)
    return _REPEATED.sub(LEFT_OUT, text)


def _changes(word: str) -> bool:
    return _DIGIT.search(word) is not None or _HEX.fullmatch(word) is not None


def place_of(traceback: str) -> str:
    """File and function of the innermost call of the user's code in this traceback; of the innermost of all, if none
    is; empty if there is no call. Of the file its last two names, without a number of a release, so that it stays the
    same from deploy to deploy."""
    innermost = ""
    # Causes come first, and the error itself last; of its calls the innermost is the last one.
    for line in reversed(traceback[max(0, traceback.rfind(_BEGINS)) :].split("\n")):
        frame = _FRAME.fullmatch(line)
        if frame is None or frame[2] in _COMPREHENSIONS:
            continue
        place = _place(frame[1], frame[2])
        if not _INSTALLED.search(frame[1]) and not frame[1].startswith(_TARRY):
            return place
        innermost = innermost or place
    return innermost


def _place(file: str, function: str) -> str:
    folder, slash, name = file.rpartition("/")
    parent = folder.rpartition("/")[2]
    return f"{LEFT_OUT if _RELEASE.fullmatch(parent) else parent}{slash}{name}:{function}"
