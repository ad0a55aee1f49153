"""One line that says which jobs: `state:dead task:shop.* error:timeout since:2d customer:7`."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tarry.client.job_records import JobTerms
from tarry.client.operations.line_values import read_value
from tarry.client.operations.line_words import FIELDS, INSTEAD, LABEL, is_free, is_group
from tarry.client.operations.operation import JobFilter
from tarry.model.checks.decoders import convert_to
from tarry.model.job import parse_label
from tarry.model.nearest import did_you_mean
from tarry.model.quantity import shorten
from tarry.store.queries.job_search import MOST_LINE

_TOKEN = re.compile(r"""(?:(?P<word>[^\s:"][^\s:]*):)?(?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|\Z)""", re.DOTALL)
# Digits alone, or a word of few letters, are rather the text of an error.
_PART_OF_ID = re.compile(r"(?=.*[a-f])[0-9a-f]{8,32}")
_NOTHING = JobTerms()


class LineError(ValueError):
    """A word of the line cannot be read; the message names it, and says what to write."""


class _LineWord(NamedTuple):
    shown: str
    """As it stands in the line, cut."""
    word: str | None
    value: str
    is_quoted: bool


def parse_line(line: str) -> JobTerms:
    """What the line looks for; LineError. Of an empty line: all jobs."""
    if len(line) > MOST_LINE:
        raise LineError(f"the line has {len(line):,} characters, and may have {MOST_LINE:,}")
    found: dict[str, Any] = {}
    for token in _tokens(line):
        field, value = _read(token)
        if isinstance(value, list):
            found.setdefault(field, []).extend(value)
        elif field in found:
            raise LineError(f"{token.shown}: {token.word or field} is given twice")
        else:
            found[field] = value
        try:
            convert_to(JobTerms, found)
        except msgspec.ValidationError as error:
            raise LineError(f"{token.shown}: {str(error).partition(' - at')[0]}") from None
    return JobTerms(**found)


def merge_line(terms: JobTerms, line: str) -> JobTerms:
    """The terms with those of the line; LineError if both say the same field."""
    found = parse_line(line)
    given = {name for name in JobTerms.__struct_fields__ if getattr(found, name) != getattr(_NOTHING, name)}
    for name in sorted(given):
        if getattr(terms, name) != getattr(_NOTHING, name):
            raise LineError(f"the line says {name}, which is also given beside it: say it once")
    return replace(terms, **{name: getattr(found, name) for name in given})


def narrow(filter: JobFilter, line: str, now: int) -> JobFilter:
    """The filter with what the line says, too; LineError, ValueError. now: microseconds."""
    terms = merge_line(filter.terms(), line)
    for name in ("id", "parent"):
        if getattr(terms, name):
            raise LineError(f"{name}: finds single jobs, and is not for all that match")
    found = JobFilter.of(terms, now)
    # A name may have a `*`, too.
    has_task = filter.task is not None or filter.task_pattern is not None
    return replace(found, task=filter.task, task_pattern=filter.task_pattern) if has_task else found


def is_part_of_id(text: str) -> bool:
    """Whether this is rather an id, or its begin or end, than another word."""
    return _PART_OF_ID.fullmatch(text.replace("-", "").lower()) is not None


def _tokens(line: str) -> Iterator[_LineWord]:
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        token = _TOKEN.match(line, at)
        if token is None:
            raise LineError(f'{shorten(line[at:])}: a `"` stands within a word or ends nowhere: error:"no such user"')
        word, value = token["word"], token["value"]
        is_quoted = value[:1] == '"'
        text = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if is_quoted else value
        yield _LineWord(shorten(token[0]).strip("'"), word, text, is_quoted)
        at = token.end()


def _read(token: _LineWord) -> tuple[str, Any]:
    """The field that a word of the line means, and its value; LineError."""
    shown, word, value, is_quoted = token
    if not value and (word is None or word in FIELDS or not is_quoted):
        raise LineError(f"{shown}: it has no text")
    if word is None:
        return _read_bare(token)
    if word == "error" and is_group(value) and not is_quoted:
        return "error", value
    if word not in FIELDS:
        return "label", [_label(shown, word, value)]
    try:
        return FIELDS[word], read_value(word, value)
    except ValueError as error:
        raise LineError(f"{shown}: {error}") from None


def _read_bare(token: _LineWord) -> tuple[str, Any]:
    """As `_read`, of a word without a colon: an id, or the text of an error."""
    value = token.value
    if token.is_quoted:
        return "error_text", [value]
    if "=" in value:
        raise LineError(f'{token.shown}: a label is written customer:7, and text of an error with a = error:"a=b"')
    return ("id", value) if is_part_of_id(value) else ("error_text", [value])


def _label(shown: str, word: str, value: str) -> str:
    name = word.removeprefix(LABEL)
    if word == name and not is_free(name):
        instead = INSTEAD.get(name) or f"no such word{did_you_mean(name, FIELDS)}"
        raise LineError(f"{shown}: {instead} The label of that name is {LABEL}{shown}")
    try:
        if "=" in name:
            raise ValueError("the name of a label has no =")
        parse_label(f"{name}={value}")
    except ValueError as error:
        raise LineError(f"{shown}: {error}") from None
    return f"{name}={value}"
