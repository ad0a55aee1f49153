"""The pages of the admin: what they show, and who may do what."""

import html
from typing import Any

from django.contrib.auth.models import Permission, User
from django.utils import translation
from msgspec.structs import replace

from tarry.django import compat
from tarry.store.queries.job_search import JobSearch
from tarry.store.queries.newest_jobs import newest_jobs
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tests.django.project import tasks
from tests.django.suite.base import StoreCase

LIST = "/admin/tarry/queuedjob/"


class AdminPages(StoreCase):
    def as_user(self, *permissions: str) -> None:
        user = User.objects.create_user("ann", password="x", is_staff=True)
        for name in permissions:
            user.user_permissions.add(Permission.objects.get(codename=name, content_type__app_label="tarry"))
        self.client.force_login(user)

    def page(self, url: str = LIST, **query: Any) -> str:
        answer = self.client.get(url, query)
        assert answer.status_code == 200, answer.status_code
        return str(answer.content.decode())

    def test_it_is_in_the_index(self) -> None:
        self.as_user("view_queuedjob")
        assert LIST in self.page("/admin/")

    def test_the_list_and_its_filters(self) -> None:
        self.as_user("view_queuedjob")
        done, failed, waiting = self.done(tasks.echo), self.done(tasks.fail, "broken"), tasks.mail.enqueue("ann")
        every = self.page()
        assert all(result.id in every for result in (done, failed, waiting))
        assert "Trouble: broken" in every
        for query, only in (
            ({"state": "done"}, done), ({"state": "dead"}, failed), ({"queue": "mail"}, waiting),
            ({"task": "tests.django.project.tasks.fail"}, failed),
        ):  # fmt: skip
            shown = self.page(**query)
            assert [result for result in (done, failed, waiting) if result.id in shown] == [only], query

    def test_pages_of_fifty(self) -> None:
        self.as_user("view_queuedjob")
        results = [tasks.echo.enqueue(number).id for number in range(51)]
        first = self.client.get(LIST)
        second = self.page(f"{LIST}?{first.context['found'].next}")
        assert [row.id for row in first.context["found"].rows] == results[:0:-1], "the newest first"
        assert sum(id in second for id in results) == 1
        assert results[0] in second
        assert "Next page" not in second

    def test_the_newest_of_many_that_came_at_one_moment(self) -> None:
        """As `enqueue_many` makes them: with times it alone cannot be told which are the newest."""
        handles = self.app.tasks["tests.django.project.tasks.echo"].enqueue_many([(number,) for number in range(1200)])
        query: Query | None = Query(limit=50)
        seen: list[str] = []
        before = b""
        while query is not None:
            found = newest_jobs(self.app.client.store, JobSearch(query), before)
            seen += [ids.text(job.id) for job in found.jobs]
            before, query = found.next or b"", query if found.next else None
        assert seen == sorted((handle.id for handle in handles), reverse=True)

    def test_a_page_that_takes_too_long_ends_early_and_goes_on(self) -> None:
        tasks.echo.enqueue()
        job = self.app.get(tasks.mail.enqueue("ann").id).record()
        store, old = self.app.client.store, ids.parse("01890000-0000-7000-8000-000000000001")
        store.insert([replace(job, id=old)])
        times = iter((0.0, *[9.0] * 99))
        first = newest_jobs(store, JobSearch(Query(task="none", limit=9)), clock=lambda: next(times))
        assert (first.jobs, first.next is not None) == ([], True)
        rest = JobSearch(Query(queue="mail", limit=9))
        second = newest_jobs(store, rest, first.next or b"", clock=lambda: 0.0)
        assert ([found.id for found in second.jobs], second.next) == ([old], None)

    def test_a_search(self) -> None:
        self.as_user("view_queuedjob")
        result, other = tasks.mail.enqueue("ann"), tasks.echo.enqueue()
        answer = self.client.get(LIST, {"q": f" {result.id} "}, follow=True)
        assert answer.redirect_chain[0][0].endswith(f"{result.id}/change/")
        assert '"ann"' in html.unescape(answer.content.decode())
        answer = self.client.get(LIST, {"q": "tests.django.project.tasks.echo", "state": "ready"}, follow=True)
        shown = answer.content.decode()
        assert (other.id in shown, result.id in shown) == (True, False)

    def test_delete_asks_first(self) -> None:
        self.as_user("view_queuedjob", "delete_queuedjob")
        done, waiting = self.done(tasks.echo), tasks.mail.enqueue("ann")
        for answer in (
            self.client.post(LIST, {"act": "delete", "job": [done.id, waiting.id]}),
            self.client.post(f"{LIST}{done.id}/change/", {"act": "delete"}),
            self.client.get(f"{LIST}{done.id}/delete/"),
        ):
            assert "Yes, delete" in answer.content.decode()
            assert done.id in answer.content.decode()
        done.refresh()
        answer = self.client.post(LIST, {"act": "delete", "sure": "yes", "job": [done.id, waiting.id]}, follow=True)
        assert "Deleted: 2 of 2" in answer.content.decode()
        for result in (done, waiting):
            with self.assertRaises(compat.TaskResultDoesNotExist):
                result.refresh()

    def test_who_may_not_delete(self) -> None:
        self.as_user("view_queuedjob", "change_queuedjob")
        result = self.done(tasks.echo)
        for url in (LIST, f"{LIST}{result.id}/change/"):
            assert self.client.post(url, {"act": "delete", "sure": "yes", "job": [result.id]}).status_code == 403
            assert 'value="delete"' not in self.page(url)
        assert self.client.get(f"{LIST}{result.id}/delete/").status_code == 403
        result.refresh()

    def test_in_another_language(self) -> None:
        self.as_user("view_queuedjob")
        tasks.echo.enqueue()
        with translation.override("de"):
            assert "Suchen" in self.page()

    def test_the_page_of_a_job(self) -> None:
        self.as_user("view_queuedjob")
        result = self.done(tasks.fail, "<b>broken</b>")
        shown = self.page(f"{LIST}{result.id}/change/")
        assert "&lt;b&gt;broken&lt;/b&gt;" in shown
        assert "<b>broken" not in shown
        assert "in fail" in shown
        assert result.worker_ids[0] in shown

    def test_what_is_called_a_password_is_hidden(self) -> None:
        """In arguments, however they were given, and in results."""
        self.as_user("view_queuedjob")
        done = self.done(tasks.echo, {"api_key": "sesame-1"}, password="sesame-2")
        named = tasks.login.enqueue("ann", "sesame-3")
        for result in (done, named):
            page = self.page(f"{LIST}{result.id}/change/")
            assert "sesame" not in page, [line for line in page.splitlines() if "sesame" in line]
            assert "\u2022\u2022" in html.unescape(page)
        assert "ann" in self.page(f"{LIST}{named.id}/change/")

    def test_retry_and_cancel(self) -> None:
        self.as_user("view_queuedjob", "change_queuedjob")
        failed, waiting = self.done(tasks.fail, "x"), tasks.mail.enqueue("ann")
        answer = self.client.post(f"{LIST}{failed.id}/change/", {"act": "retry"}, follow=True)
        assert "Retried: 1 of 1" in answer.content.decode()
        failed.refresh()
        assert failed.status == "READY"
        answer = self.client.post(LIST, {"act": "cancel", "job": [failed.id, waiting.id]}, follow=True)
        assert "Cancelled: 2 of 2" in answer.content.decode()
        waiting.refresh()
        assert waiting.status == "FAILED"
        assert "ann" in self.app.get(waiting.id).record().attempts.decode()

    def test_who_may_only_look(self) -> None:
        self.as_user("view_queuedjob")
        result = tasks.echo.enqueue()
        for url in (LIST, f"{LIST}{result.id}/change/"):
            assert self.client.post(url, {"act": "cancel", "job": [result.id]}).status_code == 403
            assert '<button type="submit" name="act"' not in self.page(url)
        result.refresh()
        assert result.status == "READY"

    def test_who_may_not_even_look(self) -> None:
        self.as_user()
        result = tasks.echo.enqueue()
        for url in (LIST, f"{LIST}{result.id}/change/"):
            assert self.client.get(url).status_code == 403
            assert self.client.post(url, {"act": "cancel", "job": [result.id]}).status_code == 403
        self.client.logout()
        assert self.client.get(LIST).status_code == 302

    def test_a_form_of_another_site_does_nothing(self) -> None:
        self.as_user("view_queuedjob", "change_queuedjob")
        client = type(self.client)(enforce_csrf_checks=True)
        client.force_login(User.objects.get())
        result = tasks.echo.enqueue()
        assert client.post(LIST, {"act": "cancel", "job": [result.id]}).status_code == 403

    def test_what_is_wrong_is_not_found(self) -> None:
        self.as_user("view_queuedjob", "change_queuedjob")
        for url in (
            f"{LIST}nonsense/change/", f"{LIST}01999999-0000-7000-8000-000000000000/change/", f"{LIST}?state=odd",
            f"{LIST}?backend=none", f"{LIST}?before=nonsense", f"{LIST}01999999-0000-7000-8000-000000000000/history/",
        ):  # fmt: skip
            assert self.client.get(url).status_code == 404, url
        assert self.client.post(LIST, {"act": "drop", "job": ["x"]}).status_code == 404
        assert self.client.get(f"{LIST}add/").status_code == 403
