"""Sends a message to any kind of recipient, and checks whether that is possible.

Channels of apprise, which knows a hundred kinds of them: Slack, Telegram, Matrix, PagerDuty, ...
"""

import contextlib
import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tarry.alert.alert_errors import SendError
from tarry.alert.alert_message import Message
from tarry.alert.alert_settings import NO_SMTP, AlertSettings
from tarry.alert.condition import clean_line
from tarry.config.config import Config
from tarry.errors import ConfigError, TarryError
from tarry.push.certificates import load_certificates
from tarry.push.endpoint.recipient import Recipient, RecipientKind
from tarry.push.http.address_guard import AddressGuard
from tarry.store.rules.base import Diagnostic

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
            send(to, message)

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
            open_channel(to)
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


MOST_LINES = 20


def open_channel(to: Recipient) -> Any:
    """Opens the channel; ConfigError if apprise is not installed or does not know the URL."""
    try:
        import apprise  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise ConfigError(f"channels need apprise: pip install 'tarry[alerts]' ({error})") from None
    with _capture_logs():
        channel = apprise.Apprise.instantiate(to.text, suppress_exceptions=True)
    if channel is None:
        raise ConfigError(f"{to.shown} is no channel that apprise knows; `apprise --details` lists them")
    return channel


def send(to: Recipient, message: Message) -> None:
    """Returns once the message is sent; raises SendError or ConfigError, with the reason, if it is not."""
    channel = open_channel(to)
    with _capture_logs() as lines:
        sent = channel.notify(body=message.text, title=message.subject, body_format="text")
    if not sent:
        raise SendError(f"{to.shown}: {clean_line(lines[-1], 200) if lines else 'apprise could not send it'}")


class _CaptureHandler(logging.Handler):
    """Collects the messages that apprise logs in this thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        # Other threads may send through apprise at the same time.
        if record.thread == self._thread and len(self.lines) < MOST_LINES:
            self.lines.append(record.getMessage())


@contextlib.contextmanager
def _capture_logs() -> Iterator[list[str]]:
    """Collects what apprise logs, and keeps it out of the log."""
    # The URLs in these lines hold secrets.
    logger, handler = logging.getLogger("apprise"), _CaptureHandler()
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
