"""A store that kills its own process at the n-th call, for tests of what other processes then make of it."""

import os
import signal
from collections.abc import Callable

from tarry.store.flaky import Asked, FlakyStore, T


class KillingStore(FlakyStore):
    """As `FlakyStore`, but call number `fail_at` ends the process by SIGKILL. after: once it was done, so that only the
    reply is lost; else before anything was done. fail_at 0: it never does."""

    def _call(self, verb: Callable[Asked, T], *args: Asked.args, **kwargs: Asked.kwargs) -> T:
        with self._lock:
            self.calls += 1
            is_last = self.calls == self._fail_at
        if is_last and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = verb(*args, **kwargs)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
