import enum
import functools
import inspect
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest

from tarry import Task
from tarry.errors import ArgumentError
from tarry.tasks.arguments.codec import Codec

Kwargs = dict[str, Any]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


class Order(msgspec.Struct):
    number: int
    lines: list[Point] = []


Positive = Annotated[int, msgspec.Meta(gt=0)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=3)]


def called(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[bytes, Any]:
    """The body of the call, and what the function returns when it is called with what comes out of the body."""
    codec = Codec("shop.task", fn)
    body = codec.encode(args, kwargs)
    came, named = codec.decode(body)
    return body, fn(*came, **named)


def refused(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        Codec("shop.task", fn).encode(args, kwargs)
    text = str(caught.value)
    assert text.startswith("shop.task"), "names the task"
    assert "\n" not in text
    assert "`" not in text
    return text


def refused_body(fn: Callable[..., Any], body: bytes) -> str:
    with pytest.raises(ArgumentError) as caught:
        Codec("shop.task", fn).decode(body)
    text = str(caught.value)
    assert text.startswith("shop.task: ")
    assert "\n" not in text
    return text


def plain(a: int, b: str = "b") -> Any:
    return a, b


def nothing() -> Any:
    return ()


def keyword_only(a: int, *, b: int, c: int = 3) -> Any:
    return a, b, c


def rest(a: int, *numbers: int) -> Any:
    return a, numbers


def rest_with_defaults(a: int = 1, b: int = 2, *numbers: int) -> Any:
    return a, b, numbers


def rest_and_keyword(a: int, *numbers: int, k: int = 0) -> Any:
    return a, numbers, k


def further(a: int, **more: int) -> Any:
    return a, more


def positional_only(a: int, /, b: int, *, c: int = 3) -> Any:
    return a, b, c


def hidden(a: int, /, **more: int) -> Any:
    return a, more


def all_kinds(a: int, /, b: int, *numbers: int, k: int = 0, **more: int) -> Any:
    return a, b, numbers, k, more


def mutable(a: list[int] = [], b: dict[str, int] = {}) -> Any:  # noqa: B006
    return a, b


def untyped(a, b=None, *numbers, **more):  # type: ignore[no-untyped-def]
    return a, b, numbers, more


SIGNATURES: list[tuple[Callable[..., Any], tuple[Any, ...], Kwargs, bytes]] = [
    (nothing, (), {}, b"[]"),
    (plain, (1,), {}, b"[1]"),
    (plain, (1, "x"), {}, b'[1,"x"]'),
    (plain, (1,), {"b": "x"}, b'{"a":1,"b":"x"}'),
    (plain, (), {"b": "x", "a": 1}, b'{"a":1,"b":"x"}'),
    (keyword_only, (1,), {"b": 2}, b'{"a":1,"b":2}'),
    (keyword_only, (), {"a": 1, "b": 2, "c": 4}, b'{"a":1,"b":2,"c":4}'),
    (rest, (1,), {}, b"[1]"),
    (rest, (1, 2, 3), {}, b"[1,2,3]"),
    (rest_with_defaults, (), {}, b"[]"),
    (rest_with_defaults, (5, 6, 7), {}, b"[5,6,7]"),
    (rest_with_defaults, (), {"b": 6}, b'{"b":6}'),
    (rest_and_keyword, (1, 2, 3), {"k": 4}, b'{"a":1,"*":[2,3],"k":4}'),
    (further, (1,), {}, b"[1]"),
    (further, (1,), {"x": 2, "y": 3}, b'{"a":1,"x":2,"y":3}'),
    (positional_only, (1, 2), {}, b"[1,2]"),
    (positional_only, (1,), {"b": 2, "c": 4}, b'{"a":1,"b":2,"c":4}'),
    (all_kinds, (1, 2, 3), {"k": 4, "x": 5}, b'{"a":1,"b":2,"*":[3],"k":4,"x":5}'),
    (all_kinds, (1, 2), {"x": 5}, b'{"a":1,"b":2,"x":5}'),
    (mutable, (), {}, b"[]"),
    (mutable, ([1],), {"b": {"x": 1}}, b'{"a":[1],"b":{"x":1}}'),
    (untyped, (1, "x", None, [True, {"k": 1.5}]), {"z": [1]}, b'{"a":1,"b":"x","*":[null,[true,{"k":1.5}]],"z":[1]}'),
]


@pytest.mark.parametrize(("fn", "args", "kwargs", "body"), SIGNATURES)
def test_every_shape_of_signature(fn: Callable[..., Any], args: Any, kwargs: Kwargs, body: bytes) -> None:
    assert called(fn, *args, **kwargs) == (body, fn(*args, **kwargs))


def test_a_default_is_the_functions_own_when_the_job_runs() -> None:
    before = Codec("shop.task", plain).encode((1,), {})

    def newer(a: int, b: str = "newer") -> Any:
        return a, b

    args, kwargs = Codec("shop.task", newer).decode(before)
    assert newer(*args, **kwargs) == (1, "newer")


def test_a_mutable_default_is_not_shared_by_the_codec() -> None:
    codec = Codec("shop.task", mutable)
    assert codec.decode(b"[]") == ((), {})
    assert codec.decode(b'{"b":{}}') == ([], {"b": {}})


VALUES: list[tuple[Any, Any]] = [
    (Point, Point(1, 2)),
    (Order, Order(7, [Point(1), Point(2, 3)])),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (datetime, datetime(2026, 11, 21, 10, 0, 0, 5, tzinfo=UTC)),
    (datetime, datetime(2026, 11, 21)),
    (date, date(2026, 11, 21)),
    (timedelta, timedelta(days=1, microseconds=5)),
    (uuid.UUID, uuid.UUID(int=5)),
    (bytes, b"\x00\xff"),
    (Decimal, Decimal("1.10")),
    (int | str, "5"),
    (int | str, 5),
    (int | None, None),
    (list[Point] | None, [Point(1)]),
    (Literal["a", "b"], "b"),
    (tuple[int, str], (1, "x")),
    (set[int], {1, 2}),
    (dict[int, Colour], {1: Colour.BLUE}),
    (Positive, 1),
    (Name, "abc"),
    (int, 2**63),
    (int, -(2**63)),
    (int, 10**40),
    (float, 0.1),
    (float, 1e300),
    (float | None, None),
    (bool, True),
    (str, "\x00 \U0001f600 é"),
    (dict[str, Any], {"deep": [{"er": [1, None]}]}),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_value_comes_back_by_its_annotation(kind: Any, value: Any) -> None:
    def typed(a):  # type: ignore[no-untyped-def]
        return a

    typed.__annotations__ = {"a": kind}
    for args, kwargs in (((value,), {}), ((), {"a": value})):
        came = called(typed, *args, **kwargs)[1]
        assert came == value
        assert type(came) is type(value)


WRONG: list[tuple[Any, Any, str]] = [
    (int, "x", "shop.task: argument a: Expected int, got str"),
    (int, 1.5, "shop.task: argument a: Expected int, got float"),
    (str, None, "shop.task: argument a: Expected str, got null"),
    (Positive, 0, "shop.task: argument a: Expected int >= 1"),
    (Name, "", "shop.task: argument a: Expected str of length >= 1"),
    (Colour, "green", "shop.task: argument a: Invalid enum value 'green'"),
    (Literal["a"], "b", "shop.task: argument a: Invalid enum value 'b'"),
    (Point, {"x": "no"}, "shop.task: argument a.x: Expected int, got str"),
    (Order, {"number": 1, "lines": [{"x": 1}, {}]}, "shop.task: argument a.lines[1]: Object missing required field x"),
    (datetime, "yesterday", "shop.task: argument a: Invalid RFC3339 encoded datetime"),
    (uuid.UUID, "5", "shop.task: argument a: Invalid UUID"),
    (int, object(), "shop.task(a): cannot travel as JSON: Encoding objects of type object is unsupported"),
    (Any, {1, object()}, "shop.task(a): cannot travel as JSON: Encoding objects of type object is unsupported"),
    (str, "\ud800", "shop.task(a): cannot travel as JSON: 'utf-8' codec can't encode character"),
    (float, math.nan, "shop.task(a): cannot travel as JSON: JSON has no nan and no infinity"),
    (float | None, math.inf, "shop.task(a): cannot travel as JSON: JSON has no nan and no infinity"),
    (dict[str, list[float | None]], {"x": [1.0, math.nan]}, "shop.task(a): cannot travel as JSON: JSON has no nan"),
]


@pytest.mark.parametrize(("kind", "value", "message"), WRONG)
def test_a_value_that_does_not_fit_is_refused_by_name(kind: Any, value: Any, message: str) -> None:
    def typed(a):  # type: ignore[no-untyped-def]
        return a

    typed.__annotations__ = {"a": kind}
    assert refused(typed, value).startswith(message)
    assert refused(typed, a=value).startswith(message)


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert refused(untyped, circle).startswith("shop.task(a): cannot travel as JSON")


CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], Kwargs, str]] = [
    (plain, (), {}, "shop.task: missing a required argument: 'a'"),
    (plain, (1, "x", 3), {}, "shop.task: too many positional arguments"),
    (plain, (1,), {"c": 2}, "shop.task: got an unexpected keyword argument 'c'"),
    (plain, (1,), {"a": 2}, "shop.task: multiple values for argument 'a'"),
    (keyword_only, (1,), {}, "shop.task: missing a required argument: 'b'"),
    (keyword_only, (1, 2), {}, "shop.task: too many positional arguments"),
    (keyword_only, (1,), {"b": "x"}, "shop.task: argument b: Expected int, got str"),
    (positional_only, (), {"a": 1, "b": 2}, "shop.task: 'a' parameter is positional only, but was passed as a keyword"),
    (rest, (), {}, "shop.task: missing a required argument: 'a'"),
    (rest, ("x",), {}, "shop.task: argument a: Expected int, got str"),
    (rest, (1, 2, "x"), {}, "shop.task: argument *numbers[1]: Expected int, got str"),
    (rest, (1, object()), {}, "shop.task(*numbers): cannot travel as JSON"),
    (rest_and_keyword, (1, 2, "x"), {"k": 1}, "shop.task: argument *numbers[1]: Expected int, got str"),
    (further, (1,), {"x": "no"}, "shop.task: argument x: Expected int, got str"),
]


