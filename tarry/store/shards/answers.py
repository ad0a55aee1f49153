"""The answers of several stores to one question; some stores may not have answered. And what is made of answers alone:
named values."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from tarry.errors import PartlyUnavailable, StoreError
from tarry.store.rules.base import Store, ValueChange, ValuesWithin
from tarry.store.shards import merge
from tarry.store.shards.shard import Shard

K = TypeVar("K")
T = TypeVar("T")


class ShardAnswers(dict[int, T]):
    """The answers of the shards, by their numbers, and the errors of the shards that did not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[int, StoreError] = {}

    def result(self, value: K, missing: Mapping[int, StoreError] | None = None) -> K:
        """The value, made of the answers, if all answered. Else PartlyUnavailable with the value, or the plain error
        if none answered at all."""
        if not self.errors:
            return value
        # Without any answer there is no part to give. But several errors with `missing` tell more than the first alone:
        # which position failed for which reason.
        if not self and (len(self.errors) == 1 or not missing):
            raise next(iter(self.errors.values()))
        raise PartlyUnavailable("; ".join(map(str, self.errors.values())), value, missing)

    def add(self, other: "ShardAnswers[T]") -> None:
        """Adds the answers and errors of other shards."""
        self.update(other)
        self.errors |= other.errors


def present(shards: Sequence[Shard]) -> list[int]:
    """The numbers of the shards that were not removed while this process runs."""
    return [number for number, shard in enumerate(shards) if not shard.is_removed]


def ask_shards(shards: Sequence[Shard], numbers: Iterable[int], call: Callable[[int, Store], T]) -> ShardAnswers[T]:
    """Asks each shard of these numbers, also when another one fails."""
    answers: ShardAnswers[T] = ShardAnswers()
    for number in numbers:
        try:
            # B023 does not apply: `ask` calls the function before the loop goes on.
            answers[number] = shards[number].ask(lambda store: call(number, store))  # noqa: B023
        except StoreError as error:
            answers.errors[number] = error
    return answers


def pick(items: Sequence[K], positions: Sequence[int]) -> list[K]:
    """The items at these positions."""
    return [items[position] for position in positions]


def place_answers(
    answers: ShardAnswers[list[K]], places: Mapping[int, Sequence[int]], value: list[K]
) -> tuple[list[K], dict[int, StoreError]]:
    """Puts the answers into `value`, in the order of the questions. Answers `value`, and the error of each position
    that has no answer."""
    for number, given in answers.items():
        for at, answer in zip(places[number], given, strict=True):
            value[at] = answer
    return value, {at: error for number, error in answers.errors.items() for at in places[number]}


def assemble(answers: ShardAnswers[list[K]], places: Mapping[int, Sequence[int]], value: list[K]) -> list[K]:
    """The list that `place_answers` makes; PartlyUnavailable if some answers are missing."""
    whole, missing = place_answers(answers, places, value)
    return answers.result(whole, missing)


class ShardedValues(Store):
    """The verbs of named values: each belongs on the shard of its name, and may still be on another one."""

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

    def kv_count(self, prefix: str) -> int:
        answers = ask_shards(self.shards, present(self.shards), lambda number, store: store.kv_count(prefix))
        # One that moves between shards may count twice.
        return answers.result(sum(answers.values()))

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
