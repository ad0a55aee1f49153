"""Webhooks: a POST of a JSON object, by the sender of push, within its guard."""

import asyncio
import time
from collections.abc import Sequence

from tarry.alert.message import Message
from tarry.alert.unsent import Unsent
from tarry.push.endpoint.secret import Secret
from tarry.push.http.failure import Failure
from tarry.push.http.guard import AddressGuard
from tarry.push.http.sender import HttpRequest, Sender, SendLimits
from tarry.push.sign import Signer

LIMITS = SendLimits(total=20.0, connect=5.0)


def send(url: str, message: Message, secrets: Sequence[Secret], guard: AddressGuard, trust: bytes = b"") -> None:
    """Returns when the answer is 2xx; Unsent, with why, if it is not. ConfigError: a secret is not where it should be.
    trust: certificates (PEM) besides the system's."""
    now = int(time.time())
    headers = [("content-type", "application/json"), ("webhook-id", message.id), ("webhook-timestamp", str(now))]
    if secrets:
        signer = Signer([one.value() for one in secrets])
        headers.append(("webhook-signature", signer.signature(message.id, now, message.json)))
    asyncio.run(_sent(HttpRequest("POST", url, tuple(headers), message.json), guard, trust))


async def _sent(request: HttpRequest, guard: AddressGuard, trust: bytes) -> None:
    sender = Sender(guard, trust)
    try:
        came = await sender.send(request, LIMITS)
    finally:
        await sender.close()
    if isinstance(came, Failure):
        raise Unsent(came.reason)
    if came.status not in range(200, 300):
        raise Unsent(f"it answered {came.status}")
