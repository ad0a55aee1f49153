"""Each act, done as a person does it, on SQLite and on Redis."""

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from playwright.sync_api import expect

from tarry.client.operations.operation import JobFilter, Operation
from tarry.client.operations.operation_cells import PREFIX
from tarry.model.duration import HOUR
from tarry.push.endpoint import endpoint_cells
from tarry.push.endpoint.flow import FlowState
from tarry.server.serving.console import ACTS
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tests.cli.project import until
from tests.server.console.browser.done_acts import DOES
from tests.server.console.browser.place import Endpoint, Person, Place


def test_each_act_is_done_by_a_person_here() -> None:
    assert {name for names in DOES.values() for name in names.split()} == {act.method.name for act in ACTS}


def test_a_queue_is_paused_and_resumed(operator: Person) -> None:
    job = operator.place.add("send", "ann@example.org", queue="pausing", delay=3600)
    operator.open("/queues/pausing")
    operator.press("Pause")
    operator.is_told("Queue pausing is paused")
    assert operator.place.api.get("/v1/queues/pausing").json()["paused"]
    expect(operator.page.get_by_role("heading", level=1)).to_contain_text("paused")
    operator.press("Resume")
    operator.is_told("Queue pausing is resumed")
    assert not operator.place.api.get("/v1/queues/pausing").json()["paused"]
    assert operator.place.state(job) == "scheduled"


def test_a_queue_is_purged_after_a_second_press(operator: Person) -> None:
    jobs = [operator.place.add("send", "ann@example.org", queue="purged", delay=3600) for _ in range(3)]
    operator.open("/queues/purged")
    operator.press("Purge")
    operator.sees("3 jobs that wait here are deleted for good")
    assert operator.place.state(jobs[0]) == "scheduled"
    operator.page.locator("details[open]").get_by_role("button", name="Purge").click()
    operator.is_told("The purge has begun")
    for job in jobs:
        operator.place.becomes(job, "gone")
    # The page of the operation follows it.
    expect(operator.page.locator("main")).to_contain_text("done")


def test_a_dead_job_is_found_and_sent_again(operator: Person) -> None:
    job = operator.place.add("send", "nowhere")
    operator.place.becomes(job, "dead")
    page = operator.open("/")
    page.get_by_role("searchbox").fill(job)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job}")
    operator.sees("nowhere is no address")
    operator.press("Retry")
    operator.is_told("The job is ready")
    until(lambda: operator.place.api.get(f"/v1/jobs/{job}").json()["epoch"] == 2)
    operator.place.becomes(job, "dead")


def test_a_waiting_job_is_moved_run_cancelled_and_deleted(operator: Person) -> None:
    job = operator.place.add("send", "ann@example.org", "hush", queue="moving", delay=3600)
    page = operator.open(f"/jobs/{job}")
    operator.press("Move")
    page.get_by_label("Queue", exact=True).fill("elsewhere")
    page.get_by_label("Priority", exact=True).fill("7")
    page.get_by_label("Run after", exact=True).fill("2h")
    page.locator("details[open]").get_by_role("button", name="Move").click()
    operator.is_told("The job is moved")
    record = operator.place.api.get(f"/v1/jobs/{job}").json()
    assert (record["queue"], record["priority"]) == ("elsewhere", 7)
    operator.press("Run now")
    operator.is_told("The job is ready")
    operator.confirm("Cancel")
    operator.place.becomes(job, "cancelled")
    operator.open(f"/jobs/{job}")
    operator.confirm("Delete")
    operator.is_told("The job is deleted")
    assert operator.place.state(job) == "gone"
    assert page.url == f"{operator.place.url}/jobs"


