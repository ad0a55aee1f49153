"""Chance in tests: the same in every run of `make test`, another in each round of `make test-deep`."""

import os
import random

SEED = "TEST_SEED"
"""The environment variable that chooses another chance; `make test-deep` sets it, and prints it."""


def seed() -> int:
    return int(os.environ.get(SEED, "1"))


def dice() -> random.Random:
    """Throws the same in each process that has the same seed."""
    return random.Random(seed())
