"""Values as Celery's JSON has them: what JSON does not know is `{"__type__": "datetime", "__value__": "..."}`.

The same form as kombu's, so that a job from Celery's broker is a job here without a change.
"""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

_PLAIN = (str, int, float, bool, type(None))
# datetime before date, since it is one, too.
_TO_TEXT: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (datetime, "datetime", datetime.isoformat),
    (date, "date", date.isoformat),
    (time, "time", time.isoformat),
    (Decimal, "decimal", str),
    (UUID, "uuid", lambda value: {"hex": value.hex}),
)
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": lambda text: datetime.fromisoformat(text).date(),
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": lambda parts: UUID(**parts),
    "bytes": lambda text: text.encode(),
    "base64": base64.b64decode,
}


def to_json(value: Any) -> Any:
    """The value of plain types alone; TypeError if it cannot be JSON, ValueError for nan and infinity."""
    if type(value) in _PLAIN:
        return _finite(value)
    if isinstance(value, Mapping):
        return {_key(key): to_json(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return _marked(value)


def _marked(value: Any) -> Any:
    for kind, name, encode in _TO_TEXT:
        if isinstance(value, kind):
            return {"__type__": name, "__value__": encode(value)}
    if isinstance(value, bytes):
        try:
            return {"__type__": "bytes", "__value__": value.decode()}
        except UnicodeDecodeError:
            return {"__type__": "base64", "__value__": base64.b64encode(value).decode()}
    return _subclass(value)


def _subclass(value: Any) -> Any:
    if hasattr(value, "__json__"):
        return to_json(value.__json__())
    # Enums of text and numbers, and text of Django that is translated late.
    for kind in (str, int, float):
        if isinstance(value, kind):
            return _finite(kind(getattr(value, "value", value)))
    if type(value).__module__.startswith("django.utils.functional"):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable: pass an id or plain data instead of {value!r}")


def _key(key: Any) -> str:
    """The key as Python's own JSON writes it."""
    if isinstance(key, str):
        return str(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int | float):
        return repr(key)
    raise TypeError(f"keys must be text or numbers, not {type(key).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("JSON has no nan and no infinity")
    return value


def from_json(value: Any) -> Any:
    """What `to_json` was given; a marker of a kind that is not known stays a dict."""
    if isinstance(value, list | tuple):
        return type(value)(from_json(each) for each in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {"__type__", "__value__"} and value["__type__"] in _FROM_TEXT:
        return _FROM_TEXT[value["__type__"]](value["__value__"])
    return {key: from_json(each) for key, each in value.items()}