def mail(to: str, name: str = "", order: int = 1) -> None: ...


def mail_to_all(*to: str, name: str = "") -> None: ...


@pytest.mark.parametrize("fn", [mail, mail_to_all])
@pytest.mark.parametrize("option", list(inspect.signature(Task.using).parameters)[1:])
def test_an_option_among_the_arguments_is_told_with_where_it_belongs(fn: Callable[..., Any], option: str) -> None:
    way_out = f"that is an option of the call: write .using({option}=...).enqueue(...)"
    assert refused(fn, "x", **{option: 5}) == f"shop.task: got an unexpected keyword argument '{option}': {way_out}"


@pytest.mark.parametrize("fn", [mail, mail_to_all])
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("nme", "; did you mean name?"),
        ("Name", "; did you mean name?"),
        ("dealy", "; did you mean the option .using(delay=...)?"),
        ("priorty", "; did you mean the option .using(priority=...)?"),
        ("qqqqq", ""),
    ],
)
def test_a_misspelt_argument_names_the_nearest(fn: Callable[..., Any], written: str, meant: str) -> None:
    assert refused(fn, "x", **{written: 5}) == f"shop.task: got an unexpected keyword argument '{written}'{meant}"
    if fn is mail:
        # Also where another one is missing, as `to` is if its own name is misspelt.
        assert refused(fn, **{written: 5}).endswith(f"'{written}'{meant}")


