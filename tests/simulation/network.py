"""The way of one process to the store. Each call takes time, and may be refused, lose its answer, or be made late."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from tarry.errors import StoreAway, StoreBusy, StoreError, StoreUnavailable
from tarry.model.duration import SECOND
from tarry.store.flaky import FlakyStore
from tarry.store.rules.base import Exchange, NextClaim, Store
from tarry.store.rules.sleeper import Wakeup
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.processes import Process

Asked = ParamSpec("Asked")
T = TypeVar("T")

REFUSED, LOST, LATE, TWICE, SLOW, DEADLY = "refused", "lost", "late", "twice", "slow", "deadly"
CHANCES = {REFUSED: 0.01, LOST: 0.01, LATE: 0.005, TWICE: 0.003, SLOW: 0.02, DEADLY: 0.001}
"""Of each call, while the weather is fair. Of a deadly one the process dies at some moment of the call."""
STORM = 12
"""How many times as often in a storm."""
FOCUSED = 8
"""How many times as often where only one verb fails."""
EARLY = "early"
"""In place of the verb: a claim at the end of a sleep."""
MOST_LATE = 90.0
"""Seconds after which the server carries out the last of the late calls."""
_BRINGS_WORK = frozenset({"insert", "insert_bounded", "exchange", "apply", "wake_for_recall"})
_READS = frozenset({"time", "get", "find", "counts", "queues", "limits", "owners", "kv_list", "kv_get", "reclaim"})


class Server:
    """The one store behind all networks, and who looks at what it did."""

    def __init__(self, world: World, store: Store) -> None:
        self.world, self.store = world, store
        self._chances = {fate: chance * world.one_of(fate, 0.3, 1, 1, 5) for fate, chance in CHANCES.items()}
        """In this run."""
        self.focus = world.one_of("focus", "", "", "", "exchange", "insert", "extend", "save_progress", EARLY)
        """In this run only calls of this verb fail, and often; empty: all do."""
        self.is_whole = False
        """No fault happens any more."""
        self.away_until = 0
        """Until when nobody can reach it."""
        self.storms: list[tuple[int, int]] = []
        self.watch: Callable[[str, str, Sequence[Any], Any], None] = lambda caller, verb, asked, answer: None
        self.wake: Callable[[], None] = lambda: None
        self.kill: Callable[[Process, str], None] = lambda process, name: None

    def chance(self, fate: str, verb: str) -> float:
        """That this becomes of a call now."""
        focus = 1 if not self.focus else FOCUSED if self.focus == verb else 0
        is_stormy = fate != DEADLY and any(begin <= self.world.now < end for begin, end in self.storms)
        return min(0.2, self._chances[fate] * focus * (STORM if is_stormy else 1))

    def serve(self, caller: str, verb: Callable[..., T], args: Sequence[Any], options: Any) -> T:
        """Carries out the call now."""
        answer = verb(*args, **options)
        name = verb.__name__
        if name not in _READS:
            self.watch(caller, name, args, answer)
            if name in _BRINGS_WORK and (name != "exchange" or args[0]):
                self.wake()
        return answer


class SimulatedWakeup(Wakeup):
    """The sleeper of a simulated process: its wake-ups are events of the world."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def listen(self, topic: str) -> None: ...

    def ignore(self) -> None: ...

    def is_listening(self) -> bool:
        return True

    def clear(self) -> bytes:
        return b""

    def wait(self, seconds: float, also: Sequence[int] = ()) -> bytes:
        return b""

    def sleep(self, seconds: float, also: Sequence[int] = ()) -> bytes:
        return b""

    def wake(self) -> None:
        self._wake()

    def close(self) -> None: ...


