"""The labels of a job: values by name, by which people find it."""

# Each label is a header: so it needs no column, and travels wherever the job does. A store keeps an index beside.

from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Meta

from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE

PREFIX = "tarry-label:"
"""What the names of headers begin with that are labels; the name of the label follows."""
LABEL_MARK = b'"tarry-label:'
"""What the headers of each job with labels have in them."""
MOST, LONGEST_NAME, LONGEST_VALUE = 16, 64, 256
"""How many a job may have, and how many bytes of UTF-8 a name and a value may take."""

JobLabel = tuple[str, str]
"""A name and a value."""
LabelText = Annotated[str, Meta(max_length=LONGEST_NAME + 1 + LONGEST_VALUE)]
"""A label such as `customer=7`, by which somebody looks for jobs."""

_decoder = json_decoder(dict[str, str])


def check_labels(labels: object) -> Mapping[str, str]:
    """The labels; ValueError if a job cannot have them."""
    if not isinstance(labels, Mapping):
        raise ValueError(f'labels=: a dict of text by name, such as {{"customer": "7"}}, not {type(labels).__name__}')
    if len(labels) > MOST:
        raise ValueError(f"labels=: a job has at most {MOST} labels, not {len(labels)}")
    for name, value in labels.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            kinds = f"{type(name).__name__} and {type(value).__name__}"
            raise ValueError(f"labels=: a name and a value are text, not {kinds}")
        if why := _why_not(name, value):
            raise ValueError(f"labels=: {why}")
    return labels


def parse_label(text: str) -> JobLabel:
    """The label of a text such as `customer=7`; ValueError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"label {text[:LONGEST_NAME]!r}: write NAME=VALUE, such as customer=7")
    if why := _why_not(name, value):
        raise ValueError(why)
    return name, value


def parse_labels(texts: Iterable[str]) -> tuple[JobLabel, ...]:
    """The labels of such texts; ValueError."""
    return tuple(map(parse_label, texts))


def label_headers(labels: Mapping[str, str]) -> dict[str, str]:
    """The headers of these labels."""
    return {PREFIX + name: value for name, value in labels.items()}


def labels_of(headers: bytes) -> dict[str, str]:
    """The labels among the headers of a job, by name."""
    # A search for bytes is much faster than decoding, and many jobs have no labels.
    if LABEL_MARK not in headers:
        return {}
    try:
        decoded = _decoder.decode(headers)
    # Bad headers are reported where the task's own headers are decoded.
    except UNREADABLE:
        return {}
    named = ((name[len(PREFIX) :], value) for name, value in decoded.items() if name.startswith(PREFIX))
    # Other programs may have written the headers, and an index keeps no longer ones.
    fit = [(name, value) for name, value in named if _why_not(name, value) is None]
    return dict(fit[:MOST])


def has_labels(headers: bytes, labels: Iterable[JobLabel]) -> bool:
    """Whether these are all among the labels in the headers."""
    return labels_of(headers).items() >= set(labels)


def with_inherited(own: Mapping[str, str] | None, given: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The labels of a job that gets some: its own, and as many of those as it has room for."""
    if not given or not own:
        return own or given
    more = [(name, value) for name, value in given.items() if name not in own]
    return {**own, **dict(more[: MOST - len(own)])}


def _why_not(name: str, value: str) -> str | None:
    """Why this cannot be a label; None: it can."""
    try:
        sizes = len(name.encode()), len(value.encode())
    except UnicodeEncodeError:
        return f"label {name[:LONGEST_NAME]!r}: no store can hold half of a character"
    if not 0 < sizes[0] <= LONGEST_NAME:
        return f"label {name[:LONGEST_NAME]!r}: a name takes 1 to {LONGEST_NAME} bytes of UTF-8, not {sizes[0]}"
    # `=` stands between a name and its value where people write them, and `:` in a line of search.
    if not name.isprintable() or any(sign in name for sign in "=: "):
        return f"label {name[:LONGEST_NAME]!r}: a name has no `=`, `:`, blank or control character"
    if sizes[1] > LONGEST_VALUE:
        return f"label {name}: a value takes at most {LONGEST_VALUE} bytes of UTF-8, not {sizes[1]}"
    return f"label {name}: no store can hold a NUL" if "\0" in value else None
