"""The answers of several stores to one question; some stores may not have answered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tarry.errors import PartlyUnavailable, StoreError
from tarry.store.rules.base import Store
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
