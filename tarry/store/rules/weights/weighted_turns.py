"""Whose turn it is among the lanes of a task, where some keys have weights of their own.

Time goes in rounds. In each round a lane of weight w has w starts, evenly spaced; where in the round they begin is
drawn from its name. The lanes without a weight of their own are one group, which has as many starts as they have
together, and which goes on by name, as `rules.lanes` says. The next start is the next one in time of those that have a
job and room. So all that a store keeps of a task is a time, whatever the number of keys.
"""
# As in stride scheduling (Waldspurger and Weihl, 1995), but no lane has a state of its own: its starts follow from its
# weight and its name. `lua/weighted_lanes.lua` has the same rules.

import hashlib
import re
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

_ROUND = 2**30
"""How long a round is."""
_MOST_OF_GROUP = 2**20
"""The weight of a group at most: products with a round stay exact in Lua, whose numbers have 53 bits."""
_GROUP_PLACE = 2**47  # places have 48 bits, of which 30 are the offset in a round
_STORED = re.compile(r"(\d{1,10}) (\d{1,15}) (\d{1,12}) (\d{1,12})\x1f(.*)", re.DOTALL)


class Share(Struct, frozen=True):
    """A lane with a weight of its own, or the group of the others."""

    weight: int
    place: int
    """Where in a round its starts begin; of two at the same time, the one with the lower place is first."""

    def first_after(self, time: int, place: int) -> int:
        """The time of its first start behind that of `place` at this time."""
        offset = self.place >> 18
        number = -(-(time * self.weight - offset) // _ROUND)
        found = (number * _ROUND + offset) // self.weight
        if (found, self.place) <= (time, place):
            found = ((number + 1) * _ROUND + offset) // self.weight
        return found


class TurnState(Struct, frozen=True):
    """What a store keeps of a task, where it else keeps the name of the lane that was served last."""

    lane: str | None = None
    """Of the lanes without a weight of their own, the one that was served last."""
    time: int = 0
    place: int = 0
    """The start that was last."""
    size: int = 0
    """How many lanes without a weight of their own had a turn when all had one for the last time; 0: not known yet."""
    passed: int = 0
    """How many had one since then."""

    def after_start(self, share: Share, lane: str | None) -> "TurnState":
        """After the next start of this share. lane: the name of the lane, if it is one of the group."""
        moved = replace(self, time=share.first_after(self.time, self.place), place=share.place)
        if lane is None:
            return moved
        # Behind the last name comes the first: then all had a turn.
        if self.lane is not None and lane <= self.lane:
            return replace(moved, lane=lane, size=max(1, self.passed), passed=1)
        return replace(moved, lane=lane, passed=self.passed + 1)

    def encode(self) -> str:
        """As a store keeps it."""
        # All starts come again at the same places of each round.
        return f"{self.time % _ROUND} {self.place} {self.size} {self.passed}\x1f{self.lane or ''}"


def decode_turn(text: str | None) -> TurnState:
    """What a store keeps of a task."""
    found = None if text is None else _STORED.fullmatch(text)
    if found is None:
        return TurnState(text)
    return TurnState(found[5], *map(int, found.groups()[:4]))


def encode_lane(lane: str) -> str:
    """What a store keeps of a task of which no key has a weight: the lane that was served last."""
    # Keys are any text. One that looks like a state would be read as another lane, and its task would not go on.
    return lane if _STORED.fullmatch(lane) is None else TurnState(lane).encode()


@lru_cache(maxsize=10_000)
def share_of(lane: str, weight: int) -> Share:
    """The share of a lane with a weight of its own."""
    digest = hashlib.sha1(lane.encode(), usedforsecurity=False).digest()
    return Share(weight, int.from_bytes(digest[:6], "big"))


def share_of_group(weight: int, lanes: int) -> Share:
    """The share of that many lanes without a weight of their own. weight: of each."""
    return Share(max(1, min(weight * lanes, _MOST_OF_GROUP)), _GROUP_PLACE)
