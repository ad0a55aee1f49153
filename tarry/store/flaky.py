"""A store that fails once, at the n-th call, for tests of code that has to survive that.

Run the same steps with n = 1, 2, 3 ... until `calls` stays below n: then every call has failed once.
"""

import threading
from abc import ABCMeta, update_abstractmethods
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from tarry.errors import StoreUnavailable
from tarry.store.rules.base import Store
from tarry.store.rules.flows import StoreFlows
from tarry.store.rules.history.gauges import QueueSample
from tarry.store.rules.history.history import TAKEN_AT_ONCE, JournalHistory, StoreHistory
from tarry.store.rules.waiting import WaitingCounts

Asked = ParamSpec("Asked")
T = TypeVar("T")
Flaky = TypeVar("Flaky", bound=type)


def _fail_verbs(base: ABCMeta, also: Collection[str] = (), silent: Collection[str] = ()) -> Callable[[Flaky], Flaky]:
    """Gives a class each abstract verb of its base, and those of `also`, as a call of the inner one that may fail.
    silent: these neither count nor fail."""

    def decorate(flaky: Flaky) -> Flaky:
        for name in {*base.__abstractmethods__, *also, *silent} - {*vars(flaky)}:
            setattr(flaky, name, _passed_verb(name, name not in silent))
        update_abstractmethods(flaky)
        return flaky

    return decorate


def _passed_verb(name: str, may_fail: bool) -> Callable[..., Any]:
    def verb(self: Any, *args: Any, **options: Any) -> Any:
        inner = getattr(self._inner, name)
        return self._call(inner, *args, **options) if may_fail else inner(*args, **options)

    verb.__name__ = name
    return verb


if TYPE_CHECKING:
    # Type checkers do not see the verbs that the decorator adds.
    _Store: TypeAlias = Any
    _Flows: TypeAlias = Any
    _History: TypeAlias = Any
    _Waiting: TypeAlias = Any
else:
    _Store, _Flows, _History, _Waiting = Store, StoreFlows, JournalHistory, WaitingCounts


@_fail_verbs(
    Store,
    also=(
        *("insert_within", "claim", "apply", "id_behind", "move_shares", "shares_of"),
        *("kv_get", "kv_count", "kv_page", "kv_read", "kv_write", "kv_within"),
    ),
    silent=("wakeup", "wake_for_recall", "new_id", "close"),
)
class FlakyStore(_Store):  # type: ignore[misc]
    """Passes all verbs to the inner store; call number `fail_at` raises StoreUnavailable, the others do not.

    after: False: nothing was done when it fails; True: it was done and only the reply is lost. Calls are counted from
    1, over all verbs that read or write jobs, queues and names; wake-ups, ids and closing neither count nor fail.
    """

    def __init__(self, store: Store, fail_at: int, after: bool) -> None:
        self.url = store.url
        self.calls = 0
        """How many calls were made up to now."""
        self._store = self._inner = store
        self._fail_at, self._after = fail_at, after
        self._lock = threading.Lock()
        self.history = FlakyHistory(store.history, self._call)
        self.flows = FlakyFlows(store.flows, self._call)
        self.waiting = FlakyWaiting(store.waiting, self._call)

    def _call(self, verb: Callable[Asked, T], *args: Asked.args, **kwargs: Asked.kwargs) -> T:
        with self._lock:
            # Under the lock: calls come from several threads, and exactly one must fail.
            self.calls += 1
            fails = self.calls == self._fail_at
        if fails and not self._after:
            raise StoreUnavailable(f"{self.url}: call {self._fail_at} was made to fail; send it again")
        answer = verb(*args, **kwargs)
        if fails:
            raise StoreUnavailable(f"{self.url}: the reply to call {self._fail_at} was lost; send it again")
        return answer


@_fail_verbs(StoreFlows, also=("insert_within", "add_nodes", "check_lanes"), silent=("new_id",))
class FlakyFlows(_Flows):  # type: ignore[misc]
    """The flows of the inner store; each part of a call that is made of several may fail by itself."""

    def __init__(self, flows: StoreFlows, call: Callable[..., Any]) -> None:
        self._inner, self._call = flows, call


@_fail_verbs(JournalHistory, also=("unsummed",))
class FlakyHistory(_History):  # type: ignore[misc]
    """Calls of the history of the inner store, each of which may fail. Of several stores' history, whole verbs do."""

    def __init__(self, history: StoreHistory, call: Callable[..., Any]) -> None:
        self._inner, self._call = history, call

    def sum_up(self, now: int, limit: int = TAKEN_AT_ONCE) -> int:
        if isinstance(self._inner, JournalHistory):
            return int(super().sum_up(now, limit))
        return int(self._call(self._inner.sum_up, now, limit))

    def sample(self, now: int, store: Any, read: Callable[[Any], Mapping[str, QueueSample]]) -> None:
        if isinstance(self._inner, JournalHistory):
            super().sample(now, store, read)
        else:
            self._call(self._inner.sample, now, store, read)


@_fail_verbs(WaitingCounts, also=("before",))
class FlakyWaiting(_Waiting):  # type: ignore[misc]
    """Counts of the waiting jobs of the inner store, each of which may fail."""

    def __init__(self, waiting: WaitingCounts, call: Callable[..., Any]) -> None:
        self._inner, self._call = waiting, call
