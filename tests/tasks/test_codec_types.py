"""Every kind of type that travels, through a real store: as an argument and as a result."""

import enum
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypedDict, TypeVar, Union

import msgspec
import pytest

from tarry import App, ArgumentError, Snooze
from tarry.tasks.arguments.codec import Codec
from tests.worker.bench import LIMIT, Bench

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2


class Size(enum.StrEnum):
    BIG = "big"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Line:
    name: str
    price: Decimal = Decimal("0.00")
    tags: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Box(Generic[T]):
    content: T


class Order(msgspec.Struct):
    id: uuid.UUID
    lines: list[Line] = []
    colour: Colour | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Place(NamedTuple):
    x: float
    y: float


class Address(TypedDict):
    street: str
    number: NotRequired[int]


VALUES: list[tuple[Any, Any]] = [
    (str, "é\x00\U0001f600"),
    (int, -(10**30)),
    (float, 1e-300),
    (bool, False),
    (None, None),
    (bytes, b"\x00\xff"),
    (bytearray, bytearray(b"x")),
    (Decimal, Decimal("1.10")),
    (uuid.UUID, uuid.UUID(int=7)),
    (datetime, datetime(2026, 11, 21, 10, 0, 0, 5, tzinfo=UTC)),
    (datetime, datetime(2026, 11, 21, 10, tzinfo=timezone(timedelta(hours=2)))),
    (datetime, datetime(2026, 11, 21)),
    (date, date(2026, 11, 21)),
    (time, time(10, 30, 0, 5)),
    (timedelta, timedelta(days=-1, microseconds=5)),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Size, Size.BIG),
    (Rights, Rights.READ | Rights.WRITE),
    (Line, Line("tea", Decimal("2.50"), {"hot"})),
    (Box[datetime], Box(datetime(2026, 1, 1, tzinfo=UTC))),
    (Order, Order(uuid.UUID(int=7), [Line("tea")], Colour.RED)),
    (Cat | Dog, Dog("rex")),
    (list[Cat | Dog | None], [Cat(9), None]),
    (Place, Place(1.5, 2.5)),
    (Address, {"street": "High", "number": 5}),
    (Address, {"street": "High"}),
    (tuple[int, str], (1, "x")),
    (tuple[date, ...], (date(2026, 1, 1),)),
    (set[int], {1, 2}),
    (frozenset[Colour], frozenset({Colour.RED})),
    (dict[str, list[date]], {"x": [date(2026, 1, 1)]}),
    (dict[int, Line], {1: Line("tea")}),
    (Sequence[int], [1, 2]),
    (Mapping[str, int], {"a": 1}),
    (Optional[int], None),  # noqa: UP045
    (Union[int, str], "x"),  # noqa: UP007
    (int | datetime | None, datetime(2026, 1, 1, tzinfo=UTC)),
    (Line | None, Line("tea")),
    (Literal["a", 1, None], 1),
    (Annotated[int, msgspec.Meta(ge=1)], 1),
    (list[Annotated[str, msgspec.Meta(max_length=3)]], ["abc"]),
    (Any, {"deep": [1, None, 1.5, True]}),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_it_travels_there_and_back(app: App, kind: Any, value: Any) -> None:
    def echo(a, *more, key=None, **named):  # type: ignore[no-untyped-def]
        return a

    def echo_one(a):  # type: ignore[no-untyped-def]
        return a

    echo.__annotations__ = {"a": kind, "more": kind, "key": Optional[kind], "named": kind, "return": kind}  # noqa: UP045
    echo_one.__annotations__ = {"a": kind, "return": kind}
    for fn, args, kwargs in (
        (echo_one, (value,), {}),
        (echo_one, (), {"a": value}),
        (echo, (value, value), {"key": value, "further": value}),
    ):
        task: Any = app.task(name=fn.__name__)(fn)
        job = task.enqueue(*args, **kwargs)
        came, named = task.codec.decode(job.record().body)
        assert [*came, *named.values()] == [*args, *kwargs.values()]
        assert {type(one) for one in [*came, *named.values()]} == {type(value)}
        back = task.codec.decode_result(task.codec.encode_result(value))
        assert back == value
        assert type(back) is type(value)


def test_they_travel_through_a_worker(bench: Bench) -> None:
    @bench.app.task(name="ship")
    def ship(order: Order, *when: date, box: Box[Place], **extra: Decimal) -> tuple[Order, list[date], Place, Decimal]:
        assert isinstance(order.lines[0], Line)
        return order, list(when), box.content, sum(extra.values(), Decimal())

    order = Order(uuid.UUID(int=7), [Line("tea", Decimal("2.50"), {"hot"})], Colour.RED)
    job = ship.enqueue(order, date(2026, 1, 1), date(2026, 1, 2), box=Box(Place(1, 2)), tax=Decimal("0.19"))
    bench.work()
    expected = (order, [date(2026, 1, 1), date(2026, 1, 2)], Place(1.0, 2.0), Decimal("0.19"))
    assert job.result(LIMIT) == expected


def over(a: Annotated[int, msgspec.Meta(ge=1)], *, b: Annotated[str, msgspec.Meta(pattern="^x")] = "x") -> None: ...


def literal(a: Literal["x", "y"], b: Address | None = None) -> None: ...


def unknown(a: complex) -> None: ...


def two_texts(a: int, b: str | bytes) -> None: ...


def two_dataclasses(a: Line | Place) -> None: ...


def points(*places: Place) -> None: ...


REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (over, (0,), {}, "t: argument a: Expected int >= 1"),
    (over, (), {"a": 0}, "t: argument a: Expected int >= 1"),
    (over, (1,), {"b": "y"}, "t: argument b: Expected str matching regex '^x'"),
    (over, (True,), {}, "t: argument a: Expected int, got bool"),
    (literal, ("z",), {}, "t: argument a: Invalid enum value 'z'"),
    (literal, ("x", {"street": 5}), {}, "t: argument b.street: Expected str, got int"),
    (literal, ("x", {"number": 5}), {}, "t: argument b: Object missing required field street"),
    (unknown, (1j,), {}, "t(a): cannot travel as JSON: Encoding objects of type complex is unsupported"),
    (two_texts, (1, "x"), {}, "t: argument b cannot travel with its annotation: Type unions may not contain more than"),
    (points, (Place(1, 2), ("x", 2)), {}, "t: argument *places[1][0]: Expected float, got str"),
]


@pytest.mark.parametrize(("fn", "args", "kwargs", "message"), REFUSED)
def test_what_does_not_fit_is_refused_at_enqueue_by_name(
    app: App, fn: Callable[..., Any], args: Any, kwargs: Any, message: str
) -> None:
    task: Any = app.task(name="t")(fn)
    for enqueue in (task.enqueue, lambda *a, **k: task.enqueue_many([task.call(*a, **k)])):
        with pytest.raises(ArgumentError) as caught:
            enqueue(*args, **kwargs)
        assert str(caught.value).startswith(message)
        assert "`" not in str(caught.value)
    assert app.client.store.counts() == []


def maybe(a: int) -> date | Snooze: ...  # type: ignore[empty-body]


def always() -> Snooze: ...  # type: ignore[empty-body]


def test_a_verdict_beside_the_result_does_not_hide_its_type() -> None:
    codec = Codec("t", maybe)
    assert codec.decode_result(codec.encode_result(date(2026, 1, 1))) == date(2026, 1, 1)
    assert Codec("t", always).decode_result(b"null") is None


def named_like_ours(rest: int, a: int = 1, *numbers: int, rest_: int = 0, self: int = 0, cls: int = 0) -> Any:
    return rest, a, numbers, rest_, self, cls


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1, 2, 3), {"self": 4}), ((1,), {"cls": 5, "rest_": 6}), ((), {"rest": 1, "a": 2})]
)
def test_parameters_may_have_names_that_we_use(args: Any, kwargs: Any) -> None:
    codec = Codec("t", named_like_ours)
    came, named = codec.decode(codec.encode(args, kwargs))
    assert named_like_ours(*came, **named) == named_like_ours(*args, **kwargs)


def plain(a: int, b: str = "b", *, c: float | None = None) -> Any:
    return a, b, c


SURE: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, "x"), {}),
    ((10**40,), {"c": 0.5}),
    ((1,), {"c": None, "b": "null"}),
    ((), {"c": 1e300, "a": 5}),
]


def rest(a: int, *names: str, **named: str) -> Any:
    return a, names, named


def test_text_that_is_none_is_found_in_the_rest_too() -> None:
    codec = Codec("t", rest)
    with pytest.raises(ArgumentError, match=r"t: argument \*names\[1\]: Expected str, got bytes"):
        codec.encode((1, "x", b"x"), {})
    with pytest.raises(ArgumentError, match="t: argument k: Expected str, got date"):
        codec.encode((1,), {"k": date(2026, 1, 1)})


def test_a_number_may_be_an_enum_or_whole() -> None:
    codec = Codec("t", plain)
    assert codec.encode((Level.HIGH, Size.BIG), {"c": 5}) == b'{"a":2,"b":"big","c":5}'


@pytest.mark.parametrize(("args", "kwargs"), SURE)
def test_what_is_not_read_again_comes_back_all_the_same(args: Any, kwargs: Any) -> None:
    codec = Codec("t", plain)
    came, named = codec.decode(codec.encode(args, kwargs))
    assert plain(*came, **named) == plain(*args, **kwargs)


NOT_SURE: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((True,), {}, "argument a: Expected int, got bool"),
    ((1, b"x"), {}, "t: argument b: Expected str, got bytes"),
    ((1, uuid.UUID(int=7)), {}, "t: argument b: Expected str, got UUID"),
    ((1,), {"b": date(2026, 1, 1)}, "t: argument b: Expected str, got date"),
    ((1,), {"c": Decimal(1), "b": "x"}, r"t: argument c: Expected (`?)float"),
    ((1,), {"b": 5}, "argument b: Expected str, got int"),
    ((1,), {"c": float("nan")}, r"t\(c\): cannot travel as JSON: JSON has no nan"),
    ((1, "\ud800"), {}, r"t\(b\): cannot travel as JSON: 'utf-8' codec"),
    ((1, "x", 2.0), {}, "too many positional arguments"),
    ((), {}, "missing a required argument: 'a'"),
    ((), {"b": "x"}, "missing a required argument: 'a'"),
    ((1,), {"a": 1}, "multiple values for argument 'a'"),
    ((1,), {"d": 1}, "got an unexpected keyword argument 'd'"),
    ((msgspec.UNSET,), {}, "."),
    ((), {"a": msgspec.UNSET}, "argument a|missing a required argument: 'a'"),
]


@pytest.mark.parametrize(("args", "kwargs", "message"), NOT_SURE)
def test_types_that_only_look_right_are_found_out(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Codec("t", plain).encode(args, kwargs)
