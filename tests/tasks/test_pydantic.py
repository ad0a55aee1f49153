"""Pydantic models travel like everything else, and whoever has none never loads pydantic."""

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, Optional, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, field_validator

from tarry import App, ArgumentError
from tarry.tasks.arguments.codec import Codec
from tests.worker.bench import LIMIT, Bench

T = TypeVar("T")


class User(BaseModel):
    name: str
    born: date | None = None
    credit: Decimal = Decimal(0)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    owner: User | None = None


class Page(BaseModel, Generic[T]):
    items: list[T]


class Tags(RootModel[list[str]]):
    pass


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    at: datetime
    id: UUID
    raw: bytes = b""


class Aliased(BaseModel):
    first_name: str = Field(alias="firstName")


class Counted(BaseModel):
    name: str
    _seen: int = PrivateAttr(default=0)


class Login(BaseModel):
    user: str
    password: SecretStr


class Weighed(BaseModel):
    weight: float | None


class Shouted(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def louder(cls, text: str) -> str:
        return text + "!"


class Held(msgspec.Struct):
    user: User
    others: list[User] = []


class Entry(TypedDict):
    user: User


ANN = User(name="Ann", born=date(1990, 1, 1), credit=Decimal("1.50"))
STRICT = Strict(at=datetime(2026, 1, 1, tzinfo=UTC), id=UUID(int=7), raw=b"x")
VALUES: list[tuple[Any, Any]] = [
    (User, ANN),
    (list[User], [ANN, User(name="Ben")]),
    (dict[str, User], {"ann": ANN}),
    (dict[str, list[User | None]], {"x": [ANN, None]}),
    (tuple[User, int], (ANN, 1)),
    (Optional[User], None),  # noqa: UP045
    (User | None, ANN),
    (User | int, ANN),
    (User | int, 5),
    (User | str | None, "x"),
    (User | list[int] | None, [1]),
    (Cat | Dog, Dog(owner=ANN)),
    (Cat | Dog | None, None),
    (list[Cat | Dog | int], [Cat(lives=1), Dog(), 5]),
    (Annotated[Cat | Dog, Field(discriminator="kind")], Dog()),
    (Page[User], Page[User](items=[ANN])),
    (Tags, Tags(["a", "b"])),
    (Strict, STRICT),
    (Aliased, Aliased(firstName="Ann")),
    (Counted, Counted(name="x")),
    (Held, Held(ANN, [ANN])),
    (Entry, {"user": ANN}),
    (Annotated[int, Field(ge=1)], 1),
    (Annotated[list[User], msgspec.Meta(max_length=1)], [ANN]),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_it_travels_there_and_back(kind: Any, value: Any) -> None:
    def echo(a):  # type: ignore[no-untyped-def]
        return a

    echo.__annotations__ = {"a": kind, "return": kind}
    codec = Codec("t", echo)
    for args, kwargs in (((value,), {}), ((), {"a": value})):
        came, named = codec.decode(codec.encode(args, kwargs))
        (back,) = [*came, *named.values()]
        assert back == value
        assert type(back) is type(value)
    result = codec.decode_result(codec.encode_result(value))
    assert result == value
    assert type(result) is type(value)


def test_models_travel_through_a_worker(bench: Bench) -> None:
    @bench.app.task(name="greet")
    def greet(user: User, *pets: Cat | Dog, by_name: dict[str, User]) -> list[User | None]:
        assert isinstance(pets[1], Dog)
        return [user, by_name["ann"], pets[1].owner, None]

    job = greet.enqueue(User(name="Ben"), Cat(), Dog(owner=ANN), by_name={"ann": ANN})
    bench.work()
    assert job.result(LIMIT) == [User(name="Ben"), ANN, ANN, None]


def greet(user: User, n: int = 0) -> None: ...


def many(users: list[User]) -> None: ...


def either(pet: Cat | Dog | int) -> None: ...


def limited(n: Annotated[int, Field(ge=1)], user: User | None = None) -> None: ...


def untyped(a):  # type: ignore[no-untyped-def]
    return a


def login(login: Login) -> None: ...


def shouted(text: Shouted) -> None: ...


def weighed(a: Weighed) -> None: ...


def text_only(a: str) -> None: ...


REFUSED: list[tuple[Any, Any, str]] = [
    (greet, {"name": 5}, "t: argument user: name: Input should be a valid string"),
    (greet, {}, "t: argument user: name: Field required"),
    (greet, "Ann", "t: argument user: Input should be an object"),
    (greet, Cat(), "t: argument user: name: Field required"),
    (many, [ANN, {"name": "x", "born": "soon", "credit": "y"}], "t: argument users[1]: born: "),
    (either, "x", "t: argument pet: Expected int, got str"),
    (either, {"kind": "cow"}, "t: argument pet: Cat.kind: Input should be 'cat' (and 1 more)"),
    (limited, 0, "t: argument n: Input should be greater than or equal to 1"),
    (limited, "5", "t: argument n: Input should be a valid integer"),
    (untyped, ANN, "t(a): User would not come back from JSON as it is; annotate the parameter with its type"),
    (text_only, ANN, "t: argument a: Expected str, got object"),
    (
        login,
        Login(user="ann", password=SecretStr("x")),
        "t(login): cannot travel as JSON: Login.password would not come",
    ),
    (
        shouted,
        Shouted(text="hi"),
        "t(text): cannot travel as JSON: Shouted.text would not come back from JSON as it is",
    ),
]


@pytest.mark.parametrize(("fn", "value", "message"), REFUSED)
def test_what_does_not_fit_is_refused_by_name_in_one_line(app: App, fn: Any, value: Any, message: str) -> None:
    task: Any = app.task(name="t")(fn)
    with pytest.raises(ArgumentError) as caught:
        task.enqueue(value)
    text = str(caught.value)
    assert text.startswith(message)
    assert "\n" not in text
    assert "`" not in text


def test_other_clients_may_write_aliases_and_leave_out_defaults() -> None:
    def aliased(a: Aliased, user: User) -> Any:
        return a, user

    came, _ = Codec("t", aliased).decode(b'[{"firstName":"Ann"},{"name":"Ben"}]')
    assert came == (Aliased(firstName="Ann"), User(name="Ben"))


def test_more_than_one_error_is_counted() -> None:
    with pytest.raises(ArgumentError, match=r"argument user: name: .* \(and 1 more\)"):
        Codec("t", greet).decode(b'[{"name":5,"born":"soon"}]')


_NONE = """
import json, sys
from dataclasses import dataclass
from tarry import App
from tarry.store.memory.store import MemoryStore

@dataclass
class Order:
    number: int

app = App(MemoryStore(), closures=True)

@app.task(name="send")
def send(to: str, order: Order | int | None = None) -> list[Order]: ...

send.enqueue("a", order=Order(1))
send.enqueue_many([("a", 5), ("b",)])
send.codec.decode_result(b'[{"number":1}]')
print(json.dumps([name for name in sys.modules if name.partition(".")[0].startswith(("pydantic", "annotated_types"))]))
"""


def test_pydantic_is_not_loaded_by_an_app_without_models() -> None:
    done = subprocess.run([sys.executable, "-c", _NONE], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == []
