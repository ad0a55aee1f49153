"""What runs the pages: what it takes for true, and that it sees what is not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.project import marked
from tests.docs.addresses import readdress
from tests.docs.blocks import read_blocks
from tests.docs.forked_programs import ForkedPrograms
from tests.docs.installed_pip import missing
from tests.docs.page_run import PageRun, misnamed
from tests.docs.transcript import Step, is_all, is_in, read_steps

RunPage = Callable[[str], None]


@pytest.fixture
def run_page(tmp_path: Path, programs: ForkedPrograms) -> Iterator[RunPage]:
    run = PageRun(tmp_path, programs)
    yield lambda page: run.run(read_blocks(page))
    run.close()
    assert marked(str(tmp_path / "page")) == []


def fenced(info: str, *lines: str) -> str:
    return "\n".join([f"```{info}", *lines, "```", ""])


def console(*lines: str) -> str:
    return fenced("console", *lines)


def test_files_tests_and_commands_in_their_order(run_page: RunPage) -> None:
    run_page(
        fenced('python title="shop/app.py"', "FIRST = 1")
        + fenced('python title="shop/app.py (continued)"', "SECOND = 2")
        + fenced("python", "from shop import app", "", "def test_it():", "    assert (app.FIRST, app.SECOND) == (1, 2)")
        + console(
            "$ cd shop", "$ export WHO=Ann", "$ cat app.py", "FIRST = 1", "...", "$ echo Hello, $WHO", "Hello, Ann"
        )
        + fenced('python title="shop/app.py"', "FIRST = 3")
        + console("$ cat app.py", "FIRST = 3")
    )


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (fenced("python", "def test_it():", "    assert 1 == 2"), "1 failed"),
        (fenced('python title="test_it.py"', "def test_it():", "    assert 1 == 2"), "1 failed"),
        (fenced("python", "raise ValueError"), "line 2: "),
        (console("$ echo one", "two"), "the page shows"),
        (console("$ false"), "ends with 1"),
        (console("$ true # exit status 1"), "ends with 0"),
        (console("$ exit"), "ends the shell"),
        (console("$ pip install no-such-package-at-all"), "not in the tests' environment"),
        (fenced('text title="../one.txt"', "1"), "outside"),
        (console("one"), "begins with"),
    ],
)
def test_what_is_not_so_fails(run_page: RunPage, page: str, says: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=says):
        run_page(page)


def test_what_fails_as_the_page_says(run_page: RunPage) -> None:
    run_page(console("$ tarry jobs show 1 # exit status 2", "tarry: id: '1' is no job id: ..."))


def test_a_test_file_that_a_command_runs_is_not_run_again(run_page: RunPage) -> None:
    file = fenced('python title="test_it.py"', "import os", "def test_it():", "    assert os.environ['ONE']")
    run_page(file + console("$ ONE=1 python -m pytest -q test_it.py", "...", "1 passed ..."))


def test_a_background_command_is_waited_for_and_killed(run_page: RunPage) -> None:
    script = fenced('sh title="late.sh"', "sleep 0.2", "echo one", "echo between", "echo two", "sleep 1000")
    run_page(script + console("$ bash late.sh &", "one", "two", "$ echo three", "three"))


def test_what_only_looks_is_repeated_until_it_shows_that(run_page: RunPage) -> None:
    script = fenced('sh title="late.sh"', "sleep 0.3", "echo late > out.txt")
    run_page(script + console("$ echo soon > out.txt", "$ bash late.sh &", "$ cat out.txt", "late"))


@pytest.mark.parametrize(
    ("command", "only_looks"),
    [
        ("tarry jobs", True),
        ("tarry jobs --state dead", True),
        ("tarry --json jobs show $ID", True),
        ("tarry jobs retry $ID", False),
        ("tarry schedules run watch.patrol", False),
        ("tarry enqueue a.b", False),
        ("tarry status", True),
        ("curl -s localhost:7800/v1/jobs", True),
        ("curl -s localhost:7800/v1/jobs --json '{}'", False),
        ("curl -s -X POST localhost:7800/v1/jobs", False),
    ],
)
def test_which_commands_only_look(command: str, only_looks: bool) -> None:
    assert Step(command, []).only_looks is only_looks


def test_a_block_with_a_mark_is_only_shown(run_page: RunPage) -> None:
    run_page("<!-- not run: needs a cluster -->\n" + console("$ false"))


def test_addresses_become_free_ones() -> None:
    page = console("$ curl localhost:7800/1 127.0.0.1:7800 --port 8000 178000 0.8000")
    (block,) = readdress(read_blocks(page), pytest.fail)
    _, first, second, _, port, *others = block.text.split()[1:]
    assert first.removeprefix("localhost:").removesuffix("/1") == second.removeprefix("127.0.0.1:") != "7800"
    assert port not in ("8000", second[-5:])
    assert others == ["178000", "0.8000"]


def test_commands_over_many_lines() -> None:
    text = "$ one \\\n  two\nout\n$ cat << EOF\n> x\n> EOF\n> y\n\n$ three &\n"
    assert read_steps(text) == [
        Step("one \\\n  two", ["out"]),
        Step("cat << EOF\nx\nEOF\ny", []),
        Step("three &", []),
    ]


@pytest.mark.parametrize(
    ("expected", "printed", "is_so"),
    [
        (["a  b"], "a b\n", True),
        (["a"], "a\nb\n", False),
        (["b"], "a\nb\n", False),
        (["a", "..."], "a\nb\nc\n", True),
        (["...", "c"], "a\nb\nc\n", True),
        (["a", "...", "b"], "a\nb\n", True),
        (["job ... done"], "job 12 done\n", True),
        (["job ... done"], "job done\n", True),
        (["job ... done"], "job 12 dead\n", False),
        (["a"], "\x1b[1ma\x1b[0m  \n\n", True),
        (["a.c"], "abc\n", False),
        (["ended"], "waiting for keeper pid 7\nended\n", True),
        (["waiting for a", "ended"], "ended\n", False),
    ],
)
def test_what_is_printed_is_what_is_shown(expected: list[str], printed: str, is_so: bool) -> None:
    assert is_all(expected, printed) is is_so


def test_what_goes_on_prints_other_lines_too() -> None:
    assert is_in(["a", "c"], "0\na\nb\nc\nd\n")
    assert not is_in(["c", "a"], "a\nb\nc\n")


def test_what_pip_would_have_to_bring() -> None:
    assert missing(["-q", "tarry[redis]", "pytest>=1", "tarry[nothing]", "no-such-package"]) == [
        "tarry[nothing]", "no-such-package",
    ]  # fmt: skip


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    assert "F821" in misnamed(tmp_path, read_blocks(fenced("python", "def test_it():", "    nothing()")))
