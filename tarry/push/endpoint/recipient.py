"""Who is told when something is wrong: a mail address, the URL of a webhook, or a channel of apprise."""

import re
from enum import StrEnum
from hashlib import blake2b

from msgspec import Struct

from tarry.push.endpoint.template import UrlTemplate
from tarry.push.rule.errors import SettingSyntaxError

MOST_TEXT = 2048
"""Characters of one."""

_MAIL = re.compile(r"[^\s@<>(),;:\"\\\[\]]{1,64}@[^\s@<>(),;:\"\\/\[\]]{1,255}")
_CHANNEL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://[^\s]+")


class RecipientKind(StrEnum):
    """How somebody is reached."""

    MAIL = "mail"
    WEBHOOK = "webhook"
    CHANNEL = "channel"


class Recipient(Struct, frozen=True):
    """One of them. `text` may be as good as a password: who knows it can write there."""

    text: str
    kind: RecipientKind

    @classmethod
    def parse(cls, text: str) -> "Recipient":
        """ValueError: it is nobody; the message does not repeat it."""
        if isinstance(text, str) and len(text) <= MOST_TEXT and text.isprintable() and (kind := _kind(text)):
            return cls(text, kind)
        raise ValueError('nobody; write "ops@example.org", or "https://host/path" for a webhook')

    @property
    def scheme(self) -> str:
        """Of a URL."""
        return self.text.partition("://")[0].lower()

    @property
    def shown(self) -> str:
        """For people."""
        if self.kind is RecipientKind.MAIL:
            return self.text
        start = UrlTemplate.parse(self.text).origin + "/" if self.kind is RecipientKind.WEBHOOK else f"{self.scheme}://"
        return f"{start}..."

    @property
    def id(self) -> str:
        """The same for all, and says nothing of what it stands for."""
        return blake2b(self.text.encode(), digest_size=8, person=b"tarry-alert").hexdigest()

    def __repr__(self) -> str:
        return f"<Recipient {self.shown}>"


def _kind(text: str) -> RecipientKind | None:
    if text.lower().startswith(("http://", "https://")):
        return RecipientKind.WEBHOOK if _is_fixed(text) else None
    if _MAIL.fullmatch(text):
        return RecipientKind.MAIL
    return RecipientKind.CHANNEL if _CHANNEL.fullmatch(text) else None


def _is_fixed(text: str) -> bool:
    try:
        return UrlTemplate.parse(text).fixed
    except SettingSyntaxError:
        return False
