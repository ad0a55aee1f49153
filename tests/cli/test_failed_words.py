"""What is called failed: one story of three jobs, and what each place says of it, against the table of the docs."""

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from tarry import App
from tests.cli.project import Project, until
from tests.docs.pages import text_of
from tests.server.http.calling import page, request

APP = """
from tarry import App, Retry, current_job

app = App(retry=Retry(1, base=0.001))

@app.task
def fail(times: int) -> None:
    if current_job().attempt <= times:
        raise ValueError(times)
"""
TABLE = re.compile(r"### What is called failed\n.*?\n\n(\|.*?)\n\n", re.DOTALL)
HISTORY = ("failed", "dead")
"""What the history has, by the names of the docs. It must be two rows: neither contains the other."""
ALL = "failed attempts"


def documented() -> Mapping[str, int]:
    """The numbers of the example, by the first word of each row."""
    table = TABLE.search(text_of("docs/operations.md"))
    assert table is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()[2:]]
    return {row[0].split(",")[0].strip("`"): int(row[-1]) for row in rows}


def column(text: str, head: str, row: str) -> int:
    """The number below this head, in the first line that begins with `row`; columns are two blanks apart."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    place = next(line.index(head) for line in lines if head in line)
    return int(next(line[place] for line in lines if line[0] == row))


def cells(html: str, kind: str = "") -> dict[str, str]:
    """The first row of a page's first table of that kind, by its heads."""
    head, _, body = html.partition(f"<table{kind}>")[2].partition("</thead>")
    heads, texts = (
        re.findall(r"<th(?: [^>]*)?>(?:<a[^>]*>)?(.*?)(?:</a>)?</th>", head),
        re.findall(r"<td(?: [^>]*)?>(.*?)</td>", body),
    )
    return dict(zip(heads, texts, strict=False))


def ended(project: Project) -> bool:
    total = project.facts("stats")["total"]
    return bool(total["done"] == 2 and total["dead"] == 1)


def host_of(app: App) -> Any:
    """The host with all its figures, which its master writes into the store every few seconds."""
    (host,) = request(app, "GET", "/v1/hosts").json()["hosts"]
    return host if host["pools"][0]["processed"] == 3 else None


def test_failed_means_in_each_place_what_the_docs_say(project: Project) -> None:
    project.write("app.py", APP)
    for times in (2, 1, 0):
        project.put("app.fail", times)
    project.serve()
    until(lambda: ended(project))
    words = documented()
    assert set(words) == {*HISTORY, ALL}
    with contextlib.closing(App(f"sqlite:///{project.database}", closures=True)) as app:
        app.task(name="app.fail")(lambda times: None)
        check_history(project, app, {word: words[word] for word in HISTORY})
        check_attempts(project, app, words[ALL])


def check_history(project: Project, app: App, expected: Mapping[str, int]) -> None:
    stats = project.said("stats")
    assert {word: column(stats, word, "default") for word in expected} == expected
    history, totals = (request(app, "GET", path).json() for path in ("/v1/history", "/v1/totals"))
    for found in (project.facts("stats")["total"], history["total"], totals["today"]["total"], totals["ever"]["total"]):
        assert {word: found[word] for word in expected} == expected
    for shown in (cells(page(app, "/"), ' class="totals"'), cells(page(app, "/tasks"))):
        assert {word: int(shown[word]) for word in expected} == expected


def check_attempts(project: Project, app: App, expected: int) -> None:
    host = until(lambda: host_of(app))
    assert column(project.said("status"), ALL, "worker default.1") == expected
    assert host["pools"][0]["failed"] == expected
    top = project.facts("top", "--once")
    assert [child["failed"] for child in top["master"]["children"] if child["role"] == "worker"] == [expected]
    assert sum(minute["failed"] for minute in top["minutes"]) == expected
    assert column(project.said("top", "--once"), ALL, "worker default.1") == expected
    assert int(cells(page(app, "/hosts"))["Failed attempts"]) == expected
