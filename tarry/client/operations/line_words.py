"""The words of a line that says which jobs, as in `state:dead task:shop.*`, and the line that some terms make.
`search_line` reads lines."""

import re
from collections.abc import Iterator, Mapping

from tarry.client.job_records import JobTerms
from tarry.model.job import parse_label
from tarry.model.nearest import nearest

FIELDS: Mapping[str, str] = {
    "state": "state",
    "task": "task",
    "queue": "queue",
    "error": "error_text",
    "arg": "text",
    "id": "id",
    "key": "key",
    "flow": "flow",
    "node": "node",
    "parent": "parent",
    "since": "since",
    "until": "until",
    "older": "older",
    "created_since": "created_since",
    "created_until": "created_until",
}
"""The words of a line, each with its field of `JobTerms`. Any other word is the name of a label."""
LABEL = "label."
"""What may stand before the name of a label, and has to where it is, or looks like, one of the words."""
INSTEAD: Mapping[str, str] = {
    "label": "write the name of the label, as in customer:7.",
    "text": "text of arguments is arg:, and of errors error:.",
    "error_text": "text of errors is error:.",
    "priority": "no search is by it.",
    "attempts": "no search is by it.",
}
"""Words that somebody may take for one of ours, and what to write."""
_PLAIN = re.compile(r'[^\s"]+')
_GROUP = re.compile(r"[0-9a-f]{16}")
# One letter too many in a word of six; "order" is not taken for "older".
_CLOSE = 0.85


def is_group(text: str) -> bool:
    """Whether this is the id of a group of errors."""
    return _GROUP.fullmatch(text) is not None


def is_free(name: str) -> bool:
    """Whether a word is the name of a label as it stands."""
    if name in FIELDS or name in INSTEAD or name.startswith(LABEL):
        return False
    is_swapped = any(sorted(name) == sorted(word) for word in FIELDS)
    return not is_swapped and name[0] != '"' and nearest(name, FIELDS, _CLOSE) is None


def format_line(terms: JobTerms) -> str:
    """The line that says the same as these terms."""
    return " ".join(_words(terms))


def _words(terms: JobTerms) -> Iterator[str]:
    if terms.state:
        yield f"state:{','.join(terms.state)}"
    if terms.error is not None:
        yield f"error:{terms.error}"
    for word, field in FIELDS.items():
        value = getattr(terms, field)
        if field == "error_text":
            yield from (f"error:{_quote(text) if is_group(text) else _value_text(text)}" for text in value)
        elif field != "state" and value not in (None, ""):
            yield f"{word}:{_value_text(value)}"
    for name, value in map(parse_label, terms.label):
        yield f"{name if is_free(name) else LABEL + name}:{_value_text(value)}"


def _value_text(value: str | float) -> str:
    if not isinstance(value, str):
        return repr(float(value)).removesuffix(".0")
    return value if _PLAIN.fullmatch(value) else _quote(value)


def _quote(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'
