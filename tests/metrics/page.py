"""The tables of docs/metrics.md, from `tarry.metrics.names`. `python -m tests.metrics.page` writes them anew."""

import re
from collections.abc import Mapping
from pathlib import Path

from tarry.metrics.names import HOST, PROCESS, STORE, Metric

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
TABLES = {"store": STORE, "host": HOST, "process": PROCESS}


def table(metrics: Mapping[str, Metric]) -> str:
    """One line for each figure."""
    rows = (f"| `{name}` | {one.kind} | {_labels(one)} | {one.about} |" for name, one in metrics.items())
    return "\n".join(["| name | kind | labels | what |", "|---|---|---|---|", *rows])


def _labels(metric: Metric) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)


def with_tables(text: str) -> str:
    """The page with the tables of now."""
    for name, metrics in TABLES.items():
        block = re.compile(rf"(<!-- figures of the {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, found = block.subn(lambda match: f"{match[1]}{table(metrics)}\n{match[2]}", text)  # noqa: B023 - called here
        assert found == 1, f"docs/metrics.md has no place for the figures of the {name}"
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
