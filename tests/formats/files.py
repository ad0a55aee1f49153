"""The files in which the shapes stand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarry.runtime.board.reader import Board
from tarry.server.serving.api import METHODS
from tests.formats import VERSION
from tests.formats.decoded import decoded_types

_FIRST = "# formats, version "


def _requests() -> dict[str, Any]:
    return {
        f"{one.verb} {one.route} {name}": kind
        for one in METHODS
        for name, kind in {**one.parts, "reads": one.reads}.items()
        if kind is not None
    }


def _answers() -> dict[str, Any]:
    answers = {f"{one.verb} {one.route}": one.answer for one in METHODS if one.answer is not None}
    return {**answers, "tarry --json status": Board}


KINDS: dict[str, Callable[[], dict[str, Any]]] = {"stored": decoded_types, "requests": _requests, "answers": _answers}


def file_of(kind: str) -> Path:
    """The file of these shapes."""
    return Path(__file__).with_name(f"{kind}.txt")


def read_shapes(kind: str) -> tuple[int, list[str]]:
    """The version and the lines; 0 and none: there is no such file yet."""
    if not file_of(kind).exists():
        return 0, []
    first, *lines = file_of(kind).read_text(encoding="utf-8").splitlines()
    return int(first.removeprefix(_FIRST)), lines


def write_shapes(kind: str, lines: list[str]) -> None:
    """Writes them with the present version."""
    file_of(kind).write_text("\n".join([f"{_FIRST}{VERSION}", *lines]) + "\n", encoding="utf-8")
