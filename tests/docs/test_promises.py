"""What users read promises no more than holds: a call that touches the world is made at least once."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

TOO_MUCH = re.compile(
    r"steps? (?:that (?:is|are)|is|are) done once|done once, whatever|nobody gets (?:that|it|the|a)\b[ \w]{0,20}twice"
    r"|runs? exactly once|never lost|(?:is|are) never exceeded",
    re.IGNORECASE,
)
"""Words that no queue can keep. What holds: recorded once, called at least once, not lost by the death of a process."""

ALLOWED = {"docs/faq.md": ["run exactly once"]}
"""In a question that the page answers by no."""

SOURCES = sorted(
    str(file.relative_to(ROOT)) for file in (ROOT / "tarry").rglob("*") if file.suffix in (".py", ".html", ".toml")
)


def promises(text: str) -> list[str]:
    """The words that promise too much."""
    return TOO_MUCH.findall(" ".join(text.split()))


@pytest.mark.parametrize("page", PAGES)
def test_no_page_promises_too_much(page: str) -> None:
    assert promises((ROOT / page).read_text(encoding="utf-8")) == ALLOWED.get(page, [])


def test_no_source_promises_too_much() -> None:
    found = {name: promises((ROOT / name).read_text(encoding="utf-8")) for name in SOURCES}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "text",
    ["so nobody gets that mail twice", "each step is\ndone once", "It is never lost.", "A rate is never exceeded"],
)
def test_such_words_are_found(text: str) -> None:
    assert promises(text)


def test_the_word_for_steps_is_in_the_tutorial() -> None:
    tutorial = " ".join(Path(ROOT / "docs/tutorial.md").read_text(encoding="utf-8").split())
    assert "then the mail is sent a second time" in tutorial
