"""Parses the part of [alerts] that `tarry.config.config` leaves sealed because it may hold secrets."""

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from tarry.alert.condition import clean_line
from tarry.config.config import Alerts, Config
from tarry.errors import ConfigError
from tarry.push.endpoint.fields import MOST_ALERTS, secret, secrets
from tarry.push.endpoint.recipient import Recipient, RecipientKind
from tarry.push.endpoint.secret import Secret

T = TypeVar("T")

MOST_CONSOLE = 500
"""Characters of the console's URL."""
NO_SMTP = 'for mails write smtp = "smtp://user:password@host:587", or "env:NAME", under [alerts]'


class AlertSettings(Struct, frozen=True):
    """The settings of [alerts], parsed; see `tarry.config.config.Alerts`."""

    alerts: Alerts
    to: tuple[Recipient, ...] = ()
    smtp: Secret | None = None
    secrets: tuple[Secret, ...] = ()

    @classmethod
    def of(cls, config: Config) -> "AlertSettings":
        """Parses them; ConfigError, with the place, for the first that is wrong. The error contains no secret."""
        alerts = config.alerts

        def read(key: str, reader: Callable[[], T]) -> T:
            try:
                return reader()
            except (ValueError, ConfigError) as error:
                raise ConfigError(f"{config.place('alerts', key)}: alerts.{key}: {error}") from None

        to = read("to", lambda: _recipients(alerts.to.value))
        signing = read("secret", lambda: secrets(alerts.secret.value, True)) if alerts.secret.value else ()
        # Only checked: the setting itself is used as it is.
        read("from", lambda: _sender(alerts.from_))
        read("console", lambda: _console(alerts.console))
        smtp = read("smtp", lambda: _smtp(alerts.smtp.value))
        if smtp is None and any(one.kind is RecipientKind.MAIL for one in to):
            raise ConfigError(f"{config.place('alerts', 'to')}: alerts.to has a mail address; {NO_SMTP}")
        return cls(alerts, to, smtp, signing)

    def allows(self, recipient: Recipient) -> bool:
        """Whether a task may name this recipient: of channels, only those with an allowed scheme."""
        return (
            recipient.kind is not RecipientKind.CHANNEL
            or recipient.scheme in self.alerts.channels
            or recipient in self.to
        )


def _recipients(value: Any) -> tuple[Recipient, ...]:
    found = value if isinstance(value, list) else [value]
    if len(found) > MOST_ALERTS:
        raise ValueError(f"{len(found)} recipients; at most {MOST_ALERTS}")
    return tuple(_recipient(number, one) for number, one in enumerate(found, 1))


def _recipient(number: int, value: Any) -> Recipient:
    try:
        return Recipient.parse(value)
    except ValueError as error:
        raise ValueError(f"number {number} is {error}") from None


def _sender(value: str) -> None:
    if value and Recipient.parse(value).kind is not RecipientKind.MAIL:
        raise ValueError("it is no mail address; write tarry@shop.example")


def _console(value: str) -> None:
    parts = urlsplit(value)
    is_plain = parts.netloc and not (parts.query or parts.fragment or "@" in parts.netloc)
    if value and not (parts.scheme in ("http", "https") and is_plain and clean_line(value, MOST_CONSOLE) == value):
        raise ValueError("it is not where a console is; write https://tarry.shop.example")


def _smtp(value: Any) -> Secret | None:
    from tarry.alert.mail import parse_server  # noqa: PLC0415 - most send no mail

    if value == "":
        return None
    found = secret(value)
    # Any other secret is read when it is used.
    if found.literal:
        parse_server(found.value())
    return found