def test_a_waiting_job_is_mended_and_cloned(operator: Person) -> None:
    job = operator.place.add("send", "ann@example.org", "hush", queue="mending", delay=3600)
    page = operator.open(f"/jobs/{job}")
    operator.press("Edit")
    page.get_by_role("textbox", name="Arguments").fill('{"oops": 1}')
    page.locator("details[open]").get_by_role("button", name="Change only").click()
    expect(page.get_by_role("alert")).to_contain_text("send")
    box = page.get_by_role("textbox", name="Arguments")
    expect(box).to_have_value('{"oops": 1}')
    box.fill('["ann@example.org", "other"]')
    page.locator("details[open]").get_by_role("button", name="Change only").click()
    operator.is_told("The job has other arguments")
    assert operator.place.api.get(f"/v1/jobs/{job}").json()["args"] == ["ann@example.org", "other"]
    operator.press("Clone")
    operator.is_told("This is the clone")
    clone = page.url.rpartition("/")[2].partition("?")[0]
    assert operator.place.api.get(f"/v1/jobs/{clone}").json()["acts"][0]["of"] == job


def test_a_job_that_hangs_is_ended(operator: Person) -> None:
    job = operator.place.add("wait", "no gate")
    operator.place.becomes(job, "running")
    operator.open(f"/jobs/{job}")
    operator.sees("waiting at the gate")
    operator.confirm("Cancel")
    operator.place.becomes(job, "cancelled")
    operator.open(f"/jobs/{job}")
    operator.sees("cancelled")


def test_many_jobs_are_counted_first_and_then_changed(operator: Person) -> None:
    jobs = [operator.place.add("send", "ann@example.org", queue="many", delay=3600) for _ in range(4)]
    kept = operator.place.add("send", "ann@example.org", queue="kept", delay=3600)
    page = operator.open("/jobs?queue=many")
    operator.press("Change all that match")
    page.locator("select[name=act]").select_option("delete")
    operator.press("Count only")
    operator.is_told("The operation has begun")
    operator.sees("count only", "h1")
    expect(page.locator(".facts")).to_contain_text("done")
    expect(page.locator(".facts")).to_contain_text("4")
    assert {operator.place.state(job) for job in jobs} == {"scheduled"}
    page = operator.open("/jobs?queue=many&state=scheduled&created_since=1h&text=ann%40")
    operator.press("Change all that match")
    page.locator("select[name=act]").select_option("delete")
    page.locator("details[open]").get_by_label("Reason", exact=True).fill("of no use")
    operator.press("Change them")
    operator.is_told("The operation has begun")
    for job in jobs:
        operator.place.becomes(job, "gone")
    assert operator.place.state(kept) == "scheduled"


def test_selected_jobs_are_changed_and_no_others(operator: Person) -> None:
    jobs = [operator.place.add("send", f"{n}@example.org", queue="chosen", delay=3600) for n in range(3)]
    page = operator.open("/jobs?queue=chosen")
    page.get_by_label("All of this page", exact=True).check()
    page.get_by_label(f"Select {jobs[0][-8:]}", exact=True).uncheck()
    operator.press("Change the selected ones")
    page.locator("details[open]").get_by_role("button", name="Cancel", exact=True).click()
    operator.is_told("2 of 2 selected jobs are changed")
    assert [operator.place.state(job) for job in jobs] == ["scheduled", "cancelled", "cancelled"]


def test_the_dead_jobs_of_an_error_are_sent_again_and_deleted(operator: Person) -> None:
    jobs = [operator.place.add("send", "nobody") for _ in range(3)]
    for job in jobs:
        operator.place.becomes(job, "dead")
    until(lambda: counted_errors(operator) == [3])
    operator.open("/errors?queue=mail").locator("tr", has_text="nobody").locator("a").first.click()
    operator.sees("Jobs that have it now")
    operator.press("Mute")
    operator.is_told("Nobody is alerted")
    operator.press("Unmute")
    operator.is_told("not muted any more")
    operator.press("Retry its dead jobs")
    operator.is_told("The operation has begun")
    until(lambda: counted_errors(operator) == [6])
    for job in jobs:
        operator.place.becomes(job, "dead")
    operator.open("/errors?queue=mail").locator("tr", has_text="nobody").locator("a").first.click()
    operator.confirm("Delete its dead jobs")
    operator.is_told("The operation has begun")
    for job in jobs:
        operator.place.becomes(job, "gone")
    assert counted_errors(operator) == []


