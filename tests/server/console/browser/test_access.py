"""Who may come in, in which language; what a person has to find at once."""

from playwright.sync_api import expect

from tests.server.console.browser.place import MakePerson, Person


def test_signing_in_and_out(make_person: MakePerson) -> None:
    person = make_person(token="")
    job = person.place.add("send", "ann@example.org", queue="signed", delay=3600)
    page = person.page
    page.goto(f"{person.place.url}/jobs/{job}")
    page.get_by_text("Sign in with a token").first.click()
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not known here")
    assert job not in page.content().replace(f"next=/jobs/{job}", "")
    page.get_by_label("Token").fill("ann-token")
    page.get_by_role("button", name="Sign in with a token").click()
    page.wait_for_url(f"**/jobs/{job}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("app.send")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    page.goto(f"{person.place.url}/queues")
    page.wait_for_url("**/sign-in?next=%2Fqueues")
    assert person.passing == 1


def test_signing_in_with_a_password(make_person: MakePerson) -> None:
    person = make_person(token="")
    page = person.page
    page.goto(f"{person.place.url}/queues")
    page.get_by_label("Name").fill("eve")
    page.get_by_label("Password").fill("wrong word")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the name or the password is wrong")
    expect(page.get_by_label("Name")).to_have_value("eve")
    page.get_by_label("Password").fill("eve-password")
    page.keyboard.press("Enter")
    page.wait_for_url("**/queues")
    expect(page.get_by_role("contentinfo")).to_contain_text("eve")
    assert page.locator("main form[method=post]").count() == 0
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    assert person.passing == 1


def test_whoever_may_only_look_has_nothing_to_press(make_person: MakePerson) -> None:
    person = make_person("rob-token")
    job = person.place.add("send", "ann@example.org", queue="looked-at", delay=3600)
    for path in ("/", "/queues", "/queues/looked-at", f"/jobs/{job}", "/jobs?queue=looked-at", "/tasks", "/schedules"):
        page = person.open(path)
        assert page.locator("main form[method=post]").count() == 0, path


def test_the_language_is_chosen_and_kept(make_person: MakePerson) -> None:
    person = make_person()
    page = person.open("/queues/mail")
    page.get_by_role("button", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    assert page.url == f"{person.place.url}/queues/mail"
    for path in ("/", "/queues", "/jobs", "/tasks", "/schedules", "/limits", "/hosts", "/operations"):
        person.open(path)
        expect(page.get_by_role("navigation").first).to_contain_text("队列")
    person.open("/queues/mail")
    person.press("暂停")
    person.is_told("队列 mail 已暂停")
    person.press("恢复")
    person.is_told("队列 mail 已恢复")
    page.get_by_role("button", name="English").click()
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_a_browser_s_own_language_counts_first(make_person: MakePerson) -> None:
    page = make_person(token="", locale="zh-CN").page
    person = make_person(token="", locale="de-DE")
    page.goto(f"{person.place.url}/sign-in")
    expect(page.get_by_role("button", name="登录", exact=True)).to_be_visible()
    person.page.goto(f"{person.place.url}/sign-in")
    expect(person.page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()


def test_a_job_is_found_by_its_id_and_by_its_key(ann: Person) -> None:
    job = ann.place.add("send", "ann@example.org", queue="found", key="order 17", delay=3600)
    page = ann.open("/")
    for text in (job, job.upper().replace("-", "")):
        page.get_by_role("searchbox").first.fill(text)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/jobs/{job}")
    page.get_by_role("searchbox").first.fill("order 17")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?key=order+17")
    page.get_by_role("link", name=job[-8:]).click()
    page.wait_for_url(f"**/jobs/{job}")


def test_jobs_are_found_by_one_line(ann: Person) -> None:
    job = ann.place.add("send", "line@example.org", queue="lines", delay=3600)
    page = ann.open("/")
    page.get_by_role("searchbox").first.fill("queue:lines task:app.s* arg:line@")
    page.keyboard.press("Enter")
    page.get_by_role("link", name=job[-8:]).wait_for()
    box = page.get_by_role("searchbox", name="Which jobs")
    expect(box).to_have_value("task:app.s* queue:lines arg:line@")
    box.fill("queue:lines sate:dead")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("did you mean state?")
    expect(box).to_have_value("queue:lines sate:dead")
    box.fill("queue:lines state:dead")
    page.keyboard.press("Enter")
    ann.sees("No job matches.")


def test_a_queue_that_is_stuck_by_a_hung_job_is_freed(ann: Person) -> None:
    assert ann.place.api.put("/v1/limits/queue:slow", json={"at_once": 1}).status_code == 200
    hung = ann.place.add("wait", "never")
    ann.place.becomes(hung, "running")
    stuck = ann.place.add("wait", "open gate")
    ann.place.write("open gate", "")
    page = ann.open("/queues")
    page.get_by_role("link", name="slow", exact=True).click()
    page.get_by_role("link", name=hung[-8:]).first.click()
    page.wait_for_url(f"**/jobs/{hung}")
    ann.confirm("Cancel")
    ann.is_told("The job is cancelled")
    ann.place.becomes(stuck, "done")
    assert ann.place.api.delete("/v1/limits/queue:slow").status_code < 300
