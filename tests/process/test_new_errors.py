"""Which errors are new, and what is told of them."""

from tarry.alert.new_errors import MOST_APART, new_error_conditions
from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place
from tarry.store.rules.history.sums import Place

ID = "0123456789abcdef"


def cell(first: int, *, muted: bool = False, task: str = "send") -> bytes:
    group = ErrorGroup("ValueError", "no room for …", "shop/mail.py:send", 3, first, first + 9, tasks={task: 3})
    group.is_muted = muted
    return encode_group(group)


def keys(cells: dict[Place, bytes], since: int = 100) -> list[str]:
    return [one.key for one in new_error_conditions(cells, since, 10**6)]


def test_a_new_error_is_told_with_its_place_and_tasks() -> None:
    (told,) = new_error_conditions({group_place("mail", ID): cell(200)}, 100, 10**6)
    assert told.what == "a new error: ValueError: no room for … in shop/mail.py:send"
    assert (told.key, told.details, told.since) == (f"error {ID}", ("send: 3",), 200)
    assert f"tarry errors show {ID}" in told.todo


def test_what_began_before_is_not_new_nor_what_is_muted_nor_all_others() -> None:
    assert keys({group_place("mail", ID): cell(100)}) == []
    assert keys({group_place("mail", ID): cell(200, muted=True)}) == []
    assert keys({group_place("", ""): cell(200)}) == []


def test_one_that_is_older_in_another_queue_is_not_new() -> None:
    assert keys({group_place("mail", ID): cell(200), group_place("slow", ID): cell(50)}) == []
    assert keys({group_place("mail", ID): cell(200), group_place("slow", ID): cell(150)}) == [f"error {ID}"]


def test_one_that_is_muted_in_one_queue_is_told_of_another() -> None:
    cells = {group_place("mail", ID): cell(200, muted=True), group_place("slow", ID): cell(200)}
    assert keys(cells) == [f"error {ID}"]


def test_of_many_at_once_there_is_one() -> None:
    cells = {group_place("mail", f"{number:016x}"): cell(200 + number) for number in range(MOST_APART + 1)}
    assert keys(cells) == ["errors"]
    cells.popitem()
    assert len(keys(cells)) == MOST_APART


def test_a_group_that_cannot_be_read_is_none() -> None:
    assert keys({group_place("mail", ID): b"\xc1"}) == []