def counted_errors(operator: Person) -> list[int]:
    errors = operator.place.api.get("/v1/errors?queue=mail").json()["errors"]
    return [one["count"] for one in errors if one["message"] == "nobody is no address"]


def test_an_operation_is_stopped(operator: Person) -> None:
    # Another server runs it, for as long as a person takes.
    now, id = time.time_ns() // 1000, ids.text(ids.uuid7())
    running = Operation(id, "delete", JobFilter("gone"), state="running", created=now, owner="other", lease=now + HOUR)
    store = open_store(operator.place.store_url)
    assert store.kv_cas(PREFIX + id, msgspec.json.encode(running), None)
    store.close()
    operator.open("/operations").locator(f"a[href$='/operations/{id}']").first.click()
    operator.press("Stop")
    operator.is_told("The operation ends after its present page of jobs")
    assert operator.place.api.get(f"/v1/operations/{id}").json()["state"] == "stopping"


def test_a_schedule_is_run_paused_and_resumed(operator: Person) -> None:
    page = operator.open("/schedules")
    operator.press("Run now")
    operator.is_told("The job is enqueued")
    page.wait_for_url("**/jobs/*")
    operator.place.becomes(page.url.rpartition("/")[2], "done")
    operator.open("/schedules")
    operator.press("Pause")
    operator.is_told("is paused")
    operator.press("Resume")
    operator.is_told("is resumed")


def test_a_schedule_is_made_edited_and_deleted(operator: Person) -> None:
    """Its line in words and its next five runs stand there as one types."""
    page = operator.open("/schedules")
    page.get_by_role("link", name="Add a schedule").click()
    page.get_by_label("Name", exact=True).fill("report:7")
    operator.press("Next")
    page.get_by_label("Task", exact=True).fill("app.nightly")
    preview = page.locator("#preview")
    page.get_by_label("Cron", exact=True).press_sequentially("0 7 * * 1-5")
    expect(preview).to_contain_text("at 07:00 on weekdays, UTC")
    page.get_by_label("Zone", exact=True).fill("Europe/Paris")
    expect(preview).to_contain_text("at 07:00 on weekdays, Paris time")
    expect(preview.get_by_role("listitem")).to_have_count(5)
    page.get_by_label("Zone", exact=True).fill("Europe/Pariss")
    expect(preview).to_contain_text("there is no such time zone")
    operator.press("Save")
    expect(page.locator("#wrong-zone")).to_contain_text("Europe/Paris")
    expect(page.get_by_label("Cron", exact=True)).to_have_value("0 7 * * 1-5")
    page.get_by_label("Zone", exact=True).fill("Europe/Paris")
    operator.press("Save")
    operator.is_told("Schedule report:7 is saved.")
    assert operator.place.api.get("/v1/schedules/report:7").json()["zone"] == "Europe/Paris"
    expect(page.locator("main")).to_contain_text("at 07:00 on weekdays, Paris time")
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Cron", exact=True).fill("")
    page.get_by_label("Every", exact=True).fill("90s")
    expect(preview).to_contain_text("every 90s")
    operator.press("Save")
    operator.is_told("Schedule report:7 is saved.")
    assert operator.place.api.get("/v1/schedules/report:7").json()["cron"] == "@every 90s"
    operator.confirm("Delete")
    operator.is_told("Schedule report:7 is deleted.")
    assert operator.place.api.get("/v1/schedules/report:7").status_code == 404


