"""Sends a message to any kind of recipient, and checks whether that is possible."""

import socket
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tarry.alert.errors import SendError
from tarry.alert.message import Message
from tarry.alert.settings import NO_SMTP, AlertSettings
from tarry.config.config import Config
from tarry.errors import ConfigError, TarryError
from tarry.push.certificates import load_certificates
from tarry.push.endpoint.recipient import Recipient, RecipientKind
from tarry.push.http.guard import AddressGuard
from tarry.store.base import Diagnostic

if TYPE_CHECKING:
    from tarry.alert.mail import MailServer


class AlertSender:
    """Called with a recipient and a message, sends the message; SendError, ConfigError.

    It imports what a kind of recipient needs when it first sends to one.
    """

    def __init__(self, settings: AlertSettings, config: Config) -> None:
        self._settings, self._config = settings, config
        self._guard = AddressGuard(config.push.allow)

    def __call__(self, to: Recipient, message: Message) -> None:
        if not self._settings.allows(to):
            raise ConfigError(_not_allowed(to))
        if to.kind is RecipientKind.MAIL:
            self._mail(to, message)
        elif to.kind is RecipientKind.WEBHOOK:
            self._webhook(to, message)
        else:
            from tarry.alert import channel  # noqa: PLC0415

            channel.send(to, message)

    def check(self, recipients: Iterable[Recipient]) -> Iterator[Diagnostic]:
        """Yields a fact for each recipient, for `tarry check`; sends no message."""
        # Several tasks may name the same recipient.
        found = list(dict.fromkeys(recipients))
        for one in found:
            try:
                self._check(one)
            except TarryError as error:
                yield Diagnostic(f"alerts to {one.shown}", "cannot be sent", str(error))
            else:
                yield Diagnostic(
                    f"alerts to {one.shown}", "can be sent" if one.kind is RecipientKind.MAIL else "can be tried"
                )

    def _mail(self, to: Recipient, message: Message) -> None:
        from tarry.alert import mail  # noqa: PLC0415

        host = socket.gethostname()
        letter = mail.build_mail(message, self._settings.alerts.from_ or mail.default_sender(host), to.text, host)
        mail.send(self._server(), letter)

    def _server(self) -> "MailServer":
        from tarry.alert import mail  # noqa: PLC0415

        if self._settings.smtp is None:
            raise ConfigError(NO_SMTP)
        return mail.parse_server(self._settings.smtp.value())

    def _webhook(self, to: Recipient, message: Message) -> None:
        try:
            from tarry.alert import webhook  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(f"webhooks need the extra push: pip install 'tarry[push]' ({error})") from None
        webhook.send(to.text, message, self._settings.secrets, self._guard, load_certificates(self._config))

    def _check(self, to: Recipient) -> None:
        if not self._settings.allows(to):
            raise ConfigError(_not_allowed(to))
        if to.kind is RecipientKind.MAIL:
            from tarry.alert import mail  # noqa: PLC0415

            mail.check_server(self._server())
        elif to.kind is RecipientKind.CHANNEL:
            from tarry.alert import channel  # noqa: PLC0415

            channel.open_channel(to)
        else:
            self._check_webhook(to)

    def _check_webhook(self, to: Recipient) -> None:
        from tarry.push.http.target import parse_target  # noqa: PLC0415

        try:
            parsed = parse_target(to.text)
        except ValueError as error:
            raise SendError(str(error)) from None
        for secret in self._settings.secrets:
            # It may name a variable or a file that is missing.
            secret.value()
        if parsed.literal:
            self._guard.check(parsed.host, parsed.host, parsed.port)


def _not_allowed(to: Recipient) -> str:
    return f'{to.shown}: a task may name it only with channels = ["{to.scheme}"] under [alerts]'