@pytest.mark.parametrize(("fn", "args", "kwargs", "message"), CALLS)
def test_a_call_that_does_not_fit_is_refused_by_name(
    fn: Callable[..., Any], args: Any, kwargs: Kwargs, message: str
) -> None:
    told = refused(fn, *args, **kwargs)
    # Python 3.12 and newer say which kind of argument; and 3.13 and 3.14 have words of their own for one that is only
    # positional.
    told = told.replace("keyword-only ", "")
    for words in (
        "got some positional-only arguments passed as keyword arguments: 'a'",
        "missing a required positional-only argument: 'a'",
    ):
        told = told.replace(words, "'a' parameter is positional only, but was passed as a keyword")
    assert told.startswith(message)


def test_an_item_deep_in_the_rest_is_named() -> None:
    def deep(*points: Point) -> None: ...

    codec = Codec("shop.task", deep)
    with pytest.raises(ArgumentError, match=r"argument \*points\[1\]\.x: Expected int, got str"):
        codec.decode(b'[{"x":1},{"x":"no"}]')


UNTYPED: list[tuple[tuple[Any, ...], Kwargs, str]] = [
    ((datetime(2026, 1, 1, tzinfo=UTC),), {}, "shop.task(a): datetime would not come back"),
    ((b"x",), {}, "shop.task(a): bytes would not come back"),
    (({1: "x"},), {}, "shop.task(a): dict would not come back"),
    (([Colour.RED],), {}, "shop.task(a): list would not come back"),
    ((Point(1),), {}, "shop.task(a): Point would not come back"),
    ((Level.LOW,), {}, "shop.task(a): Level would not come back"),
    ((1, 2, 3, b"x"), {}, "shop.task(*numbers[1]): bytes would not come back"),
    ((1,), {"when": date(2026, 1, 1)}, "shop.task(when): date would not come back"),
    ((math.nan,), {}, "shop.task(a): cannot travel as JSON: JSON has no nan"),
]


@pytest.mark.parametrize(("args", "kwargs", "message"), UNTYPED)
def test_an_untyped_value_that_would_come_back_as_another_is_refused(args: Any, kwargs: Kwargs, message: str) -> None:
    text = refused(untyped, *args, **kwargs)
    assert text.startswith(message)
    assert "annotate the parameter with its type" in text or "nan" in text


def test_a_tuple_without_annotation_comes_back_as_a_list() -> None:
    assert called(untyped, (1, (2,)))[1][0] == [1, [2]]