def test_a_limit_is_set_changed_and_reset(operator: Person) -> None:
    operator.place.add("send", "ann@example.org", queue="limited", delay=3600)
    page = operator.open("/queues/limited")
    operator.press("Set limit")
    page.get_by_label("At once", exact=True).fill("3")
    page.get_by_role("button", name="Set", exact=True).click()
    operator.is_told("Limit queue:limited is set")
    assert limits(operator)["queue:limited"] == (3, None)
    page = operator.open("/limits")
    row = page.get_by_role("row").filter(has_text="queue:limited")
    row.get_by_text("Change limit").click()
    row.get_by_label("Rate", exact=True).fill("5/m")
    row.get_by_role("button", name="Set", exact=True).click()
    operator.is_told("Limit queue:limited is set")
    at_once, rate = limits(operator)["queue:limited"]
    assert at_once == 3
    assert rate.startswith("5")
    row.get_by_text("Change limit").click()
    row.get_by_role("button", name="Reset to code and settings").click()
    operator.is_told("The limit is what code and settings say")
    assert "queue:limited" not in limits(operator)


def limits(person: Person) -> dict[str, Any]:
    found = person.place.api.get("/v1/limits").json()["limits"]
    return {each["limit"]: (each["at_once"], each["rate"]) for each in found}


def test_one_key_of_a_task_is_paused_and_resumed(operator: Person) -> None:
    way = "/v1/limits/each:app.send=whale"
    page = operator.open("/limits/each:app.send/keys")
    page.get_by_label("Key", exact=True).fill("whale")
    page.get_by_role("button", name="Show").click()
    row = page.get_by_role("row").filter(has_text="whale")
    row.get_by_text("limit").click()
    row.get_by_label("At once", exact=True).fill("20")
    row.get_by_role("button", name="Set", exact=True).click()
    operator.is_told("Limit each:app.send=whale is set")
    row.get_by_role("button", name="Pause").click()
    operator.is_told("each:app.send=whale is paused")
    found = operator.place.api.get(way).json()
    assert (found["at_once"], found["paused"]) == (20, True)
    row.get_by_role("button", name="Resume").click()
    operator.is_told("each:app.send=whale is resumed")
    assert not operator.place.api.get(way).json()["paused"]
    row.get_by_text("limit").click()
    row.get_by_role("button", name="Reset to code and settings").click()
    operator.is_told("The limit is what code and settings say")
    assert operator.place.api.get(way).json()["set_by"] == "code"


def test_a_bound_is_set_changed_and_reset(operator: Person) -> None:
    operator.place.add("send", "ann@example.org", queue="bounded", delay=3600)
    page = operator.open("/queues/bounded")
    operator.press("Set bound")
    page.get_by_label("May wait", exact=True).fill("1000")
    page.get_by_role("button", name="Set", exact=True).click()
    operator.is_told("The bound of queue bounded is set")
    assert bound(operator) == (1000, "refuse")
    page.get_by_text("Change bound").click()
    page.get_by_label("When full").select_option("drop the oldest")
    page.get_by_role("button", name="Set", exact=True).click()
    operator.is_told("The bound of queue bounded is set")
    assert bound(operator) == (1000, "drop_oldest")
    page.get_by_text("Change bound").click()
    page.get_by_role("button", name="Reset to settings").click()
    operator.is_told("The bound is what settings say")
    assert bound(operator)[0] is None


def bound(person: Person) -> tuple[int | None, str | None]:
    queue = person.place.api.get("/v1/queues/bounded").json()
    return queue["max_waiting"], queue["when_full"]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


def test_an_endpoint_is_paused_resumed_and_its_jobs_sent_again(operator: Person, endpoint: Endpoint) -> None:
    task = {"task": "shipped", "settings": {"url": endpoint.url, "queue": "hooks", "owner": "ann"}}
    assert operator.place.api.post("/v1/tasks", json=task).status_code == 201
    job = operator.place.api.post("/v1/jobs", json={"task": "shipped", "body": {"order": 7}}).json()["id"]
    operator.place.becomes(job, "done")
    operator.open("/endpoints")
    operator.page.get_by_role("link", name="shipped", exact=True).click()
    operator.sees("delivered")
    operator.press("Pause")
    operator.is_told("Deliveries of shipped are paused")
    expect(operator.page.get_by_role("heading", level=1)).to_contain_text("paused")
    operator.press("Resume")
    operator.is_told("Deliveries of shipped are resumed")
    operator.page.locator("summary", has_text="Send again").click()
    operator.page.get_by_label("Which jobs").select_option("all")
    operator.press("Count")
    operator.page.wait_for_url("**/operations/*")
    operator.press("Do it")
    operator.is_told("The operation has begun")
    until(lambda: len(endpoint.bodies) == 2)
    assert operator.place.api.delete("/v1/tasks/shipped").status_code == 200


