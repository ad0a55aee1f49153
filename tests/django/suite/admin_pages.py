"""The pages of the admin: what they show, and who may do what."""

from typing import Any

from django.contrib.auth.models import Permission, User

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
        shown = first.content.decode()
        assert sum(id in shown for id in results) == 50
        assert sum(id in second for id in results) == 1
        assert "Next page" not in second

    def test_the_page_of_a_job(self) -> None:
        self.as_user("view_queuedjob")
        result = self.done(tasks.fail, "<b>broken</b>")
        shown = self.page(f"{LIST}{result.id}/change/")
        assert "&lt;b&gt;broken&lt;/b&gt;" in shown
        assert "<b>broken" not in shown
        assert "in fail" in shown
        assert result.worker_ids[0] in shown

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
            f"{LIST}?backend=none", f"{LIST}?after=nonsense",
        ):  # fmt: skip
            assert self.client.get(url).status_code == 404, url
        assert self.client.post(LIST, {"act": "drop", "job": ["x"]}).status_code == 404
        assert self.client.get(f"{LIST}add/").status_code == 403
