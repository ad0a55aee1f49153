"""What tasks, keys, errors and output say is shown on terminals, and none of it is a command to them."""

import io
import json
import logging
import sys
import unicodedata

import pytest

from tarry.runtime.logs.formatting import JsonFormatter, TextFormatter
from tarry.terminal import escape_control, escape_control_json, print_line
from tests.cli.project import Project, until

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\x7f\r"
"""Sets the title, clears the screen, changes colour and direction, deletes, goes back to the line's begin."""

APP = f"""
from tarry import App

app = App()

@app.task(retry=None)
def fail(why: str) -> None:
    raise ValueError({EVIL!r} + why)
"""


def acts(text: str) -> list[str]:
    """The characters that a terminal would act on."""
    return [char for char in text if unicodedata.category(char) in ("Cc", "Cf") and char not in "\n\t"]


def test_no_command_prints_what_a_terminal_would_act_on(project: Project) -> None:
    project.write("app.py", APP)
    key, queue = EVIL + "key\nforged   line", "q" + EVIL
    id = project.said("enqueue", "app.fail", json.dumps([EVIL]), "--key", key, "--queue", queue)
    project.settings('[pools.default]\nqueues = "*"\n')
    project.serve()
    until(lambda: project.job(id).state == "dead")
    commands = [
        ("jobs",), ("jobs", "show", id), ("queues",), ("tasks",), ("status",), ("jobs", "retry", id), ("check",),
        ("jobs", "show", "no" + EVIL), ("queues", "pause", "q" + EVIL), ("limits", "set", "q" + EVIL, "limit=1"),
    ]  # fmt: skip
    for words in commands:
        for json_too in ((), ("--json",)):
            ran = project.tarry(*json_too, *words)
            assert acts(ran.out + ran.err) == [], (words, ran)
    shown = project.said("jobs", "show", id)
    assert r"\x1b]0;owned\x07" in shown
    assert "\nforged" not in shown
    assert project.facts("jobs", "show", id)[0]["key"] == key
    assert acts(project.log_file.read_text()) == []


def test_log_lines_are_harmless() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        info = sys.exc_info()
    record = logging.LogRecord("a", logging.ERROR, "", 1, "said %s", (EVIL,), info)
    text, line = TextFormatter().format(record), JsonFormatter().format(record)
    assert acts(text) == acts(line) == []
    assert r"said \x1b]0;owned\x07" in text
    assert json.loads(line)["message"] == f"said {EVIL}"


@pytest.mark.parametrize("text", ["plain", "né à ", "日本\t語", "\U0001f600", "a\u00a0b"])
def test_all_else_stays_as_it_is(text: str) -> None:
    assert escape_control(text, keep="\t") == text


@pytest.mark.parametrize("text", [EVIL, "\U000e0001", "\u2028", "é\x80", "\U0001f600\x1b", "\ue000"])
def test_json_stays_what_it_says(text: str) -> None:
    document = json.dumps([text], ensure_ascii=False)
    assert json.loads(escape_control_json(document)) == [text]
    assert acts(escape_control_json(document)) == []


def test_a_line_is_written_whole_where_nothing_is_buffered() -> None:
    """By one call, so that no other process writes into the middle of it."""

    written: list[str] = []

    class Terminal(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    print_line("a master is already running", file=Terminal())
    # The end that `print` was told to write is none.
    assert [text for text in written if text] == ["a master is already running\n"]