def test_an_open_circuit_is_tried_and_closed(operator: Person, endpoint: Endpoint) -> None:
    place = operator.place
    task = {"task": "mended", "settings": {"url": endpoint.url, "queue": "hooks"}}
    assert place.api.post("/v1/tasks", json=task).status_code == 201
    order = {"task": "mended", "body": {"order": 7}}
    # A worker minds the circuit of a new task only once it has claimed a job of it.
    place.becomes(place.api.post("/v1/jobs", json=order).json()["id"], "done")
    for button, told in (("Try now", "tried with the next job"), ("Close the circuit", "The circuit is closed")):
        open_circuit(place, "mended")
        job = place.api.post("/v1/jobs", json=order).json()["id"]
        operator.open("/endpoints/mended")
        operator.sees("HTTP 503")
        assert place.state(job) == "ready"
        operator.press(button)
        operator.is_told(told)
        place.becomes(job, "done")
        until(lambda: place.api.get("/v1/endpoints/mended").json()["endpoint"]["circuit"] == "closed")
    assert place.api.delete("/v1/tasks/mended").status_code == 200


def open_circuit(place: Place, task: str) -> None:
    """The endpoint has failed often: its circuit stays open for an hour, and no job starts any more."""
    now, name = time.time_ns() // 1000, endpoint_cells.FLOW_CELL + task
    state = FlowState(20, at=now, failures=9, failed=now, until=now + HOUR, opened=9, why="HTTP 503", since=now)
    store = open_store(place.store_url)
    # Its workers write it at the same time.
    until(lambda: store.kv_cas(name, msgspec.json.encode(state), store.kv_get(name)))
    until(lambda: store.limits()[f"task:{task}"][0].most == 0)
    store.close()


def test_an_http_task_is_added_tried_disabled_and_removed(operator: Person, endpoint: Endpoint) -> None:
    page = operator.open("/tasks")
    page.get_by_role("link", name="Add an HTTP task").click()
    page.get_by_label("Name", exact=True).fill("order.timeout")
    page.get_by_label("URL", exact=True).fill(endpoint.url)
    page.get_by_label("Queue", exact=True).fill("hooks")
    page.get_by_label("Retry when", exact=True).fill("res.code != 200")
    operator.press("Add")
    operator.is_told("The task is added")
    page.wait_for_url("**/tasks/order.timeout")
    page.get_by_label("Body", exact=True).fill('{"code": 500}')
    operator.press("Try")
    expect(page.locator("main")).to_contain_text('"outcome": "again"')
    # Its first delivery.
    answer = operator.place.api.post("/v1/jobs", json={"task": "order.timeout", "args": {"order": 7}})
    job = answer.json()["id"]
    operator.place.becomes(job, "done")
    assert endpoint.bodies == [b'{"order":7}']
    operator.open(f"/jobs/{job}")
    operator.sees("Deliver")
    operator.open("/tasks/order.timeout")
    operator.press("Disable")
    operator.is_told("The task is changed")
    assert operator.place.api.get("/v1/tasks/order.timeout").json()["enabled"] is False
    operator.press("Enable")
    operator.is_told("The task is changed")
    operator.confirm("Remove")
    operator.is_told("Task order.timeout is removed")
    assert operator.place.api.get("/v1/tasks/order.timeout").status_code == 404
