"""No test is red by chance: what is drawn in `make test` is the same in each run."""

import ast
from collections.abc import Iterator
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

from tests import seeds

TESTS = Path(__file__).parent
PLACES = (TESTS, TESTS.parent / "tarry" / "store" / "conformance")
OWN = {"derandomize", "database", "print_blob", "phases"}
"""What only the profiles in `conftest.py` say."""


def test_examples_are_the_same_in_each_run_and_are_not_shrunk() -> None:
    profile = settings.get_profile("tarry")
    assert profile.derandomize
    assert profile.database is None
    assert Phase.shrink not in profile.phases


def test_a_deep_run_has_new_seeds_and_shrinks() -> None:
    profile = settings.get_profile("deep")
    assert not profile.derandomize
    assert profile.print_blob
    assert Phase.shrink in profile.phases


def test_examples_do_not_depend_on_what_is_imported() -> None:
    """As other tests of the same process do: Hypothesis would draw constants of all modules of ours."""
    assert len(providers._get_local_constants()) == 0


def test_the_same_seed_gives_the_same() -> None:
    assert seeds.seeded_random().random() == seeds.seeded_random().random()


def test_nothing_is_drawn_without_a_seed() -> None:
    found = [place for folder in PLACES for path in folder.rglob("*.py") for place in without_a_seed(path)]
    assert found == []


def test_no_test_has_a_profile_of_its_own() -> None:
    of_conftest = TESTS / "conftest.py"
    found = [place for path in TESTS.rglob("*.py") if path != of_conftest for place in own_profiles(path)]
    assert found == []


def _is_seeded(name: str, arguments: list[ast.expr]) -> bool:
    return name in ("getstate", "setstate") or (name in ("Random", "seed") and bool(arguments))


def without_a_seed(path: Path) -> Iterator[str]:
    """Calls of functions of the module `random`, all but those that take a seed or a state."""
    text = path.read_text()
    if "import random\n" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "random" and not _is_seeded(node.func.attr, node.args):
                yield f"{path.relative_to(TESTS.parent)}:{node.lineno}: random.{node.func.attr}"


def own_profiles(path: Path) -> Iterator[str]:
    text = path.read_text()
    if "settings(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "settings":
            for keyword in node.keywords:
                if keyword.arg in OWN:
                    yield f"{path.relative_to(TESTS.parent)}:{node.lineno}: {keyword.arg}"
