"""Brings jobs to the shard where they belong, after one was added or while one is drained.

At no moment can a job be claimed in both places, whenever this is broken off: it is parked at the old place (see
`model.moving`), copied to the new one as it is, forgotten at the old one, and only then made what it was. To be run
again is all that it needs, and it goes on from wherever it was.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from tarry.errors import StoreBusy
from tarry.model import moving
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.store.base import Query, Store
from tarry.store.shards.sharded import ShardedStore

PAGE = 500
HOLD = "shards:move"
_HELD_FOR = 60 * SECOND


class Moved(Struct):
    """What a move came to."""

    seen: int = 0
    """How many jobs were looked at."""
    moved: int = 0
    running: int = 0
    """Left where they are, since they run: to be moved once they do not."""
    held: int = 0
    """Left where they are, since another job holds their key where they belong."""
    away: list[str] = []
    """Stores that could not be asked, and why."""

    @property
    def left(self) -> int:
        """How many are not where they belong yet, as far as is known."""
        return self.running + self.held


class Mover:
    """Moves what the shards of one store have that belongs on another of them."""

    def __init__(self, store: ShardedStore, owner: str) -> None:
        self._store = store
        self._owner = owner

    def run(self, told: Callable[[Moved], None] = lambda moved: None) -> Moved:
        """Looks at every job once; `told` how far it is, page by page. StoreBusy while another move is going on;
        other StoreErrors, and then it is to be run again."""
        moved = Moved(away=[f"{shard.url} is away: {shard.away}" for shard in self._store.shards if shard.away])
        for number, shard in enumerate(self._store.shards):
            if shard.away:
                continue
            for page in self._pages(shard.store):
                self._home(number, page)
                self._move(number, page, moved)
                told(moved)
            self._move_cells(number)
        now = self._store.time()
        self._store.hold(HOLD, self._owner, now, now)
        return moved

    def _pages(self, store: Store) -> Iterator[list[Job]]:
        after = b""
        while True:
            now = self._store.time()
            if not self._store.hold(HOLD, self._owner, now + _HELD_FOR, now):
                raise StoreBusy("jobs are being moved between the stores already; wait for that to end")
            page = store.find(Query(after=after, limit=PAGE))
            if not page:
                return
            yield page
            after = page[-1].id

    def _home(self, number: int, page: Sequence[Job]) -> None:
        """Those that are where they belong, but were left parked there: all that lacks is the end of their move."""
        parked = [job for job in page if moving.is_parked(job) and self._store.belongs(job) == number]
        others = [n for n in range(len(self._store.shards)) if n != number]
        # One that is away may have them still: then this is for the next time.
        if not parked or any(self._store.shards[other].away for other in others):
            return
        elsewhere: set[bytes] = set()
        for other in others:
            olds = self._store.shards[other].ask(lambda store: store.get([job.id for job in parked]))
            found = [job for job in olds if job is not None]
            elsewhere |= {job.id for job in found if not moving.is_parked(job)}
            self._make(other, [moving.gone(job) for job in found if moving.is_parked(job)])
        self._make(number, [moving.gone(job) if job.id in elsewhere else moving.restored(job) for job in parked])

    def _move(self, number: int, page: Sequence[Job], moved: Moved) -> None:
        moved.seen += len(page)
        places = {job.id: self._store.belongs(job) for job in page}
        strays = [job for job in page if places[job.id] != number]
        moved.running += sum(job.state is State.RUNNING for job in strays)
        ready = [job for job in strays if job.state is not State.RUNNING and self._store.shards[places[job.id]].takes]
        self._make(number, [moving.parked(job) for job in ready if not moving.is_parked(job)])
        found = self._store.shards[number].ask(lambda store: store.get([job.id for job in ready]))
        targets: dict[int, list[Job]] = {}
        for job in found:
            if job is not None and moving.is_parked(job):
                targets.setdefault(places[job.id], []).append(job)
        for target, jobs in targets.items():
            self._bring(number, target, jobs, moved)

    def _bring(self, number: int, target: int, jobs: Sequence[Job], moved: Moved) -> None:
        """From its old place, where they are parked, to the new one."""
        lives = self._store.shards[target].ask(lambda store: store.insert(jobs))
        came = [job for job, id in zip(jobs, lives, strict=True) if id == job.id]
        stayed = [job for job, id in zip(jobs, lives, strict=True) if id != job.id]
        self._make(number, [moving.restored(job) for job in stayed])
        moved.held += len(stayed)
        left = self._make(number, [moving.gone(job) for job in came])
        # What changed at the old place at the last moment stays there, and its copy goes.
        ends = [moving.restored(job) if gone else moving.gone(job) for job, gone in zip(came, left, strict=True)]
        self._make(target, ends)
        moved.moved += sum(left)

    def _make(self, number: int, changes: Sequence[Change]) -> list[bool]:
        now = self._store.time()
        return self._store.shards[number].ask(lambda store: store.apply(changes, now)) if changes else []

    def _move_cells(self, number: int) -> None:
        """Named values: first there, then no longer here."""
        here = self._store.shards[number]
        for name, value in here.ask(lambda store: store.cells("")).items():
            home = self._store.shards[self._store.shard(name.encode())]
            if home is not here:
                home.ask(lambda store: store.write(name, value, None))  # noqa: B023
                here.ask(lambda store: store.write(name, None, value))  # noqa: B023
