"""The languages of the console. Templates have the texts in English; a folder for each other
language has their translations."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct

COOKIE = "tarry_language"


class Language(Struct, frozen=True):
    """A language. name: as its own speakers write it."""

    code: str
    name: str

    def text(self, english: str) -> str:
        """The text in this language; in English if it has no translation."""
        return _texts(self.code).get(english, english)

    def plural(self, one: str, many: str, count: int) -> str:
        """The text for so many things."""
        # Chinese has one form for any number: the entry of the plural.
        return self.text(one if count == 1 and self.code == "en" else many)


LANGUAGES = (Language("en", "English"), Language("zh", "中文"))


def choose_language(cookie: str | None, accepted: str) -> Language:
    """The language of a reader: as chosen, else the first of `Accept-Language` that there is, else English."""
    for code in (cookie or "", *_codes(accepted)):
        for language in LANGUAGES:
            if code == language.code:
                return language
    return LANGUAGES[0]


def _codes(accepted: str) -> Iterator[str]:
    """The languages that a reader accepts, the best first; without their countries."""
    weighted = []
    for part in accepted.split(",")[:20]:
        code, _, weight = part.replace(" ", "").partition(";q=")
        try:
            weighted.append((float(weight or 1), code.lower().partition("-")[0]))
        except ValueError:
            continue
    # A weight of 0 says: by no means.
    return (code for weight, code in sorted(weighted, key=lambda each: -each[0]) if weight > 0)


@lru_cache(maxsize=4)
def _texts(code: str) -> Mapping[str, str]:
    """The translations by the English text; of English itself there are none."""
    folder = files("tarry.server.console").joinpath(f"texts/{code}")
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else ():
        found |= tomllib.loads(file.read_text(encoding="utf-8"))
    return found
