"""Channels of apprise, which knows a hundred kinds of them: Slack, Telegram, Matrix, PagerDuty, ..."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from tarry.alert.condition import plain
from tarry.alert.errors import Unsent
from tarry.alert.message import Message
from tarry.errors import ConfigError
from tarry.push.endpoint.recipient import Recipient

MOST_SAID = 20


def opened(to: Recipient) -> Any:
    """The channel; ConfigError if apprise is not there, or knows none such."""
    try:
        import apprise  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise ConfigError(f"channels need apprise: pip install 'tarry[alerts]' ({error})") from None
    with _hushed():
        found = apprise.Apprise.instantiate(to.text, suppress_exceptions=True)
    if found is None:
        raise ConfigError(f"{to.shown} is no channel that apprise knows; `apprise --details` lists them")
    return found


def send(to: Recipient, message: Message) -> None:
    """Returns when it is sent; Unsent or ConfigError, with why, if it is not."""
    channel = opened(to)
    with _hushed() as said:
        done = channel.notify(body=message.text, title=message.subject, body_format="text")
    if not done:
        raise Unsent(f"{to.shown}: {plain(said[-1], 200) if said else 'apprise could not send it'}")


class _Ear(logging.Handler):
    """Hears what apprise says in this thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and len(self.said) < MOST_SAID:
            self.said.append(record.getMessage())


@contextlib.contextmanager
def _hushed() -> Iterator[list[str]]:
    """What apprise says goes to us and nobody else: its URLs hold secrets."""
    logger, ear = logging.getLogger("apprise"), _Ear()
    logger.propagate = False
    logger.addHandler(ear)
    try:
        yield ear.said
    finally:
        logger.removeHandler(ear)
