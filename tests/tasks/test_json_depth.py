"""How deeply a JSON text is nested: as its decoded value is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.tasks.arguments.json_depth import is_too_deep

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='[]{}"\\a\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[{"\\'), inner, max_size=4),
    max_leaves=20,
)


def levels(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels, inner), default=0)


@given(VALUES)
def test_it_is_that_of_the_value(value: Any) -> None:
    text, depth = json.dumps(value).encode(), levels(value)
    assert not is_too_deep(text, depth)
    assert depth == 0 or is_too_deep(text, depth - 1)


@pytest.mark.parametrize("text", [b'["' + b"[" * 1000 + b'"]', b"[" + b"[]," * 1000 + b"[]]", b'{"[":"\\"["}'])
def test_many_brackets_are_not_many_levels(text: bytes) -> None:
    assert not is_too_deep(text, 2)
