"""What people see in place of values that may be secret, and which value that stands for when it is sent back.

Whoever reads the settings of a task, changes one and sends all of them back keeps the hidden ones: `***` in a header or
secret, `?...` at the end of the url, `https://host/...` among the recipients of alerts.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarry.config.kinds import PLACE
from tarry.push.endpoint.recipient import Recipient

HIDDEN = "***"
HIDDEN_QUERY = "?..."
HIDDEN_REST = "..."
_NUMBERED = re.compile(r"\*\*\*(\d{0,3})")

Settings = Mapping[str, Any]


class NothingKeptError(ValueError):
    """A text stands for a hidden value, and there is none. field: the setting."""

    def __init__(self, field: str, shown: str) -> None:
        super().__init__(f"{shown} stands for a value that is kept, and there is none; write the value itself")
        self.field = field


def hide(written: Any) -> Any:
    """The value without what may be secret: a place (`env:NAME`) reveals nothing, the value itself does."""
    if isinstance(written, dict):
        return {name: hide(value) for name, value in written.items()}
    if isinstance(written, list):
        return [hide(value) for value in written]
    return written if PLACE.fullmatch(str(written)) else HIDDEN


def secrets_of(settings: Settings) -> list[str]:
    """The secrets of these settings, as written or as shown, newest first."""
    found = settings.get("secrets", settings.get("secret", []))
    return found if isinstance(found, list) else [found]


def restore_hidden(changes: Settings, before: Settings) -> dict[str, Any]:
    """The changes, with the value of `before` wherever one is sent as it is shown; NothingKeptError."""
    return {
        key: value if value is None or key not in _RESTORERS else _RESTORERS[key](key, value, before)
        for key, value in changes.items()
    }


def kept_values(changes: Settings, before: Settings, after: Settings) -> Iterator[tuple[str, str]]:
    """The values of `before` that `after` sends or signs with, and that nobody wrote in these changes, hidden ones and
    places alike: the setting of each, and what to call it."""
    given = {name.lower(): text for name, text in _dict(changes.get("headers")).items()}
    stays = {name.lower(): text for name, text in _dict(after.get("headers")).items()}
    for name, text in _dict(before.get("headers")).items():
        low = name.lower()
        if stays.get(low) == text and given.get(low) != text:
            yield "headers", f"the header {name[:80]}"
    for text in secrets_of(before):
        if text in secrets_of(after) and text not in secrets_of(changes):
            yield "secret", "the secret"
    if str(changes.get("url", "")).endswith(HIDDEN_QUERY):
        yield "url", "what follows the question mark of the url"


def places_of(settings: Settings) -> set[tuple[str, str, str]]:
    """The places (`env:NAME`) in these settings: the setting of each, the header in small letters, and the place."""
    found = {("headers", name.lower(), text) for name, text in _dict(settings.get("headers")).items()}
    found |= {("secret", "", text) for text in secrets_of(settings)}
    return {one for one in found if PLACE.fullmatch(one[2])}


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _restore_url(key: str, value: Any, before: Settings) -> Any:
    if not isinstance(value, str) or not value.endswith(HIDDEN_QUERY):
        return value
    _, mark, query = str(before.get("url", "")).partition("?")
    if not mark:
        raise NothingKeptError(key, HIDDEN_QUERY)
    return value.removesuffix(HIDDEN_QUERY) + mark + query


def _restore_headers(key: str, value: Any, before: Settings) -> Any:
    if not isinstance(value, dict):
        return value
    kept = {name.lower(): text for name, text in before.get("headers", {}).items()}
    for name, text in value.items():
        if text == HIDDEN and name.lower() not in kept:
            raise NothingKeptError(key, f"{name[:80]}: {HIDDEN}")
    return {name: kept[name.lower()] if text == HIDDEN else text for name, text in value.items()}


def _restore_secrets(key: str, value: Any, before: Settings) -> Any:
    """`***2` is the second secret; `***` is the first one that is hidden, and the next `***` the next one."""
    kept = secrets_of(before)
    hidden = iter([text for text in kept if hide(text) == HIDDEN])

    def restore(text: Any) -> Any:
        found = _NUMBERED.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            return text
        numbered = kept[int(found[1]) - 1 :][:1] if int(found[1] or 0) else []
        stored = numbered[0] if numbered else None if found[1] else next(hidden, None)
        if stored is None:
            raise NothingKeptError(key, text)
        return stored

    return [restore(text) for text in value] if isinstance(value, list) else restore(value)


def _restore_alert(key: str, value: Any, before: Settings) -> Any:
    found = before.get("alert", [])
    kept: dict[str, list[str]] = {}
    for text in found if isinstance(found, list) else [found]:
        kept.setdefault(Recipient.parse(text).shown, []).append(text)

    def restore(text: Any) -> Any:
        if not isinstance(text, str) or not text.endswith(f"/{HIDDEN_REST}"):
            return text
        if not kept.get(text):
            raise NothingKeptError(key, text)
        return kept[text].pop(0)

    return [restore(text) for text in value] if isinstance(value, list) else restore(value)


_RESTORERS: Mapping[str, Callable[[str, Any, Settings], Any]] = {
    "url": _restore_url,
    "headers": _restore_headers,
    "secret": _restore_secrets,
    "secrets": _restore_secrets,
    "alert": _restore_alert,
}
