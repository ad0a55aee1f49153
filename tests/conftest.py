"""For all tests: bytecode for the many processes that they start, and servers for whoever asks."""

import compileall
import gc
import sys
import threading
import time
import traceback
import zlib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

# Asserts in the conformance suite, which is library code, tell what they compared.
pytest.register_assert_rewrite("tarry.store.conformance")

pytest_plugins = ["tests.apps", "tests.servers.fixtures", "tests.store.switched", "tests.wheel"]

# How long an example takes says how busy the machine is. The examples are the same in each run: one that fails now and
# then would be met by whoever changed something else. Shrinking a history on a server takes minutes: `deep` does it.
drawn = tuple(phase for phase in Phase if phase not in (Phase.shrink, Phase.reuse))
settings.register_profile("tarry", deadline=None, derandomize=True, phases=drawn)
settings.register_profile("shrink", deadline=None, derandomize=True)
settings.register_profile("deep", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("tarry")
# Hypothesis draws constants of all modules that are imported: those of a whole run are others than those of one file.
providers._get_local_constants = lambda: providers._local_constants


def pytest_configure(config: pytest.Config) -> None:
    """Where nobody may write bytecode, each of a thousand processes would compile all of tarry again."""
    if not hasattr(config, "workerinput"):  # of several processes of tests, the one that starts the others
        compileall.compile_dir(Path(__file__).parents[1] / "tarry", quiet=2)
    gc.disable()


def pytest_collection_finish() -> None:
    """Twenty thousand tests and what they import stay: to look through them again and again takes a fifth of the CPU
    of collecting, and half a second at each full collection later, also in each test that asks for one."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _kept(of: type, name: str, count: int) -> int:
    """Which of so many parameters a variant has in `make test`: not the same in each variant."""
    return zlib.crc32(f"{of.__name__}.{name}".encode()) % count


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Where those of variants are left out, they are not made: half as many tests as there are otherwise."""
    yield
    if getattr(metafunc.cls, "is_variant", False) and "not deep" in metafunc.config.option.markexpr:
        assert metafunc.cls is not None
        calls = metafunc._calls
        if calls:
            metafunc._calls = [calls[_kept(metafunc.cls, metafunc.function.__name__, len(calls))]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what `make test-deep` runs too, or alone: tests of modules that draw from a seed, and of a class that is a
    variant of another (`is_variant`) all but one of each test's parameters, not the same ones in each variant. One that
    says of which classes of tests it differs (`differs_in`) has the others there alone."""
    of_variants = defaultdict[tuple[type, str], list[pytest.Function]](list)
    for item in items:
        if isinstance(item, pytest.Function):
            if hasattr(item.module, "seeded_random"):
                item.add_marker("seeded")
            if getattr(item.cls, "is_variant", False):
                of_variants[item.cls, item.originalname].append(item)
    for (variant, name), cases in of_variants.items():
        differs_in: tuple[type, ...] = getattr(variant, "differs_in", ())
        if not differs_in or any(name in vars(one) for one in differs_in):
            del cases[_kept(variant, name, len(cases))]
        for case in cases:
            case.add_marker("deep")


ENDED_WITHIN = 15.0
_LIVED = pytest.StashKey[list[threading.Thread]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Remembers which threads there are."""
    item.stash[_LIVED] = threading.enumerate()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """A thread of ours that a test leaves behind would be found, and logged from, in the tests that follow."""
    yield
    end = time.monotonic() + ENDED_WITHIN
    if _new(item):
        # Some end once nobody has what they work for.
        gc.collect()
    while left := [one for one in _new(item) if one.name.startswith("tarry-")]:
        assert time.monotonic() < end, f"the test has left threads: {''.join(map(_where, left))}"
        time.sleep(0.001)


def _new(item: pytest.Item) -> set[threading.Thread]:
    lived = item.stash[_LIVED]
    return set(threading.enumerate()) - set(lived)


def _where(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return f"\n{thread.name}\n{''.join(traceback.format_stack(frame))}"
