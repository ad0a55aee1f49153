"""Whether a request is tarry's: a signature by Standard Webhooks 1.0.0. To copy; its libraries do the same."""

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping

TOLERANCE = 300
"""Seconds between signing and arrival; older ones may be replays."""


def genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """secret: `whsec_...`, as the task has it. headers: names in lower case. body: as it came, before any parsing."""
    id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > TOLERANCE:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    expected = b"v1," + base64.b64encode(mac)
    # There may be several, while secrets are changed.
    signatures = headers.get("webhook-signature", "").encode().split()
    return any(hmac.compare_digest(expected, signature) for signature in signatures)
