"""docs/metrics.md tells of all figures."""

from tests.metrics.page import PAGE, with_tables


def test_the_page_has_all_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_tables(text), "python -m tests.metrics.page"
