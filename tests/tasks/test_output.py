"""What is kept of a text that grows: its end, within bounds."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from tarry.tasks.output import LINES, Output, Tail


def kept(*texts: str, most: int = 1000) -> Output:
    tail = Tail(most)
    for text in texts:
        tail.add(text)
    return tail.snapshot(3)


def test_what_fits_is_kept_as_it_is() -> None:
    assert kept("one", "\n", "two\nthr", "ee") == Output("one\ntwo\nthree", 3, 0)
    assert kept("one\n") == Output("one\n", 3, 0)
    assert kept() == Output("", 3, 0)


def test_of_many_lines_the_last_are_kept() -> None:
    output = kept(*(f"{number}\n" for number in range(1000)))
    assert output.text.split("\n") == [*map(str, range(1000 - LINES, 1000)), ""]
    assert output.left_out == 1000 - LINES
    assert kept("".join(f"{number}\n" for number in range(1000)), most=9999) == output


def test_of_long_lines_the_last_bytes_are_kept() -> None:
    output = kept("a" * 600 + "\n", "b" * 600 + "\n")
    assert output == Output("a" * 398 + "\n" + "b" * 600 + "\n", 3, 0)
    output = kept("first\n", "x" * 10_000_000, most=100)
    assert output == Output("x" * 100, 3, 1)
    assert kept("ü" * 100, most=9).text == "ü" * 4
    assert kept("a\n" * 50, "b" * 100, most=100) == Output("b" * 100, 3, 50)


def test_of_a_line_that_is_written_over_the_last_state_is_kept() -> None:
    assert kept("go\n", *(f"\r{percent}%" for percent in range(101)), "\n").text == "go\n100%\n"
    assert kept(*(f"{percent}%\r" for percent in range(101))).text == "100%"
    assert kept("dos\r\n", "lines\r", "\n").text == "dos\nlines\n"


def test_a_whole_line_begins_a_line() -> None:
    tail = Tail(1000)
    tail.add_line("one")
    tail.add("begun")
    tail.add_line("two")
    assert tail.snapshot(1).text == "one\nbegun\ntwo\n"


def test_what_plays_with_terminals_is_taken_out() -> None:
    output = kept("\x1b[1;31mred\x1b[0m \x1b]0;title\x07bell\x07 \x9b tab\t half \udc80\n")
    assert output.text == "red bell\ufffd \ufffd tab\t half \\udc80\n"


@given(st.lists(st.text(alphabet="ab\n\rü\x1b[0m\udc80", max_size=60), max_size=60), st.integers(1, 80))
def test_whatever_comes_there_is_a_bound_and_it_is_the_end(texts: list[str], most: int) -> None:
    output = kept(*texts, most=most)
    assert len(output.text.encode()) <= most
    assert output.text.count("\n") <= LINES
    lines = "".join(texts).count("\n")
    assert 0 <= output.left_out <= lines
    if all(set(text) <= {"a", "b", "\n"} for text in texts) and lines <= LINES:
        assert "".join(texts).endswith(output.text)
        assert output.left_out == lines - output.text.count("\n")


def test_it_holds_little_whatever_it_is_given() -> None:
    tail = Tail(1000)
    for _ in range(1000):
        tail.add("x" * 999 + "\n")
        tail.add("y" * 5)
    held = sum(map(len, tail._lines)) + len(tail._open)
    assert held <= 4000


def test_threads_that_add_at_once_break_nothing() -> None:
    tail = Tail(1000)

    def add() -> None:
        for number in range(5000):
            tail.add(f"{'x' * (number % 40)}\n")

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert len(tail.snapshot(1).text) <= 1000
    for thread in threads:
        thread.join()
    tail.add_line("last")
    assert tail.snapshot(1).text.endswith("last\n")
