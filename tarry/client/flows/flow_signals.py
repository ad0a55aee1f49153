"""What an app has for signals: `signal`, for tasks that wait by `wait_for`."""

import hashlib
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tarry.client.acting import current_actor
from tarry.client.flows.approvals import decide, find_approvals
from tarry.model.duration import Duration, microseconds
from tarry.model.flow.signal import MOST_VALUE, Signal
from tarry.tasks.arguments import json_values
from tarry.tasks.durable.durable_waits import Approval, check_address
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.shield import shielded

if TYPE_CHECKING:
    from tarry.client.client import Client

KEEP: Duration = "30d"
"""How long a signal is kept for tasks that wait for it later."""
_ID_BYTES = 16


class SignalSender(ABC):
    """Sends signals to tasks."""

    @property
    @abstractmethod
    def client(self) -> "Client":
        """Has the store."""

    def signal(self, name: str, *, key: str, value: Any = None, id: str | None = None, keep: Duration = KEEP) -> int:
        """Tells those tasks that wait, or will wait, by `wait_for(name, key=key)`; returns how many jobs it woke.

        value: JSON of up to 64 KB. id: the same one sent twice to this name and key is one signal. keep: how long it is
        kept for tasks that wait for it later; of one name and key the last 100 are kept. Use a key that does not come
        again, such as the number of an order: a new job would find the signal for an old one.

        ValueError for a name, key or value that is too large or cannot be JSON; StoreError. Of several shards each gets
        it: PartlyUnavailable if one is away; then send it again, with the same id.
        """
        signal = self._make_signal(name, key, value, id, keep)
        with shielded:
            return self.client.store.flows.signal(signal, self.client.clock.now())

    async def asignal(
        self, name: str, *, key: str, value: Any = None, id: str | None = None, keep: Duration = KEEP
    ) -> int:
        """The same, awaited."""
        signal = self._make_signal(name, key, value, id, keep)
        client = await asyncio.to_thread(lambda: self.client)
        return await asyncio.to_thread(client.store.flows.signal, signal, client.clock.now())

    def approve(self, question: str, *, key: str, by: str = "", note: str = "", ok: bool = True) -> int:
        """Decides what tasks ask by `approve(question, key=key)`; returns how many jobs it woke. ok=False: refuses it.

        by: who decided; default: the user of the current request or command. note: what the task is told besides.
        JobNotFound if no job waits for it; NotPossible if somebody else decides first; ValueError if the note is too
        long; StoreError.
        """
        decision = Approval(ok, by or current_actor().name, note)
        with shielded:
            store, clock = self.client.store, self.client.clock
            return decide(store, clock, find_approvals(store, key, question), decision)

    async def aapprove(self, question: str, *, key: str, by: str = "", note: str = "", ok: bool = True) -> int:
        """The same, awaited."""
        return await asyncio.to_thread(self.approve, question, key=key, by=by, note=note, ok=ok)

    def _make_signal(self, name: str, key: str, value: Any, id: str | None, keep: Duration) -> Signal:
        return make_signal(self.client.clock.now(), name, key, value, id, keep)


def make_signal(now: int, name: str, key: str, value: Any, id: str | None = None, keep: Duration = KEEP) -> Signal:
    """A signal as it is stored. now: microseconds since the epoch. ValueError as `SignalSender.signal`."""
    check_address(name, key)
    try:
        encoded = json_values.encode(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the value of signal {name!r} cannot be kept as JSON: {error}") from None
    if len(encoded) > MOST_VALUE:
        raise ValueError(f"the value of signal {name!r} has {len(encoded):,} bytes; {MOST_VALUE:,} can be kept")
    number = os.urandom(_ID_BYTES) if id is None else hashlib.blake2b(id.encode(), digest_size=_ID_BYTES).digest()
    return Signal(name, key, number, encoded, now + microseconds(keep, "keep"))
