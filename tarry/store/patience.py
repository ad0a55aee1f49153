"""How long to wait for a store that is away, and for those who could not reach it."""

import random

_chance = random.Random()
"""Its own, so that a thread in the background changes nothing for who seeded the others' random numbers."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between two tries to reach a store that is away: doubled each time, and jittered."""
PATIENCE = 10.0
"""Seconds for which nobody's lease is held to have run out on a store that was away: its owners must first have had
a chance to prolong it. Longer than the longest pause."""


def back_off(tries: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries, 10)) * _chance.uniform(0.5, 1.0))


def about(seconds: float) -> float:
    """Half as much more or less, so that not all come at once."""
    return seconds * _chance.uniform(0.5, 1.5)
