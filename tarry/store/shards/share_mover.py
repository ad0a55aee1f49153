"""Moves the shares of limits between stores, to where jobs wait. One process at a time does it, for all.

All that counts is in the stores: a process that dies at any moment leaves the shares so that no limit is exceeded, and
the next one goes on. Two may do it at once, since a lease does not stop a process that stood still. So a process first
writes each share anew, with another end, and changes it only from what it has written itself: then whatever the one
before it still wants to change is refused.

A share has an end, which is put off as long as its store can be reached. Of a store that cannot, the share counts until
nothing that was started under it may run any more.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.model.limit import QUEUE, TASK, Level, Limit
from tarry.store.rules.base import ShareChange, Store
from tarry.store.shards import shares
from tarry.store.shards.answers import ask_shards
from tarry.store.shards.shard import Shard
from tarry.store.shards.shares import LASTS, Use

LEASE = "shares"
"""The name of the lease of who moves shares."""
HELD_FOR = 3 * SECOND
_PROLONGED_BELOW = 6 * SECOND
CLOCKS_DIFFER = 2 * SECOND
"""By so much the clocks of two stores may differ."""
LOOKS_EVERY = 5 * SECOND
"""So often it is looked whether any limit is shared, while none is."""
TASKS_AT_ONCE = 1000
"""So many tasks one call answers of which jobs are ready."""
Key = tuple[int, str]
"""The number of a store, and the name of a limit."""
Numbers = tuple[int, int]
"""How many at once, and how many starts in a period; 0 also where there is no such bound."""


class _Part(Struct):
    """The share of one store."""

    limit: Limit
    level: Level
    is_gone: bool = False
    """It has ended, so that others may have it."""

    @property
    def held(self) -> Numbers:
        """What it may use now: what runs counts also where the share is smaller."""
        most, count = self.numbers
        return max(most, self.level.running), count

    @property
    def numbers(self) -> Numbers:
        return (0, 0) if self.is_gone else (shares.most_of(self.limit) or 0, self.limit.count)


class _Shared(Struct):
    """A limit that several stores share: their shares, by their numbers, and what those that are away may have."""

    name: str
    parts: dict[int, _Part]
    whole: Limit
    set_at: int
    away: Numbers = (0, 0)
    wanted: dict[int, Numbers] = {}
    is_sure: bool = True
    """All of its shares are known, and nobody else can change them, so that some may be raised."""
    fresh: int = 0
    """So many starts were taken from stores where nothing has started for a whole period."""

    def share(self, most: int, count: int, until: int) -> Limit:
        """A share with these numbers, of which those count that the limit has."""
        return shares.share_of(self.whole, None if self.whole.most is None else most, count, until, self.set_at)


class ShareMover:
    """For the stores of one process. hold: takes or prolongs a named lease."""

    def __init__(self, shards: Sequence[Shard], hold: Callable[[str, str, int, int], bool]) -> None:
        self._shards, self._hold = shards, hold
        self._forget()

    def _forget(self) -> None:
        self._written: dict[Key, Limit] = {}
        """What this process wrote last; it alone can change these."""
        self._bounds: dict[Key, Numbers] = {}
        """No store uses more, as far as is known."""
        self._guessed: dict[Key, int] = {}
        """Bounds of stores that were never seen, and when the limit was set from which they follow."""
        self._lacking: dict[Key, int] = {}
        """Which stores lack which limits, and at how many looks in a row they did."""
        self._away_since: dict[int, int] = {}
        self._gone: set[int] = set()
        self._next_look = self._held_until = 0

    def run(self, owner: str, now: int, lease: int) -> bool:
        """As `Store.move_shares`. StoreError."""
        if not self._hold(LEASE, owner, now + HELD_FOR if lease else now, now) or not lease:
            # Others may change shares from now on.
            self._forget()
            return False
        if not now < self._held_until <= now + HELD_FOR:
            # Others may have changed them meanwhile.
            self._forget()
        self._held_until = now + HELD_FOR
        is_time = now >= self._next_look or now < self._next_look - LOOKS_EVERY
        return is_time and self._move(now, lease)

    def _move(self, now: int, lease: int) -> bool:
        limits = self._read(now, lease)
        if not limits:
            self._next_look = now + LOOKS_EVERY
            return False
        self._plan(limits, now)
        self._lower(limits, now)
        return self._raise(limits, now)

    # What there is

    def _read(self, now: int, lease: int) -> list[_Shared]:
        # Also those that were removed, which count as away: what was started there may run for a while yet.
        answers = ask_shards(self._shards, range(len(self._shards)), lambda _, store: store.limits())
        back = self._note_away(answers.errors, now, lease)
        self._note_losses(answers)
        found: defaultdict[str, dict[int, _Part]] = defaultdict(dict)
        for number, limits in answers.items():
            for name, (limit, level) in limits.items():
                if limit.share is not None:
                    is_gone = limit.is_over(now) or number in back
                    found[name][number] = _Part(limit, level, is_gone)
        # One that lacks the limit does not keep to it.
        return [self._make_shared(name, parts, parts.keys() == set(answers)) for name, parts in found.items()]

    def _note_losses(self, answers: Mapping[int, Mapping[str, object]]) -> None:
        """Tells which stores lack a limit that others have."""
        names = {name for limits in answers.values() for name in limits}
        lacking = [(number, name) for number, limits in answers.items() for name in names - limits.keys()]
        self._lacking = {key: self._lacking.get(key, 0) + 1 for key in lacking}
        # At the second look: somebody may just be setting it. And once: perhaps nobody declares it any more.
        for number in {number for (number, _), looks in self._lacking.items() if looks == 2}:
            self._shards[number].note_loss()

    def _note_away(self, errors: Mapping[int, StoreError], now: int, lease: int) -> set[int]:
        """Notes which stores cannot be reached, and since when. Answers those that are back, after others may have got
        their shares."""
        back = {number for number in self._gone if number not in errors}
        self._away_since = {number: self._away_since.get(number, now) for number in errors}
        lasts = LASTS + CLOCKS_DIFFER + lease
        self._gone = {number for number, since in self._away_since.items() if now - since >= lasts}
        return back

    def _make_shared(self, name: str, parts: dict[int, _Part], is_sure: bool) -> _Shared:
        # Somebody may just be changing it, have died amid that, or not have reached each store.
        newest = shares.newest([part.limit for part in parts.values()])
        for number, part in parts.items():
            self._bounds[number, name] = part.held
            self._guessed.pop((number, name), None)
        shared = _Shared(name, parts, newest.whole, shares.set_at_of(newest))
        away = [(number, name) for number in self._away_since if number not in self._gone]
        for key in away:
            # It may have a share of the new one already.
            if self._guessed.get(key, shared.set_at) != shared.set_at:
                del self._bounds[key], self._guessed[key]
        held = [self._bounds[key] for key in away if key in self._bounds]
        shared.away = sum(most for most, _ in held), sum(count for _, count in held)
        shared.is_sure = is_sure and len(held) == len(away)
        return shared

    def _bound_away(self, shared: _Shared) -> None:
        """Notes what stores may have that have been away since before this process moves shares: what the others have
        not, before anything is taken from these. All of them have been written by now, so nobody else can do that."""
        rest = (
            max(0, (shared.whole.most or 0) - sum(part.numbers[0] for part in shared.parts.values())),
            max(0, shared.whole.count - sum(part.numbers[1] for part in shared.parts.values())),
        )
        for key in ((number, shared.name) for number in self._away_since):
            if key not in self._bounds:
                self._bounds[key], self._guessed[key] = rest, shared.set_at

    # What is to be

    def _plan(self, limits: Sequence[_Shared], now: int) -> None:
        numbers = {number for shared in limits for number in shared.parts}
        has_tasks = any(shared.name.startswith(TASK) for shared in limits)
        # One that does not answer is one where nothing waits: its error must not keep shares from being prolonged.
        ready = ask_shards(self._shards, sorted(numbers), lambda _, store: _ready_limits(store, has_tasks))
        for shared in limits:
            wanted = {number: shared.name in ready.get(number, ()) for number in shared.parts}
            most = self._targets(shared, 0, {n: part.level.running for n, part in shared.parts.items()}, wanted, now)
            used = {n: shares.tokens_used(part.limit, part.level, now) for n, part in shared.parts.items()}
            counts = self._targets(shared, 1, used, wanted, now)
            shared.wanted = {n: (most[n], counts[n]) for n in shared.parts}

    def _targets(
        self, shared: _Shared, which: int, used: Mapping[int, int], wanted: Mapping[int, bool], now: int
    ) -> dict[int, int]:
        whole = (shared.whole.most or 0, shared.whole.count)[which]
        has = shares.fit(whole, [part.numbers[which] for part in shared.parts.values()])
        uses = [Use(share, used[n], wanted[n]) for share, n in zip(has, shared.parts, strict=True)]
        found = shares.targets(max(0, whole - shared.away[which]), uses, now // shares.ROTATE_EVERY)
        return dict(zip(shared.parts, found, strict=True))

    # What is done

    def _lower(self, limits: Sequence[_Shared], now: int) -> None:
        """Lowers shares, and prolongs all."""
        changes: defaultdict[int, list[ShareChange]] = defaultdict(list)
        for shared in limits:
            # If another one has changed one of them since, it may have changed those that were read before, too.
            are_ours = all(self._written.get((n, shared.name)) == part.limit for n, part in shared.parts.items())
            for number, part in shared.parts.items():
                most, count = map(min, part.numbers, shared.wanted[number])
                until = now + LASTS
                limit = shared.share(most, count, until)
                lasts = part.limit.share is not None and part.limit.share.until - now > _PROLONGED_BELOW
                if not (are_ours and lasts and (most, count) == part.numbers):
                    changes[number].append(ShareChange(shared.name, part.limit, limit))
        self._write(changes, now)
        self._read_again(limits, now)

    def _read_again(self, limits: Sequence[_Shared], now: int) -> None:
        """Reads what runs now, after the lowered shares are stored: only then it is known what is free."""
        names = [shared.name for shared in limits]
        numbers = {number for shared in limits for number in shared.parts}
        answers = ask_shards(self._shards, sorted(numbers), lambda _, store: store.levels(names))
        for at, shared in enumerate(limits):
            if any((n, shared.name) not in self._written or n not in answers for n in shared.parts):
                # Somebody else has changed it.
                shared.is_sure = False
                continue
            self._bound_away(shared)
            for number, part in shared.parts.items():
                had = part.numbers[1]
                part.limit, part.level, part.is_gone = self._written[number, shared.name], answers[number][at], False
                if shares.is_fresh(part.level, shared.whole.period, now):
                    shared.fresh += had - part.numbers[1]

    def _raise(self, limits: Sequence[_Shared], now: int) -> bool:
        changes: defaultdict[int, list[ShareChange]] = defaultdict(list)
        for shared in limits:
            if shared.is_sure:
                for number, change in self._raises(shared, now):
                    changes[number].append(change)
        self._write(changes, now)
        return bool(changes)

    def _raises(self, shared: _Shared, now: int) -> list[tuple[int, ShareChange]]:
        parts, whole = shared.parts.values(), shared.whole
        wanted = [shared.wanted[number] for number in shared.parts]
        has = [part.numbers for part in parts]
        held = [part.held[0] for part in parts]
        most = shares.raise_towards(
            (whole.most or 0) - shared.away[0], held, [most for most, _ in has], [most for most, _ in wanted]
        )
        had = [count for _, count in has]
        counts = shares.raise_towards(whole.count - shared.away[1], had, had, [count for _, count in wanted])
        found = []
        for number, part, at_once, count in zip(shared.parts, parts, most, counts, strict=True):
            if (at_once, count) != part.numbers:
                free = min(shared.fresh, count - part.numbers[1])
                shared.fresh -= free
                limit = shared.share(at_once, count, now + LASTS)
                change = ShareChange(shared.name, part.limit, limit, count - part.numbers[1] - free)
                found.append((number, change))
        return found

    def _write(self, changes: Mapping[int, Sequence[ShareChange]], now: int) -> None:
        for number, some in changes.items():
            for change in some:
                # It may be done although no answer comes.
                key = (number, change.name)
                numbers = (shares.most_of(change.limit) or 0, change.limit.count)
                had = self._bounds.get(key, (0, 0))
                self._bounds[key] = max(had[0], numbers[0]), max(had[1], numbers[1])
                self._written.pop(key, None)
        answers = ask_shards(self._shards, changes, lambda number, store: store.change_shares(changes[number], now))
        for number, made in answers.items():
            written = {
                (number, change.name): change.limit
                for change, is_made in zip(changes[number], made, strict=True)
                if is_made
            }
            self._written |= written


def _ready_limits(store: Store, has_tasks: bool) -> set[str]:
    """The names of the limits of queues, and of tasks if that is asked, under which jobs are ready in a store."""
    queues = [queue for queue, is_paused in store.queues().items() if not is_paused]
    found = {QUEUE + queue for queue in queues}
    for queue in queues if has_tasks else ():
        after: str | None = ""
        while after is not None:
            tasks = store.waiting.tasks(queue, after, TASKS_AT_ONCE)
            found.update(TASK + task for task in tasks)
            after = tasks[-1] if len(tasks) == TASKS_AT_ONCE else None
    return found
