"""Pages of flows: what a person reads there, which acts are offered, and who sees what."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry import App, approve, sleep, step, wait_for
from tarry.client.flows.flow_records import FlowDetail
from tarry.server.console.graph.drawing import WIDTH
from tarry.server.console.views import flows as views
from tarry.server.console.views.flow_graph import MOST_LABEL, drawn_flow, label_of
from tarry.store.memory.store import MemoryStore
from tests.server.console.test_answers import FORBIDDEN
from tests.server.console.visiting import Tokens, Visitor, visit

MOST_PAGE, MOST_SECONDS = 150_000, 2.0
broken: set[str] = set()


@pytest.fixture
def app() -> Iterator[App]:
    broken.clear()
    app = with_tasks(App(MemoryStore(), closures=True, retry=None))
    yield app
    app.close()


def with_tasks(app: App) -> App:
    @app.task(name="charge", queue="bank")
    def charge(order: int) -> str:
        if "charge" in broken:
            raise LookupError("no such <card>")
        return f"receipt {order}"

    @app.task(name="pack", queue="shop")
    def pack(part: int, receipt: Any = None) -> str:
        return f"parcel {part}"

    @app.task(name="send", queue="shop")
    def send(receipt: str, parcels: list[str]) -> dict[str, Any]:
        return {"receipt": receipt, "password": "hush-hush", "parcels": len(parcels)}

    @app.task(name="refund", queue="bank")
    def refund(order: int) -> Any:
        said = approve("refund of 70", key=f"order/{order}", timeout="2d")
        return [said.ok, said.by, said.note]

    return app


def place(app: App, parts: int = 3, key: str | None = None) -> str:
    """An order of so many parcels; the id of its flow."""
    tasks: Any = app.tasks
    with app.using(queue="shop").flow("order", key=key, deadline="2d") as f:
        paid = f.add(tasks["charge"].using(queue="bank").call(7), name="charge <it>")
        packed = f.add_all([tasks["pack"].call(part) for part in range(parts)], after=[paid])
        f.add(tasks["send"].call(paid.result, packed.result))
    return str(f.handle.id)


def node(flow: str, index: int) -> str:
    return f"{flow[:-8]}{index:08x}"


def read(app: App, *paths: str, tokens: Tokens | None = None, token: str = "") -> list[str]:
    """The pages, as this person sees them."""

    async def story(browser: Visitor) -> list[str]:
        if token:
            await browser.sign_in(token)
        return [await browser.text(path) for path in paths]

    return visit(app, story, tokens)


def detail(boxes: list[tuple[str, dict[str, int]]]) -> FlowDetail:
    """A flow of these boxes, by their labels and the states of their jobs."""
    common = {"task": "t", "queue": "q", "after": [], "on_failure": "stop", "failures": 0, "since": None}
    more: dict[str, Any] = {"started": None, "ended": None, "failed": [], "undo": None, "unlinked": False}
    records, first = [], 1
    for label, states in boxes:
        count = sum(states.values())
        own = {"first": first, "last": first + count - 1, "count": count, "looked_at": count}
        records.append(own | {"label": label, "states": states} | common | more)
        first += count
    flow = {"id": "019a0000-0000-8000-8000-000000000000", "name": "f", "key": None, "queue": "q", "state": "running"}
    counts = {"phase": "running", "size": first - 1, "ended": 0, "active": 0, "blocked": 0, "failed": 0}
    times = {"created": 0.0, "finished": None, "deadline": None, "kept_until": None, "note": None}
    rest = {"failed_job": None, "result": None, "result_omitted": "", "boxes": records, "looked_at": 0}
    return msgspec.convert(flow | counts | times | rest | {"left_out": 0, "hidden": 0}, FlowDetail)


def words(page: str) -> str:
    """The text of a page, without its marks."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_flows_are_listed_by_state_name_and_key(app: App) -> None:
    broken.add("charge")
    dead = place(app, key="8")
    app.drain()
    running = place(app, key="7")
    every, failed, named, other = read(
        app, "/flows", "/flows?state=dead", "/flows?name=order&key=7", "/flows?name=other"
    )
    assert [id in every for id in (dead, running)] == [True, True]
    assert [id in failed for id in (dead, running)] == [True, False]
    assert [id in named for id in (dead, running)] == [False, True]
    assert "No flow matches." in other
    assert "LookupError no such &lt;card&gt;" in failed
    assert "1 / 5" in words(failed)
    assert "0 / 5" in words(named)
    # A filter stays when another one is chosen.
    assert 'href="/flows?name=order&amp;key=7&amp;state=done"' in named


