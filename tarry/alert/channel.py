"""Channels of apprise, which knows a hundred kinds of them: Slack, Telegram, Matrix, PagerDuty, ..."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from tarry.alert.condition import clean_line
from tarry.alert.errors import SendError
from tarry.alert.message import Message
from tarry.errors import ConfigError
from tarry.push.endpoint.recipient import Recipient

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
