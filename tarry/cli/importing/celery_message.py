"""Messages of Celery, as kombu writes them to Redis: from bytes to the call that they carry. Never pickle."""

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from tarry.model.checks.decoders import convert_to, decode_json
from tarry.model.duration import SECOND
from tarry.model.job import StoredCount
from tarry.tasks.arguments.json_depth import MOST_DEPTH, is_too_deep

MOST = 64 * 2**20
"""Bytes that a body may have once it is unpacked."""
_ZLIB = ("application/x-gzip", "gzip", "zlib", "application/zlib")
_JSON = ("application/json", "json")


class UnreadableMessage(Exception):
    """The message stays in the broker; the text says why."""


class _MessageEnvelope(Struct):
    body: str
    headers: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    content_type: str = msgspec.field(name="content-type", default="")


class _MessageFacts(Struct):
    """What protocol 2 has in the headers, and protocol 1 in the body."""

    task: str
    id: str
    eta: str | None = None
    expires: str | None = None
    retries: StoredCount | None = None
    timelimit: tuple[float | None, float | None] | None = None


class CeleryMessage(Struct, frozen=True):
    """A call that waits in a broker."""

    task: str
    id: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    retries: int
    priority: int
    """0 to 9 as in the message; 0 is the first with Redis."""
    due: int | None
    """Microseconds since the epoch; None: at once."""
    expires: int | None
    timeout: float | None


def read_message(raw: bytes) -> CeleryMessage:
    """The call in a message; UnreadableMessage."""
    try:
        envelope = decode_json(raw, _MessageEnvelope)
        content = _content(envelope)
        # Protocol 1 has all of it in the body.
        is_first = isinstance(content, dict)
        facts = convert_to(_MessageFacts, content if is_first else envelope.headers)
        args, kwargs, embed = _call(content)
        return _message(facts, args, kwargs, embed, envelope.properties)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.MsgspecError, binascii.Error, ValueError, TypeError, zlib.error) as error:
        raise UnreadableMessage(f"it is no message of Celery's: {error}") from None


def _content(envelope: _MessageEnvelope) -> Any:
    if envelope.content_type not in _JSON:
        raise UnreadableMessage(
            f"its body is {envelope.content_type or 'of no type'}; only JSON is read, and never pickle"
        )
    body = envelope.body.encode()
    if envelope.properties.get("body_encoding") == "base64":
        body = base64.b64decode(body, validate=True)
    unpacked = _unpack_body(body, envelope.headers.get("compression"))
    # Python's decoders may read more levels here than a worker can, which stands deeper in its stack.
    if is_too_deep(unpacked):
        raise _too_deep()
    return msgspec.json.decode(unpacked)


def _too_deep() -> UnreadableMessage:
    return UnreadableMessage(f"it is nested in more than {MOST_DEPTH} levels, and no worker could read it")


def _unpack_body(body: bytes, how: Any) -> bytes:
    if not how:
        return body
    if how not in _ZLIB:
        raise UnreadableMessage(f"its body is packed by {how}; gzip and zlib are read")
    # A small message could unpack to more than there is memory.
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    unpacked = unpacker.decompress(body, MOST)
    if unpacker.unconsumed_tail:
        raise UnreadableMessage(f"its body takes more than {MOST} bytes")
    return unpacked


def _call(content: Any) -> tuple[list[Any], dict[str, Any], Mapping[str, Any]]:
    if isinstance(content, dict):
        return convert_to(
            tuple[list[Any], dict[str, Any], dict[str, Any]],
            (content.get("args") or [], content.get("kwargs") or {}, content),
        )
    args, kwargs, embed = convert_to(tuple[list[Any], dict[str, Any], dict[str, Any] | None], content)
    return args, kwargs, embed or {}


def _message(
    facts: _MessageFacts,
    args: list[Any],
    kwargs: dict[str, Any],
    embed: Mapping[str, Any],
    properties: Mapping[str, Any],
) -> CeleryMessage:
    for part in ("chain", "chord", "callbacks", "errbacks"):
        if embed.get(part):
            raise UnreadableMessage(f"it has a {part}, which would be lost: let Celery's workers do it")
    hard, soft = facts.timelimit or (None, None)
    return CeleryMessage(
        facts.task,
        facts.id,
        args,
        kwargs,
        facts.retries or 0,
        convert_to(int, properties.get("priority") or 0),
        _moment(facts.eta),
        _moment(facts.expires),
        soft or hard,
    )


def _moment(text: str | None) -> int | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    # Celery writes UTC, in old versions without saying so.
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0, round(aware.timestamp() * SECOND))
