"""The account: all figures of all runs, as one table in Markdown, or as JSON."""

import json
from collections.abc import Mapping
from statistics import median
from typing import Any

from msgspec import Struct

from bench.measure import Figure


class Row(Struct):
    """One figure over all runs. noise: cores that others used meanwhile, one for each run."""

    last: Figure
    values: list[float] = []
    noise: list[float] = []

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.values)


class Table:
    """Rows by name, in the order in which they came."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.failures: list[str] = []

    def add(self, figure: Figure, noise: float) -> None:
        """One more run of it."""
        row = self.rows.setdefault(figure.name, Row(figure))
        row.last = figure
        row.values.append(float(figure.value))
        row.noise.append(noise)

    def ratio(self, row: Row) -> float | None:
        """Its share of what it is compared with; None if there is nothing."""
        compared = self.rows.get(row.last.against)
        return row.median / compared.median if compared and compared.median else None

    def missed(self) -> list[str]:
        """The names of the figures that are not as they should be."""
        return [name for name, row in self.rows.items() if self._met(row) is False]

    def _met(self, row: Row) -> bool | None:
        compared = self.rows.get(row.last.against)
        target = row.last.target
        return target.met(row.median, compared.median if compared else None) if target else None

    def markdown(self, about: Mapping[str, str]) -> str:
        """For bench/RESULTS.md."""
        facts = "\n".join(f"- {name}: {value}" for name, value in about.items())
        head = "| what | median | min – max | compared with | ratio | target | CPU of others |"
        lines = [head, "|---|--:|--:|---|--:|---|--:|", *(self._line(name, row) for name, row in self.rows.items())]
        failures = "".join(f"\n- failed: {failure}" for failure in self.failures)
        return f"{facts}{failures}\n\n" + "\n".join(lines)

    def _line(self, name: str, row: Row) -> str:
        ratio, met = self.ratio(row), self._met(row)
        target = f"{row.last.target}" + (" **missed**" if met is False else "") if row.last.target else ""
        cells = [
            name,
            f"{shown(row.median)} {row.last.unit}",
            f"{shown(min(row.values))} – {shown(max(row.values))}",
            row.last.against if ratio is not None else "",
            "" if ratio is None else f"{ratio:.2f}",
            target,
            f"{median(row.noise):.2f}",
        ]
        return f"| {' | '.join(cells)} |"

    def json(self, about: Mapping[str, str]) -> str:
        """The same for programs, with every run."""
        return json.dumps({"about": dict(about), "failed": self.failures, "figures": [self._fact(r) for r in self]})

    def __iter__(self) -> Any:
        return iter(self.rows.values())

    def _fact(self, row: Row) -> dict[str, Any]:
        return {
            "name": row.last.name,
            "unit": row.last.unit,
            "median": row.median,
            "values": row.values,
            "against": row.last.against or None,
            "ratio": self.ratio(row),
            "target": str(row.last.target) if row.last.target else None,
            "met": self._met(row),
            "noise": row.noise,
        }


def shown(value: float) -> str:
    """With as many digits as matter: `71,482`, `3.21`, `0`."""
    if value.is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
