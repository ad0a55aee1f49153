"""What several stores answered to one question, as far as they did."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from tarry.errors import PartlyUnavailable, StoreError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Answers(dict[int, Answer]):
    """What the shards answered, by their numbers, and the errors of those that did not."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[int, StoreError] = {}

    def told(self, value: Item, missing: Mapping[int, StoreError] | None = None) -> Item:
        """The value, made of the answers, if all answered. Else PartlyUnavailable with it, or the error itself if
        nobody answered at all."""
        if not self.errors:
            return value
        if not self and (len(self.errors) == 1 or not missing):
            raise next(iter(self.errors.values()))
        raise PartlyUnavailable("; ".join(map(str, self.errors.values())), value, missing)

    def add(self, other: "Answers[Answer]") -> None:
        """These, too."""
        self.update(other)
        self.errors |= other.errors


def chosen(items: Sequence[Item], positions: Sequence[int]) -> list[Item]:
    """Those at these positions."""
    return [items[position] for position in positions]


def positions(
    answers: Answers[list[Item]], places: Mapping[int, Sequence[int]], value: list[Item]
) -> tuple[list[Item], dict[int, StoreError]]:
    """The answers in the order in which their questions came, put into `value`; and the positions without one."""
    for number, given in answers.items():
        for at, answer in zip(places[number], given, strict=True):
            value[at] = answer
    return value, {at: error for number, error in answers.errors.items() for at in places[number]}


def pieced(answers: Answers[list[Item]], places: Mapping[int, Sequence[int]], value: list[Item]) -> list[Item]:
    """The same; PartlyUnavailable if some are missing."""
    whole, missing = positions(answers, places, value)
    return answers.told(whole, missing)
