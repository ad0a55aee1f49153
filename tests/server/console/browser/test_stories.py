"""What a person who has never seen tarry has to find out and mend from the console alone, on SQLite and on Redis. The
first delivery of an HTTP task is in `test_acts`."""

import time
from collections.abc import Iterator

import msgspec
import pytest
from playwright.sync_api import expect

from tarry.model.duration import HOUR
from tarry.model.job import Job
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tests.server.console.browser.mail import MailServer
from tests.server.console.browser.place import Person, Place

FULL = "550 the mailbox of this person is full"


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


def put_mail(place: Place, hours: int, address: str, port: int) -> str:
    """A mail that was put so many hours ago."""
    at = time.time_ns() // 1000 - hours * HOUR
    id = (at // 1000 << 80 | 0x7 << 76 | 0b10 << 62 | at % 2**62).to_bytes(16, "big")
    job = Job(id, "app.deliver", msgspec.json.encode([address, port]), "mail", due=at, state_since=at)
    store = open_store(place.store_url)
    assert store.insert([job]) == [id]
    store.close()
    return ids.text(id)


def test_why_yesterday_s_mail_to_somebody_was_not_sent(operator: Person, mail_server: MailServer) -> None:
    place = operator.place
    mail_server.refused = FULL
    lost = put_mail(place, 24, "bob@example.org", mail_server.port)
    others = [
        put_mail(place, 23, "cy@example.org", mail_server.port),
        put_mail(place, 1, "bob@example.org", mail_server.port),
    ]
    for job in (lost, *others):
        place.becomes(job, "dead")
    mail_server.refused = ""
    page = operator.open("/jobs")
    page.get_by_label("Text in arguments").fill("Bob@example.org")
    page.get_by_label("Created since").fill("30h")
    page.get_by_label("Created until").fill("12h")
    page.get_by_role("button", name="Show", exact=True).click()
    # That one, and none of the others.
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    rows.get_by_role("link", name=lost[-8:]).click()
    page.wait_for_url(f"**/jobs/{lost}")
    # Each attempt, and why it failed.
    operator.sees("2 / 2")
    operator.sees(FULL.partition(" ")[2])
    operator.press("Retry")
    operator.is_told("The job is ready")
    place.becomes(lost, "done")
    operator.sees("delivered to bob@example.org")
    assert mail_server.recipients == ["bob@example.org"]
    assert [place.state(job) for job in others] == ["dead", "dead"]


def test_what_holds_a_queue_up_is_found_from_a_job_that_waits(operator: Person) -> None:
    place = operator.place
    assert place.api.put("/v1/limits/queue:slow", json={"at_once": 1}).status_code == 200
    hung = place.add("wait", "never there")
    place.becomes(hung, "running")
    stuck = place.add("wait", "a way through")
    place.write("a way through", "")
    page = operator.open("/queues")
    page.get_by_role("link", name="slow", exact=True).click()
    page.get_by_role("link", name=stuck[-8:]).click()
    why = page.get_by_role("region", name="Why it does not run")
    expect(why).to_contain_text("queue:slow")
    why.get_by_role("link", name=hung[-8:]).click()
    page.wait_for_url(f"**/jobs/{hung}")
    operator.sees("waiting at the gate")
    operator.confirm("Cancel")
    operator.is_told("The job is cancelled")
    place.becomes(stuck, "done")
    assert place.api.delete("/v1/limits/queue:slow").status_code < 300
