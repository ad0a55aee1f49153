"""How long a text of a task may be, and how a longer one is cut: what is kept of an error, a reason, a progress.

Each is cut where it comes in, so that no copy of millions of characters travels, and again where the row of a job is
made, whatever way it took.
"""

import msgspec

from tarry.model.checks.unreadable import read_note

MOST_TYPE = 200
"""Characters of the name of an error's class."""
MOST_MESSAGE = 10_000
"""Characters of the message of an error, or of the reason of a cancel."""
MOST_TRACEBACK = 8192
"""Characters of a traceback."""
MOST_NOTE = 6 * (MOST_TYPE + MOST_MESSAGE + MOST_TRACEBACK) + 10_000
"""Bytes of a note that is no result. No character takes more than 6 bytes in JSON; the rest is for other fields."""
_MOST = {"type": MOST_TYPE, "traceback": MOST_TRACEBACK}


def cut(text: str, most: int) -> str:
    """The text in `most` characters: a longer one without its middle, with how many characters were left out. Half a
    surrogate pair, as in a file name that was decoded badly, is escaped, since UTF-8 cannot encode it."""
    if len(text) > most:
        text = _without_middle(text, most)
    # A subclass of str may have methods of its own.
    clean = str.encode(text, "utf-8", "backslashreplace").decode()
    return clean if len(clean) <= most else _without_middle(clean, most)


def _without_middle(text: str, most: int) -> str:
    # The start says most; the end of a traceback is the error itself.
    left_out = f" ... ({len(text) - most:,} characters left out) ... "
    room = max(0, most - len(left_out))
    end = room // 2
    return f"{text[: room - end]}{left_out}{text[len(text) - end :]}"[:most]


def text_of(given: object, most: int = MOST_MESSAGE) -> str:
    """The text of an error, or of another value that a task gave, cut. Raises nothing, whatever its `__str__` does."""
    try:
        return cut(str(given), most)
    except BaseException as worse:
        # Also SystemExit and the like: they would end the worker's thread.
        return f"<its str() raised {cut(type(worse).__name__, MOST_TYPE)}>"


def bounded_note(note: bytes) -> bytes:
    """A note that is no result, in at most MOST_NOTE bytes: with its texts cut, or without all but them."""
    # A sealed one begins with a space. It was bounded before it was sealed.
    if len(note) <= MOST_NOTE or note[:1] == b" ":
        return note
    known = read_note(note)
    texts = {name: cut(value, _MOST.get(name, MOST_MESSAGE)) for name, value in known.items() if isinstance(value, str)}
    whole = msgspec.json.encode(known | texts)
    if len(whole) <= MOST_NOTE:
        return whole
    return msgspec.json.encode({name: texts.get(name, "") for name in ("type", "message", "traceback")})
