"""One line that says which jobs, by HTTP, on every store: each word finds its jobs and no others."""

import re
import time
from typing import Any

import httpx
import pytest

from tarry import App
from tests.server.http.calling import api, run


@pytest.fixture
def shop(app: App) -> App:
    """Two tasks of a shop that fail, one of another app, and a flow of three jobs."""

    @app.task(name="shop.mail", queue="mail", retry=None)
    def mail(to: str) -> None:
        raise TimeoutError(f"no answer for {to}")

    @app.task(name="shop.pay", queue="pay", retry=None)
    def pay(amount: int) -> None:
        raise ValueError("Connection refused")

    @app.task(name="other")
    def other(number: int) -> int:
        return number

    mail.using(labels={"customer": "7"}).enqueue("ann")
    mail.using(labels={"customer": "8", "state": "new"}).enqueue("bob")
    pay.using(labels={"customer": "7"}).enqueue(5)
    app.drain()
    other.using(key="k", delay="1h").enqueue(1)
    return app


def found(app: App, line: str, order: str = "oldest") -> list[Any]:
    """Task and arguments of the jobs of all pages."""

    async def tell() -> list[Any]:
        seen, more = [], dict[str, str]()
        async with api(app) as client:
            while True:
                asked: dict[str, str | int] = {"q": line, "order": order, "limit": 2, **more}
                page = (await client.get("/v1/jobs", params=asked)).json()
                seen += [[job["task"], *job["args"]] for job in page["jobs"]]
                if page["next"] is None:
                    return seen
                more = {"cursor": page["next"]}

    return run(tell)


ANN, BOB, PAID, OTHER = ["shop.mail", "ann"], ["shop.mail", "bob"], ["shop.pay", 5], ["other", 1]


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_each_word_finds_its_jobs(shop: App, order: str) -> None:
    for line, expected in (
        ("", [ANN, BOB, PAID, OTHER]),
        ("state:dead", [ANN, BOB, PAID]),
        ("state:dead task:shop.* error:timeout since:2d customer:7", [ANN]),
        ("task:shop.*", [ANN, BOB, PAID]),
        ("task:*a*", [ANN, BOB, PAID]),
        ("task:shop", []),
        ("queue:mail", [ANN, BOB]),
        ("error:REFUSED", [PAID]),
        ("no ann", [ANN]),
        ('"connection refused" valueerror', [PAID]),
        ("customer:7", [ANN, PAID]),
        ("label.state:new", [BOB]),
        ("arg:AN", [ANN]),
        ("task:other key:k", [OTHER]),
        ("since:1h", [ANN, BOB, PAID, OTHER]),
        ("until:1h", []),
        ("until:2100-01-01 queue:pay", [PAID]),
        ("created_since:1h state:scheduled,done", [OTHER]),
    ):
        wanted = expected if order == "oldest" else expected[::-1]
        assert found(shop, line, order) == wanted, line


def test_jobs_of_a_flow(shop: App) -> None:
    other = shop.named("other")
    with shop.flow("order") as flow:
        first = flow.add(other.call(10))
        second = flow.add(other.call(11), after=[first])
        flow.add(other.call(12), after=[first, second])
    with shop.flow("order") as another:
        another.add(other.call(20))
    ids = {job["args"][0]: job["id"] for job in listed(shop, f"flow:{flow.handle.id} node:other")}
    assert sorted(ids) == [10, 11, 12]
    assert [job["args"][0] for job in listed(shop, f"parent:{ids[10]}")] == [11, 12]
    assert [job["args"][0] for job in listed(shop, f"parent:{ids[11]}")] == [12]
    assert listed(shop, f"parent:{ids[12]}") == []
    assert [job["args"][0] for job in listed(shop, f"flow:{ids[12]} arg:11")] == [11]
    assert len(listed(shop, f"flow:{another.handle.id}")) == 2
    assert listed(shop, f"flow:{flow.handle.id} node:nothing") == []


def listed(app: App, line: str) -> list[Any]:
    async def tell() -> httpx.Response:
        async with api(app) as client:
            return await client.get("/v1/jobs", params={"q": line})

    page = run(tell).json()
    assert page["next"] is None
    return list(page["jobs"])


def test_what_matches_is_changed_and_nothing_else(shop: App) -> None:
    async def tell() -> dict[str, Any]:
        async with api(shop) as client:
            body = {"act": "delete", "q": "task:shop.* error:timeout customer:7"}
            started = (await client.post("/v1/operations", json=body)).json()
            while (one := (await client.get(f"/v1/operations/{started['id']}")).json())["ended"] is None:
                pass
            return dict(one)

    one = run(tell)
    assert (one["state"], one["changed"]) == ("done", 1)
    assert one["filter"] == {"task_pattern": "shop.*", "labels": ["customer=7"], "error_text": ["timeout"]}
    assert found(shop, "") == [BOB, PAID, OTHER]


HOSTILE = ("a.b", "a%b", "a_b", "a[b]", "a*b", "a\\b", "é.x", "A.B", "a^b", "a$b", "%d+", "a-b")
PATTERNS = ("a*b", "a.*", "a%*", "a_*", "*b", "a[*", "*\\*", "É*", "é*", "A*", "a^*", "a$*", "%d*", "a-*", "**", "a**b")


def test_only_a_star_is_no_letter_of_a_pattern(app: App) -> None:
    for name in HOSTILE:
        app.task(name=name)(_nothing)
        app.named(name).using(delay="1h").enqueue(1)
    for pattern in PATTERNS:
        wanted = {name for name in HOSTILE if re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name)}
        escaped = pattern.replace("\\", "\\\\")
        assert {task for task, _ in found(app, f'task:"{escaped}"')} == wanted, pattern


def test_a_pattern_of_many_stars_costs_no_more_than_others(app: App) -> None:
    name = "a" * 100
    app.task(name=name)(_nothing)
    for _ in range(20):
        app.named(name).using(delay="1h").enqueue(1)
    for pattern in ("a*" * 49 + "z", "*" * 98 + "z", "*a" * 49 + "z"):
        began = time.monotonic()
        assert found(app, f"task:{pattern}") == []
        assert time.monotonic() - began < 5


def _nothing(number: int) -> None: ...


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("state:dead", 3),
        ("task:shop.*", 3),
        ("task:shop.mail customer:7", 1),
        ("error:refused", 1),
        ('timeout error:"for bob"', 1),
        ("arg:ann", 1),
        ("customer:9", 0),
        ("label.state:new since:1d", 1),
        ("", 4),
    ],
)
def test_the_same_line_in_python(shop: App, line: str, numbers: int) -> None:
    assert len([*shop.jobs(q=line)]) == shop.jobs(q=line).count() == numbers
    assert len(found(shop, line)) == numbers


def test_a_line_beside_other_filters_in_python(shop: App) -> None:
    assert shop.jobs(q="customer:7", queue="pay").count() == 1
    assert shop.jobs(q="customer:7", task="shop.*").count() == 0, "a name beside the line is a name"
    assert shop.jobs(q="customer:7 state:dead").delete().changed == 2
    assert shop.jobs(q="state:dead").count() == 1
    for line, beside, message in (
        ("queue:pay", {"queue": "mail"}, "the line says queue, which is also given beside it: say it once"),
        ("sate:dead", {}, "sate:dead: .*did you mean state"),
        ("flow:xyz", {}, "xyz"),
        ("id:01a20121", {}, "id: finds single jobs, and is not for all that match"),
    ):
        with pytest.raises(ValueError, match=message):
            shop.jobs(q=line, **beside)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Narrow with q, state"):
        shop.jobs(q=" ").delete()
