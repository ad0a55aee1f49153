"""`tarry.store.base` is what those import who write a store of their own."""

import inspect

from tarry.store import base
from tarry.store.rules import base as rules


def test_it_has_all_that_the_verbs_take_and_return() -> None:
    made_here = {
        name
        for name, value in vars(rules).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == rules.__name__
    }
    assert made_here <= set(base.__all__)
    assert all(getattr(base, name) is getattr(rules, name) for name in base.__all__)
    assert inspect.isabstract(base.Store)