def test_flows_have_pages(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST_SHOWN", 2)
    flows = [place(app) for _ in range(5)]
    path, seen, pages = "/flows?name=order", list[str](), 0
    while path:
        (page,) = read(app, path)
        seen += re.findall(r'href="/flows/([0-9a-f-]{36})"', page)
        pages += 1
        following = re.search(r'href="([^"]*)" rel="next"', page)
        path = following[1].replace("&amp;", "&") if following else ""
    assert (sorted(seen), pages) == (sorted(flows), 3)


def test_a_flow_says_what_it_is_and_draws_its_jobs(app: App) -> None:
    flow = place(app, key="7")
    (page,) = read(app, f"/flows/{flow}")
    text = words(page)
    for expected in ("order", "Key 7", "Deadline in 1d23h", "Jobs ended 0 / 5", "charge &lt;it&gt;", "pack ×3"):
        assert expected in text
    assert page.count('class="box ') == 3
    # A picture for the mouse; the table has the same for the keyboard and for screen readers.
    picture, table = page.split('<table class="boxes">')
    for where in (f"/jobs/{node(flow, 1)}", f"/flows/{flow}/nodes?after=1", f"/jobs/{node(flow, 5)}"):
        assert f'href="{where}" tabindex="-1"' in picture
        assert f'href="{where}"' in table
    assert not re.search(FORBIDDEN, page)
    assert f'action="/flows/{flow}/cancel"' in page
    assert f'action="/flows/{flow}/retry"' not in page


def test_its_end_and_its_result(app: App) -> None:
    flow = place(app)
    app.drain()
    (page,) = read(app, f"/flows/{flow}")
    text = words(page)
    assert "receipt 7" in text
    assert "hush-hush" not in page
    assert "Deleted in " in text
    assert "/cancel" not in page
    assert "/retry" not in page


def test_what_failed_comes_first(app: App) -> None:
    broken.add("charge")
    flow = place(app)
    app.drain()
    (page,) = read(app, f"/flows/{flow}")
    failed, rest = page.split('<dl class="figures">')
    assert f'href="/jobs/{node(flow, 1)}"' in failed
    assert "LookupError: no such &lt;card&gt;" in failed
    assert "failed first" in failed
    assert 'class="box dead"' in rest
    assert rest.count('class="box blocked"') == 2
    assert f'action="/flows/{flow}/retry"' in page
    assert "Cancel" not in page


def test_a_flow_is_cancelled_and_retried(app: App) -> None:
    flow = place(app)

    async def story(browser: Visitor) -> list[str]:
        said = []
        for act, form in (("cancel", {"reason": "not wanted"}), ("cancel", {}), ("retry", {})):
            page = f"/flows/{flow}" if act == "cancel" and form else "/queues/shop"
            await browser.act(f"/flows/{flow}/{act}", form | {"next": f"/flows/{flow}"}, page)
            said.append(words(await browser.text(f"/flows/{flow}")))
        return said

    cancelled, again, retried = visit(app, story)
    assert "The flow is cancelled: nothing of it starts any more." in cancelled
    assert "not wanted" in cancelled
    assert "it has ended" in again
    assert "The flow goes on: failed jobs run again." in retried
    app.drain()
    assert app.flows.get(flow).state == "done"


def test_jobs_of_a_flow_one_by_one(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = place(app, parts=20)
    monkeypatch.setattr(views, "MOST_SHOWN", 15)
    first, second, blocked = read(
        app, f"/flows/{flow}/nodes", f"/flows/{flow}/nodes?after=15", f"/flows/{flow}/nodes?state=ready"
    )
    assert [len(re.findall(r'href="/jobs/', page)) for page in (first, second, blocked)] == [15, 7, 1]
    assert f'href="/flows/{flow}/nodes?after=15" rel="next"' in first
    assert "rel=" not in second.split("<main")[1]
    assert "charge &lt;it&gt;" in blocked


def test_a_job_shows_its_place_in_its_flow(app: App) -> None:
    flow = place(app, key="7")
    part, last, root = read(app, *(f"/jobs/{node(flow, index)}" for index in (3, 5, 0)))
    assert "Runs after charge &lt;it&gt; ready" in words(part)
    assert "What waits for it send blocked" in words(part)
    assert f'href="/flows/{flow}">order 7</a>' in part
    assert "Runs after charge &lt;it&gt; ready pack ×3" in words(last)
    assert "What waits for it" not in last
    # It changes with its flow only.
    for page in (part, last, root):
        assert 'class="danger"' not in page
        assert 'datetime="1970' not in page
    assert "It stands for a flow" in root
    app.drain()
    (done,) = read(app, f"/jobs/{node(flow, 3)}")
    assert "What waits for it send done" in words(done)


def test_lists_of_jobs_lead_to_flows(app: App) -> None:
    flow = place(app)
    (page,) = read(app, "/jobs")
    assert f'<a href="/flows/{flow}">flow:order</a>' in page
    # Not the year alone: tokens and ids are random digits.
    assert 'datetime="1970' not in page

    async def story(browser: Visitor) -> list[str]:
        answers = [await browser.get(f"/find?text={id}") for id in (flow, node(flow, 1))]
        return [answer.headers["location"] for answer in answers]

    assert visit(app, story) == [f"/flows/{flow}", f"/jobs/{node(flow, 1)}"]


def test_who_may_see_one_queue_sees_the_jobs_in_it(app: App, tokens: Tokens) -> None:
    broken.add("charge")
    flow = place(app)
    app.drain()
    tokens.add("shop", "read", "operate", queues='["shop"]')
    tokens.add("other", "read", queues='["other"]')
    page, part = read(app, f"/flows/{flow}", f"/jobs/{node(flow, 3)}", tokens=tokens, token="shop-token")
    assert "1 job is of a queue that you may not see." in words(page)
    assert "no such" not in page
    assert "charge" not in page + part
    assert "What waits for it send" in words(part)

    async def story(browser: Visitor) -> int:
        await browser.sign_in("other-token")
        assert flow not in await browser.text("/flows")
        return (await browser.get(f"/flows/{flow}")).status_code

    assert visit(app, story, tokens) == 404


def test_who_only_looks_is_offered_no_act(app: App, tokens: Tokens) -> None:
    broken.add("charge")
    dead = place(app)
    app.drain()
    running = place(app)
    app.tasks["refund"].enqueue(9)
    app.drain()
    paths = (f"/flows/{dead}", f"/flows/{running}", "/approvals")
    assert all('name="csrf"' not in page for page in read(app, *paths, tokens=tokens, token="reader-token"))
    assert "refund of 70" in read(app, "/approvals", tokens=tokens, token="reader-token")[0]


@pytest.mark.parametrize(("ok", "said"), [("true", "approved"), ("false", "refused")])
def test_a_decision_is_told_to_its_job_with_who_made_it(app: App, tokens: Tokens, ok: str, said: str) -> None:
    job = app.tasks["refund"].enqueue(9)
    app.drain()

    async def story(browser: Visitor) -> list[str]:
        await browser.sign_in("operator-token")
        page = await browser.text("/approvals")
        form = {"ok": ok, "note": "of course", "question": "refund of 70", "next": "/approvals"}
        done = await browser.act("/approvals/order%2F9", form, "/approvals")
        assert (done.status_code, done.headers["location"]) == (303, "/approvals")
        after = await browser.text("/approvals")
        # Somebody else was faster.
        late = await browser.act("/approvals/order%2F9", form, "/queues/bank")
        return [page, after, str(late.status_code)]

    page, after, late = visit(app, story, tokens)
    assert "refund of 70 order/9" in words(page)
    assert 'action="/approvals/order%2F9"' in page or 'action="/approvals/order/9"' in page
    assert f"refund of 70: {said}." in after
    assert "Nothing waits for a decision." in after
    assert late in ("404", "409")
    app.drain()
    assert job.result(timeout=5) == [ok == "true", "operator", "of course"]


def test_what_needs_attention(app: App) -> None:
    broken.add("charge")
    place(app)
    place(app)
    app.tasks["refund"].enqueue(9)
    app.drain()
    (page,) = read(app, "/")
    text = words(page)
    assert "order: 2 flows died in the last day." in text
    assert "1 job waits for a decision." in text
    assert 'href="/flows?state=dead&amp;name=order"' in page
    # The jobs that stand for the flows are in the queue shop.
    assert "bank: 2 jobs are dead." in text
    assert "shop:" not in text


def test_a_box_tells_its_jobs_in_the_room_it_has() -> None:
    flow = detail(
        [("x" * 40, {"running": 1}), ("作业作业作业作业作业作业", {"done": 1}), ("pack", {"done": 1, "ready": 99_999})]
    )
    one, wide, many = drawn_flow(flow).boxes
    assert one.label == "…" + "x" * (MOST_LABEL - 1)
    assert wide.label == "…" + "业" + "作业" * 4
    assert (many.label, label_of(many.box)) == ("pack", "pack ×100,000")
    assert [part.state for part in many.bar] == ["done", "ready"]
    assert all(part.width >= 2 and part.x + part.width <= WIDTH for part in many.bar)
    assert (many.state, many.ended, many.others) == ("ready", 1, [("ready", 99_999)])
    assert one.bar == []


def test_a_flow_of_100_000_jobs_comes_soon_and_small(tmp_path: Path) -> None:
    app = with_tasks(App(f"sqlite:///{tmp_path}/tarry.db", closures=True))
    flow = place(app, parts=100_000)
    for path in (f"/flows/{flow}", f"/flows/{flow}/nodes?after=50000", f"/jobs/{node(flow, 50_000)}", "/flows"):
        began = time.perf_counter()
        (page,) = read(app, path)
        assert time.perf_counter() - began < MOST_SECONDS, path
        assert len(page.encode()) < MOST_PAGE, path
    assert "pack ×100,000" in read(app, f"/flows/{flow}")[0]
    app.close()


def test_a_flow_of_many_boxes_stays_small(app: App) -> None:
    tasks: Any = app.tasks
    with app.flow("wide") as f:
        found = [f.add(tasks["pack"].call(part), name=f"a part with the number {part}") for part in range(100)]
        for part in range(130):
            f.add(tasks["pack"].call(part), after=found[part % 50 : part % 50 + 9], name=f"after it comes {part}")
    (page,) = read(app, f"/flows/{f.handle.id}")
    assert page.count('class="box ') == 200
    assert len(page.encode()) < MOST_PAGE
    assert "30 jobs are in no box: there are too many." in words(page)


def test_a_job_shows_its_durable_steps(app: App) -> None:
    @app.task(name="order", queue="shop")
    def order(number: int) -> Any:
        step.named("charge <it>")(dict, token="hush-hush", cents=number)
        wait_for("paid", key="7", timeout="1h")
        approve("ship it", key="8")
        sleep("3d")

    job = order.enqueue(700)
    pages = []
    for act in (lambda: None, lambda: app.signal("paid", key="7", value="by card"), lambda: decide(app, "8")):
        act()
        app.drain()
        pages += [words(read(app, f"/jobs/{job.id}")[0])]
    first, second, third = pages
    assert re.search(r"1 charge &lt;it&gt; done {&#34;token&#34;: &#34;••••••&#34;, &#34;cents&#34;: 700}", first)
    assert "2 Waits for paid 7 until in " in first
    assert "2 Waits for paid 7 done &#34;by card&#34;" in second
    assert "It waits for a decision: ship it 8" in second
    assert "3 Waits for approve:ship it 8 done" in third
    assert "4 Sleeps until in " in third
    assert all("hush-hush" not in page and "9999" not in page for page in pages)


def decide(app: App, key: str) -> None:
    async def story(browser: Visitor) -> None:
        assert (await browser.act(f"/approvals/{key}", {"ok": "true"}, "/approvals")).status_code == 303

    visit(app, story)
