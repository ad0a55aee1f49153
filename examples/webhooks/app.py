"""What your product calls: `publish`."""

from collections.abc import Mapping
from typing import Any

from tarry import App

app = App()  # reads tarry.toml

SUBSCRIBERS: Mapping[str, frozenset[str]] = {
    "acme": frozenset({"order.paid", "order.shipped"}),
    "globex": frozenset({"order.paid"}),
}
"""Which events each wants; in your product a table."""


def publish(event: str, id: str, data: Mapping[str, Any]) -> list[str]:
    """One job for each subscriber who wants the event. Called twice with the same id, it is sent once."""
    body = {"type": event, "id": id, "data": dict(data)}
    wanting = [name for name, events in SUBSCRIBERS.items() if event in events]
    return [app.named(f"webhook.{name}").using(idempotency=id).enqueue(body).id for name in wanting]
