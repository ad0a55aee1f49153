"""The pages of the admin about schedules that the store keeps."""

import html
from typing import Any

import msgspec
from django.contrib.auth.models import Permission, User

from tarry.model.schedules.definition import ScheduleDefinition
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.queries.schedule_room import ScheduleRoom
from tarry.store.queries.stored_schedules import PREFIX
from tests.django.suite.base import StoreCase

LIST = "/admin/tarry/queuedschedule/"
ECHO = "tests.django.project.tasks.echo"
NEW = {
    "name": "report:7",
    "task": ECHO,
    "args": "[7]",
    "cron": "0 7 * * 1-5",
    "zone": "Europe/Paris",
    "catch_up": "last",
}


class SchedulePages(StoreCase):
    def setUp(self) -> None:
        super().setUp()
        for one in [*self.app.schedules.list()]:
            self.app.schedules.delete(one.name)

    def as_user(self, *acts: str) -> None:
        user = User.objects.create_user("ann", password="x", is_staff=True)
        for act in acts:
            name = f"{act}_queuedschedule"
            user.user_permissions.add(Permission.objects.get(codename=name, content_type__app_label="tarry"))
        self.client.force_login(user)

    def page(self, url: str = LIST) -> str:
        answer = self.client.get(url)
        assert answer.status_code == 200, answer.status_code
        return html.unescape(answer.content.decode())

    def post(self, url: str, form: dict[str, Any]) -> Any:
        return self.client.post(url, form)

    def test_one_is_made_edited_paused_and_deleted(self) -> None:
        self.as_user("add", "view", "change", "delete")
        assert self.post(f"{LIST}add/", NEW).status_code == 302
        facts = self.app.schedules.get("report:7")
        assert (facts.task, facts.cron, facts.zone, facts.by) == (ECHO, "0 7 * * 1-5", "Europe/Paris", "ann")
        assert "at 07:00 on weekdays, Paris time" in self.page()
        place = f"{LIST}report_3A7/change/"
        assert 'value="0 7 * * 1-5"' in self.page(place)
        edited = {**NEW, "cron": "", "every": "90s", "args": '{"customer": 8}'}
        assert self.post(place, edited).status_code == 302
        assert self.app.schedules.get("report:7").cron == "@every 90s"
        assert '{"customer": 8}' in self.page(place)
        self.post(place, {"act": "pause"})
        assert self.app.schedules.get("report:7").is_paused
        self.post(place, {"act": "resume"})
        assert not self.app.schedules.get("report:7").is_paused
        gone = place.replace("change", "delete")
        assert "It ticks no more" in self.page(gone)
        self.post(gone, {})
        assert self.app.schedules.get("report:7") is None
        assert self.client.get(place).status_code == 404

    def test_what_is_wrong_is_said_and_nothing_is_saved(self) -> None:
        self.as_user("add", "view")
        for wrong, said in (
            ({"task": "nobody"}, "There is no such task."), ({"args": "[7"}, "Expecting"),
            ({"args": "7"}, "a list, or"),
            ({"zone": "Mars/Base"}, "no such time zone"), ({"cron": "7 * *"}, "cron="), ({"every": "5s"}, "says when"),
        ):  # fmt: skip
            answer = self.post(f"{LIST}add/", {**NEW, **wrong})
            assert answer.status_code == 200, wrong
            assert said in html.unescape(answer.content.decode()), wrong
        assert [*self.app.schedules.list()] == []

    def test_the_store_keeps_no_more_of_them(self) -> None:
        self.as_user("add", "view")
        client = self.app.client
        self.addCleanup(setattr, client, "schedule_room", client.schedule_room)
        client.schedule_room = ScheduleRoom(client.store, 1)
        self.post(f"{LIST}add/", NEW)
        answer = self.post(f"{LIST}add/", {**NEW, "name": "report:8"})
        assert answer.status_code == 200
        assert "the store keeps 1 schedules, and no more: delete some" in answer.content.decode()
        assert [one.name for one in self.app.schedules.list()] == ["report:7"]

    def test_arguments_that_cannot_be_read_are_not_replaced_by_none(self) -> None:
        self.as_user("view", "change")
        body, shown = b' {"tarry-sealed":"01234567.AAAA"}', "sealed with key 01234567, which this process does not have"
        stored = msgspec.json.encode(StoredSchedule(ScheduleDefinition(ECHO, body, "@every 1h")))
        assert self.app.client.store.kv_cas(f"{PREFIX}a", stored, None)
        place = f"{LIST}a/change/"
        assert shown in self.page(place)
        assert self.post(place, {**NEW, "name": "a", "args": shown}).status_code == 200
        assert self.app.client.store.kv_get(f"{PREFIX}a") == stored

    def test_who_may_do_what(self) -> None:
        self.as_user("view")
        self.app.schedules.put("a", self.app.find(ECHO).call(1), every="1h")
        assert "every 1h" in self.page()
        place = f"{LIST}a/change/"
        assert "Save" not in self.page(place)
        assert self.post(f"{LIST}add/", NEW).status_code == 403
        assert self.post(place, {**NEW, "name": "a"}).status_code == 403
        for act in ("pause", "delete"):
            assert self.post(place, {"act": act}).status_code == 403
        assert self.client.get(f"{LIST}a/delete/").status_code == 403
        assert self.client.get(f"{LIST}?backend=none").status_code == 404
        assert not self.app.schedules.get("a").is_paused
