"""The fixture as it comes with the package, in a pytest of its own: alone, and with the plugins for async tests."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

WITHOUT = [word for name in ("cacheprovider", "schemathesis") for word in ("-p", f"no:{name}")]
"""What is installed here for other tests, and takes longer to import than all that is tested."""

APP = """
from tarry import App

app = App()

@app.task
def send(email: str, name: str = "") -> str:
    return email

@app.task
async def shout(text: str) -> str:
    return text.upper()

async def signup(email: str) -> None:
    await send.using(delay=60).aenqueue(email)
    await shout.aenqueue(email)
"""

AWAITED = """
import asyncio
import pytest
from shop import send, shout, signup

{mark}

{wanted}
async def test_signup(jobs):
    await signup("a@b.c")
    jobs.assert_enqueued(send, "a@b.c", delay=60)
    assert await jobs.adrain() == 1
    assert await jobs.enqueued(shout)[0].job.aresult() == "A@B.C"
    jobs.advance(60)
    assert jobs.drain() == 1

{wanted}
async def test_inline(jobs):
    with jobs.inline():
        job = await shout.aenqueue("x")
        assert await job.aresult() == "X"
        assert shout.enqueue("y").result() == "Y"

{wanted}
async def test_on_the_loop_of_the_test(jobs):
    @jobs.app.task
    async def where() -> bool:
        return asyncio.get_running_loop() is loop

    loop = asyncio.get_running_loop()
    job = await where.aenqueue()
    await jobs.adrain()
    assert job.result()
"""


@pytest.fixture
def shop(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(shop=APP)
    pytester.syspathinsert()
    return pytester


def passes(shop: pytest.Pytester, passed: int, *options: str) -> None:
    result = shop.runpytest_subprocess(*WITHOUT, "-W", "error", *options)
    result.assert_outcomes(passed=passed)
    assert [path.name for path in shop.path.glob("*.db*")] == []


def test_with_pytest_alone(shop: pytest.Pytester) -> None:
    shop.makepyfile("""
        def test_an_app_that_is_imported_in_the_test(jobs):
            from shop import send
            send.using(delay=60).enqueue("a@b.c")
            jobs.assert_enqueued(send, "a@b.c", delay=60)

        def test_another_test_has_nothing_of_it(jobs):
            from shop import send
            jobs.assert_not_enqueued(send)
            jobs.advance(60)
            assert jobs.drain() == 0

        def test_for_annotations():
            from tarry.testing import Enqueued, Jobs
            assert Jobs.drain and Enqueued
    """)
    passes(shop, 3, "-p", "no:asyncio", "-p", "no:anyio")


def test_with_pytest_asyncio(shop: pytest.Pytester) -> None:
    shop.makepyfile(AWAITED.format(mark="", wanted="@pytest.mark.asyncio"))
    passes(shop, 3, "-o", "asyncio_default_fixture_loop_scope=function", "-p", "no:anyio")


def test_with_anyio(shop: pytest.Pytester) -> None:
    backend = "@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    shop.makepyfile(AWAITED.format(mark=backend, wanted="@pytest.mark.anyio"))
    passes(shop, 3, "-p", "no:asyncio")


def test_a_failure_shows_the_line_of_the_test_and_what_was_enqueued(shop: pytest.Pytester) -> None:
    shop.makepyfile("""
        from shop import send

        def test_it(jobs):
            send.enqueue("a@b.c")
            jobs.assert_enqueued(send, "d@e.f")
    """)
    result = shop.runpytest_subprocess(*WITHOUT, "-p", "no:asyncio")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '>*jobs.assert_enqueued(send, "d@e.f")',
            "E*AssertionError: shop.send('d@e.f') was not enqueued.",
            "E*Enqueued instead:",
            "E*shop.send('a@b.c'), ready",
        ]
    )
    assert "kit.py" not in result.stdout.str()


def loaded_by(code: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return ran.stdout.split()


def test_a_run_that_does_not_use_it_does_not_load_it() -> None:
    """Nor what runs jobs, or the web's half of Python."""
    loaded = loaded_by("import tarry.testing.plugin")
    assert {"tarry.testing", "tarry.testing.plugin"} <= set(loaded)
    store = ("tarry.store.memory.store", "tarry.store.sqlite.store")
    unwanted = ("tarry.testing.", *store, "tarry.embedded.service", "tarry.worker.pump")
    assert [name for name in loaded if name.startswith(unwanted)] == ["tarry.testing.plugin"]


def test_who_writes_or_checks_a_history_needs_no_pytest() -> None:
    """A worker's app does the one, and a host without tests the other."""
    loaded = loaded_by("from tarry.testing.ledger import Ledger\nimport tarry.testing.history_check")
    assert "tarry.testing.ledger" in loaded
    assert {"pytest", "_pytest", "tarry.testing.plugin"} & set(loaded) == set()
