"""`tarry demo` as a newcomer has it: the wheel, what it needs, and nothing else."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.demo.account import LedgerEntry, make_account, read
from tarry.demo.run import find_files
from tests.cli.project import Project, alive, until

FILES = 250


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Project]:
    """A directory whose settings are of no use, and which stays as it is."""
    project = Project(tmp_path)
    project.settings("nonsense = 1\n")
    yield project
    project.close()


def start(project: Project, *words: str, **environ: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        words,
        cwd=project.directory,
        env=project.environ | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_kills_a_worker_reloads_and_loses_nothing(nowhere: Project, base_only: Path) -> None:
    before = sorted(nowhere.directory.iterdir())
    demo = start(nowhere, str(base_only / "tarry"), "demo", "--files", str(FILES), TARRY_STORE="redis://nowhere")
    out, err = demo.communicate(timeout=250)
    assert (demo.returncode, err) == (0, "")
    assert "killed worker " in out
    assert "reloaded: generation 2 serves" in out
    assert f"put {FILES + 2}, done {FILES}, " in out
    assert "dead 2 (2 expected), " in out
    assert "lost 0\n" in out
    assert sorted(nowhere.directory.iterdir()) == before
    assert nowhere.processes() == []


def test_as_a_module_its_account_is_json(nowhere: Project, base_only: Path) -> None:
    demo = start(nowhere, str(base_only / "python"), "-m", "tarry", "demo", "--json", "--files", "5")
    out, err = demo.communicate(timeout=250)
    assert (demo.returncode, err) == (0, "")
    account = json.loads(out)
    assert (account["put"], account["done"], account["dead"], account["lost"]) == (7, 5, 2, 0)
    assert account["empty_jobs"] / account["empty_seconds"] > 100


def test_one_that_is_ended_leaves_no_process(nowhere: Project, base_only: Path) -> None:
    demo = start(nowhere, str(base_only / "tarry"), "demo")
    until(lambda: len(nowhere.processes()) > 3 or demo.poll() is not None)
    demo.send_signal(signal.SIGTERM)
    _, err = demo.communicate(timeout=250)
    assert (demo.returncode, err) == (1, "tarry: the demo was ended by SIGTERM\n")
    until(lambda: not any(map(alive, nowhere.processes())))


def test_it_works_on_what_can_be_read(tmp_path: Path) -> None:
    library = tmp_path / "test/lib"
    (library / "tests").mkdir(parents=True)
    for name in ("good.py", "tests/strange.py"):
        (library / name).write_text("x = 1\n")
    (library / "empty.py").touch()
    (library / "sitecustomize.py").symlink_to(tmp_path / "nowhere.py")
    (library / "folder.py").mkdir()
    good, *missing = find_files(library)
    assert good == str(library / "good.py")
    assert not any(Path(one).exists() for one in missing)


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_a_count_that_is_none_is_a_wrong_call(nowhere: Project, count: str) -> None:
    ran = nowhere.tarry("demo", f"--files={count}")
    assert ran.status == 2
    assert f"expected a whole number of 1 or more, got '{count}'" in ran.err


def test_the_account_is_of_the_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    assert read(ledger) == {}
    ledger.write_text(
        "0 began 1.0 1\n0 ended 2.0 1\n"  # done
        "1 began 1.0 1\n1 began 3.0 2\n1 ended 4.0 2\n1 ended 5.0 1\n"  # run twice
        "2 began 1.5 1\n2 failed 1.6 1\n2 began 2.0 1\n2 failed 2.1 1\n"  # dead
        "3 began 2.0 1\n"  # lost: it began, and nothing came of it
    )
    account = make_account(dict.fromkeys(range(5), 1.0), read(ledger), attempts=2)
    assert (account.put, account.done, account.dead, account.lost) == (5, 2, 1, 2)
    assert (account.retried, account.run_twice) == (1, 1)
    assert account.per_second == pytest.approx(2 / 3)
    assert account.work == pytest.approx(1 + 1 + 2 + 0.1 + 0.1)
    assert account.start_ms == pytest.approx((500, 1000, 1000))


def test_an_account_of_nothing_is_zero() -> None:
    assert make_account({1: 0.0}, {1: LedgerEntry()}, attempts=4).lost == 1
    assert make_account({}, {}, attempts=4).start_ms == (0, 0, 0)
