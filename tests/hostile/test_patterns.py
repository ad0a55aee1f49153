"""No regular expression of the package takes more than linear time, but where the text is short for sure."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import tarry
from tests.hostile.worst import is_slower, name_of, worst_texts

PACKAGE = Path(tarry.__file__).parent
SIZE, CPU = 10_000, 0.02
"""Characters; and seconds: a quadratic one takes ten times that."""

SHORT: dict[str, str] = {
    "tarry.model.limit._RATE": "a rate has at most MAX_SHORT characters",
    "tarry.model.retry._FORMULA": "a formula has at most MAX_SHORT characters",
    "tarry.store.shared.masking._SECRET_OPTION": "linear, but with a hundred steps for each `?`; MAX_URL bounds it",
}
"""Those that are slow on long texts, each with why it gets none."""


Pattern = re.Pattern[str] | re.Pattern[bytes]


def _is_searched(name: str, file: Path) -> bool:
    """Whether it is tried at each place of a text; else only at one."""
    return re.search(rf"\b{name}\.(search|sub|findall|finditer|split)\b", file.read_text(encoding="utf-8")) is not None


def _patterns() -> Iterator[tuple[str, Pattern, bool]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(("tarry", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        if "re.compile(" in file.read_text(encoding="utf-8"):
            for name, value in vars(importlib.import_module(module)).items():
                if isinstance(value, re.Pattern):
                    yield f"{module}.{name}", value, _is_searched(name, file)


def _slow(pattern: Pattern, searched: bool) -> Iterator[str]:
    for whole in worst_texts():
        cut = whole[:SIZE]
        text = cut if isinstance(pattern.pattern, str) else cut.encode("utf-8", "surrogatepass")
        for call in (pattern.fullmatch, pattern.match, *((pattern.search,) if searched else ())):
            if is_slower(call, text, CPU):
                yield f"{call.__name__} of {name_of(whole)}"


def test_patterns_take_linear_time_or_get_short_texts() -> None:
    tried = ((name, next(_slow(pattern, searched), "")) for name, pattern, searched in _patterns() if name not in SHORT)
    assert [(name, trouble) for name, trouble in tried if trouble] == []