class SimulatedStore(FlakyStore):
    """The store, as one process sees it."""

    def __init__(self, server: Server, process: "Process") -> None:
        super().__init__(server.store, 0, after=False)
        self._server, self._process, self._world = server, process, server.world
        self._is_early = False

    def wakeup(self) -> Wakeup:
        return SimulatedWakeup(self._process.wake)

    def worker_wakeup(self) -> Wakeup:
        return self.wakeup()

    def sleep_and_claim(self, wakeup: Wakeup, seconds: float, also: Sequence[int], claim: NextClaim) -> Exchange | None:
        """The claim at the end of a sleep, as Redis makes it. The sleep itself is an event of the world."""
        self._is_early = True
        try:
            now = self._store.time()
            return self.exchange((), claim.wants, claim.limit, claim.owner, claim.lease, now)  # type: ignore[no-any-return]
        finally:
            self._is_early = False

    def _call(self, verb: Callable[Asked, T], *args: Asked.args, **kwargs: Asked.kwargs) -> T:
        self.calls += 1
        name = f"{self._process.name}.{self.calls}"
        name_of_verb = EARLY if self._is_early else verb.__name__
        fate = self._fate(name, name_of_verb)
        if fate in (LATE, TWICE) and name_of_verb == "save_progress":
            rows: Any = args[1]
            self._process.ledger.saved_late.update(id for id, _, _ in rows)

        def serve() -> T:
            return self._server.serve(self._process.name, verb, args, kwargs)

        if fate == DEADLY:
            pause = self._world.between(f"dies:{name}", 0.0, 2 * self._process.host.trip)
            self._world.after(pause, None, lambda: self._server.kill(self._process, name))
        if fate in (REFUSED, LATE):
            self._fail_before(name, fate, serve)
        self._world.wait(self._trip(name, "there", fate))
        answer = serve()
        if fate == TWICE:
            self._serve_later(name, serve)
        self._world.wait(self._trip(name, "back", fate))
        if fate:
            self._process.troubled_at = max(self._process.troubled_at, self._world.now)
        if fate in (LOST, TWICE):
            raise self._error(name, "the reply was lost")
        return answer

    def _fate(self, name: str, verb: str) -> str:
        """What becomes of this call."""
        world, process = self._world, self._process
        if self._server.is_whole:
            return ""
        if world.now < self._server.away_until:
            return self._note(name, verb, REFUSED)
        for begin, end, fate in process.cuts:
            if begin <= world.now < end:
                return self._note(name, verb, fate)
        left = world.draw(f"fate:{name}")
        for fate in CHANCES:
            left -= self._server.chance(fate, verb)
            if left < 0:
                return self._note(name, verb, fate) if world.keeps(f"{fate}:{name}") else ""
        return ""

    def _note(self, name: str, verb: str, fate: str) -> str:
        self._world.note(f"{name} {verb}: {fate}")
        self._process.troubled_at = max(self._process.troubled_at, self._world.now)
        return fate

    def _trip(self, name: str, way: str, fate: str) -> float:
        """Seconds that the call takes on this way."""
        if fate == SLOW:
            return self._world.between(f"{way}:{name}", 0.05, 4.0)
        if fate in (LOST, TWICE) and way == "back":
            return self._world.between(f"{way}:{name}", 0.01, 5.0)
        return self._world.between(f"{way}:{name}", 0.0001, self._process.host.trip)

    def _fail_before(self, name: str, fate: str, serve: Callable[[], object]) -> NoReturn:
        if fate == LATE:
            self._serve_later(name, serve)
        self._world.wait(self._world.between(f"timeout:{name}", 0.001, 3.0))
        if fate == LATE:
            raise self._error(name, "no answer in time")
        raise StoreAway("simulated: the store cannot be reached; nothing was sent")

    def _serve_later(self, name: str, serve: Callable[[], object]) -> None:
        # Mostly soon, rarely very late.
        seconds = MOST_LATE * self._world.draw(f"when:{name}") ** 4

        def serve_late() -> None:
            self._world.note(f"{name} is carried out late")
            # Who lost the reply looks for what it claimed, each time after twice the pause.
            late = self._world.now + round(seconds * SECOND)
            self._process.troubled_at = max(self._process.troubled_at, late)
            try:
                serve()
            except StoreError as error:
                self._world.note(f"{name} late: {error}")

        self._world.after(seconds, None, serve_late)

    def _error(self, name: str, text: str) -> StoreError:
        kind = StoreBusy if self._world.draw(f"kind:{name}") < 0.2 else StoreUnavailable
        return kind(f"simulated: {text}")
