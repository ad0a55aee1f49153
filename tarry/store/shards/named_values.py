"""Named values on several stores: each belongs on the shard of its name, and may still be on another one."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

from tarry.store.rules.base import Store, ValueChange, ValuesWithin
from tarry.store.shards import merge
from tarry.store.shards.answers import ask_shards, assemble, pick, place_answers, present
from tarry.store.shards.shard import Shard

T = TypeVar("T")


class ShardedValues(Store):
    """The verbs of named values."""

    shards: list[Shard]

    @abstractmethod
    def shard(self, name: bytes) -> int:
        """The number of the store where this name belongs."""

    def kv_list(self, prefix: str) -> dict[str, bytes]:
        return self._merge(lambda store: store.kv_list(prefix))

    def kv_page(self, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        # Each shard gives as many: so the first ones of all are among them.
        return self._merge(lambda store: store.kv_page(prefix, after, limit), limit)

    def _merge(self, ask: Callable[[Store], dict[str, bytes]], most: int | None = None) -> dict[str, bytes]:
        answers = ask_shards(self.shards, present(self.shards), lambda number, store: ask(store))
        found = merge.values(answers, lambda name: self.shard(name.encode()))
        return answers.result(found if most is None else dict(islice(found.items(), max(0, most))))

    def kv_get(self, name: str) -> bytes | None:
        # All are asked: after a shard was added the value may still be on another one. That of its own shard counts.
        answers = ask_shards(self.shards, present(self.shards), lambda number, store: store.kv_get(name))
        there = {number: value for number, value in answers.items() if value is not None}
        return answers.result(there.get(self.shard(name.encode()), next(iter(there.values()), None)))

    def kv_read(self, names: Sequence[str]) -> list[bytes | None]:
        places = self._places_of(names)
        answers = ask_shards(self.shards, places, lambda n, store: store.kv_read(pick(names, places[n])))
        nothing: list[bytes | None] = [None] * len(names)
        found, missing = place_answers(answers, places, nothing)
        # As in `kv_get`. What is found elsewhere while its own shard is away may be old, and does not count.
        left = [at for at, value in enumerate(found) if value is None and at not in missing]
        everywhere = dict.fromkeys(present(self.shards), left) if left else {}
        others = ask_shards(self.shards, everywhere, lambda n, store: store.kv_read(pick(names, left)))
        for values in others.values():
            for at, value in zip(left, values, strict=True):
                found[at] = found[at] if found[at] is not None else value
        if others.errors:
            away = next(iter(others.errors.values()))
            missing |= {at: away for at in left if found[at] is None}
        answers.errors |= others.errors
        return answers.result(found, missing)

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        """As promised; the value is changed where it is, if that is not where it belongs yet."""
        place = self.shard(name.encode())
        # To be compared it must be there already. The shard where it belongs comes first, as in `kv_get`.
        if was is not None:
            others = [n for n, shard in enumerate(self.shards) if n != place and not shard.away]
            has = (n for n in (place, *others) if self.shards[n].ask(lambda store: store.kv_get(name)) is not None)
            place = next(has, place)
        return self.shards[place].ask(lambda store: store.kv_cas(name, value, was))

    def kv_write(self, changes: Sequence[ValueChange]) -> list[bool]:
        places = self._places_of([name for name, *_ in changes])
        answers = ask_shards(self.shards, places, lambda n, store: store.kv_write(pick(changes, places[n])))
        made = assemble(answers, places, [False] * len(changes))
        # Those that are not where they belong yet, one by one.
        return [
            is_made or (was is not None and self.kv_cas(name, value, was))
            for is_made, (name, value, was) in zip(made, changes, strict=True)
        ]

    def kv_within(self, connection: Any) -> ValuesWithin:
        if len(self.shards) > 1:
            return super().kv_within(connection)
        return self.shards[0].ask(lambda store: store.kv_within(connection))

    def _places_of(self, names: Sequence[str]) -> dict[int, list[int]]:
        """The positions of names by the shard of each."""
        places: dict[int, list[int]] = {}
        for at, name in enumerate(names):
            places.setdefault(self.shard(name.encode()), []).append(at)
        return places
