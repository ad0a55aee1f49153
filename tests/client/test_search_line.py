"""A line that says which jobs: what it means, what is refused, and that it is written as it is read."""

import contextlib
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarry.client.job_records import JobTerms
from tarry.client.operations.line_words import format_line
from tarry.client.operations.operation import JobFilter
from tarry.client.operations.search_line import LineError, merge_line, parse_line
from tarry.model.job import MOST_LABELS, State, parse_label
from tarry.store.queries.job_search import MOST_LINE

ID = "01a1fdd3-717b-7374-861e-7ba6a7da9033"


@pytest.mark.parametrize(
    ("line", "terms"),
    [
        ("", JobTerms()),
        (
            "state:dead task:shop.* error:timeout since:2d customer:7",
            JobTerms(state=[State.DEAD], task="shop.*", error_text=["timeout"], since="2d", label=["customer=7"]),
        ),
        ("state:dead,ready state:done", JobTerms(state=[State.DEAD, State.READY, State.DONE])),
        ("  queue:mail\n key:A-17\t", JobTerms(queue="mail", key="A-17")),
        ("error:0123456789abcdef", JobTerms(error="0123456789abcdef")),
        ('error:"0123456789abcdef"', JobTerms(error_text=["0123456789abcdef"])),
        ('connection "was refused"', JobTerms(error_text=["connection", "was refused"])),
        (f"{ID}", JobTerms(id=ID)),
        ("a7da9033", JobTerms(id="a7da9033")),
        ('"a7da9033" 12345678', JobTerms(error_text=["a7da9033", "12345678"])),
        ('arg:"say \\"no\\" \\\\ yes"', JobTerms(text='say "no" \\ yes')),
        (f"flow:{ID.replace('-', '')} node:ship parent:{ID}", JobTerms(flow=ID, node="ship", parent=ID)),
        ("since:90 until:2026-11-24T16:00Z", JobTerms(since=90.0, until="2026-11-24T16:00Z")),
        ("older:1h created_since:1d created_until:2h", JobTerms(older="1h", created_since="1d", created_until="2h")),
        ("label.customer:7 label.state:dead", JobTerms(label=["customer=7", "state=dead"])),
        ('order:a=b:c note:""', JobTerms(label=["order=a=b:c", "note="])),
    ],
)
def test_what_a_line_means(line: str, terms: JobTerms) -> None:
    assert parse_line(line) == terms
    assert parse_line(format_line(terms)) == terms


