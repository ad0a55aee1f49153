"""Brings jobs to the shard where they belong, after one was added or while one is drained.

A job can never be claimed in both places, wherever a move breaks off: the job is parked at the old place (see
`model.moving`), copied as it is to the new place, forgotten at the old place, and only then restored. A move that broke
off is simply run again; it goes on from where it was.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from tarry.errors import StoreBusy
from tarry.model import moving
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import is_node
from tarry.model.job import Job, State
from tarry.store.rules import kept_places, key_limits
from tarry.store.rules.base import Query, Store
from tarry.store.shards.answers import present
from tarry.store.shards.identity import CELL
from tarry.store.shards.sharded import ShardedStore

PAGE = 500
OF_EACH_SHARD = (kept_places.PREFIX, key_limits.PREFIX, key_limits.WEIGHTS, "shards:")
"""How the names of values begin of which each shard has its own, or all have the same."""
HOLD = "shards:move"
_HOLD_FOR = 60 * SECOND


class MoveReport(Struct):
    """What a move has done."""

    seen: int = 0
    """How many jobs were looked at."""
    moved: int = 0
    running: int = 0
    """Jobs left where they are because they run; a later move takes them."""
    held: int = 0
    """Jobs left where they are because another job holds their key where they belong."""
    nodes: int = 0
    """Jobs of flows left where they are: a flow stays whole on its store until it goes."""
    away: list[str] = []
    """Stores that could not be asked, and why."""

    @property
    def left(self) -> int:
        """How many jobs are not where they belong yet, as far as is known."""
        return self.running + self.held


class Mover:
    """Moves jobs and named values of one store to the shards where they belong."""

    def __init__(self, store: ShardedStore, owner: str, pace: Callable[[int], None] = lambda moved: None) -> None:
        """pace: called with how many jobs were moved, and waits if that were too many."""
        self._store, self._owner, self._pace = store, owner, pace

    def run(self, report: Callable[[MoveReport], None] = lambda moved: None) -> MoveReport:
        """Looks at every job once; calls `report` after each page. StoreBusy while another move is going on. After any
        other StoreError, run it again."""
        moved = MoveReport(
            away=[
                f"{shard.url} is away: {shard.away}"
                for shard in self._store.shards
                if shard.away and not shard.is_removed
            ]
        )
        for number, shard in enumerate(self._store.shards):
            if shard.away:
                continue
            for page in self._pages(shard.store):
                self._finish_parked(number, page)
                self._move(number, page, moved)
                report(moved)
            self.move_values(number)
        # A hold that is over at once: the next move need not wait for this one's to run out.
        now = self._store.time()
        self._store.hold(HOLD, self._owner, now, now)
        return moved

    def _pages(self, store: Store) -> Iterator[list[Job]]:
        after = b""
        while True:
            # Prolonged with each page: a mover that crashed keeps others out for a minute at most.
            now = self._store.time()
            if not self._store.hold(HOLD, self._owner, now + _HOLD_FOR, now):
                raise StoreBusy("jobs are being moved between the stores already; wait for that to end")
            page = store.find(Query(after=after, limit=PAGE))
            if not page:
                return
            yield page
            after = page[-1].id

    def _finish_parked(self, number: int, page: Sequence[Job]) -> None:
        """Ends the move of jobs that are where they belong but were left parked there by a move that broke off."""
        parked = [job for job in page if moving.is_parked(job) and self._store.shard_of(job) == number]
        others = [n for n in present(self._store.shards) if n != number]
        # A shard that is away may still have them: then the next move ends it.
        if not parked or any(self._store.shards[other].away for other in others):
            return
        copied: set[bytes] = set()
        for other in others:
            stored = self._store.shards[other].ask(lambda store: store.get([job.id for job in parked]))
            found = [job for job in stored if job is not None]
            # A job that is not parked elsewhere can be claimed there, so the parked one here must go. Where both are
            # parked, the one here, where it belongs, stays.
            copied |= {job.id for job in found if not moving.is_parked(job)}
            olds = [job for job in found if moving.is_parked(job)]
            gone = self._apply(other, [moving.forget(job) for job in olds])
            # One that changed at the last moment stays there.
            copied |= {job.id for job, is_gone in zip(olds, gone, strict=True) if not is_gone}
        self._apply(number, [moving.discard_copy(job) if job.id in copied else moving.restore(job) for job in parked])

    def _move(self, number: int, page: Sequence[Job], moved: MoveReport) -> None:
        moved.seen += len(page)
        places = {job.id: self._store.shard_of(job) for job in page}
        others = [job for job in page if places[job.id] != number]
        moved.nodes += sum(is_node(job.id) for job in others)
        strays = [job for job in others if not is_node(job.id)]
        moved.running += sum(job.state is State.RUNNING for job in strays)
        ready = [
            job for job in strays if job.state is not State.RUNNING and self._store.shards[places[job.id]].accepts_jobs
        ]
        self._apply(number, [moving.park(job) for job in ready if not moving.is_parked(job)])
        # Read again: a job that changed at the last moment could not be parked. The copy needs the note of the parking.
        found = self._store.shards[number].ask(lambda store: store.get([job.id for job in ready]))
        targets: dict[int, list[Job]] = {}
        for job in found:
            if job is not None and moving.is_parked(job):
                targets.setdefault(places[job.id], []).append(job)
        for target, jobs in targets.items():
            self._transfer(number, target, jobs, moved)

    def _transfer(self, number: int, target: int, jobs: Sequence[Job], moved: MoveReport) -> None:
        """Moves parked jobs from their old place to the new one."""
        # Copy, forget, restore, in this order: see the module.
        stored_ids = self._store.shards[target].ask(lambda store: store.insert(jobs))
        came = [job for job, id in zip(jobs, stored_ids, strict=True) if id == job.id]
        stayed = [job for job, id in zip(jobs, stored_ids, strict=True) if id != job.id]
        self._apply(number, [moving.restore(job) for job in stayed])
        moved.held += len(stayed)
        left = self._apply(number, [moving.forget(job) for job in came])
        # A job that changed at the old place at the last moment stays there, and its copy goes.
        ends = [moving.restore(job) if gone else moving.discard_copy(job) for job, gone in zip(came, left, strict=True)]
        self._apply(target, ends)
        moved.moved += sum(left)
        self._pace(sum(left))

    def _apply(self, number: int, changes: Sequence[Change]) -> list[bool]:
        now = self._store.time()
        return self._store.shards[number].ask(lambda store: store.apply(changes, now)) if changes else []

    def move_values(self, number: int) -> None:
        """Moves named values to the shards of their names."""
        # Written there before it goes here: if this breaks off between, the value is on both, not on none. `None` and
        # `value` as what was: a value that is newer than this copy stays.
        here = self._store.shards[number]
        for name, value in here.ask(lambda store: store.kv_list("")).items():
            home = self._store.shards[self._store.shard(name.encode())]
            # Each has one of its own; and the limits of a shard count what attempts keep there, and hold on all.
            if home is not here and name != CELL and not name.startswith(OF_EACH_SHARD):
                home.ask(lambda store: store.kv_cas(name, value, None))  # noqa: B023
                here.ask(lambda store: store.kv_cas(name, None, value))  # noqa: B023
