"""Every text of the console has a translation, and no translation is left over."""

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import get_args

import pytest
from jinja2.ext import extract_from_ast

from tarry.client.operations.operation import BulkAct, OperationState
from tarry.keeper.host_requests import HostAct, RequestState
from tarry.keeper.waiting_reasons import SENTENCES
from tarry.model.job import State
from tarry.model.schedules.phrases import SENTENCES as SCHEDULE_SENTENCES
from tarry.server.console import rendering
from tarry.server.console.act import ConsoleAct
from tarry.server.console.charts.drawing import WORDS
from tarry.server.console.translation import LANGUAGES, Language, choose_language
from tarry.server.http.problem import KINDS, REQUEST_STATUS, UNKNOWN
from tarry.server.serving.console import ACTS
from tests.server.console.states import (
    CIRCUITS,
    CONNECTION_STATES,
    DONE_TO_JOBS,
    HOST_STATES,
    OUTCOMES,
    PHASES,
    REPLACED,
    SET_BY,
    VIAS,
    WORKER_STATES,
)

FOLDER = files("tarry.server.console")
_PLACE = re.compile(r"%\(\w+\)[sd]|%%|\{\w+\}")


def wanted() -> set[str]:
    """All texts, in English: of those with a plural only that."""
    found = {*_of_templates(), rendering.NOW, rendering.PAST, rendering.FUTURE}
    found |= {text for act in ACTS for text in _of_act(act)}
    found |= {kind.title for kind in (*KINDS.values(), *REQUEST_STATUS.values(), UNKNOWN)}
    # What templates show of values that are words, or of which each has its sentence.
    words = {
        *map(str, State),
        *get_args(BulkAct),
        *get_args(OperationState),
        *CIRCUITS,
        *CONNECTION_STATES,
        *HOST_STATES,
        *OUTCOMES,
        *PHASES,
        *SET_BY,
        *VIAS,
        *DONE_TO_JOBS,
        *WORKER_STATES,
        *REPLACED,
        *map(str, HostAct),
        *map(str, RequestState),
        *WORDS,
    }
    return found | words | {*SENTENCES.values(), *SCHEDULE_SENTENCES.values()}


def _of_templates() -> Iterator[str]:
    environment = rendering.environment(LANGUAGES[0])
    for name in environment.list_templates(["html"]):
        tree = environment.parse((FOLDER / "templates" / name).read_text(encoding="utf-8"))
        for _, function, message in extract_from_ast(tree, ("_", "gettext", "ngettext")):
            texts = [text for text in (message if isinstance(message, tuple) else (message,)) if text is not None]
            # A text that a template takes from a value has none of its own.
            yield from texts[1:2] if function == "ngettext" else texts[:1]


def _of_act(act: ConsoleAct) -> list[str]:
    done = act.done
    constants = [done] if isinstance(done, str) else [text for text in done.__code__.co_consts if isinstance(text, str)]
    # Names of attributes are not among the constants. A text of nothing but a value needs no translation.
    return [text for text in constants if _PLACE.sub("", text)]


def translations(code: str) -> list[tuple[str, str]]:
    texts = (file.read_text(encoding="utf-8") for file in (FOLDER / "texts" / code).iterdir())
    return [entry for text in texts for entry in tomllib.loads(text).items()]


OTHERS = [language.code for language in LANGUAGES if language.code != "en"]


@pytest.mark.parametrize("code", OTHERS)
def test_all_texts_are_translated_and_none_is_left_over(code: str) -> None:
    have = [english for english, _ in translations(code)]
    assert len(have) == len(set(have))
    assert (wanted() - set(have), set(have) - wanted()) == (set(), set())


@pytest.mark.parametrize("code", OTHERS)
def test_translations_have_the_same_values_in_them(code: str) -> None:
    for english, text in translations(code):
        assert sorted(_PLACE.findall(english)) == sorted(_PLACE.findall(text)), english
        assert text.strip() == text != ""


def test_texts_are_seen() -> None:
    assert {"Sign in", "The job is ready.", "running", "%(queue)s: %(num)s jobs are dead."} <= wanted()
    assert "The job is cancelled." in wanted()
    assert "%(queue)s: %(num)s job is dead." not in wanted()


@pytest.mark.parametrize(
    ("cookie", "accepted", "code"),
    [
        ("zh", "en", "zh"),
        ("xx", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "de,fr;q=0.5", "en"),
        (None, "en;q=0.3, zh; q=0.7", "zh"),
        (None, "zh;q=0, en;q=0.1", "en"),
        (None, "zh;q=x,en;q=nan", "en"),
        (None, "", "en"),
        ("", "," * 10_000 + "zh", "en"),
        (None, "*", "en"),
    ],
)
def test_the_language_is_the_reader_s(cookie: str | None, accepted: str, code: str) -> None:
    assert choose_language(cookie, accepted).code == code


def test_a_count_has_its_form() -> None:
    english, chinese = LANGUAGES
    assert [english.plural("one", "many", count) for count in (0, 1, 2)] == ["many", "one", "many"]
    many = "%(queue)s: %(num)s jobs are dead."
    assert chinese.plural("%(queue)s: %(num)s job is dead.", many, 1) == chinese.text(many) != many


def test_a_text_without_translation_is_english() -> None:
    assert Language("zh", "").text("no such text") == "no such text"
