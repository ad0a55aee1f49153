"""A host and its workers, and a job that hangs: found, looked into, ended. As a person does it, on SQLite and Redis."""

import socket
from urllib.parse import urlsplit

from tests.cli.project import until
from tests.server.console.browser.place import MakePerson, Person, Place


def runs(place: Place, job: str) -> None:
    """Waits until the job runs, and its master is known to have its worker."""
    place.becomes(job, "running")
    owner = place.api.get(f"/v1/jobs/{job}").json()["owner"]
    (host,) = place.api.get("/v1/hosts").json()["hosts"]

    def is_known() -> bool:
        answer = place.api.get(f"/v1/hosts/{host['instance']}").json()
        return any(one["worker"] == owner for one in answer["processes"])

    until(is_known)


def is_answered(person: Person) -> bool:
    """Asks where the job of the open page is; a host that is slow may answer only after the next page."""
    person.press("Where is it?")
    person.is_told("The host ")
    return person.page.locator(".said", has_text="The host has answered").count() > 0


def test_a_queue_that_is_stuck_is_traced_to_a_hung_job_which_is_killed(operator: Person) -> None:
    place = operator.place
    assert place.api.put("/v1/limits/queue:stuck", json={"at_once": 1}).status_code == 200
    hung = place.add("hang")
    runs(place, hung)
    behind = place.add("wait", "open", queue="stuck")
    place.write("open", "")
    page = operator.open("/queues/stuck")
    # It says which job holds the limit; the link of the holder leads to the job.
    holder = page.locator(f'main a[href$="/jobs/{hung}"]').first
    holder.click()
    page.wait_for_url(f"**/jobs/{hung}")
    until(lambda: is_answered(operator))
    operator.sees("in hang", "pre")
    assert place.state(behind) == "ready"
    operator.press("Kill this job")
    page.get_by_role("button", name="Kill: it failed", exact=True).click()
    operator.is_told("This attempt is being ended")
    place.becomes(hung, "dead")
    place.becomes(behind, "done")
    operator.open(f"/jobs/{hung}")
    operator.sees("an operator ended it")
    operator.sees("in hang", "pre")


def test_a_job_that_is_killed_may_also_be_cancelled(operator: Person) -> None:
    hung = operator.place.add("hang", queue="slow")
    runs(operator.place, hung)
    page = operator.open(f"/jobs/{hung}")
    operator.press("Kill this job")
    page.get_by_role("button", name="Kill: it is cancelled", exact=True).click()
    operator.is_told("This attempt is being ended")
    operator.place.becomes(hung, "cancelled")


def test_a_host_is_scaled_and_reloaded_and_a_worker_shows_where_it_is(operator: Person) -> None:
    page = operator.open("/hosts")
    page.locator("main a[href*='/hosts/']").first.click()
    operator.sees("Generation")
    operator.press("Scale")
    page.get_by_label("Workers", exact=True).fill("2")
    page.locator("details[open]").get_by_role("button", name="Scale", exact=True).click()
    operator.is_told("The host is asked")
    operator.sees("all: 2 wanted", "td")
    until(lambda: len(operator.place.pids()) == 2)
    operator.sees("all.2", ".board")
    page.locator(".board > li", has_text="all.1").get_by_role("button", name="Stacks").click()
    operator.is_told("The host is asked")
    operator.sees("worker/run/threads.py", "pre")
    operator.press("Reload")
    operator.is_told("The host is asked")
    operator.sees("reloaded: generation", "td")


def test_the_answer_is_on_the_next_page_without_javascript_too(make_person: MakePerson) -> None:
    ann = make_person(java_script_enabled=False)
    job = ann.place.add("wait", "later")
    runs(ann.place, job)
    ann.open(f"/jobs/{job}")
    until(lambda: is_answered(ann))
    assert "in wait" in ann.page.locator("main").inner_text()
    ann.place.write("later", "")
    ann.place.becomes(job, "done")


def test_a_host_is_stopped_after_a_second_press(operator: Person) -> None:
    place = operator.place
    page = operator.open("/hosts")
    page.locator("main a[href*='/hosts/']").first.click()
    operator.press("Stop")
    operator.sees("It can be started again on its own host only")
    page.locator("details[open]").get_by_role("button", name="Stop", exact=True).click()
    operator.is_told("The host is asked")
    page.goto("about:blank")
    until(lambda: not place.processes())
    place.serve()
    operator.open("/hosts")


def test_a_connection_is_ended_after_a_second_press(operator: Person) -> None:
    place = operator.place
    address = urlsplit(place.url)
    with socket.create_connection((address.hostname, address.port), 20) as theirs:
        asked = b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ann-token\r\n\r\n"
        theirs.sendall(asked)
        assert theirs.recv(12) == b"HTTP/1.1 200"
        while not theirs.recv(65536).endswith(b"}"):
            pass
        listed = place.api.get("/v1/connections?caller=ann&limit=1000").json()["connections"]
        (id,) = [one["id"] for one in listed if (one["state"], one["received"]) == ("idle", len(asked))]
        page = operator.open("/connections?door=http")
        operator.sees("By address and caller")
        row = page.locator("tr", has_text=id)
        row.locator("summary").click()
        row.get_by_role("button", name="End", exact=True).click()
        operator.is_told(f"Connection {id} is ended")
        assert theirs.recv(1) == b""
