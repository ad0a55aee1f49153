import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.errors import ConfigError
from tarry.runtime import logs


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_of_text(tmp_path: Path) -> None:
    logs.configure(tmp_path / "deep" / "log")
    logging.getLogger("tarry.master").info("started %s\nforged", "it")
    logging.getLogger("tarry.master").debug("too low")
    (line,) = (tmp_path / "deep" / "log").read_text().splitlines()
    pattern = rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z INFO tarry\.master\[{os.getpid()}\] started it\\nforged"
    assert re.fullmatch(pattern, line)


def test_a_line_of_json_with_a_traceback(tmp_path: Path) -> None:
    logs.configure(tmp_path / "log", "json", "debug")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("shop").exception("broke\nhere")
    (line,) = (tmp_path / "log").read_text().splitlines()
    facts = json.loads(line)
    assert (facts["level"], facts["logger"], facts["pid"]) == ("ERROR", "shop", os.getpid())
    assert facts["message"] == "broke\nhere"
    assert facts["traceback"].endswith("ValueError: why")


def test_a_traceback_follows_the_text(tmp_path: Path) -> None:
    logs.configure(tmp_path / "log")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("shop").exception("broke")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].endswith("broke")
    assert (lines[1], lines[-1]) == ("Traceback (most recent call last):", "ValueError: why")


def test_the_last_configuration_counts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(tmp_path / "log")
    logs.configure("stderr")
    logging.getLogger("shop").warning("once")
    assert capfd.readouterr().err.count("once") == 1
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.parametrize(
    ("target", "format", "level", "said"),
    [
        ("stderr", "xml", "info", "log_format 'xml': one of text, json"),
        ("stderr", "text", "loud", "log_level 'loud': one of debug, info, warning, error"),
        ("/dev/null/log", "text", "info", "log file /dev/null/log cannot be written"),
    ],
)
def test_what_cannot_be_is_refused(target: str, format: str, level: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        logs.configure(target, format, level)
