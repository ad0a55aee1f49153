"""The seed of random tests: the same in every run of `make test`, another in each round of `make test-deep`."""

import os
import random

SEED = "TEST_SEED"
"""The environment variable that names another seed; `make test-deep` sets it, and prints it."""


def seed() -> int:
    return int(os.environ.get(SEED, "1"))


def seeded_random() -> random.Random:
    """Gives the same in each process that has the same seed."""
    return random.Random(seed())
