"""What is wrong with a request, whoever sent it."""

import contextlib
import re
from collections.abc import Iterator

import msgspec

from tarry import errors
from tarry.model.refusals import NotPossible

_AT = re.compile(r" - at `(?:key in )?\$\.?(?P<field>[^`]*)`$")
_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<field>[^`]*)`")
_MISSING_FIELD = re.compile(r"missing required field `(?P<field>[^`]*)`")

_TYPE = re.compile(r"(?:(?<=expected )|(?<=got ))`([^`]+)`")
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "an object",
}
_GROUP_ID = ("matching regex '^[0-9a-f]{16}$'", "of 16 hexadecimal digits, as `tarry errors` lists them")

_NAMED = re.compile(r"(\w+)=")
_MOST_ID = 200

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a text that is no JSON, or is nested too deeply, raises."""


class RequestError(errors.TarryError):
    """The request itself is wrong, whatever the store holds.

    field: which part of it; None: no single one.
    """

    def __init__(self, message: str, field: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.field, self.status = field, status


@contextlib.contextmanager
def checking(field: str) -> Iterator[None]:
    """Makes a ValueError of the block the error of a request whose `field` is wrong."""
    try:
        yield
    except (errors.TarryError, NotPossible):
        raise
    except ValueError as error:
        raise RequestError(f"{field}: {error}", field, 422) from None


def named_option(error: Exception) -> str | None:
    """The option that this is about, if it begins with that: `cron=...`."""
    found = _NAMED.match(str(error))
    return found[1] if found else None


def wrong_value(error: Exception, where: str) -> RequestError:
    """The answer to a value of another shape than the method takes. where: "body", "query" or "path"."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return RequestError(f"the {where} is no JSON: {text}", where)
    at = _AT.search(text)
    named = _UNKNOWN_FIELD.search(text) or _MISSING_FIELD.search(text)
    within = "" if at is None else at["field"]
    field = ".".join(filter(None, (within, named["field"] if named else ""))) or where
    said = text[: at.start()] if at else text
    return RequestError(f"{where}: {field}: {said[:1].lower()}{said[1:]}", field, 422)


def in_words(text: str) -> str:
    """What an error says of a value, for somebody who wrote no JSON: types in words, and no part of a request."""
    text = re.sub(r"^path: ", "", _TYPE.sub(_name_types, text))
    return text.replace(*_GROUP_ID)


def _name_types(found: re.Match[str]) -> str:
    return " or ".join(_TYPES.get(one, one) for one in found[1].split(" | ") if one != "null")


def split_id(id: str) -> tuple[int, int]:
    """The process of a connection, and its number there; ConnectionNotFound if the text is no such id."""
    pid, _, number = id.partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) < 20 for part in (pid, number)):
        raise connection_not_found(id)
    return int(pid), int(number)


def connection_not_found(id: str) -> errors.ConnectionNotFound:
    """The error for a connection that is not there."""
    return errors.ConnectionNotFound(f"connection {id[:_MOST_ID]} is not open (any more)")
