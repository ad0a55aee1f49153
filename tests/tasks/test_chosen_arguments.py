"""What a function of a task's arguments, as `limit_by=`, is called with."""

from collections.abc import Callable
from typing import Any

import pytest

from tarry.tasks.task_limits import with_chosen_arguments


def plain(a: object, b: object = "x") -> None: ...
def positional(a: object, b: object = "x", /, *rest: object) -> None: ...
def named(a: object, *, b: object = "x") -> None: ...
def must_name(a: object, *, b: object) -> None: ...
def any_name(a: object, b: object = "x", **extra: object) -> None: ...


CALLS = [
    ((1,), {}),
    ((1, 2), {}),
    ((), {}),
    ((1, 2, 3), {}),
    ((1,), {"b": 2}),
    ((), {"a": 1}),
    ((1, 2), {"b": 3}),
    ((1,), {"c": 3}),
]


@pytest.mark.parametrize("fn", [plain, positional, named, must_name, any_name])
@pytest.mark.parametrize(("args", "kwargs"), CALLS)
def test_it_gets_what_the_task_would_have(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """By position or by name, defaults filled in; and a call that the task would not take is an error."""
    seen: dict[str, Any] = {}

    def by(b: object, a: object) -> None:
        seen.update(a=a, b=b)

    try:
        fn(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            with_chosen_arguments("mail", "limit_by", fn, by)(args, kwargs)
        return
    with_chosen_arguments("mail", "limit_by", fn, by)(args, kwargs)
    given = dict(zip("ab", args, strict=False)) | {name: kwargs[name] for name in "ab" if name in kwargs}
    assert seen == {"b": "x", **given}
