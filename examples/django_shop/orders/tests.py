"""As Django's own runner runs them: `python -m examples.django_shop test examples.django_shop`."""

from typing import Any

from django.core import mail
from django.test import TestCase

from examples.django_shop.orders.models import Item, Order
from examples.django_shop.orders.tasks import release
from tarry.django import tarry_app


class BuyTest(TestCase):
    """Nothing of a TestCase is committed, so Django runs what waits for a commit when it is asked to."""

    def setUp(self) -> None:
        self.item = Item.objects.create(name="tea", stock=1)

    def buy(self, email: str = "ann@example.org") -> Any:
        with self.captureOnCommitCallbacks(execute=True):
            return self.client.post("/buy", {"item": "tea", "email": email})

    def stock(self) -> int:
        self.item.refresh_from_db()
        return int(self.item.stock)

    def test_an_order_is_confirmed_by_mail(self) -> None:
        number = self.buy().json()["order"]
        tarry_app().drain(timeout=10)  # what is due: not the release
        assert [message.to for message in mail.outbox] == [["ann@example.org"]]
        assert self.client.get(f"/orders/{number}").json() == {"order": number, "state": "new", "confirmed": True}
        assert self.stock() == 0

    def test_an_order_that_is_refused_leaves_no_job(self) -> None:
        self.buy()
        before = tarry_app().jobs().count()
        assert self.buy("bob@example.org").status_code == 409
        assert (Order.objects.count(), tarry_app().jobs().count()) == (1, before)

    def test_what_nobody_pays_is_released_and_what_is_paid_is_not(self) -> None:
        number = self.buy().json()["order"]
        assert release.func(number)
        assert self.stock() == 1
        assert not release.func(number), "a second run does nothing"
        assert self.client.post(f"/orders/{number}/pay").status_code == 409
        paid = self.buy().json()["order"]
        assert self.client.post(f"/orders/{paid}/pay").json()["state"] == "paid"
        assert not release.func(paid)
