"""Webhooks: a POST of a JSON object, sent by the HTTP sender of push under its guard."""

import asyncio
import time
from collections.abc import Sequence

from tarry.alert.alert_errors import SendError
from tarry.alert.alert_message import Message
from tarry.push.endpoint.secret import Secret
from tarry.push.http.address_guard import AddressGuard
from tarry.push.http.failure import Failure
from tarry.push.http.http_sender import HttpRequest, Sender, SendLimits
from tarry.push.http.sign import Signer

LIMITS = SendLimits(total=20.0, connect=5.0)


def send(url: str, message: Message, secrets: Sequence[Secret], guard: AddressGuard, trust: bytes = b"") -> None:
    """Returns once the answer is 2xx; raises SendError, with the reason, if it is not, ConfigError if a secret cannot
    be read. trust: certificates (PEM) that are trusted besides the system's."""
    now = int(time.time())
    # By the id, a receiver knows a message that is sent again.
    headers = [("content-type", "application/json"), ("webhook-id", message.id), ("webhook-timestamp", str(now))]
    if secrets:
        signer = Signer([one.value() for one in secrets])
        headers.append(("webhook-signature", signer.signature(message.id, now, message.json)))
    # Each message is sent in a thread of its own, so it may have an event loop of its own.
    asyncio.run(_send(HttpRequest("POST", url, tuple(headers), message.json), guard, trust))


async def _send(request: HttpRequest, guard: AddressGuard, trust: bytes) -> None:
    sender = Sender(guard, trust)
    try:
        answer = await sender.send(request, LIMITS)
    finally:
        await sender.close()
    if isinstance(answer, Failure):
        raise SendError(answer.reason)
    if answer.status not in range(200, 300):
        raise SendError(f"it answered {answer.status}")
