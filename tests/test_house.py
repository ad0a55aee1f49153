"""The house gets no worse: each figure has the bound that it had when it was measured last, and bounds only sink. And
what CONTRIBUTING.md names is there."""

import re
from pathlib import Path

from tests.house import FIELD, OPERATION, SMALL, figures, fragments, homonyms, participles, touches
from tests.test_layers import MADE_UP, PACKAGE, build, circles, folder_of

BOUNDS = {
    "largest circle of imports": 1,
    "largest circle of folders": 1,
    "biggest folder, in modules": 20,
    "file, median": 113,
    "file, p95": 340,
    "file, longest": 600,
    "function, median": 5,
    "function, p95": 18,
    "function, longest": 40,
    f"modules with one importer and under {SMALL} lines": 4,
    "names of types that mean two things": 0,
    "names of functions that are a participle": 110,
    f"files that name `{FIELD}`, a field of a job": 17,
    f"files that name `{OPERATION}`, an operation": 4,
}


def test_no_figure_is_above_its_bound() -> None:
    """One test for all of them: two in two processes would both read all of tarry."""
    found = figures()
    assert {name: found[name] for name, bound in BOUNDS.items() if found[name] > bound} == {}, (
        "see `python -m tests.house`"
    )


def test_the_files_that_contributing_names_are_there() -> None:
    root = PACKAGE.parent
    named = set(
        re.findall(r"`((?:tarry|tests|docs)/[\w/.-]*)`", (root / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    )
    assert len(named) > 30
    assert [name for name in sorted(named) if not (root / name).exists()] == []


def test_what_is_counted(tmp_path: Path) -> None:
    texts = {
        "store/one.py": "class Link: ...\nT = TypeVar('T')\nReader = Callable[[], int]\nA_co = TypeVar('A_co')\n",
        "model/two.py": "class _Link: ...\nT = TypeVar('T')\nReader: TypeAlias = Callable[[], str]\nLIMIT = 2 * 3\n",
        "model/three.py": "LIMIT = 2 * 3\nfrom tarry.store import one\nA_co = TypeVar('A_co')\n",
    }
    texts["model/four.py"] = "def _waiting(): ...\ndef wait(link): ...\n"
    package = build(tmp_path, MADE_UP | texts)
    both = ["tarry.model.two", "tarry.store.one"]
    assert homonyms(package) == {"Link": both, "Reader": both}
    assert "tarry.store.base" in fragments(package)
    assert participles(package) == ["tarry.model.four: _waiting"]
    assert touches("link", package) == ["model/four.py"]
    assert circles(package, folder_of) == [{"tarry.model", "tarry.store"}]