@pytest.mark.parametrize(
    ("line", "word", "way_out"),
    [
        ("queue:mail sate:dead", "sate:dead", "did you mean state? The label of that name is label.sate:dead"),
        ("sttae:dead", "sttae:dead", "did you mean state?"),
        ("tasks:x", "tasks:x", "did you mean task?"),
        ("state:deed", "state:deed", "did you mean dead?"),
        ("label:customer=7", "label:customer=7", "as in customer:7"),
        ("text:ann", "text:ann", "arg:"),
        ("priority:5", "priority:5", "label.priority:5"),
        ("queue:shop-*", "queue:shop-*", "task: takes a pattern"),
        ("since:soon", "since:soon", 'as in "2h"'),
        ("since:-1", "since:-1", "negative"),
        ("older:nan", "older:nan", "no number"),
        ("state:dead arg:a arg:b", "arg:b", "given twice"),
        ("customer:", "customer:", "no text"),
        ('""', '""', "no text"),
        ("customer=7", "customer=7", "customer:7"),
        ("customer=7:x", "customer=7:x", "no ="),
        ('arg:""', 'arg:""', "no text"),
        ('error:"no', 'error:"no', 'error:"no such user"'),
        ('a"b', 'a"b', 'error:"no such user"'),
        ("flow:7", "flow:7", "32 hexadecimal digits"),
        ("id:12", "id:12", "6 or more"),
        ("task:" + "a" * 300, "task:aaa", "200"),
        ("customer:" + "a" * 300, "customer:aaa", "256 bytes"),
        ("a b c d e f g h i", "i", "length"),
        (" ".join(f"l{n}:1" for n in range(MOST_LABELS + 1)), f"l{MOST_LABELS}:1", "length"),
        ("x" * (MOST_LINE + 1), "2,001 characters", "2,000"),
    ],
)
def test_an_error_names_the_word_and_the_way_out(line: str, word: str, way_out: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_line(line)
    said = str(caught.value)
    assert word in said
    assert way_out in said
    assert len(said) < 500


def test_a_hostile_line_takes_no_time() -> None:
    began = time.perf_counter()
    for line in ('"' * MOST_LINE, '"\\' * 1000, "a:" * 1000, "a " * 1000, '"a" ' * 500, "a" * MOST_LINE, " " * 2000):
        with contextlib.suppress(LineError):
            parse_line(line)
    assert time.perf_counter() - began < 1


def test_a_line_and_fields_are_one() -> None:
    found = merge_line(JobTerms(queue="mail"), "state:dead")
    assert (found.queue, found.state) == ("mail", [State.DEAD])
    assert merge_line(found, " ") == found
    with pytest.raises(LineError, match="the line says queue"):
        merge_line(found, "queue:other")


def test_a_filter_is_written_as_it_is_read() -> None:
    now = 1_700_000_000_000_000
    filter = JobFilter.of(parse_line("state:dead since:2d until:1h task:a.* error:no flow:" + ID), now)
    line = format_line(filter.terms())
    assert "since:2023-11-12T22:13:20Z" in line
    assert JobFilter.of(parse_line(line), now + 5) == filter
    assert (filter.task, filter.task_pattern) == (None, "a.*")


def test_a_task_with_a_star_in_its_name_is_that_task_alone() -> None:
    """Where a program names it: only who writes a line, or lists jobs, means a pattern."""
    query = JobFilter(task="a*").query(0)
    assert (query.task, query.tasks) == ("a*", ())
    with pytest.raises(ValueError, match="give one of them"):
        JobFilter(task="a", task_pattern="a*").query(0)


def _is_label(text: str) -> bool:
    try:
        parse_label(text)
    except ValueError:
        return False
    return True


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
_SOME = st.none() | _TEXT
_WORDS = st.sampled_from(["state", "label", "label.state", "sate", "customer", '"', 'a"b', "order", "priority"])
_LABELS = st.builds("{}={}".format, _WORDS | _TEXT, st.just("") | _TEXT).filter(_is_label)
_TIMES = st.none() | st.sampled_from(["2d", "1h30m", "2026-11-24T16:00Z"]) | st.floats(0, 1e9)
_TERMS = st.builds(
    JobTerms,
    state=st.lists(st.sampled_from(State), unique=True),
    queue=_SOME.filter(lambda text: not text or "*" not in text),
    task=_SOME,
    key=_SOME,
    label=st.lists(_LABELS, max_size=4),
    older=st.none() | st.sampled_from(["2d", "1h30m"]) | st.floats(0, 1e9),
    since=_TIMES,
    until=_TIMES,
    created_since=_TIMES,
    created_until=_TIMES,
    text=st.just("") | _TEXT,
    id=st.sampled_from(["", "abcdef", ID, "123456"]),
    error=st.none() | st.just("0123456789abcdef"),
    error_text=st.lists(_TEXT | st.sampled_from(["0123456789abcdef", "a7da9033", "state:dead"]), max_size=3),
    flow=st.sampled_from([None, ID]),
    node=st.just("") | _TEXT,
    parent=st.sampled_from([None, ID]),
)


@given(_TERMS)
@example(JobTerms(error_text=['"', "\\", ' "', "a:b"]))
@example(JobTerms(label=["label.x=1", "state=2", "=".join('"a')]))
def test_each_line_that_is_written_is_read_as_the_same(terms: JobTerms) -> None:
    assert parse_line(format_line(terms)) == terms


@given(st.text(max_size=60) | st.lists(st.sampled_from([*'":\\ =.*', "state", "label", "error", "a"])).map("".join))
def test_any_text_is_a_line_or_an_error(line: str) -> None:
    try:
        terms = parse_line(line)
    except LineError:
        return
    assert parse_line(format_line(terms)) == terms
