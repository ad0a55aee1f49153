"""A recipient of alerts: a mail address, the URL of a webhook, or a channel of apprise."""

import re
from enum import StrEnum
from hashlib import blake2b

from msgspec import Struct

from tarry.push.endpoint.template import UrlTemplate
from tarry.push.rule.rule_errors import SettingSyntaxError

MOST_TEXT = 2048
"""Characters of a recipient."""

_MAIL = re.compile(r"[^\s@<>(),;:\"\\\[\]]{1,64}@[^\s@<>(),;:\"\\/\[\]]{1,255}")
_CHANNEL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://[^\s]+")


class RecipientKind(StrEnum):
    """How a recipient is reached."""

    MAIL = "mail"
    WEBHOOK = "webhook"
    CHANNEL = "channel"


class Recipient(Struct, frozen=True):
    """A recipient. `text` may be a secret: anybody who knows the URL of a webhook can post there."""

    text: str
    kind: RecipientKind

    @classmethod
    def parse(cls, text: str) -> "Recipient":
        """The recipient of this text; ValueError, without repeating it, if it is none."""
        if isinstance(text, str) and len(text) <= MOST_TEXT and text.isprintable() and (kind := _kind(text)):
            return cls(text, kind)
        raise ValueError('nobody; write "ops@example.org", or "https://host/path" for a webhook')

    @property
    def scheme(self) -> str:
        """The scheme of a URL."""
        return self.text.partition("://")[0].lower()

    @property
    def shown(self) -> str:
        """The text for people, without secrets."""
        if self.kind is RecipientKind.MAIL:
            return self.text
        # Without the path of a webhook, and without all that follows the scheme of a channel: these may be secret.
        start = UrlTemplate.parse(self.text).origin + "/" if self.kind is RecipientKind.WEBHOOK else f"{self.scheme}://"
        return f"{start}..."

    @property
    def id(self) -> str:
        """A stable id that does not reveal the text."""
        return blake2b(self.text.encode(), digest_size=8, person=b"tarry-alert").hexdigest()

    def __repr__(self) -> str:
        return f"<Recipient {self.shown}>"


def _kind(text: str) -> RecipientKind | None:
    # First, since such a URL looks like a channel too.
    if text.lower().startswith(("http://", "https://")):
        return RecipientKind.WEBHOOK if _is_fixed(text) else None
    if _MAIL.fullmatch(text):
        return RecipientKind.MAIL
    return RecipientKind.CHANNEL if _CHANNEL.fullmatch(text) else None


def _is_fixed(text: str) -> bool:
    try:
        return UrlTemplate.parse(text).is_fixed
    except SettingSyntaxError:
        return False
