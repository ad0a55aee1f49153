"""The picture as lines, without a terminal: nothing is too wide, nothing overlaps, nothing escapes."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from prompt_toolkit.utils import get_cwidth

from tarry.cli.top.facts import HostRow, QueueRow, RunningJob
from tarry.cli.top.screen import Header, draw
from tarry.cli.top.tables import HOSTS, HTTP, JOBS, QUEUES, WORKERS, WorkerLine
from tarry.cli.top.text import fit, make_printable, number, rate, size, span
from tarry.cli.top.view_state import Action, ViewState
from tarry.push.health import EndpointHealth
from tarry.runtime.board.reader import BoardJob, ChildStatus
from tarry.store.queries.history_reading import Percentiles
from tarry.store.queries.history_recent import RecentFigures

ID = "01a1ffe5-30d9-7281-9732-e83a111d1c9d"
names = some.text(max_size=60)
counts = some.integers(0, 10**12)
seconds = some.none() | some.floats(0, 1e7)

queues = some.builds(
    QueueRow, queue=names, paused=some.booleans(), scheduled=counts, ready=counts, running=counts, done=counts,
    dead=counts, cancelled=counts, oldest=seconds, wait=seconds, came=seconds, left=seconds, died=seconds,
    least=some.booleans(),
)  # fmt: skip
jobs = some.builds(
    RunningJob, id=some.uuids().map(str), task=names, queue=names, attempt=some.integers(1, 999),
    seconds=some.floats(0, 1e7), waited=some.floats(0, 1e7), host=names, pid=some.integers(0, 2**22),
    key=some.none() | names, progress=some.none() | some.floats(0, 1),
)  # fmt: skip


def child(number: int = 1, *tasks: str, **rest: object) -> ChildStatus:
    running = [BoardJob(ID.replace("-", ""), task, 1.0 + n, 1) for n, task in enumerate(tasks)]
    facts: dict[str, object] = {
        "role": "worker", "pool": "default", "number": number, "generation": 1, "pid": 1000 + number,
        "boot": "ready", "owner": "", "started": 0.0, "processed": 5, "failed": 0, "rss": 2**25, "heartbeat": 0.1,
        "last_exit": "", "running": running,
    }  # fmt: skip
    return ChildStatus(**(facts | rest))  # type: ignore[arg-type]


def make_view(**facts: object) -> ViewState:
    view = ViewState()
    view.facts.update(facts)  # type: ignore[arg-type]
    return view


def lines(view: ViewState, width: int = 80, height: int = 24) -> list[str]:
    head = Header("tarry top", (("", "pools"), ("", "jobs"), ("", "store")))
    return ["".join(text for _, text in line) for line in draw(head, view, width, height, 0.0, get_cwidth)]


def fits(shown: list[str], width: int, height: int) -> None:
    assert len(shown) == height
    for line in shown:
        assert sum(map(get_cwidth, line)) <= width, line
        assert not [char for char in line if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")], line


@settings(deadline=None, max_examples=60)
@given(
    some.lists(queues, max_size=40), some.lists(jobs, max_size=40), some.sampled_from([(80, 24), (200, 50), (40, 8)])
)
def test_every_line_fits_whatever_is_in_it(many: list[QueueRow], run: list[RunningJob], at: tuple[int, int]) -> None:
    workers = [WorkerLine(child(n, job.task), child(n, job.task).running[0], True, 1.5) for n, job in enumerate(run)]
    view = make_view(queues=many, jobs=run, workers=workers)
    for key in ("\t", "down", "end", "\t", "c", "n", "s", "S", "?", " ", "/", "a"):
        fits(lines(view, *at), *at)
        view.press({"\t": "tab"}.get(key, key))
    fits(lines(view, *at), *at)


@settings(deadline=None)
@given(some.integers(1, 250), some.integers(1, 60))
def test_any_size_of_terminal(width: int, height: int) -> None:
    view = make_view(
        queues=[QueueRow(f"q{n}") for n in range(30)], jobs=[RunningJob(ID, "t", "q", 1, 1, 1, "h", 1)] * 5
    )
    view.shown = (QUEUES, WORKERS, JOBS, HTTP, HOSTS)
    for focus in view.shown:
        view.focus = focus.name
        fits(lines(view, width, height), width, height)


def test_columns_stand_under_their_titles() -> None:
    view = make_view(queues=[QueueRow("a", ready=5), QueueRow("幅広い", ready=123_456), QueueRow("e\u0301", ready=1)])
    shown = lines(view)
    heading = next(line for line in shown if "ready" in line)
    end = heading.index("ready") + 5
    for line in shown[shown.index(heading) + 1 :][:3]:
        cells = "".join(char + "\0" * (get_cwidth(char) - 1) for char in line if get_cwidth(char))
        assert cells[end - 1] in "5k1"
        assert cells[end] == " "


def test_http_tasks_have_a_table_that_says_what_is_wrong() -> None:
    url = "https://shop.example/orders/{order}/timeout"
    view = make_view(
        http=[
            EndpointHealth("shop.fine", url, 40, 3, True, "closed", None, "", waiting=1200),
            EndpointHealth("shop.hook", url, 0, 0, True, "open", 12.2, "answered 503 Service Unavailable", waiting=7),
            EndpointHealth("shop.new", url, None, 0, True, "closed", None, ""),
            EndpointHealth("shop.off", url, 0, 0, False, "closed", None, "answered 410 Gone", waiting=0),
        ]
    )
    view.shown = (QUEUES, HTTP)
    view.focus = HTTP.name
    shown = lines(view, 120)
    fits(shown, 120, 24)
    rows = {words[0]: words[1:] for line in shown if (words := line.removeprefix("›").split()) and "shop." in words[0]}
    assert rows["shop.fine"][1:] == ["40", "3", "1,200"]
    assert rows["shop.hook"][1:7] == ["0", "·", "7", "open,", "12s", "answered"]
    assert rows["shop.new"][1:] == ["-", "·", "-"]
    assert rows["shop.off"][4:6] == ["disabled", "answered"]
    fits(lines(view, 80), 80, 24)


def test_the_chosen_line_is_always_shown() -> None:
    view = make_view(queues=[QueueRow(f"q{n:03}") for n in range(100)])
    for key, name in (("end", "q099"), ("pageup", "q089"), ("up", "q088"), ("home", "q000"), ("down", "q001")):
        view.press(key)
        assert any(line.startswith(f"› {name}") for line in lines(view))
    assert any("/100" in line for line in lines(view))


@pytest.mark.parametrize(("width", "height", "drawn"), [(80, 30, True), (80, 29, False), (59, 40, False)])
def test_charts_are_drawn_where_there_is_room(width: int, height: int, drawn: bool) -> None:
    head = Header("tarry top", (("", "jobs"),), (("", "in       ▁▂▃"), ("", "out      ▁▂▃")))
    view = make_view(queues=[QueueRow(f"q{n}") for n in range(50)])
    shown = ["".join(text for _, text in line) for line in draw(head, view, width, height, 0.0, get_cwidth)]
    fits(shown, width, height)
    assert [line.split()[0] for line in shown if "▁▂▃" in line] == (["in", "out"] if drawn else [])


def test_figures_of_the_history_stand_where_a_keeper_sums_it_up() -> None:
    recent = RecentFigures(60.0, 30.0, 2.0, Percentiles(0.5, 1.0, 2.0), Percentiles(3.0, 4.0, 5.0))
    view = make_view(queues=[QueueRow("a", recent=recent), QueueRow("b")])
    heads, a, b = lines(view, 180)[4:][1:4]
    at = {head: heads.index(head) + len(head) for head in ("fail/min", "wait p99", "ran p99")}
    assert [a[:end].split()[-1] for end in at.values()] == ["2.0", "2s", "5s"]
    assert [b[:end].split()[-1] for end in at.values()] == ["-", "-", "-"]


def test_the_choice_stays_on_its_line_when_others_come_and_go() -> None:
    view = make_view(queues=[QueueRow("b"), QueueRow("c"), QueueRow("d")])
    view.press("down")
    view.facts["queues"] = [QueueRow("a"), QueueRow("b"), QueueRow("c"), QueueRow("d")]
    assert view.selected() == QueueRow("c")
    assert view.press("p") == Action("pause", "c", "c")
    view.facts["queues"] = [QueueRow("a"), QueueRow("b"), QueueRow("d")]
    assert view.selected() == QueueRow("d")
    view.facts["queues"] = []
    assert view.selected() is None
    assert view.press("p") is None
    assert "choose a queue" in view.message


def test_what_is_confirmed_is_the_job_that_was_asked_about() -> None:
    other = RunningJob(ID[::-1], "other", "q", 1, 9, 1, "h", 1)
    view = make_view(jobs=[RunningJob(ID, "mine", "q", 1, 1, 1, "h", 1)])
    view.press("3")
    assert view.press("c") is None
    view.facts["jobs"] = [other]
    assert view.press("y") == Action("cancel", ID, f"mine {ID}")
    for no in ("n", "enter", "escape", " ", "c"):
        view.facts["jobs"] = [RunningJob(ID, "mine", "q", 1, 1, 1, "h", 1)]
        view.press("c")
        assert view.press(no) is None
        assert view.message == "not cancelled"


def test_each_job_of_a_worker_has_a_line() -> None:
    worker = child(1, "short", "long")
    worker_lines = [WorkerLine(worker, job, n == 0, None) for n, job in enumerate(reversed(worker.running))]
    shown = [line for line in lines(make_view(workers=worker_lines)) if "default.1" in line]
    assert [line.split()[-1] for line in shown] == ["long", "short"]
    assert "1001" not in shown[1]


def test_how_the_last_one_ended_is_shown_where_nothing_runs() -> None:
    gone = child(1, boot="gone", last_exit="crashed (SIGSEGV)")
    assert any(
        "gone" in line and "crashed (SIG" in line
        for line in lines(make_view(workers=[WorkerLine(gone, None, True, None)]))
    )


def test_hosts_are_shown_when_there_are_others() -> None:
    view = make_view(hosts=[HostRow("i", "db2", "lost", 7, None, 4, 0, 10, 1, "default 0/4", 31.0, False)])
    assert not any("db2" in line for line in lines(view))
    view.shown = (QUEUES, WORKERS, JOBS, HOSTS)
    line = next(line for line in lines(view) if "db2" in line)
    assert line.split()[1:4] == ["lost", "7", "4"]
    view.press("4")
    assert any(line.startswith("› db2") for line in lines(view))


def test_what_has_no_value_is_sorted_last_either_way() -> None:
    view = make_view(queues=[QueueRow("a"), QueueRow("b", oldest=1.0), QueueRow("c", oldest=9.0)])
    view.state_of(QUEUES).sort = 6
    assert [queue.queue for queue in view.lines(QUEUES)] == ["b", "c", "a"]
    view.press("S")
    assert [queue.queue for queue in view.lines(QUEUES)] == ["c", "b", "a"]


def test_after_the_last_column_comes_the_first_order_again() -> None:
    view = make_view(queues=[QueueRow("b"), QueueRow("a")])
    shown = len(next(line for line in lines(view, 50) if "queue" in line).split()[1:]) + 1
    seen = set()
    for _ in range(shown):
        view.press("s")
        assert any("▲" in line or "▼" in line for line in lines(view, 50))
        seen.add(view.state_of(QUEUES).sort)
    assert len(seen) == shown < len(QUEUES.columns)
    view.press("s")
    assert view.state_of(QUEUES).sort == -1


def test_a_rate_that_is_a_least_says_so() -> None:
    queue = QueueRow("q", came=12.0, left=54321.0, died=0.0, least=True)
    row = next(line for line in lines(make_view(queues=[queue]), 160) if line.startswith("› q"))
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
    assert make_printable(text) == shown


@pytest.mark.parametrize(
    ("text", "width", "right", "shown"),
    [
        ("ab", 4, False, "ab  "), ("ab", 4, True, "  ab"), ("abcdef", 4, False, "abc…"), ("幅広", 4, False, "幅広"),
        ("幅広い", 4, False, "幅… "), ("幅広い", 5, False, "幅広…"), ("ab", 1, False, "…"), ("ab", 0, False, ""),
    ],
)  # fmt: skip
def test_text_is_cut_or_filled(text: str, width: int, right: bool, shown: str) -> None:
    assert fit(text, width, right, get_cwidth) == shown


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
