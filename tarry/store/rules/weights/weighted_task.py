"""The lanes of a task of which keys have weights, as one claim sees them."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from tarry.store.rules.lanes import take_in_turn
from tarry.store.rules.weights.weighted_turns import Share, TurnState, decode_turn, share_of, share_of_group

T = TypeVar("T")


class WeightedTask:
    """The lanes of one task, of which keys have weights of their own, in one claim.

    weights: of these keys, by lane. weight: of each other one. turn: what the store keeps of the task.
    """

    def __init__(self, weights: Mapping[str, int], weight: int, turn: str | None) -> None:
        self.weights, self._weight = weights, weight
        self.state: TurnState = decode_turn(turn)
        self._group = share_of_group(weight, 1)

    def in_order(self) -> list[str]:
        """The lanes with weights of their own, by their next start."""
        time, place = self.state.time, self.state.place
        shares = {lane: share_of(lane, weight) for lane, weight in self.weights.items()}
        return sorted(shares, key=lambda lane: (shares[lane].first_after(time, place), shares[lane].place))

    def in_turn(self, counts: Mapping[str | None, int], size: int) -> Iterator[str | None]:
        """Who starts, start by start, until each had as many as its count. None: the lanes without a weight of their
        own, of which there are `size`."""
        self._group = share_of_group(self._weight, max(1, size))
        shares = {name: self._group if name is None else share_of(name, self.weights[name]) for name in counts}
        return _in_turn(self.state, shares, counts)

    def merge(self, lines: Mapping[str, Sequence[T]], size: int, most: int) -> list[T]:
        """One item after the other from these lanes, until there are `most`, or none is left. size: as of `in_turn`;
        lines may have some of these lanes, from the one whose turn it is."""
        waiting: dict[str | None, Sequence[T]] = {lane: line for lane, line in lines.items() if lane in self.weights}
        waiting[None] = take_in_turn([line for lane, line in lines.items() if lane not in self.weights], most)
        heads = {name: iter(line) for name, line in waiting.items()}
        starts = self.in_turn({name: len(line) for name, line in waiting.items()}, size)
        return [next(heads[name]) for name in islice(starts, most)]

    def start(self, lane: str) -> str:
        """A job of this lane starts; what the store keeps of the task from now on."""
        own = self.weights.get(lane)
        share = self._group if own is None else share_of(lane, own)
        self.state = self.state.after_start(share, lane if own is None else None)
        return self.state.encode()


def _in_turn(
    state: TurnState, shares: Mapping[str | None, Share], counts: Mapping[str | None, int]
) -> Iterator[str | None]:
    """Who starts, start by start, until each had as many as its count. None: the group."""
    heap = [
        (share.first_after(state.time, state.place), share.place, number, name)
        for number, (name, share) in enumerate(shares.items())
        if counts[name]
    ]
    heapq.heapify(heap)
    left = dict(counts)
    while heap:
        time, place, number, name = heap[0]
        yield name
        left[name] -= 1
        if left[name]:
            heapq.heapreplace(heap, (shares[name].first_after(time, place), place, number, name))
        else:
            heapq.heappop(heap)