BODIES: list[tuple[Callable[..., Any], bytes, str]] = [
    (plain, b"", "Input data was truncated"),
    (plain, b"nonsense", "JSON is malformed"),
    (plain, b"\xff", "JSON is malformed"),
    (plain, b"[1", "Input data was truncated"),
    (plain, b"null", "Expected object, got null"),
    (plain, b"5", "Expected object, got int"),
    (plain, b'"x"', "Expected object, got str"),
    (plain, b"[]", "missing a required argument: 'a'"),
    (plain, b'[1,"x",3]', "too many positional arguments: it takes 2"),
    (plain, b'["x"]', "argument a: Expected int, got str"),
    (plain, b"{}", "missing a required argument: 'a'"),
    (plain, b'{"a":1,"c":2}', "got an unexpected keyword argument 'c'"),
    (plain, b'{"a":"x"}', "argument a: Expected int, got str"),
    (keyword_only, b"[1]", "missing a required argument: 'b'"),
    (rest, b"[]", "missing a required argument: 'a'"),
    (rest, b'[1,"x"]', "argument *numbers[0]: Expected int, got str"),
    (rest, b'{"*":[1]}', "missing a required argument: 'a'"),
    (rest, b'{"a":1,"*":5}', "argument *numbers: Expected array, got int"),
    (rest, b'{"a":1,"*":[1,"x"]}', "argument *numbers[1]: Expected int, got str"),
    (further, b'{"a":1,"x":"no"}', "argument x: Expected int, got str"),
]


@pytest.mark.parametrize(("fn", "body", "message"), BODIES)
def test_a_wrong_body_from_outside_is_refused(fn: Callable[..., Any], body: bytes, message: str) -> None:
    assert refused_body(fn, body).startswith(f"shop.task: {message}")


def test_a_body_nested_deeper_than_this_python_reads_is_refused() -> None:
    # 3.11 reads some 900 levels, 3.13 10,000, 3.14 as many as the stack has room for.
    told = refused_body(untyped, b"[" * 1_000_000)
    assert told.startswith(("shop.task: maximum recursion depth exceeded", "shop.task: Stack overflow"))


FROM_OUTSIDE: list[tuple[Callable[..., Any], bytes, Any]] = [
    (plain, b' \n[ 1 , "x" ]\n', (1, "x")),
    (plain, b' {"b": "x", "a": 1}', (1, "x")),
    (plain, b'{"a":1}', (1, "b")),
    (rest, b'{"a":1,"*":[2,3]}', (1, (2, 3))),
    (rest_with_defaults, b'{"*":[7,8]}', (1, 2, (7, 8))),
    (rest_with_defaults, b'{"b":5,"*":[7]}', (1, 5, (7,))),
    (positional_only, b'{"a":1,"b":2}', (1, 2, 3)),
    (further, b'{"a":1,"x":2}', (1, {"x": 2})),
    (all_kinds, b'{"a":1,"b":2,"*":[3],"k":4,"x":5}', (1, 2, (3,), 4, {"x": 5})),
]


@pytest.mark.parametrize(("fn", "body", "value"), FROM_OUTSIDE)
def test_both_forms_of_a_body_may_be_written_by_any_client(fn: Callable[..., Any], body: bytes, value: Any) -> None:
    args, kwargs = Codec("shop.task", fn).decode(body)
    assert fn(*args, **kwargs) == value


def test_an_annotation_may_name_what_comes_later() -> None:
    def early(a: "Late") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    codec = Codec("shop.task", early)
    with pytest.raises(ArgumentError, match=r"shop.task: an annotation cannot be resolved: name 'Late' is not defined"):
        codec.encode((1,), {})
    early.__globals__["Late"] = int
    try:
        assert codec.encode((1,), {}) == b"[1]"
    finally:
        del early.__globals__["Late"]


def test_results_travel_by_the_return_annotation() -> None:
    def points() -> list[Point]: ...  # type: ignore[empty-body]

    codec = Codec("shop.task", points)
    assert codec.decode_result(codec.encode_result([Point(1, 2)])) == [Point(1, 2)]


def test_a_result_of_another_type_than_announced_is_what_json_says() -> None:
    def number() -> int: ...  # type: ignore[empty-body]

    codec = Codec("shop.task", number)
    assert codec.decode_result(codec.encode_result("many")) == "many"


def test_a_partial_and_a_callable_object_have_their_own_annotations() -> None:
    class Sender:
        def __call__(self, when: datetime) -> Any:
            return when

    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert called(Sender(), when)[1] == when
    assert called(functools.partial(keyword_only, b=2), 1, c=4)[1] == (1, 2, 4)
    assert refused(functools.partial(plain, 1), b=5) == "shop.task: argument b: Expected str, got int"
