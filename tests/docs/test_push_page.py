"""docs/push.md is true: its code in other languages runs where they are, its settings and its commands work. Its Python
is run by test_pages.py."""

import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tarry import App
from tarry.alert.alert_settings import AlertSettings
from tarry.config.config import Push, load
from tarry.push.endpoint.fields import FIELDS
from tarry.push.http.sign import Signer, headers
from tarry.push.rule.cel import RetryCondition
from tests.cli.project import Project
from tests.docs.pages import blocks_of, text_of

PAGE = text_of("docs/push.md")
SECRET, BODY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", '{"order":7}'


def blocks(language: str) -> list[str]:
    return [block.text for block in blocks_of("docs/push.md", language)]


def ran(*command: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=250, check=False)


def test_its_settings_make_tasks_and_alerts(tmp_path: Path) -> None:
    for block in blocks("toml"):
        (tmp_path / "tarry.toml").write_text(block)
        app = App()
        app.configure(load(tmp_path / "tarry.toml", {}))
        app.http.load(thoroughly=True)
        AlertSettings.of(app.config)


@pytest.mark.parametrize(
    ("head", "settings"),
    [("| setting | default | |", FIELDS), ("| setting of `[push]` | default | |", Push.__struct_fields__)],
)
def test_its_tables_have_every_setting_and_no_other(head: str, settings: Sequence[str]) -> None:
    table = PAGE.partition(head)[2].partition("\n\n")[0]
    names = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(names) == sorted(settings)


def test_its_rules_are_rules() -> None:
    table = PAGE.partition("| rule | sends again |")[2].partition("\n\n")[0]
    rules = [found[1].replace(r"\|", "|") for row in table.splitlines() if (found := re.match(r"\| `(.*?)` \|", row))]
    rules += [*re.findall(r"`(\{res\.[^`]*&&[^`]*)`", PAGE), "status != 204 && res.code != 200"]
    assert len(rules) >= 9
    for rule in rules:
        RetryCondition.parse(rule)


def test_its_commands_work(tmp_path: Path) -> None:
    place = Project(tmp_path, settings=blocks("toml")[0])
    (tmp_path / "answer.txt").write_text('HTTP/1.1 200 OK\n\n{"code": 500}')
    lines = [line.partition(" #")[0] for block in blocks("sh") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("tarry tasks")]
    assert len(commands) >= 6
    said = [place.said(*shlex.split(line)[1:]) for line in commands]
    assert said[0] == "order.paid added"
    assert said[-1] == ("again, after the first attempt in 1m: answered 200 OK; the rule says so: res.code != 200"), (
        "as the comment says"
    )


def test_its_places_are_there() -> None:
    titles = re.findall(r"^## (.*)", PAGE, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert [place for place in re.findall(r"\(#([\w-]+)\)", PAGE) if place not in slugs] == []


def signed(changed: bool) -> dict[str, str]:
    """The headers of a request, for another body if it was changed."""
    return dict(headers(Signer([SECRET]), "0193", 1, 0, time.time(), BODY.encode() + b" " * changed))


@pytest.fixture(params=["genuine", "changed", "old", "empty"])
def request_and_answer(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Headers as JSON, and what is to be said of them."""
    sent = signed(request.param == "changed")
    if request.param == "old":
        sent = dict(headers(Signer([SECRET]), "0193", 1, 0, time.time() - 301, BODY.encode()))
    if request.param == "empty":
        sent = {}
    return json.dumps(sent), "yes" if request.param == "genuine" else "no"


def program(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"no {name} here")


def test_its_javascript_knows_what_was_signed(tmp_path: Path, request_and_answer: tuple[str, str]) -> None:
    sent, answer = request_and_answer
    (block,) = blocks("js")
    call = f"genuine({SECRET!r}, {sent}, Buffer.from({BODY!r}))"
    (tmp_path / "it.js").write_text(f"{block}\nconsole.log({call} ? 'yes' : 'no');\n")
    assert ran(program("node"), "it.js", cwd=tmp_path).stdout == f"{answer}\n"


def test_its_php_knows_what_was_signed(tmp_path: Path, request_and_answer: tuple[str, str]) -> None:
    sent, answer = request_and_answer
    (block,) = blocks("php")
    call = f"genuine({SECRET!r}, json_decode({sent!r}, true), {BODY!r})"
    (tmp_path / "it.php").write_text(f"{block}\necho {call} ? 'yes' : 'no';\n")
    assert ran(program("php"), "it.php", cwd=tmp_path).stdout == answer


GO_MAIN = """
func main() {{
	headers := http.Header{{}}
	for name, value := range map[string]string{sent} {{
		headers.Set(name, value)
	}}
	fmt.Print(map[bool]string{{true: "yes", false: "no"}}[Genuine("{secret}", headers, []byte(`{body}`))])
}}
"""


def test_its_go_knows_what_was_signed(tmp_path: Path, request_and_answer: tuple[str, str]) -> None:
    sent, answer = request_and_answer
    (block,) = blocks("go")
    main = GO_MAIN.format(sent=sent, secret=SECRET, body=BODY)
    (tmp_path / "it.go").write_text(block.replace("package webhook", "package main") + main)
    assert ran(program("go"), "run", "it.go", cwd=tmp_path).stdout == answer
