import json
import logging
import os
import re
import socket
from pathlib import Path

import pytest

from tarry.errors import ConfigError
from tarry.runtime.logs import handlers
from tarry.runtime.logs.formatting import set_job_facts

pytestmark = pytest.mark.usefixtures("own_logging")


def test_a_line_of_text(tmp_path: Path) -> None:
    handlers.configure(tmp_path / "deep" / "log")
    logging.getLogger("tarry.master").info("started %s\nforged", "it")
    logging.getLogger("tarry.master").debug("too low")
    (line,) = (tmp_path / "deep" / "log").read_text().splitlines()
    pattern = rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z INFO tarry\.master\[{os.getpid()}\] started it\\nforged"
    assert re.fullmatch(pattern, line)


def test_a_line_of_json_with_a_traceback(tmp_path: Path) -> None:
    handlers.configure(tmp_path / "log", "json", "debug")
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
    handlers.configure(tmp_path / "log")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("shop").exception("broke")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].endswith("broke")
    assert (lines[1], lines[-1]) == ("Traceback (most recent call last):", "ValueError: why")


def test_the_last_configuration_counts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    handlers.configure(tmp_path / "log")
    handlers.configure("stderr")
    logging.getLogger("shop").warning("once")
    assert capfd.readouterr().err.count("once") == 1
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.parametrize(
    ("target", "format", "level", "said"),
    [
        ("stderr", "xml", "info", "log_format 'xml': one of text, json"),
        ("stderr", "text", "loud", "log_level 'loud': one of debug, info, warning, error"),
        ("/dev/null/log", "text", "info", "log file /dev/null/log cannot be written"),
        ("sylog", "text", "info", "log 'sylog': no file, or not to be taken for the name of one"),
        ("syslog://nowhere.invalid", "text", "info", "nowhere.invalid has no address"),
    ],
)
def test_what_cannot_be_is_refused(target: str, format: str, level: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        handlers.configure(target, format, level)


JOB = {"job": "0199", "task": "shop.pay", "queue": "mail box", "attempt": 2}


def log_message(path: Path, message: str, **extra: object) -> str:
    logging.getLogger("shop").warning(message, extra=extra)
    return path.read_text().splitlines()[-1]


def test_a_line_about_a_job_carries_its_facts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    handlers.configure(log)
    set_job_facts(lambda: None, worker="default.1")
    assert log_message(log, "no job").endswith("] no job")
    line = log_message(log, "its job", tarry=JOB)
    assert line.endswith('its job job=0199 task=shop.pay queue="mail box" attempt=2 worker=default.1')


def test_a_line_that_is_logged_while_a_job_runs_carries_its_facts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    handlers.configure(log, "json")
    on: list[dict[str, object]] = []
    set_job_facts(lambda: on[0] if on else None, worker="default.1")
    facts = json.loads(log_message(log, "none"))
    assert "job" not in facts
    assert (facts["worker"], facts["host"]) == ("default.1", socket.gethostname())
    on.append(JOB)
    facts = json.loads(log_message(log, "one", order=5, tarry={**JOB, "job": "0200"}))
    assert (facts["job"], facts["attempt"], facts["extra"]) == ("0200", 2, {"order": 5})
    assert json.loads(log_message(log, "one"))["job"] == "0199"


@pytest.mark.parametrize("format", handlers.FORMATS)
def test_nothing_that_is_logged_breaks_a_line(tmp_path: Path, format: str) -> None:
    log = tmp_path / "log"
    handlers.configure(log, format)
    loop: list[object] = []
    loop.append(loop)
    for value in ("half \udc80", float("nan"), {1: object()}, b"\xff", loop, 2**100):
        logging.getLogger("shop").warning("line of %r\nmore", "x\udc80", extra={"value": value})
    lines = log.read_text().splitlines()
    assert len(lines) == 6
    assert all("more" in line for line in lines)
    if format == "json":
        assert [json.loads(line)["level"] for line in lines] == ["WARNING"] * 6
