"""Formats change only as docs/versions.md says."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Struct

from tests.formats import VERSION
from tests.formats.decoded import decoded_types
from tests.formats.files import KINDS, read_shapes
from tests.formats.shapes import broken, describe_types


@pytest.mark.parametrize("kind", KINDS)
def test_the_formats_are_as_they_were_written_down(kind: str) -> None:
    version, before = read_shapes(kind)
    now = describe_types(KINDS[kind]())
    lost = broken(before, now, is_answer=kind == "answers")
    assert version == VERSION, "run `python -m tests.formats`"
    assert lost == [], "other versions could not read that: see docs/versions.md, or raise VERSION in tests/formats"
    assert now == before, "the formats have grown, as they may: run `python -m tests.formats`"


def test_what_is_stored_is_found() -> None:
    found = decoded_types()
    assert len(found) > 60
    wanted = ("store/outbox: Entry", "client/audit/log: list[Act]", "model/flow/wiring: NodeLinks", "model/moving: Job")
    assert [name for name in wanted if name not in found] == []


def _old(*fields: object, array: bool = False) -> list[str]:
    return describe_types({"cell": msgspec.defstruct("Kept", fields, array_like=array)})  # type: ignore[arg-type]


BEFORE = [("name", str), ("state", Literal["a", "b"], "a")]


@pytest.mark.parametrize("array", [False, True])
def test_a_field_with_a_default_is_growth(array: bool) -> None:
    assert broken(_old(*BEFORE, array=array), _old(*BEFORE, ("at", int, 0), array=array)) == []


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        ([BEFORE[0]], ['Kept.state: one of a, b = "a"']),
        ([BEFORE[0], ("state", Literal["a", "b", "c"], "a")], ['Kept.state: one of a, b = "a"']),
        ([*BEFORE, ("at", int)], ["Kept.at: int"]),
        ([("name", bytes), BEFORE[1]], ["Kept.name: str", "Kept.name: bytes"]),
    ],
)
def test_all_else_is_not(now: list[tuple[object, ...]], lost: list[str]) -> None:
    order = [field for field in now if len(field) == 2] + [field for field in now if len(field) == 3]
    assert broken(_old(*BEFORE), _old(*order)) == lost


def test_in_an_array_growth_is_at_the_end() -> None:
    shifted = [BEFORE[0], ("at", int, 0), BEFORE[1]]
    assert broken(_old(*BEFORE, array=True), _old(*shifted, array=True)) == ['Kept.[01]state: one of a, b = "a"']


def test_a_required_field_of_an_answer_is_growth() -> None:
    grown = _old(("at", int), *BEFORE)
    assert broken(_old(*BEFORE), grown, is_answer=True) == []


def test_types_within_types_are_described() -> None:
    class Inner(Struct, frozen=True):
        at: Annotated[int, msgspec.Meta(ge=0)] = 0

    class Outer(Struct, array_like=True):
        inner: list[Inner] | None
        by: dict[str, tuple[bytes, bool]] = {}

    assert describe_types({"cell": Outer}) == [
        "Inner.at: int = 0",
        "Inner: object",
        "Outer.[00]inner: list[Inner] | None",
        "Outer.[01]by: dict[str, array[bytes, bool]] = {}",
        "Outer: array",
        "cell = Outer",
    ]
