"""The settings of [alerts], read: what `tarry.config` leaves sealed, since it may hold secrets."""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from tarry.config import Alerts, Config
from tarry.errors import ConfigError
from tarry.push.endpoint.fields import MOST_ALERTS, secret, secrets
from tarry.push.endpoint.recipient import Kind, Recipient
from tarry.push.endpoint.secret import Secret

T = TypeVar("T")

NO_SMTP = 'for mails write smtp = "smtp://user:password@host:587", or "env:NAME", under [alerts]'


class Terms(Struct, frozen=True):
    """See `tarry.config.Alerts`."""

    alerts: Alerts
    to: tuple[Recipient, ...] = ()
    smtp: Secret | None = None
    secrets: tuple[Secret, ...] = ()

    @classmethod
    def of(cls, config: Config) -> "Terms":
        """ConfigError, with the place, for the first that is wrong; no secret is repeated."""
        alerts = config.alerts

        def read(key: str, reader: Callable[[], T]) -> T:
            try:
                return reader()
            except (ValueError, ConfigError) as error:
                raise ConfigError(f"{config.place('alerts', key)}: alerts.{key}: {error}") from None

        to = read("to", lambda: _recipients(alerts.to.value))
        signing = read("secret", lambda: secrets(alerts.secret.value, True)) if alerts.secret.value else ()
        read("from", lambda: _sender(alerts.from_))
        smtp = read("smtp", lambda: _smtp(alerts.smtp.value))
        if smtp is None and any(one.kind is Kind.MAIL for one in to):
            raise ConfigError(f"{config.place('alerts', 'to')}: alerts.to has a mail address; {NO_SMTP}")
        return cls(alerts, to, smtp, signing)

    def allows(self, recipient: Recipient) -> bool:
        """Whether a task may name it: channels only of the schemes that are allowed."""
        return recipient.kind is not Kind.CHANNEL or recipient.scheme in self.alerts.channels or recipient in self.to


def _recipients(written: Any) -> tuple[Recipient, ...]:
    found = written if isinstance(written, list) else [written]
    if len(found) > MOST_ALERTS:
        raise ValueError(f"{len(found)} recipients; at most {MOST_ALERTS}")
    return tuple(_recipient(number, one) for number, one in enumerate(found, 1))


def _recipient(number: int, written: Any) -> Recipient:
    try:
        return Recipient.parse(written)
    except ValueError as error:
        raise ValueError(f"number {number} is {error}") from None


def _sender(written: str) -> None:
    if written and Recipient.parse(written).kind is not Kind.MAIL:
        raise ValueError("it is no mail address; write tarry@shop.example")


def _smtp(written: Any) -> Secret | None:
    from tarry.alert.mail import server  # noqa: PLC0415 - most send no mail

    if written == "":
        return None
    found = secret(written)
    if found.literal:
        server(found.value())
    return found
