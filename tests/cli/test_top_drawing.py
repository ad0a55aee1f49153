"""The picture as lines, without a terminal: nothing is too wide, nothing overlaps, nothing escapes."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from prompt_toolkit.utils import get_cwidth

from tarry.cli.endpoints import EndpointHealth
from tarry.cli.top.facts import Host, Queue, RunningJob
from tarry.cli.top.screen import Head, drawn
from tarry.cli.top.tables import HOSTS, HTTP, JOBS, QUEUES, WORKERS, WorkerLine
from tarry.cli.top.text import fitted, number, rate, size, span, visible
from tarry.cli.top.view_state import Desk, Wish
from tarry.runtime.scoreboard import ChildStatus, Running

ID = "01a1ffe5-30d9-7281-9732-e83a111d1c9d"
names = some.text(max_size=60)
counts = some.integers(0, 10**12)
seconds = some.none() | some.floats(0, 1e7)

queues = some.builds(
    Queue, queue=names, paused=some.booleans(), scheduled=counts, ready=counts, running=counts, done=counts,
    dead=counts, cancelled=counts, oldest=seconds, wait=seconds, came=seconds, left=seconds, died=seconds,
    least=some.booleans(),
)  # fmt: skip
jobs = some.builds(
    RunningJob, id=some.uuids().map(str), task=names, queue=names, attempt=some.integers(1, 999),
    seconds=some.floats(0, 1e7), waited=some.floats(0, 1e7), host=names, pid=some.integers(0, 2**22),
    key=some.none() | names, progress=some.none() | some.floats(0, 1),
)  # fmt: skip


def child(number: int = 1, *tasks: str, **rest: object) -> ChildStatus:
    running = [Running(ID.replace("-", ""), task, 1.0 + n, 1) for n, task in enumerate(tasks)]
    facts: dict[str, object] = {
        "role": "worker", "pool": "default", "number": number, "generation": 1, "pid": 1000 + number,
        "boot": "ready", "owner": "", "started": 0.0, "processed": 5, "failed": 0, "rss": 2**25, "heartbeat": 0.1,
        "last_exit": "", "running": running,
    }  # fmt: skip
    return ChildStatus(**(facts | rest))  # type: ignore[arg-type]


def desk(**facts: object) -> Desk:
    made = Desk()
    made.facts.update(facts)  # type: ignore[arg-type]
    return made


def lines(made: Desk, width: int = 80, height: int = 24) -> list[str]:
    head = Head("tarry top", (("", "pools"), ("", "jobs"), ("", "store")))
    return ["".join(text for _, text in line) for line in drawn(head, made, width, height, 0.0, get_cwidth)]


def fits(shown: list[str], width: int, height: int) -> None:
    assert len(shown) == height
    for line in shown:
        assert sum(map(get_cwidth, line)) <= width, line
        assert not [char for char in line if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")], line


@settings(deadline=None, max_examples=60)
@given(
    some.lists(queues, max_size=40), some.lists(jobs, max_size=40), some.sampled_from([(80, 24), (200, 50), (40, 8)])
)
def test_every_line_fits_whatever_is_in_it(many: list[Queue], run: list[RunningJob], at: tuple[int, int]) -> None:
    workers = [WorkerLine(child(n, job.task), child(n, job.task).running[0], True, 1.5) for n, job in enumerate(run)]
    made = desk(queues=many, jobs=run, workers=workers)
    for key in ("\t", "down", "end", "\t", "c", "n", "s", "S", "?", " ", "/", "a"):
        fits(lines(made, *at), *at)
        made.press({"\t": "tab"}.get(key, key))
    fits(lines(made, *at), *at)


@settings(deadline=None)
@given(some.integers(1, 250), some.integers(1, 60))
def test_any_size_of_terminal(width: int, height: int) -> None:
    made = desk(queues=[Queue(f"q{n}") for n in range(30)], jobs=[RunningJob(ID, "t", "q", 1, 1, 1, "h", 1)] * 5)
    made.shown = (QUEUES, WORKERS, JOBS, HTTP, HOSTS)
    for focus in made.shown:
        made.focus = focus.name
        fits(lines(made, width, height), width, height)


def test_columns_stand_under_their_titles() -> None:
    made = desk(queues=[Queue("a", ready=5), Queue("幅広い", ready=123_456), Queue("e\u0301", ready=1)])
    shown = lines(made)
    heading = next(line for line in shown if "ready" in line)
    end = heading.index("ready") + 5
    for line in shown[shown.index(heading) + 1 :][:3]:
        cells = "".join(char + "\0" * (get_cwidth(char) - 1) for char in line if get_cwidth(char))
        assert cells[end - 1] in "5k1"
        assert cells[end] == " "


def test_http_tasks_have_a_table_that_says_what_is_wrong() -> None:
    url = "https://shop.example/orders/{order}/timeout"
    made = desk(
        http=[
            EndpointHealth("shop.fine", url, 40, 3, True, "closed", None, "", 1200),
            EndpointHealth("shop.hook", url, 0, 0, True, "open", 12.2, "answered 503 Service Unavailable", 7),
            EndpointHealth("shop.new", url, None, 0, True, "closed", None, ""),
            EndpointHealth("shop.off", url, 0, 0, False, "closed", None, "answered 410 Gone", 0),
        ]
    )
    made.shown = (QUEUES, HTTP)
    made.focus = HTTP.name
    shown = lines(made, 120)
    fits(shown, 120, 24)
    rows = {words[0]: words[1:] for line in shown if (words := line.removeprefix("›").split()) and "shop." in words[0]}
    assert rows["shop.fine"][1:] == ["40", "3", "1,200"]
    assert rows["shop.hook"][1:7] == ["0", "·", "7", "open,", "12s", "answered"]
    assert rows["shop.new"][1:] == ["-", "·", "-"]
    assert rows["shop.off"][4:6] == ["disabled", "answered"]
    fits(lines(made, 80), 80, 24)


def test_the_chosen_line_is_always_shown() -> None:
    made = desk(queues=[Queue(f"q{n:03}") for n in range(100)])
    for key, name in (("end", "q099"), ("pageup", "q089"), ("up", "q088"), ("home", "q000"), ("down", "q001")):
        made.press(key)
        assert any(line.startswith(f"› {name}") for line in lines(made))
    assert any("/100" in line for line in lines(made))


def test_the_choice_stays_on_its_line_when_others_come_and_go() -> None:
    made = desk(queues=[Queue("b"), Queue("c"), Queue("d")])
    made.press("down")
    made.facts["queues"] = [Queue("a"), Queue("b"), Queue("c"), Queue("d")]
    assert made.selected() == Queue("c")
    assert made.press("p") == Wish("pause", "c", "c")
    made.facts["queues"] = [Queue("a"), Queue("b"), Queue("d")]
    assert made.selected() == Queue("d")
    made.facts["queues"] = []
    assert made.selected() is None
    assert made.press("p") is None
    assert "choose a queue" in made.message


def test_what_is_confirmed_is_the_job_that_was_asked_about() -> None:
    other = RunningJob(ID[::-1], "other", "q", 1, 9, 1, "h", 1)
    made = desk(jobs=[RunningJob(ID, "mine", "q", 1, 1, 1, "h", 1)])
    made.press("3")
    assert made.press("c") is None
    made.facts["jobs"] = [other]
    assert made.press("y") == Wish("cancel", ID, f"mine {ID}")
    for no in ("n", "enter", "escape", " ", "c"):
        made.facts["jobs"] = [RunningJob(ID, "mine", "q", 1, 1, 1, "h", 1)]
        made.press("c")
        assert made.press(no) is None
        assert made.message == "not cancelled"


def test_each_job_of_a_worker_has_a_line() -> None:
    made = child(1, "short", "long")
    worker_lines = [WorkerLine(made, job, n == 0, None) for n, job in enumerate(reversed(made.running))]
    shown = [line for line in lines(desk(workers=worker_lines)) if "default.1" in line]
    assert [line.split()[-1] for line in shown] == ["long", "short"]
    assert "1001" not in shown[1]


def test_how_the_last_one_ended_is_shown_where_nothing_runs() -> None:
    gone = child(1, boot="gone", last_exit="signal 9")
    assert any(
        "gone" in line and "after signal 9" in line
        for line in lines(desk(workers=[WorkerLine(gone, None, True, None)]))
    )


def test_hosts_are_shown_when_there_are_others() -> None:
    made = desk(hosts=[Host("i", "db2", "lost", 7, None, 4, 0, 10, 1, "default 0/4", 31.0, False)])
    assert not any("db2" in line for line in lines(made))
    made.shown = (QUEUES, WORKERS, JOBS, HOSTS)
    line = next(line for line in lines(made) if "db2" in line)
    assert line.split()[1:4] == ["lost", "7", "4"]
    made.press("4")
    assert any(line.startswith("› db2") for line in lines(made))


def test_what_has_no_value_is_sorted_last_either_way() -> None:
    made = desk(queues=[Queue("a"), Queue("b", oldest=1.0), Queue("c", oldest=9.0)])
    made.chosen(QUEUES).sort = 6
    assert [queue.queue for queue in made.lines(QUEUES)] == ["b", "c", "a"]
    made.press("S")
    assert [queue.queue for queue in made.lines(QUEUES)] == ["c", "b", "a"]


def test_after_the_last_column_comes_the_first_order_again() -> None:
    made = desk(queues=[Queue("b"), Queue("a")])
    shown = len(next(line for line in lines(made, 50) if "queue" in line).split()[1:]) + 1
    seen = set()
    for _ in range(shown):
        made.press("s")
        assert any("▲" in line or "▼" in line for line in lines(made, 50))
        seen.add(made.chosen(QUEUES).sort)
    assert len(seen) == shown < len(QUEUES.columns)
    made.press("s")
    assert made.chosen(QUEUES).sort == -1


def test_a_rate_that_is_a_least_says_so() -> None:
    queue = Queue("q", came=12.0, left=54321.0, died=0.0, least=True)
    row = next(line for line in lines(desk(queues=[queue]), 160) if line.startswith("› q"))
    assert "≥12" in row
    assert "≥54k" in row


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[2Jx\x07", "\\x1b[2Jx\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\u202eevil", "\\u202eevil"),
        ("a\u200bb", "a\\u200bb"),
        ("\ud800", "\\ud800"),
        ("a" + "\u0301" * 50, "á\u0301\u0301"),
        ("\u0301a", "a"),
        ("e\u0301", "é"),
        ("☎\ufe0f", "☎"),
        ("a\u3000b", "a b"),
        ("x" * 1000, "x" * 500),
    ],
)
def test_strange_text_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "width", "right", "shown"),
    [
        ("ab", 4, False, "ab  "), ("ab", 4, True, "  ab"), ("abcdef", 4, False, "abc…"), ("幅広", 4, False, "幅広"),
        ("幅広い", 4, False, "幅… "), ("幅広い", 5, False, "幅広…"), ("ab", 1, False, "…"), ("ab", 0, False, ""),
    ],
)  # fmt: skip
def test_text_is_cut_or_filled(text: str, width: int, right: bool, shown: str) -> None:
    assert fitted(text, width, right, get_cwidth) == shown


@pytest.mark.parametrize(
    ("n", "shown"),
    [(0, "0"), (99_999, "99,999"), (100_000, "100k"), (999_999, "999k"), (1_234_567, "1.235M"), (10**12, "1T")],
)
def test_numbers_are_short(n: int, shown: str) -> None:
    assert number(n) == shown


@given(some.integers(0, 10**14), some.floats(0, 1e12))
def test_figures_keep_to_their_columns(n: int, x: float) -> None:
    assert len(number(n)) <= 6
    assert len(rate(x)) <= 6


def test_figures_as_people_read_them() -> None:
    assert [rate(x) for x in (None, 0.0, 0.01, 0.4, 9.94, 12.4, 3400.0)] == [
        "-",
        "0",
        "<0.1",
        "0.4",
        "9.9",
        "12",
        "3,400",
    ]
    assert [span(x) for x in (None, 0.0015, 12.0, 200.0)] == ["-", "1.5ms", "12s", "3m20s"]
    assert [size(x) for x in (0, 51 * 2**20, 3 * 2**29)] == ["0 MB", "51 MB", "1.5 GB"]
